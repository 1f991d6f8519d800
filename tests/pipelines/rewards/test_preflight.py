"""The check of a reward before any model is loaded."""

from __future__ import annotations

import json
import time

import pytest

from pipelines.rewards.preflight import check_reward, preflight

ROWS = [{"prompt": f"What is {a} + {b}?", "answer": str(a + b)} for a in range(10, 20) for b in (31, 47, 58)]
CHATS = [{**row, "prompt": [{"role": "user", "content": row["prompt"]}]} for row in ROWS]
CODE = [
    {
        "prompt": "Write add(a, b).",
        "tests": [{"code": f"assert add({k}, 2) == {k + 2}"}],
        "entry_point": "add",
        "solution": "def add(a, b):\n    return a + b",
    }
    for k in range(8)
]
SCHEMAS = [
    {"prompt": "As JSON.", "schema": {"type": "object", "required": ["a"]}, "completion": '{"a": 1}'}
] * 4
CALLS = [{"prompt": "Call f.", "tool_calls": [{"name": "f", "arguments": {"x": k}}]} for k in range(4)]

FILE = """
import random
def good(completions, answer, **kwargs):
    texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
    return [float(t.rstrip(".").endswith(" " + a) or t == a) for t, a in zip(texts, answer)]
def inside(completions, answer, **kwargs):
    return [float(a in str(c)) for c, a in zip(completions, answer)]
def constant(completions, **kwargs):
    return [1.0] * len(completions)
def nothing(completions, answer, **kwargs):
    return [0.0] * len(completions)
def none(completions, answer, **kwargs):
    return [None] * len(completions)
def needs(completions, gold, **kwargs):
    return [1.0] * len(completions)
def raises(completions, answer, **kwargs):
    return [
        float(int(c.split()[-1]) == int(a)) for c, a in zip(completions, answer)]
def short(completions, answer, **kwargs):
    return [1.0]
def nan(completions, answer, **kwargs):
    return [float("nan")] * len(completions)
def words(completions, answer, **kwargs):
    return ["good"] * len(completions)
def drawn(completions, answer, **kwargs):
    return [random.random() for _ in completions]
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "r.py").write_text(FILE)
    return tmp_path


@pytest.mark.parametrize(
    ("reward", "rows"),
    [("math", ROWS), ("math", CHATS), ("exact_answer", ROWS), ("exact_answer", CHATS), ("code", CODE),
     ("json_schema", SCHEMAS), ("tool_call", CALLS), ("r.py:good", ROWS), ("r.py:good", CHATS)],
)  # fmt: skip
def test_sound_rewards_pass_in_two_seconds(reward, rows, folder):
    """Built-ins pay every gold and no probe, with string and with chat prompts."""
    if reward == "code":
        preflight(reward, rows, folder)  # the sandbox starts once per process
    start = time.monotonic()
    found = preflight(reward, rows, folder)
    assert time.monotonic() - start <= 2.0
    assert [f for f in found.findings if f.severity != "note"] == []
    assert found.ok
    assert found.golds_paid == found.golds_tried > 0
    assert found.probes_tried >= 6


@pytest.mark.parametrize(
    ("reward", "code", "says"),
    [
        ("r.py:inside", "probe-paid", "the gold inside a wrong answer"),
        ("r.py:constant", "probe-paid", "empty completion"),
        ("r.py:nothing", "gold-not-paid", "every row"),
        ("r.py:none", "all-none", "None for every gold"),
        ("r.py:needs", "missing-column", "needs the column gold; the rows have prompt, answer"),
        ("r.py:raises", "exception", "ValueError"),
        ("r.py:short", "length", "returns 1 values for 4"),
        ("r.py:nan", "type", "nan"),
        ("r.py:words", "type", "'good' (str)"),
    ],
)
def test_unsound_rewards_do_not(reward, code, says, folder):
    found = preflight(reward, ROWS, folder)
    assert not found.ok
    assert found.worst is not None
    assert found.worst.severity == "error"
    assert code in {f.code for f in found.findings}
    assert says in " ".join(f.says for f in found.findings)


def test_an_exception_names_type_place_and_sample(folder):
    (finding,) = preflight("r.py:raises", ROWS, folder).findings
    assert finding.place == f"{folder / 'r.py'}:18"
    assert finding.rows == [1]
    assert "row 1, gold '41', completion" in (finding.sample or "")
    assert finding.remedy is not None


def test_randomness_shows_on_the_whole_dataset(folder):
    assert "random" in {f.code for f in check_reward("r.py:drawn", ROWS, folder).findings}


def test_bad_golds_are_listed(folder):
    rows = [*ROWS, {"prompt": "Prove it.", "answer": "see the solution"}]
    found = check_reward("math", rows, folder)
    assert found.none == 1
    assert [f.rows for f in found.findings if f.code == "gold-none"] == [[31]]
    assert found.seconds_per_1000 is not None


def test_a_reward_that_hangs_is_stopped(folder, monkeypatch):
    monkeypatch.setattr("pipelines.rewards.preflight.CALL_LIMIT_S", 0.3)
    (folder / "h.py").write_text("def hang(completions, answer, **k):\n    while True:\n        pass\n")
    found = preflight("h.py:hang", ROWS, folder)
    assert "no answer within" in found.findings[0].says


def test_no_rows(folder):
    assert not preflight("math", [], folder).ok


def test_findings_are_a_record(folder):
    assert json.loads(preflight("math", ROWS, folder).model_dump_json())["reward"] == "math"

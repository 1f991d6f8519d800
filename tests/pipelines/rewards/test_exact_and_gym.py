"""`exact_answer`, and reasoning-gym as a source of tasks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.errors import BadInput
from pipelines.rewards import exact_answer, load_reward
from pipelines.rewards.reasoning_gym_scoring import harmless
from pipelines.rewards.reasoning_gym_source import make_rows


@pytest.mark.parametrize(
    ("text", "gold", "reward"),
    [
        ("so it is 42", "42", 1.0), ("42 apples, not 43", "42", 0.0), ("1,234.50", "1234.5", 1.0),
        ("-3", "-3", 1.0),
        ("10-3", "3", 1.0), ("1e3", 1000, 1.0), ("3/4", "3/4", 1.0), ("3/4", "0.75", 1.0), (".5", "0.5", 1.0),
        ("no number", "5", 0.0), ("", "5", 0.0), ("x5", "5", 0.0), ("5", "none", None), ("5", None, None),
        ("5", True, None), ("2.50", 2.5, 1.0), ("#### 18", "9*2\n#### 18", 1.0),
    ],
)  # fmt: skip
def test_exact_answer(text, gold, reward):
    assert exact_answer([text], answer=[gold]) == [reward]
    assert exact_answer([[{"role": "assistant", "content": text}]], answer=[gold]) == [reward]


@given(st.text(), st.one_of(st.text(), st.integers(), st.floats(), st.none()))
def test_never_an_exception_never_outside_the_range(text, gold):
    assert exact_answer([text], answer=[gold])[0] in (None, 0.0, 1.0)


def test_exact_answer_needs_a_gold_for_each():
    with pytest.raises(ValueError, match="2 completions, but 1 entries"):
        exact_answer(["1", "2"], answer=["1"])


@pytest.mark.parametrize(
    "name", ["chain_sum", "leg_counting", "simple_equations", "spell_backward", "n_queens"]
)
def test_reasoning_gym(name, tmp_path):
    """The same seed gives the same rows; every gold is paid, and nothing else."""
    rows = make_rows(name, 3, seed=7)
    assert rows == make_rows(name, 3, seed=7)
    assert set(rows[0]) == {"prompt", "answer", "entry"}
    assert json.loads(rows[0]["entry"])["source"]["name"] == name
    reward = load_reward(f"reasoning_gym:{name}", tmp_path)
    entries = [row["entry"] for row in rows]
    golds = [row["answer"] for row in rows]
    assert (
        reward(completions=[f"<think>hm</think><answer>{g}</answer>" for g in golds], entry=entries)
        == [1.0] * 3
    )
    assert reward(completions=golds, entry=entries) == [1.0] * 3
    for wrong in ("", "nothing", "is it " + " or ".join(golds), "__import__('os').system('true')"):
        assert reward(completions=[wrong] * 3, entry=entries) == [0.0] * 3


def test_reasoning_gym_settings():
    assert "max_terms" not in make_rows("chain_sum", 1, 0, min_terms=2, max_terms=2)[0]["prompt"]
    with pytest.raises(BadInput, match="chain_sum"):
        make_rows("chain_sum", 1, 0, no_such_setting=1)


def test_a_foreign_entry_is_none(tmp_path):
    reward = load_reward("reasoning_gym:chain_sum", tmp_path)
    assert reward(completions=["1", "1"], entry=["{}", "no json"]) == [None, None]


@pytest.mark.parametrize(
    "text", ["1 + 2", "x**2 + 3*x", "sqrt(2)/2", "[[1, 0], [0, 1]]", "3*(4 - 1)", "A B C"]
)
def test_harmless(text):
    assert harmless(text)


@pytest.mark.parametrize(
    "text",
    ["__import__('os')", "exit()", "9**9**9", "9**(9**9)", "2**99999", "(1).__class__", "a.b", "lambda: 0",
     "[0 for x in range(9)]", "open('x')", "x;y", "`ls`", "1" * 60],
)  # fmt: skip
def test_harmful(text):
    assert not harmless(text)

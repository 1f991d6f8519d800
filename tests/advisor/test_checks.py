"""What a typed line must be, without a terminal."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from advisor import checks
from estimators.errors import BadInput
from pipelines.runs import RunRecord, write_run

REWARDS = """\
def strings(completions, answer, **kwargs):
    return [float(c.strip() == a) for c, a in zip(completions, answer)]

def both(completions, answer, **kwargs):
    texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
    return [float(c.strip() == a) for c, a in zip(texts, answer)]

def number(completions, **kwargs):
    return 1.0

def words(completions, **kwargs):
    return ["right"]

def nothing(completions, **kwargs):
    return [None]

def column(completions, target, **kwargs):
    return [1.0]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder: prompts, rewards, and two models of which one has a chat template."""
    monkeypatch.chdir(tmp_path)
    Path("prompts.jsonl").write_text('{"prompt": "1+1=", "answer": "2"}\n' * 3)
    Path("rewards.py").write_text(REWARDS)
    for name in ("plain", "chat"):
        Path(name).mkdir()
        Path(name, "tokenizer_config.json").write_text("{}")
    Path("chat", "chat_template.jinja").write_text("{{ messages }}")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1), ("0.5", 0.5), ("1,000", 1000), ("$20", 20), ("1e3", 1000), ("1_000", 1000)]
)
def test_amounts(text: str, value: float) -> None:
    assert checks.amount(text, 1e6) == value


@pytest.mark.parametrize(
    "text", ["", "ten", "0", "-1", "-0.0", "nan", "inf", "1e7", "1 000", "5h", "0x10", "1;2"]
)
def test_no_amounts(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a number|is not above 0|out of range"):
        checks.amount(text, 1e6)


def test_a_model_of_the_catalogue() -> None:
    assert checks.model("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"


@pytest.mark.parametrize(
    "text", ["", "./nowhere", "plain", "rewards.py", "x.json", "nobody/nothing-7b", "~/nowhere"]
)
def test_no_models(folder: Path, text: str) -> None:
    with pytest.raises((ValueError, BadInput)):
        checks.model(text)


def test_the_users_reward_is_tried_as_the_model_will_call_it(folder: Path) -> None:
    checks.data_file("prompts.jsonl", "grpo", "rewards.py:strings", "plain")
    checks.data_file("prompts.jsonl", "grpo", "rewards.py:both", "plain")
    checks.data_file("prompts.jsonl", "grpo", "rewards.py:both", "chat")
    checks.data_file("prompts.jsonl", "grpo", "rewards.py:nothing", "chat")
    with pytest.raises(
        ValueError, match=r"raised AttributeError at .*rewards.py:2: .*a completion is a list of messages"
    ):
        checks.data_file("prompts.jsonl", "grpo", "rewards.py:strings", "chat")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("number", "a list of one number is needed"),
        ("words", "a list of one number is needed"),
        ("column", "has no column target, needed for rewards.py:column"),
    ],
)
def test_a_reward_that_cannot_score_is_refused(folder: Path, function: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        checks.data_file("prompts.jsonl", "dapo", f"rewards.py:{function}", "plain")


def test_columns_are_renamed_into_a_new_file(folder: Path) -> None:
    Path("qa.csv").write_text("question_text,reply\n1+1=,2\n")
    assert checks.unknown_columns("prompts.jsonl") == {}
    assert list(checks.unknown_columns("qa.csv")) == ["question_text", "reply"]
    assert checks.columns_needed("demonstrations", None) == ["prompt", "completion"]
    assert checks.columns_needed("prompts", "math_reward") == ["prompt", "answer"]
    assert checks.columns_needed("prompts", "rewards.py:column") == ["prompt"]
    mapping = {"prompt": "question_text", "answer": "reply"}
    first, second = checks.write_renamed("qa.csv", mapping), checks.write_renamed("qa.csv", mapping)
    assert (first, second) == ("qa.renamed.jsonl", "qa.renamed-2.jsonl")
    row = json.loads(Path(first).read_text())
    assert (row["prompt"], row["answer"]) == ("1+1=", "2")
    assert checks.data_file(first, "grpo", "math_reward").rows == 1


def test_a_run_folder_is_new_or_empty(folder: Path) -> None:
    assert checks.free_run_folder() == "run"
    Path("run").mkdir()
    assert checks.run_folder("run") == Path("run")
    assert checks.free_run_folder() == "run-2"
    Path("run", "plan.yaml").write_text("")
    with pytest.raises(ValueError, match="`advisor run run` goes on with it"):
        checks.run_folder("run")
    for taken in ("plain", "rewards.py", ""):
        with pytest.raises(ValueError, match=r"is not empty|is a file"):
            checks.run_folder(taken)


def test_open_runs_are_those_planned_and_not_finished(folder: Path) -> None:
    for name, status in (("one", "finished"), ("two", "interrupted"), ("three", None)):
        Path(name).mkdir()
        Path(name, "plan.yaml").write_text("")
        if status:
            record = {
                "id": "x",
                "name": name,
                "status": status,
                "created": "2026-01-01T00:00:00+00:00",
                "stages": [],
            }
            write_run(Path(name), RunRecord.model_validate(record))
    shutil.rmtree("plain")
    assert {run.name for run in checks.open_runs()} == {"two", "three"}

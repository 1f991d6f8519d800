"""The wizard on a real terminal: every question, what it refuses, and how it is left and taken up again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.answers import read_answers, read_draft
from advisor.questions import BUDGET, DATA, EVAL, MODEL, REWARD, SIX, TASK

Start = Callable[..., Any]

MODEL_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"  # in the catalogue of shapes: nothing is downloaded
FOLDER = "Folder for the run"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Data files of each kind, good and bad, in the folder in which the wizard runs."""
    rows = {
        "demos.jsonl": '{"prompt": "1+1=", "completion": "2"}\n{"prompt": "2+1=", "completion": "3"}\n',
        "pairs.jsonl": '{"prompt": "1+1=", "chosen": "2", "rejected": "3"}\n',
        "prompts.jsonl": '{"prompt": "1+1=", "answer": "2"}\n{"prompt": "2+1=", "answer": "3"}\n',
        "held.jsonl": '{"prompt": "3+1=", "answer": "4"}\n',
        "empty.jsonl": "",
        "blank.jsonl": "\n \n",
        "broken.jsonl": '{"prompt": "1+1=", "answer": "2"}\n{"prompt": oops}\n',
        "strange.jsonl": '{"x": 1, "y": 2}\n',
        "bare.jsonl": '{"prompt": "1+1="}\n',
        "broken.py": "def score(completions, **kwargs)\n    return [1.0]\n",
        "mine.py": "def score(completions, answer, **kwargs):\n    return [1.0 for _ in completions]\n",
    }
    for name, text in rows.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "folder").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").write_text("x")
    return tmp_path


def answer_six(screen: Any, keys: str) -> None:
    for question, key in zip(SIX, keys, strict=True):
        screen.answer(question.asks, key)


# the questions after six answers "ynnnnn", which lead to SFT → DAPO on maths
MATHS = [
    (TASK.asks, "\x1b[A" * 7),  # from "none of these" up to math
    (f"? {MODEL.asks}", MODEL_ID),
    (f"? {REWARD.asks}", ""),
    (f"? {DATA['demonstrations'].asks}", "demos.jsonl"),
    (f"? {DATA['prompts'].asks}", "prompts.jsonl"),
    (EVAL.asks, "held.jsonl"),
    (BUDGET["gpu_hours"].asks, "10"),
    (BUDGET["usd"].asks, ""),
    (BUDGET["wall_hours"].asks, "1.5"),
]
"""(question, keys) in order."""


def test_every_answer_reaches_the_file(terminal: Start, files: Path) -> None:
    screen = terminal()
    answer_six(screen, "ynnnnn")
    for question, keys in MATHS:
        screen.answer(question, keys)
    screen.expect(FOLDER)
    answers = read_answers(files / "answers.yaml")
    assert [getattr(answers, q.key) for q in SIX] == ["yes", "no", "no", "no", "no", "no"]
    assert (answers.task, answers.model, answers.reward) == ("math", MODEL_ID, "math_reward")
    assert (answers.data.demonstrations, answers.data.prompts) == ("demos.jsonl", "prompts.jsonl")
    assert (answers.data.eval, answers.data.preferences) == ("held.jsonl", None)
    assert (answers.budget.gpu_hours, answers.budget.usd, answers.budget.wall_hours) == (10, None, 1.5)
    assert "135 M parameters" in screen.seen
    assert "demos.jsonl: 2 rows, prompt_completion" in screen.seen
    assert "Recommended: SFT → DAPO" in screen.seen
    assert "Hardware: " in screen.seen


def test_what_the_pipeline_does_not_need_is_not_asked(terminal: Start, files: Path) -> None:
    """Not verifiable, pairs, a capable base: DPO alone, so no reward, demonstrations or prompts."""
    screen = terminal()
    answer_six(screen, "nynnyn")
    screen.answer(TASK.asks, "")
    screen.answer(f"? {MODEL.asks}", MODEL_ID)
    screen.answer(f"? {DATA['preferences'].asks}", "pairs.jsonl")
    screen.answer(EVAL.asks, "")
    for question in BUDGET.values():
        screen.answer(question.asks, "")
    screen.expect(FOLDER)
    assert f"? {REWARD.asks}" not in screen.seen
    assert f"? {DATA['prompts'].asks}" not in screen.seen
    assert f"? {DATA['demonstrations'].asks}" not in screen.seen
    answers = read_answers(files / "answers.yaml")
    assert answers.data.preferences == "pairs.jsonl"


# (the question, what is typed, the reason that must come)
INVALID = {
    "no model": (f"? {MODEL.asks}", "", "a model is needed"),
    "a model that is nowhere": (f"? {MODEL.asks}", "no-such/model-9b", "no-such/model-9b"),
    "a folder without a model": (f"? {MODEL.asks}", "./folder", "config.json: no such file"),
    "a folder that is not there": (f"? {MODEL.asks}", "./nowhere", "./nowhere: no such folder"),
    "a file for a model": (f"? {MODEL.asks}", "demos.jsonl", "demos.jsonl is a file"),
    "an unknown reward": (f"? {REWARD.asks}", "mathz", 'did you mean "math"?'),
    "a reward file that is not there": (f"? {REWARD.asks}", "nine.py:score", "there is no file"),
    "a reward file without the function": (f"? {REWARD.asks}", "mine.py:scores", 'did you mean "score"?'),
    "a reward file that is not Python": (
        f"? {REWARD.asks}",
        "broken.py:score",
        "broken.py:1: not valid Python",
    ),
    "a missing file": (f"? {DATA['demonstrations'].asks}", "demo.jsonl", 'did you mean "demos.jsonl"?'),
    "no file": (f"? {DATA['demonstrations'].asks}", "", "a file is needed"),
    "a folder for a file": (
        f"? {DATA['demonstrations'].asks}",
        "folder",
        "folder is a folder; a file is needed",
    ),
    "an empty file": (f"? {DATA['demonstrations'].asks}", "empty.jsonl", "empty.jsonl is empty"),
    "a blank file": (f"? {DATA['demonstrations'].asks}", "blank.jsonl", "blank.jsonl is empty"),
    "unreadable JSONL": (
        f"? {DATA['demonstrations'].asks}",
        "broken.jsonl",
        "broken.jsonl:2:12: invalid JSON",
    ),
    "pairs for demonstrations": (f"? {DATA['demonstrations'].asks}", "pairs.jsonl", "reads as preference"),
    "prompts without answers": (f"? {DATA['prompts'].asks}", "bare.jsonl", "no column answer"),
    "trained-on prompts to measure with": (EVAL.asks, "prompts.jsonl", "must not be trained on"),
    "text for a number": (BUDGET["gpu_hours"].asks, "ten", '"ten" is not a number'),
    "zero": (BUDGET["gpu_hours"].asks, "0", "0 is not above 0"),
    "negative": (BUDGET["usd"].asks, "-3", "-3 is not above 0"),
    "out of range": (BUDGET["usd"].asks, "1e30", "1e30 is out of range"),
    "not a number": (BUDGET["wall_hours"].asks, "nan", "nan is not above 0"),
    "a run folder with something in it": (FOLDER, "full", "full is not empty"),
    "a file for a run folder": (FOLDER, "mine.py", "mine.py is a file"),
}


def test_what_cannot_be_is_asked_again_with_the_reason_and_never_reaches_the_file(
    terminal: Start, files: Path
) -> None:
    screen = terminal()
    answer_six(screen, "ynnnnn")
    seen_reasons = 0
    for question, keys in [*MATHS, (FOLDER, "")]:
        screen.expect(question)
        for asked, typed, reason in INVALID.values():
            if asked != question:
                continue
            screen.type(f"{typed}\r")
            lines = screen.expect("! ") + screen.expect(question)  # the reason, then the question again
            said = " ".join(lines.split())
            assert reason in said, (typed, said)
            assert len(lines.splitlines()) <= 6, lines  # all of it on the same screen
            seen_reasons += 1
            kept = (files / "answers.yaml").read_text()
            assert not typed or f": {typed}\n" not in kept.replace("demonstrations: demos.jsonl", "").replace(
                "prompts: prompts.jsonl", ""
            ), (typed, kept)
        screen.type("\x03" if question == FOLDER else f"{keys}\r")
    assert screen.end() == 130
    assert seen_reasons == len(INVALID)
    answers = read_answers(files / "answers.yaml")
    assert answers.model == MODEL_ID
    assert (answers.budget.gpu_hours, answers.budget.usd, answers.budget.wall_hours) == (10, None, 1.5)


def test_columns_of_no_known_name_are_asked_for(terminal: Start, files: Path) -> None:
    (files / "qa.jsonl").write_text('{"id": 1, "q": "1+1=", "a": "2"}\n{"id": 2, "q": "2+1=", "a": "3"}\n')
    screen = terminal()
    answer_six(screen, "ynnnyn")
    screen.answer(TASK.asks, "\x1b[A" * 7)
    screen.answer(f"? {MODEL.asks}", MODEL_ID)
    screen.answer(f"? {REWARD.asks}", "")
    screen.answer(f"? {DATA['prompts'].asks}", "qa.jsonl")
    screen.answer("? Which is the prompt?", "\x1b[A")  # "none of them", the last
    screen.expect("! qa.jsonl has no column for prompt")
    screen.answer(f"? {DATA['prompts'].asks}", "qa.jsonl")
    screen.answer("? Which is the prompt?", "\x1b[B")
    screen.answer("? Which is the answer?", "\x1b[B")
    screen.expect("qa.renamed.jsonl: 2 rows, prompt_only")
    screen.expect(EVAL.asks)
    assert read_draft(files / "answers.yaml")["data"]["prompts"] == "qa.renamed.jsonl"
    rows = [json.loads(line) for line in (files / "qa.renamed.jsonl").read_text().splitlines()]
    assert [(row["prompt"], row["answer"]) for row in rows] == [("1+1=", "2"), ("2+1=", "3")]


def test_keys_that_are_no_choice_do_nothing(terminal: Start, files: Path) -> None:
    screen = terminal()
    screen.expect(SIX[0].asks)
    screen.type("dpo 7 \x1b[D?")
    screen.type("\r")
    screen.expect(SIX[1].asks)
    assert read_draft(files / "answers.yaml") == {"verifiable": "yes"}


@pytest.mark.parametrize("at", range(len(MATHS) + 1))
def test_ctrl_c_after_the_six_keeps_all(terminal: Start, files: Path, at: int) -> None:
    screen = terminal()
    answer_six(screen, "ynnnnn")
    for question, keys in MATHS[:at]:
        screen.answer(question, keys)
    screen.expect([*MATHS, (FOLDER, "")][at][0])
    screen.type("\x04" if at in (1, 7) else "\x03")  # Ctrl-D is the same
    assert screen.end() == 130
    last = screen.seen.rstrip().splitlines()[-1]
    assert last.startswith("stopped; the answers")
    assert "answers.yaml" in last
    assert "`advisor` goes on" in last


@pytest.mark.parametrize("at", [0, 3, 5, 9])
def test_the_next_call_goes_on_where_it_was_left(terminal: Start, files: Path, at: int) -> None:
    screen = terminal()
    answer_six(screen, "ynnnnn")
    for question, keys in MATHS[:at]:
        screen.answer(question, keys)
    screen.expect([*MATHS, (FOLDER, "")][at][0])
    screen.type("\x03")
    assert screen.end() == 130

    screen = terminal()
    before = read_draft(files / "answers.yaml")
    screen.answer("answers.yaml holds answers of an earlier time", "")
    for question, keys in MATHS[at:]:
        if at <= 4:  # something that is needed is open: the rest is asked
            screen.answer(question, keys)
    screen.expect(FOLDER)
    after = read_answers(files / "answers.yaml").model_dump(exclude_none=True)
    assert all(after[key] == value for key, value in before.items() if key not in ("data", "budget", "task"))
    if at <= 4:
        assert after["data"]["eval"] == "held.jsonl"
    assert after["model"] == MODEL_ID


@pytest.mark.parametrize("at", range(6))
def test_ctrl_c_at_each_of_the_six(terminal: Start, files: Path, at: int) -> None:
    screen = terminal()
    for question in SIX[:at]:
        screen.answer(question.asks, "u")
    screen.expect(SIX[at].asks)
    screen.type("\x03")
    assert screen.end() == 130
    assert "`advisor` goes on from there" in screen.seen.rstrip().splitlines()[-1]
    file = files / "answers.yaml"
    assert file.exists() == (at > 0)
    if at:
        assert read_draft(file) == {q.key: "unsure" for q in SIX[:at]}


def test_going_through_again_offers_what_was_answered(terminal: Start, files: Path) -> None:
    screen = terminal()
    answer_six(screen, "ynnnnn")
    for question, keys in MATHS:
        screen.answer(question, keys)
    screen.expect(FOLDER)
    screen.type("\x03")
    assert screen.end() == 130
    first = read_answers(files / "answers.yaml")

    screen = terminal()
    screen.answer("answers.yaml holds answers of an earlier time", "\x1b[A")  # up from the first: the last
    answer_six(screen, ["", "", "", "", "", ""])  # type: ignore[arg-type]
    for question, _ in MATHS:
        screen.answer(question, "-" if question == BUDGET["gpu_hours"].asks else "")
    screen.expect(FOLDER)
    second = read_answers(files / "answers.yaml")
    assert second.budget.gpu_hours is None
    budget = first.budget.model_copy(update={"gpu_hours": None})
    assert second == first.model_copy(update={"budget": budget})


def test_an_answer_that_went_bad_is_asked_again(terminal: Start, files: Path) -> None:
    (files / "answers.yaml").write_text(
        "verifiable: no\npreference_pairs: yes\nlong_cot: no\nlimited_compute: no\nbase_capable: yes\n"
        f"large_scale: no\nmodel: {MODEL_ID}\ndata:\n  preferences: gone.jsonl\n"
    )
    screen = terminal()
    screen.answer("answers.yaml holds answers of an earlier time", "")
    screen.expect("data.preferences is gone.jsonl")
    screen.answer(f"? {DATA['preferences'].asks}", "pairs.jsonl")
    screen.expect(FOLDER)
    assert read_answers(files / "answers.yaml").data.preferences == "pairs.jsonl"


def test_off_a_terminal_it_names_the_verbs(advisor: Callable[..., Any], tmp_path: Path) -> None:
    done = advisor(check=None)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "advisor plan answers.yaml -o run" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_nothing_heavy_is_loaded_before_the_first_question() -> None:
    """The first question is to be on the screen within 0.3 s; pydantic alone takes a third of that."""
    script = "import sys, advisor.cli, advisor.commands.wizard, advisor.wizard; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"pydantic", "yaml", "numpy", "torch", "prompt_toolkit", "rich", "estimators.record"}

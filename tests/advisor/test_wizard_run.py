"""The end of the wizard on a real terminal: plan, yes or no, run, and where it is taken up again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.questions import BUDGET, DATA, EVAL, MODEL, SIX, TASK

Start = Callable[..., Any]

FOLDER = "Folder for the run"
CONFIRM = "Start the run now?"


@pytest.fixture
def answered(task: Path, tmp_path: Path) -> Path:
    """A folder with complete answers: DPO on 24 pairs."""
    rows = [f'{{"prompt": "{n}+1=", "chosen": "#{n + 1}", "rejected": "#{n}"}}' for n in range(10, 34)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(rows) + "\n")
    yes = {"preference_pairs", "limited_compute", "base_capable"}
    lines = [f"{q.key}: {'yes' if q.key in yes else 'no'}" for q in SIX]
    lines += [f"model: {task / 'base-model'}", "tuning: full", "data:", "  preferences: pairs.jsonl"]
    (tmp_path / "answers.yaml").write_text("\n".join(lines) + "\n")
    return tmp_path


def use_the_answers(screen: Any) -> None:
    screen.answer("answers.yaml holds answers of an earlier time", "")
    screen.answer(FOLDER, "")


def test_the_plan_is_shown_and_no_starts_nothing(terminal: Start, answered: Path) -> None:
    screen = terminal()
    use_the_answers(screen)
    screen.expect(CONFIRM)
    for words in (
        "Recommended: DPO",
        "Hardware: ",
        "Plan: DPO",
        "memory needed, GiB",
        "-dpo",
        "in all",
        "(estimated)",
    ):
        assert words in screen.seen, words
    screen.type("n")
    assert screen.end() == 0
    assert "not started; `advisor run run` starts it" in screen.seen
    assert (answered / "run" / "plan.yaml").exists()
    assert not (answered / "run" / "run.json").exists()


def test_what_the_wizard_saved_plans_the_same_without_a_terminal(
    terminal: Start, advisor: Callable[..., Any], answered: Path
) -> None:
    screen = terminal()
    screen.answer("answers.yaml holds answers of an earlier time", "\x1b[A")  # all questions again
    for question in SIX:
        screen.answer(question.asks, "")
    for question in (TASK, MODEL, DATA["preferences"], EVAL, *BUDGET.values()):
        screen.answer(f"? {question.asks}", "")
    screen.answer(FOLDER, "")
    screen.expect(CONFIRM)
    screen.type("n")
    assert screen.end() == 0
    advisor("plan", "answers.yaml", "-o", "again")
    first, second = ((answered / name / "01-dpo" / "config.yaml").read_text() for name in ("run", "again"))
    assert first == second


def test_ctrl_c_at_yes_or_no_keeps_the_plan_and_the_next_call_offers_it(
    terminal: Start, answered: Path
) -> None:
    screen = terminal()
    use_the_answers(screen)
    screen.expect(CONFIRM)
    screen.type("\x03")
    assert screen.end() == 130
    assert screen.seen.rstrip().splitlines()[-1] == "stopped; the plan is in run; `advisor run run` starts it"

    screen = terminal()
    screen.expect("A run is not finished")
    screen.expect("go on with run")
    screen.type("\x03")
    assert screen.end() == 130
    screen = terminal()
    screen.answer("A run is not finished", "\x1b[B")
    screen.answer("answers.yaml holds answers of an earlier time", "")
    screen.answer("(Enter: run-2)", "")
    screen.expect(CONFIRM)
    screen.type("\x04")  # Ctrl-D
    assert screen.end() == 130
    assert "`advisor run run-2` starts it" in screen.seen
    screen = terminal()
    screen.answer("Runs are not finished", "\x1b[A")
    screen.answer("answers.yaml holds answers of an earlier time", "")
    screen.expect("(Enter: run-3)")


def test_what_does_not_fit_is_said_with_the_way_on(terminal: Start, answered: Path) -> None:
    text = (answered / "answers.yaml").read_text()
    lines = [line if not line.startswith("model:") else "model: Qwen/Qwen3-32B" for line in text.splitlines()]
    (answered / "answers.yaml").write_text("\n".join([*lines, "hardware: {gpu: T4, count: 1}"]) + "\n")
    screen = terminal()
    use_the_answers(screen)
    assert screen.end() == 1
    assert "error: " in screen.seen
    assert "GiB" in screen.seen
    assert "The answers are in answers.yaml: change them there, or call `advisor` again." in screen.seen
    assert not (answered / "run").exists()


@pytest.mark.train
def test_from_yes_to_a_finished_run(terminal: Start, answered: Path) -> None:
    screen = terminal()
    use_the_answers(screen)
    screen.expect(CONFIRM)
    screen.type("y")
    assert screen.end(seconds=240) == 0
    assert "finished in" in screen.seen
    assert "report.html" in screen.seen
    assert "advisor ui" in screen.seen
    assert (answered / "run" / "report.html").exists()
    assert list((answered / "run").glob("*-dpo/done.json"))

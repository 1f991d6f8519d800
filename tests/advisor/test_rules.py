"""The decision, all 64 combinations, against the table in tests/cases/decision_table.csv."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from advisor.answers import Answers
from advisor.questions import SIX, TASKS
from advisor.rules import case_of, decide, says

CASES = Path(__file__).parents[1] / "cases" / "decision_table.csv"
ROWS = list(csv.DictReader(CASES.read_text().splitlines()))
KEYS = [question.key for question in SIX]
CAUTIOUS = {
    "verifiable": "no",
    "preference_pairs": "no",
    "long_cot": "no",
    "limited_compute": "yes",
    "base_capable": "no",
    "large_scale": "no",
}


def answers_of(row: dict[str, str], **changes: object) -> Answers:
    return Answers.model_validate({key: row[key] for key in KEYS} | changes)


def test_the_table_has_every_combination_once() -> None:
    assert len({tuple(row[key] for key in KEYS) for row in ROWS}) == len(ROWS) == 64


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(row[key] for key in KEYS))
def test_a_row_of_the_table(row: dict[str, str]) -> None:
    decision = decide(case_of(answers_of(row)))
    assert " ".join(decision.pipeline) == row["pipeline"]
    assert decision.economy == (row["economy"] == "yes")
    assert (decision.next_step or "") == row["next_step"]


@pytest.mark.parametrize("task", TASKS)
def test_maths_and_code_make_rl_dapo_and_change_nothing_else(task: str) -> None:
    for row in ROWS:
        plain = decide(case_of(answers_of(row)))
        with_task = decide(case_of(answers_of(row, task=task)))
        if task not in ("math", "code"):
            assert with_task == plain
            continue
        assert with_task.pipeline == tuple("dapo" if stage == "grpo" else stage for stage in plain.pipeline)
        assert with_task.next_step == ("dapo" if plain.next_step else None)


@pytest.mark.parametrize("key", KEYS)
def test_unsure_takes_the_cautious_side(key: str) -> None:
    for row in ROWS:
        unsure = case_of(answers_of(row, **{key: "unsure"}))
        assert unsure == case_of(answers_of(row, **{key: CAUTIOUS[key]}))


def test_all_unsure_is_sft() -> None:
    assert decide(case_of(Answers.model_validate(dict.fromkeys(KEYS, "unsure")))).pipeline == ("sft",)


def test_every_question_says_something_in_every_case() -> None:
    for row in ROWS:
        said = says(case_of(answers_of(row)))
        assert list(said) == KEYS
        for text, source in said.values():
            assert text
            assert "arXiv:" in source


def test_a_reason_of_no_effect_has_none_and_every_other_flip_is_explained() -> None:
    """Where an answer is said to have no effect, flipping it must change nothing; and the other way round."""
    for row in ROWS:
        answers = answers_of(row)
        before = decide(case_of(answers))
        for key, (text, _) in says(case_of(answers)).items():
            flipped = answers.model_copy(update={key: "no" if row[key] == "yes" else "yes"})
            if text.startswith("no effect here"):
                assert decide(case_of(flipped)) == before, (row, key)
            elif decide(case_of(flipped)) != before:
                assert "not what DAPO" not in text, (row, key)

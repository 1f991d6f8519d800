"""Recommendations: reasons, alternatives that really flip, warnings, refusals, and the verb."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.answers import Answers
from advisor.cli import run_app
from advisor.display import show_recommendation
from advisor.questions import SIX, SIX_BY_KEY
from advisor.questions import TASKS as TASKS_ALL
from advisor.recommend import Recommendation, recommend
from estimators.errors import BadInput
from pipelines.methods import METHODS

KEYS = list(SIX_BY_KEY)
YES_NO = [dict(zip(KEYS, row, strict=True)) for row in product(("yes", "no"), repeat=6)]
ALL = [dict(zip(KEYS, row, strict=True)) for row in product(("yes", "no", "unsure"), repeat=6)]
TASKS = [None, "math", "code", "dialogue"]


def answers_of(values: dict[str, str], **more: object) -> Answers:
    return Answers.model_validate(values | more)


def six(letters: str) -> dict[str, str]:
    """The letters as answers: yes to those, no to the others; letters as in docs/decision.md."""
    return {key: "yes" if letter in letters else "no" for key, letter in zip(KEYS, "VPCLBS", strict=True)}


@pytest.mark.parametrize("task", TASKS)
def test_every_alternative_is_another_pipeline_and_its_change_gives_it(task: str | None) -> None:
    for values in ALL:
        answers = answers_of(values, task=task)
        found = recommend(answers)
        assert found.alternatives
        assert len({a.pipeline for a in found.alternatives}) == len(found.alternatives)
        for alternative in found.alternatives:
            assert alternative.pipeline != found.pipeline
            assert alternative.why_not
            changes = dict(
                re.fullmatch(r"(\w+) is ([\w-]+)", part).groups()
                for part in alternative.flips_when.split(" and ")
            )  # type: ignore[union-attr]
            changed = Answers.model_validate(answers.model_dump() | changes)
            assert changed != answers
            assert recommend(changed).pipeline == alternative.pipeline, (values, task, alternative)


def test_every_change_is_a_minimal_one() -> None:
    """No part of a change of several answers already flips the choice to the same pipeline."""
    for values in YES_NO:
        answers = answers_of(values, task="math")
        for alternative in recommend(answers).alternatives:
            parts = alternative.flips_when.split(" and ")
            for left_out in range(len(parts) if len(parts) > 1 else 0):
                fewer = dict(part.split(" is ") for i, part in enumerate(parts) if i != left_out)
                assert (
                    recommend(answers_of(values | {"task": "math"} | fewer)).pipeline != alternative.pipeline
                )


def test_grpo_is_an_alternative_to_dapo_and_dapo_to_grpo() -> None:
    for values, task in product(YES_NO, TASKS):
        found = recommend(answers_of(values, task=task))
        others = [a.pipeline for a in found.alternatives]
        swap = {"dapo": "grpo", "grpo": "dapo"}
        if found.pipeline[-1] in swap:
            assert (*found.pipeline[:-1], swap[found.pipeline[-1]]) in others


def test_a_reason_for_every_question_with_its_answer_and_source() -> None:
    for values in ALL:
        reasons = {reason.question: reason for reason in recommend(answers_of(values)).reasons}
        assert list(reasons) == KEYS
        for key, reason in reasons.items():
            assert reason.answer == values[key]
            assert reason.says
            assert re.search(r"arXiv:\d{4}\.\d{5}(v\d)?, sections? \d", reason.source)


def test_the_task_is_a_reason_where_it_decides() -> None:
    assert "task" in [r.question for r in recommend(answers_of(six("V"), task="math")).reasons]
    assert "task" not in [r.question for r in recommend(answers_of(six("V"), task="extraction")).reasons]
    assert "task" not in [r.question for r in recommend(answers_of(six("P"), task="math")).reasons]


def test_reasons_never_name_a_stage_that_is_not_there() -> None:
    """A reason that begins "SFT first" or "DAPO:" belongs to a pipeline with that stage."""
    for values in ALL:
        found = recommend(answers_of(values))
        for reason in found.reasons:
            for stage in ("SFT first", "DAPO:"):
                if reason.says.startswith(stage):
                    assert stage.split()[0].strip(":").lower() in found.pipeline, (values, reason)
            if reason.says.startswith("no SFT"):
                assert "sft" not in found.pipeline


def test_rl_is_the_next_step_with_its_cost_where_pairs_come_first() -> None:
    found = recommend(answers_of(six("VPL"), task="math"))
    assert found.pipeline == ("sft", "dpo")
    assert found.next_step is not None
    assert found.next_step.method == "dapo"
    assert re.search(r"\d+ M tokens", found.next_step.says)
    assert recommend(answers_of(six("VP"))).next_step is None


def test_long_chains_without_a_check_name_distilled_traces() -> None:
    for values in YES_NO:
        said = " ".join(recommend(answers_of(values)).warnings)
        told = "RL cannot train them" in said and "distilled" in said
        assert told == (values["long_cot"] == "yes" and values["verifiable"] == "no")


def test_six_plain_answers_have_no_other_warnings() -> None:
    for values in YES_NO:
        assert len(recommend(answers_of(values)).warnings) == (
            values["long_cot"] == "yes" and values["verifiable"] == "no"
        )


@pytest.mark.parametrize("question", SIX, ids=lambda q: q.key)
def test_unsure_is_said_with_its_side_and_what_to_do(question: object) -> None:
    for values in YES_NO:
        unsure = values | {question.key: "unsure"}  # type: ignore[attr-defined]
        said = [w for w in recommend(answers_of(unsure)).warnings if w.startswith(question.key)]  # type: ignore[attr-defined]
        assert len(said) == 1
        assert f"taken as {question.cautious}" in said[0]  # type: ignore[attr-defined]
        assert "To find out: " in said[0]
        assert "advisor " not in said[0]  # no verb that does not exist


# --- answers and files that do not agree --------------------------------------------------------------------

FULL = {"demonstrations": "d.jsonl", "preferences": "p.jsonl", "prompts": "q.jsonl"}


@pytest.mark.parametrize(
    ("letters", "more", "words"),
    [
        ("P", {"data": {"demonstrations": "d"}}, "DPO trains on data.preferences"),
        ("VB", {"data": FULL}, "preference_pairs is no: the pairs are not used"),
        (
            "B",
            {"data": FULL | {"preferences": None}, "reward": "math_reward"},
            "verifiable is no: no stage uses the reward",
        ),
        ("V", {"data": FULL, "model": "m"}, "RL needs a reward"),
        ("V", {"data": FULL, "task": "code"}, "code_reward is the built-in one for code"),
        ("V", {"data": {"prompts": "q"}}, "SFT trains on data.demonstrations"),
        ("V", {"data": {"demonstrations": "d"}}, "GRPO trains on data.prompts"),
        ("", {"task": "tool-calling"}, "the built-in tool_call_reward"),
        ("V", {"task": "safety"}, "A program rarely judges safety"),
        ("V", {"task": "math", "reward": "code_reward"}, "math_reward is the one for it"),
        ("VL", {"tuning": "full"}, "tuning: lora needs a fraction"),
    ],
)
def test_a_contradiction_is_warned_about(letters: str, more: dict[str, object], words: str) -> None:
    assert any(words in warning for warning in recommend(answers_of(six(letters), **more)).warnings)


def test_complete_answers_have_no_warnings() -> None:
    found = recommend(answers_of(six("VPB"), model="m", task="math", reward="math_reward", data=FULL))
    assert found.warnings == ()
    assert (
        recommend(
            answers_of(six("V"), model="m", reward="mine.py:score", data=FULL | {"preferences": None})
        ).warnings
        == ()
    )


@pytest.mark.parametrize(
    ("letters", "data", "words"),
    [
        (
            "",
            {"prompts": "q.jsonl"},
            r"leads? to SFT, which needs data\.demonstrations .* answer verifiable yes",
        ),
        ("", {"preferences": "p.jsonl"}, "answer preference_pairs yes"),
        ("VB", {"demonstrations": "d.jsonl"}, r"needs data\.prompts .* answer base_capable no"),
        ("PB", {"demonstrations": "d.jsonl", "prompts": "q.jsonl"}, r"needs data\.preferences"),
        ("V", FULL | {"eval": "q.jsonl"}, "what is measured must not be trained on"),
        ("VP", {"demonstrations": "p.jsonl", "preferences": "p.jsonl"}, "pairs are not worked answers"),
    ],
)
def test_what_cannot_be_trained_is_refused_with_a_remedy(
    letters: str, data: dict[str, str], words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        recommend(answers_of(six(letters), data=data))


def test_one_file_may_hold_demonstrations_and_prompts() -> None:
    assert recommend(
        answers_of(six("V"), data={"demonstrations": "d.jsonl", "prompts": "d.jsonl"})
    ).pipeline == ("sft", "grpo")


paths = st.none() | st.sampled_from(["a.jsonl", "b.jsonl", "c.jsonl", "d.jsonl"])


@given(
    values=st.fixed_dictionaries({key: st.sampled_from(["yes", "no", "unsure"]) for key in KEYS}),
    data=st.fixed_dictionaries(dict.fromkeys(["demonstrations", "preferences", "prompts", "eval"], paths)),
    task=st.none() | st.sampled_from(list(TASKS_ALL)),
    reward=st.none() | st.sampled_from(["math_reward", "code_reward", "mine.py:score"]),
    tuning=st.sampled_from(["auto", "full", "lora", "qlora"]),
)
@settings(max_examples=300, deadline=None)
def test_a_recommendation_or_a_remedy_for_any_answers(
    values: dict[str, str], data: dict[str, str | None], task: str | None, reward: str | None, tuning: str
) -> None:
    """Not refused: a stage has its file (or none is named), and what is missing is warned about."""
    answers = answers_of(values, data=data, task=task, reward=reward, tuning=tuning)
    try:
        found = recommend(answers)
    except BadInput as error:
        refused = str(error)
    else:
        refused = ""
    if refused:
        assert "Name " in refused or "Leave " in refused
        return
    named = {key for key in ("demonstrations", "preferences", "prompts") if data[key]}
    needed = {METHODS[stage].data for stage in found.pipeline}
    assert not named or named & needed
    said = " ".join(found.warnings)
    for key in needed - named if named or data["eval"] else ():
        assert f"data.{key}" in said
    assert Recommendation.model_validate_json(found.model_dump_json()) == found
    assert max(map(len, show_recommendation(found).splitlines())) <= 80


# --- the verb -----------------------------------------------------------------------------------------------


def test_it_is_readable_at_80_columns() -> None:
    for values in ALL[::7]:
        shown = show_recommendation(recommend(answers_of(values, task="math", model="m")))
        assert max(map(len, shown.splitlines())) <= 80
        assert "{" not in shown


Run = Callable[..., Any]


def test_the_json_has_the_promised_shape(advisor: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("".join(f"{key}: yes\n" for key in KEYS))
    done = advisor("recommend", "a.yaml", "--json")
    assert done.returncode == 0
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert document["pipeline"] == ["dpo"]
    assert set(document["reasons"][0]) == {"question", "answer", "says", "source"}
    assert set(document["alternatives"][0]) == {"pipeline", "why_not", "flips_when"}
    assert document["warnings"] == []
    assert document["next_step"]["method"] == "dapo"
    assert Recommendation.model_validate(document).pipeline == ("dpo",)


def test_the_json_of_all_64_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(
        csv.DictReader((Path(__file__).parents[1] / "cases" / "decision_table.csv").read_text().splitlines())
    )
    for row in rows:
        path = tmp_path / "a.yaml"
        path.write_text("".join(f"{key}: {row[key]}\n" for key in KEYS))
        assert run_app(["recommend", str(path), "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert " ".join(document["pipeline"]) == row["pipeline"]
        assert document["economy"] == (row["economy"] == "yes")
        assert (document["next_step"] or {"method": ""})["method"] == row["next_step"]
    assert len(rows) == 64


def test_for_people(advisor: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("".join(f"{key}: {'no' if 'pairs' in key else 'yes'}\n" for key in KEYS))
    done = advisor("recommend", "a.yaml")
    assert done.returncode == 0
    assert done.stdout.startswith("Recommended: DAPO, economy form")
    assert "advisor plan a.yaml" in done.stdout


def test_a_broken_file_is_one_message(advisor: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("verifiable: maybe\n")
    done = advisor("recommend", "a.yaml", check=None)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith('error: a.yaml:1:1: "verifiable" is')


def test_without_a_file_and_a_terminal_it_says_what_to_do(advisor: Run, tmp_path: Path) -> None:
    done = advisor("recommend", check=None)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "advisor recommend answers.yaml" in done.stderr
    assert list(tmp_path.iterdir()) == []

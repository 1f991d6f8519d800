"""Answers to a Recommendation: the pipeline, why, what else there is and what would flip the choice."""

from __future__ import annotations

from advisor.answers import Answers
from advisor.consistency import data_warnings, refuse_what_cannot_train
from advisor.questions import SIX, SIX_BY_KEY
from advisor.rules import DAPO_TASKS, DISTIL, Case, case_of, decide, says
from estimators.record import Record


class Reason(Record):
    """What one answer says for the choice."""

    question: str
    answer: str
    says: str
    source: str


class Alternative(Record):
    """Another pipeline, and the answers with which it would be the choice."""

    pipeline: tuple[str, ...]
    why_not: str
    flips_when: str
    """The change of answers, such as "preference_pairs is yes" or "long_cot is no and task is dialogue"."""


class NextStep(Record):
    """RL that comes after the pipeline, and what it would cost."""

    method: str
    says: str


class Recommendation(Record):
    """recommendation.json."""

    pipeline: tuple[str, ...]
    economy: bool = False
    """RL with LoRA and `num_generations` 4."""
    next_step: NextStep | None = None
    reasons: tuple[Reason, ...]
    alternatives: tuple[Alternative, ...]
    warnings: tuple[str, ...]


def recommend(answers: Answers) -> Recommendation:
    """The pipeline for `answers`; BadInput where no stage of it could be trained on the data they name."""
    case = case_of(answers)
    decision = decide(case)
    refuse_what_cannot_train(answers, decision)
    reasons = tuple(
        Reason(question=key, answer=str(getattr(answers, key)), says=text, source=source)
        for key, (text, source) in says(case).items()
    )
    return Recommendation(
        pipeline=decision.pipeline,
        economy=decision.economy,
        next_step=_next_step(decision.next_step) if decision.next_step else None,
        reasons=reasons,
        alternatives=_alternatives(answers),
        warnings=(*_unsure_warnings(answers), *_long_chain_warnings(case), *data_warnings(answers, decision)),
    )


def _next_step(method: str) -> NextStep:
    """What RL would add to the bill, in tokens: group size x prompts x tokens per answer."""
    return NextStep(
        method=method,
        says=f"{method.upper()} after DPO, with the check as its reward. It samples a group of completions "
        "for every prompt, which DPO does not: for each 1,000 prompts with answers of 1,000 tokens, 8 M "
        "tokens to sample and to train on (8 completions a prompt; 4 M in the economy form, LoRA and "
        "num_generations 4)",
    )


# --- alternatives -------------------------------------------------------------------------------------------


def _alternatives(answers: Answers) -> tuple[Alternative, ...]:
    """Every other pipeline that the fewest changes of answers would give, those of one change first.

    Found by asking the decision table, so that what is named does flip the choice.
    """
    chosen = decide(case_of(answers)).pipeline
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for changes in _changes(answers):
        pipeline = decide(case_of(answers.model_copy(update=changes))).pipeline
        if pipeline != chosen:
            found.setdefault(pipeline, changes)
    return tuple(
        Alternative(
            pipeline=pipeline,
            why_not=_why_not(case_of(answers), changes),
            flips_when=" and ".join(f"{key} is {value}" for key, value in changes.items()),
        )
        for pipeline, changes in found.items()
    )


def _changes(answers: Answers) -> list[dict[str, str]]:
    """Changes of answers worth naming: each question alone, then what decides between DAPO and GRPO."""
    case = case_of(answers)
    other = {key: "no" if yes else "yes" for key, yes in zip(SIX_BY_KEY, _yes(case), strict=True)}
    single = [{key: other[key]} for key in SIX_BY_KEY]
    to_grpo = {key: "no" for key, yes in (("long_cot", case.C), ("large_scale", case.S)) if yes}
    if case.task in DAPO_TASKS:
        to_grpo["task"] = "instruction"
    return [*single, to_grpo]


def _yes(case: Case) -> tuple[bool, ...]:
    """The six answers in the order of the questions."""
    return (case.V, case.P, case.C, case.L, case.B, case.S)


def _why_not(case: Case, changes: dict[str, str]) -> str:
    """Why the alternative that `changes` lead to is not the choice."""
    if len(changes) > 1 or "task" in changes:
        return _TO_GRPO
    key, value = next(iter(changes.items()))
    return _WHY_NOT[key][value]


_TO_GRPO = (
    "GRPO weighs every sequence alike and clips both sides alike: fine for short answers and short runs"
)
_TO_DAPO = "DAPO's four changes pay off on long chains, and on large or long runs; plain GRPO is simpler"
_WHY_NOT: dict[str, dict[str, str]] = {
    "long_cot": {"no": _TO_GRPO, "yes": _TO_DAPO},
    "large_scale": {"no": _TO_GRPO, "yes": _TO_DAPO},
    "verifiable": {
        "yes": "RL needs a reward that a program can compute, and there is none",
        "no": "leaves the check unused, which can teach more than the data holds",
    },
    "preference_pairs": {
        "yes": "DPO needs pairs of a chosen and a rejected answer, and there are none",
        "no": "leaves the preference pairs unused",
    },
    "limited_compute": {
        "yes": "saves RL's sampling, which the compute at hand can pay for",
        "no": "RL on top of DPO samples whole groups for every prompt: more than limited compute allows",
    },
    "base_capable": {
        "yes": "without SFT, a model that solves too little has nothing to build on",
        "no": "SFT would spend time on what the model can already do",
    },
}


# --- warnings -----------------------------------------------------------------------------------------------


def _unsure_warnings(answers: Answers) -> list[str]:
    """For each unsure answer: the side taken, and how to find out."""
    return [
        f"{q.key} is unsure, taken as {q.cautious}, the cautious side. To find out: {q.find_out}."
        for q in SIX
        if getattr(answers, q.key) == "unsure"
    ]


def _long_chain_warnings(case: Case) -> list[str]:
    if not case.C or case.V:
        return []
    return [
        "Long chains of thought without a check of the answer: RL cannot train them. What works is SFT on "
        f"distilled reasoning traces, worked answers sampled from a stronger model ({DISTIL})."
    ]

"""The decision: six answers to a pipeline, and what each answer says for it.

Letters as in docs/decision.md: V verifiable, P preference pairs, C long chains of thought, L limited compute,
B base model capable, S large or long run.
"""

from __future__ import annotations

from dataclasses import dataclass

from advisor.answers import Answers
from advisor.questions import SIX, SIX_BY_KEY

DAPO_TASKS = ("math", "code")

NO_EFFECT = "no effect here"
"""How a reason begins whose answer changes nothing in this case."""

TULU = "Tülu 3, arXiv:2411.15124, section 6"
TULU_ORDER = "Tülu 3, arXiv:2411.15124, section 2"
GRPO_PAPER = "DeepSeekMath (GRPO), arXiv:2402.03300, section 4.1"
DAPO_PAPER = "DAPO, arXiv:2503.14476, section 3"
DAPO_LENGTH = "DAPO, arXiv:2503.14476, sections 3.3 and 3.4"
DAPO_COLLAPSE = "DAPO, arXiv:2503.14476, sections 3.1 and 3.2"
DPO_PAPER = "DPO, arXiv:2305.18290, section 4"
NO_SIGNAL = "DAPO, arXiv:2503.14476, section 3.2"
NO_COLD_START = "DeepSeek-R1, arXiv:2501.12948v1, section 2.2"
DISTIL = "DeepSeek-R1, arXiv:2501.12948v1, sections 2.4 and 4.1"
INSTRUCT = "InstructGPT, arXiv:2203.02155, section 3.5"
LORA = "LoRA, arXiv:2106.09685, section 4.2"


@dataclass(frozen=True)
class Case:
    """The answers with `unsure` resolved to its cautious side, and the task."""

    V: bool
    P: bool
    C: bool
    L: bool
    B: bool
    S: bool
    task: str | None

    @property
    def rl(self) -> str:
        """The RL method: DAPO for long chains, for large or long runs, and for math and code; else GRPO."""
        return "dapo" if self.C or self.S or self.task in DAPO_TASKS else "grpo"


def case_of(answers: Answers) -> Case:
    """`answers` with every `unsure` on its cautious side."""
    given = {q.key: getattr(answers, q.key) for q in SIX}
    yes = {
        key: (SIX_BY_KEY[key].cautious if value == "unsure" else value) == "yes"
        for key, value in given.items()
    }
    return Case(
        V=yes["verifiable"],
        P=yes["preference_pairs"],
        C=yes["long_cot"],
        L=yes["limited_compute"],
        B=yes["base_capable"],
        S=yes["large_scale"],
        task=answers.task,
    )


@dataclass(frozen=True)
class Decision:
    """What the table gives for one case."""

    pipeline: tuple[str, ...]
    economy: bool = False
    """RL with LoRA and `num_generations` 4."""
    next_step: str | None = None
    """The RL method that comes after this pipeline, once compute allows it."""


def decide(case: Case) -> Decision:
    """The decision table, row by row."""
    sft = () if case.B else ("sft",)
    if case.V and case.P and not case.L:
        return Decision((*sft, "dpo", case.rl))
    if case.V and case.P:
        return Decision((*sft, "dpo"), next_step=case.rl)
    if case.V:
        return Decision((*sft, case.rl), economy=case.L)
    if case.P:
        return Decision((*sft, "dpo"))
    return Decision(("sft",))


def says(case: Case) -> dict[str, tuple[str, str]]:
    """For each question (and for the task where it decides): what its answer says here, and the source."""
    said = {
        "verifiable": _verifiable(case),
        "preference_pairs": _preference_pairs(case),
        "long_cot": _long_cot(case),
        "limited_compute": _limited_compute(case),
        "base_capable": _base_capable(case),
        "large_scale": _large_scale(case),
    }
    if case.V and case.task in DAPO_TASKS:
        said["task"] = (f"{case.task} is what DAPO's changes to GRPO were made for", DAPO_PAPER)
    return said


def _verifiable(case: Case) -> tuple[str, str]:
    if not case.V:
        return "no check, no reward: RL has nothing to climb, so the data must teach it", TULU
    if case.P and case.L:
        return "a program can be the reward, so RL can follow once compute allows it", TULU
    return "a program can be the reward: RL raises what the model gets right", TULU


def _preference_pairs(case: Case) -> tuple[str, str]:
    if not case.P:
        return "no pairs, so no DPO", DPO_PAPER
    if case.V and not case.L:
        return "DPO uses the pairs first, without sampling; then RL: the order of Tülu 3", TULU_ORDER
    return "DPO learns from the pairs directly: no reward model and no sampling", DPO_PAPER


def _long_cot(case: Case) -> tuple[str, str]:
    if case.C and not case.V:
        return (
            "RL cannot train long chains without a verifier; use distilled reasoning traces "
            "(a stronger model's worked answers) as the demonstrations for SFT",
            DISTIL,
        )
    if case.C and case.P and case.L:
        return (
            "makes the next step DAPO, whose loss and soft overlong punishment are for long chains",
            DAPO_LENGTH,
        )
    if case.C:
        return "DAPO: its token-level loss and soft overlong punishment are for long chains", DAPO_LENGTH
    if case.V and case.rl == "grpo":
        return "short answers: GRPO's loss per sequence will do", GRPO_PAPER
    if case.V:
        return "short answers: not what DAPO is chosen for here", DAPO_LENGTH
    return f"{NO_EFFECT}: it only chooses the form of RL", DAPO_LENGTH


def _limited_compute(case: Case) -> tuple[str, str]:
    if not case.V:
        return f"{NO_EFFECT}: neither SFT nor DPO samples while it trains", DPO_PAPER
    if case.L and case.P:
        return "DPO first: it needs no sampling while it trains; RL is named as the next step", DPO_PAPER
    if case.L:
        return "RL in its economy form: LoRA, and groups of 4 completions (num_generations 4)", LORA
    return "RL's sampling can be paid for: whole groups of completions for every prompt", GRPO_PAPER


def _base_capable(case: Case) -> tuple[str, str]:
    if not case.V and not case.P:
        if case.B:
            return "SFT all the same: without a check and pairs, demonstrations are all there is", INSTRUCT
        return "SFT teaches the format and the first right answers", INSTRUCT
    if case.B:
        source = NO_COLD_START if case.V else DPO_PAPER
        return "no SFT: the model already has right answers to build on", source
    if case.V and not (case.P and case.L):
        return "SFT first: where every completion in a group is wrong, RL learns nothing", NO_SIGNAL
    return "SFT first: DPO starts from a model that can already answer", DPO_PAPER


def _large_scale(case: Case) -> tuple[str, str]:
    if not case.V:
        return f"{NO_EFFECT}: it only chooses the form of RL", DAPO_COLLAPSE
    if case.S and case.P and case.L:
        return "makes the next step DAPO, which keeps long runs from collapsing", DAPO_COLLAPSE
    if case.S:
        return "DAPO: clip-higher and dynamic sampling keep long runs from collapsing", DAPO_COLLAPSE
    if case.rl == "grpo":
        return "a short run: GRPO, the simpler of the two, will do", GRPO_PAPER
    return "a short run: not what DAPO is chosen for here", DAPO_COLLAPSE

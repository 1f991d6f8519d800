"""Records as plain text for a terminal of 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.prompts import wrap
from advisor.rules import NO_EFFECT

if TYPE_CHECKING:
    from advisor.recommend import Recommendation
    from pipelines.plan import Plan


def pipeline_name(stages: tuple[str, ...]) -> str:
    """("sft", "dapo") as "SFT → DAPO"."""
    return " → ".join(stage.upper() for stage in stages)


def show_recommendation(recommendation: Recommendation) -> str:
    """The pipeline, why, what would change it, and what to look out for."""
    economy = ", economy form (LoRA, num_generations 4)" if recommendation.economy else ""
    lines = [f"Recommended: {pipeline_name(recommendation.pipeline)}{economy}", ""]

    lines.append("Why")
    reasons = [r for r in recommendation.reasons if not r.says.startswith(NO_EFFECT)]
    for reason in reasons:
        head = f"  {reason.question:<16}  {reason.answer:<6}  "
        source = reason.source.replace("section ", "section\u00a0")  # not broken before its number
        lines.append(wrap(f"{reason.says} ({source})", " " * len(head), first=head))
    rest = [reason.question for reason in recommendation.reasons if reason not in reasons]
    if rest:
        lines.append(wrap(f"{', '.join(rest)}: no effect here", "  "))

    if recommendation.next_step:
        lines += [
            "",
            wrap(f"Next step, not part of this pipeline: {recommendation.next_step.says}.", "  ", first=""),
        ]

    lines += ["", "Instead"]
    for other in recommendation.alternatives:
        head = f"  {pipeline_name(other.pipeline):<18}  "
        lines.append(wrap(f"if {other.flips_when}: {other.why_not}", " " * 22, first=head))

    if recommendation.warnings:
        lines += ["", "Note"]
        lines += [wrap(warning, "    ", first="  ! ") for warning in recommendation.warnings]
    return "\n".join(lines)


def show_plan(plan: Plan) -> str:
    """One line per stage: memory against what is free, time, verdict; then what was given up."""
    lines = [f"Plan: {plan.name}", wrap(plan.hardware, "  "), ""]
    lines.append(
        f"  {'stage':<10} {'tuning':<7} {'steps':>6}  {'memory GiB':>16} {'free':>7}  {'time':<18} verdict"
    )
    for stage in plan.stages:
        memory = f"{stage.memory_gib:.2f} (≤ {stage.memory_high_gib:.2f})"
        time = f"{_clock(stage.hours_low)} to {_clock(stage.hours_high)}"
        lines.append(
            f"  {stage.folder:<10} {stage.tuning:<7} {stage.steps:>6}  {memory:>16} {stage.free_gib:>7.2f}  "
            f"{time:<18} {stage.verdict}"
        )
    changes = [f"{s.folder}: {change}" for s in plan.stages for change in s.changes]
    if changes:
        lines += ["", "Changed to fit", *(wrap(change, "  ") for change in changes)]
    lines += ["", *(wrap(note, "  ", first="- ") for note in plan.notes)] if plan.notes else []
    return "\n".join(lines)


def _clock(hours: float) -> str:
    """Hours as people say them."""
    if hours < 1 / 60:
        return f"{hours * 3600:.0f} s"
    return f"{hours * 60:.0f} min" if hours < 1 else f"{hours:.1f} h"

"""Records as plain text for a terminal of 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.prompts import wrap
from advisor.rules import NO_EFFECT

if TYPE_CHECKING:
    from advisor.recommend import Recommendation


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

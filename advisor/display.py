"""Records as plain text for a terminal of 80 columns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from advisor.prompts import wrap
from advisor.rules import NO_EFFECT
from estimators.units import duration

if TYPE_CHECKING:
    from advisor.recommend import Recommendation
    from pipelines.datasets.report import DataReport
    from pipelines.plan import Plan


def pipeline_name(stages: tuple[str, ...]) -> str:
    """("sft", "dapo") as "SFT → DAPO"."""
    return " → ".join(stage.upper() for stage in stages)


def show_recommendation(recommendation: Recommendation, *, brief: bool = False) -> str:
    """The pipeline, why, what would change it, and what to look out for; `brief` leaves the sources out."""
    economy = ", economy form (LoRA, num_generations 4)" if recommendation.economy else ""
    lines = [f"Recommended: {pipeline_name(recommendation.pipeline)}{economy}", ""]

    lines.append("Why")
    reasons = [r for r in recommendation.reasons if not r.says.startswith(NO_EFFECT)]
    for reason in reasons:
        head = f"  {reason.question:<16}  {reason.answer:<6}  "
        source = reason.source.replace("section ", "section\u00a0")  # not broken before its number
        text = reason.says if brief else f"{reason.says} ({source})"
        lines.append(wrap(text, " " * len(head), first=head))
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
        text = f"if {other.flips_when}" if brief else f"if {other.flips_when}: {other.why_not}"
        lines.append(wrap(text, " " * 22, first=head))

    if recommendation.warnings:
        lines += ["", "Note"]
        lines += [wrap(warning, "    ", first="  ! ") for warning in recommendation.warnings]
    return "\n".join(lines)


def show_model(model: str) -> str:
    """A model's size, as its config gives it."""
    from estimators.models import find_shape

    params = find_shape(model).params
    size = f"{params / 1e9:.3g} B" if params >= 5e8 else f"{params / 1e6:.3g} M"
    return f"  ✓ {model}: {size} parameters"


def show_data(report: DataReport) -> str:
    """How a data file reads: its format, and its first row in TRL's columns."""
    at_least = "at least " if report.sampled else ""
    rows = f"{at_least}{report.rows:,} row{'s' if report.rows != 1 else ''}"
    lines = [f"  ✓ {report.file}: {rows}, {report.format}; the first:"]
    lines += [
        f"      {name}: {shorten(value, 70 - len(name))}" for name, value in (report.sample or {}).items()
    ]
    odd = [f"line {w.line or w.row}: {w.reason}" for w in report.warnings[:2]]
    lines += [wrap(text, "    ", first="  ! ") for text in odd]
    return "\n".join(lines)


def shorten(value: object, width: int) -> str:
    """`value` on one line of at most `width` characters."""
    text = " ".join((value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).split())
    return text if len(text) <= width else text[: width - 1] + "…"


def show_plan(plan: Plan) -> str:
    """Each stage with its memory against what is free, its time, and what was changed to make it fit."""
    lines = [f"Plan: {pipeline_name(plan.pipeline)} of {plan.model}", wrap(plan.hardware, "  "), ""]
    lines.append(
        f"  {'stage':<9} {'tuning':<6} {'steps':>5}  {'memory needed, GiB':<19} {'free':>6}"
        f"  {'time':<17} fits"
    )
    for stage in plan.stages:
        memory = f"{_gib(stage.memory_gib)} (at most {_gib(stage.memory_high_gib)})"
        lines.append(
            f"  {stage.folder:<9} {stage.tuning:<6} {stage.steps or '':>5}  {memory:<19} "
            f"{_gib(stage.free_gib):>6}  {_span(stage.hours_low, stage.hours_high):<17} "
            f"{_VERDICTS[stage.verdict]}"
        )
    total = f"in all {_span(*plan.hours)}"
    if plan.usd:
        total += f", {plan.usd[0]:,.2f} to {plan.usd[1]:,.2f} US dollars"
    lines += ["", f"  {total} (estimated)"]
    changed = [f"{stage.folder}: {change}" for stage in plan.stages for change in stage.changes]
    if changed:
        lines += ["", "To make it fit"]
        lines += [wrap(text, "    ", first="  - ") for text in changed]
    for stage in plan.stages:
        if stage.shortfall:
            lines += ["", f"{stage.folder} does not fit"]
            lines += [wrap(stage.shortfall[0], "  ")]
            lines += [f"  {change}" for change in stage.shortfall[1:]]
    if plan.notes:
        lines += ["", "Note"]
        lines += [wrap(note, "    ", first="  ! ") for note in plan.notes]
    return "\n".join(lines)


_VERDICTS = {"fits": "yes", "tight": "tight", "does-not-fit": "NO"}


def _gib(gib: float) -> str:
    """GiB with the digits that say something: 0.95, 13.25, 141."""
    return f"{gib:.0f}" if gib >= 100 else f"{gib:.2f}"


def _span(hours_low: float, hours_high: float) -> str:
    """Two durations as one: "2–4 min" where they share their unit, else "50 s – 2 min"."""
    low, high = duration(3600 * hours_low), duration(3600 * hours_high)
    if low == high:
        return low
    if low.split()[1] == high.split()[1]:
        return f"{low.split()[0]}–{high}"
    return f"{low} – {high}"

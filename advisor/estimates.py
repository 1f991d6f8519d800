"""An estimate on the screen: lines of at most 80 columns, one unit, parts that sum to the peak."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from estimators.units import GIB, duration, gib

if TYPE_CHECKING:
    from pipelines.sizing import StageRequest, StageSize

WIDTH = 80

SENTENCES = {
    "fits": "It fits: even the high estimate is below what is free.",
    "tight": "It is tight: the likely peak fits, the high estimate does not.",
    "does-not-fit": "It does not fit.",
}


def lines(request: StageRequest, size: StageSize, remedies: list[str]) -> list[str]:
    """The answer: parts and peak, other phases, time and cost, the verdict, what helps, what was assumed."""
    per_gpu = f" on each of {size.num_gpus} GPUs" if size.num_gpus > 1 else ""
    found = wrapped(
        f"{request.method} of {request.model}, {request.tuning}{per_gpu}: {size.device}", "", "  "
    )
    column = max(28, *(len(name) for name in size.components))
    for name, value in sorted(size.components.items(), key=lambda item: -item[1]):
        if value >= 0.0005 * GIB:
            found.append(_part(name, value, column, size.formulas.get(name, "")))
    found.append(f"  {'peak':<{column}} {size.peak_bytes / GIB:>9.3f} GiB")
    found += wrapped(
        f"range {gib(size.low_bytes)} to {gib(size.high_bytes)}; free {gib(size.available_bytes)}; peak in "
        f"phase: {size.phase}",
        "  ",
    )
    found += _other_phases(size, column)
    low, high = duration(size.seconds["low"]), duration(size.seconds["high"])
    cost = f", {size.usd['low']:.2f} to {size.usd['high']:.2f} USD" if size.usd else ""
    found.append(f"Time for {size.steps} steps: {low} to {high}{cost} (estimated)")
    found.append(SENTENCES[size.verdict])
    for line in remedies:
        found += wrapped(line.strip(), line[: len(line) - len(line.lstrip())])
    return found + _assumed(size)


def wrapped(text: str, indent: str, further: str | None = None) -> list[str]:
    """`text` in lines of at most 80 columns."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "    " if further is None else further,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _part(name: str, value: int, column: int, formula: str = "", indent: str = "  ") -> str:
    """One component, with its formula in bytes where there is room for it."""
    line = f"{indent}{name:<{column}} {value / GIB:>9.3f} GiB"
    shown = re.sub(r"(?<![\d.])\d{5,}", lambda number: f"{int(number[0]):,}", formula).replace("*", "×")
    if not re.search(r"[-+×/]", shown) or len(line) + len(shown) + 5 > WIDTH:
        return line
    return f"{line} = {shown} B"


def _other_phases(size: StageSize, column: int) -> list[str]:
    """The sums of the other phases, and what the rollouts are made of."""
    others = {name: value for name, value in size.phases.items() if name not in (size.phase, "rollout")}
    found = []
    if others:
        sums = "; ".join(f"{name} {value / GIB:.2f}" for name, value in others.items())
        found += wrapped(f"Other phases, GiB in tensors: {sums}", "", "  ")
    if size.phase != "rollout" and "rollout" in size.phases:
        found.append(f"Rollout, GiB in tensors: {size.phases['rollout'] / GIB:.2f}, of which")
        for name, value in size.phase_components["rollout"].items():
            if name not in size.components and value >= 0.0005 * GIB:
                found.append(_part(name, value, column, size.formulas.get(name, ""), indent="    "))
    return found


def _assumed(size: StageSize) -> list[str]:
    """What was assumed, and in two lines what was not given."""
    found = ["Assumed (sources of the defaults: --json):"]
    defaults = [item for item in size.assumptions if item.source.startswith("not given")]
    for item in size.assumptions:
        if item not in defaults:
            found += wrapped(f"{item.name} = {item.value} ({item.source})", "  ")
    if defaults:
        found += wrapped("not given: " + ", ".join(f"{item.name} {item.value}" for item in defaults), "  ")
    return found

"""Exact length distributions from counts of lengths, and what they say about `max_length`."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Literal

from pipelines.datasets.report import Lengths

HISTOGRAM_BARS = 12


def lengths_of(counts: Counter[int], unit: Literal["characters", "tokens"] = "characters") -> Lengths | None:
    """The distribution of lengths; None where there are none."""
    total = counts.total()
    if not total:
        return None
    ordered = sorted(counts.items())
    return Lengths(
        unit=unit,
        mean=round(sum(length * rows for length, rows in ordered) / total, 2),
        p50=percentile(ordered, total, 0.50),
        p90=percentile(ordered, total, 0.90),
        p95=percentile(ordered, total, 0.95),
        p99=percentile(ordered, total, 0.99),
        max=ordered[-1][0],
        histogram=histogram(ordered),
    )


def percentile(ordered: list[tuple[int, int]], total: int, share: float) -> int:
    """The smallest length that at least `share` of the rows do not exceed (nearest rank)."""
    rank = max(1, math.ceil(share * total - 1e-9))
    seen = 0
    for length, rows in ordered:
        seen += rows
        if seen >= rank:
            return length
    return ordered[-1][0]


def histogram(ordered: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Bars of equal width in the logarithm, from the shortest to the longest length."""
    low, high = max(1, ordered[0][0]), ordered[-1][0] + 1
    ratio = max(high / low, 1.0) ** (1 / HISTOGRAM_BARS)
    edges = sorted(
        {0 if ordered[0][0] == 0 else low, *(round(low * ratio**i) for i in range(1, HISTOGRAM_BARS)), high}
    )
    bars = []
    for start, stop in itertools.pairwise(edges):
        rows = sum(count for length, count in ordered if start <= length < stop)
        bars.append((start, stop, rows))
    return bars


def propose_max_length(ordered: list[tuple[int, int]], total: int) -> int:
    """A `max_length` that cuts at most one row in a hundred: the 99th percentile, up to a multiple of 128."""
    return max(128, math.ceil(percentile(ordered, total, 0.99) / 128) * 128)

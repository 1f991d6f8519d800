"""pass@k and its interval, from counts of right completions per prompt."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pipelines.stages import Interval

Z_95 = 1.959963984540054


def pass_at_k(num_samples: int, num_right: int, k: int) -> float:
    """Unbiased chance that at least one of k completions is right.

    1 - C(n - c, k) / C(n, k) for n samples of which c are right. Source: Chen et al., arXiv:2107.03374,
    section 2.1.
    """
    if not 1 <= k <= num_samples:
        raise ValueError(f"k must be between 1 and {num_samples}, not {k}")
    if num_samples - num_right < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(num_samples - num_right + 1, num_samples + 1))


def mean_interval(values: Sequence[float]) -> Interval:
    """Mean of per-prompt values in [0, 1] with a 95 % interval.

    Completions of one prompt are not independent, so the prompt is the unit: Wilson's interval at the
    effective number of draws, p(1 - p) over the variance of the mean, and at the number of prompts where
    all values are 0 or all are 1. Source: Wilson, JASA 22 (1927); Korn and Graubard, 1998, for the
    effective number.
    """
    n = len(values)
    if n == 0:
        raise ValueError("no values")
    p = sum(values) / n
    variance = sum((value - p) ** 2 for value in values) / (n - 1) / n if n > 1 else 0.0
    effective = p * (1 - p) / variance if variance > 0 else float(n)
    return wilson(p, effective)


def wilson(p: float, n: float) -> Interval:
    """Wilson's score interval of a share `p` seen in `n` draws."""
    p = min(max(p, 0.0), 1.0)
    centre = (p + Z_95**2 / (2 * n)) / (1 + Z_95**2 / n)
    half = Z_95 / (1 + Z_95**2 / n) * math.sqrt(p * (1 - p) / n + Z_95**2 / (4 * n * n))
    return Interval(value=p, low=max(0.0, min(centre - half, p)), high=min(1.0, max(centre + half, p)))


def paired_difference(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float]:
    """Mean change of per-prompt values on the same prompts, with a 95 % interval (normal, paired)."""
    if len(before) != len(after) or not before:
        raise ValueError("both sides need the same prompts")
    changes = [b - a for a, b in zip(before, after, strict=True)]
    n = len(changes)
    mean = sum(changes) / n
    variance = sum((change - mean) ** 2 for change in changes) / (n - 1) / n if n > 1 else 0.0
    half = Z_95 * math.sqrt(variance)
    return mean, mean - half, mean + half

"""Line charts and interval charts as inline SVG, so that a report needs no script and no network."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

WIDTH, HEIGHT = 360, 190
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 28, 30

Points = Sequence[tuple[float, float]]


def line_chart(title: str, points: Points, unit: str = "step") -> str:
    """One curve over steps, faint as it is and bold as a moving mean; empty where there is nothing."""
    points = [(x, y) for x, y in points if math.isfinite(y)]
    if len(points) < 2:
        return ""
    x_low, x_high = points[0][0], points[-1][0]
    ticks = nice_ticks(min(y for _, y in points), max(y for _, y in points))
    y_low, y_high = ticks[0], ticks[-1]

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - x_low) / (x_high - x_low or 1)
        up = (y - y_low) / (y_high - y_low or 1)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    grid = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
        for tick, y in ((tick, place(x_low, tick)[1]) for tick in ticks)
    )
    smooth = moving_mean(points, max(1, len(points) // 12))
    last = place(*smooth[-1])
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">'
        f'<text class="title" x="{LEFT}" y="16">{html.escape(title)}</text>{grid}'
        f'<polyline class="raw" points="{_path(points, place)}"/>'
        f'<polyline class="mean" points="{_path(smooth, place)}"/>'
        f'<circle class="end" cx="{last[0]:.1f}" cy="{last[1]:.1f}" r="3"/>'
        f'<text class="tick" x="{LEFT}" y="{HEIGHT - 10}">{unit} {x_low:g}</text>'
        f'<text class="tick" x="{WIDTH - RIGHT}" y="{HEIGHT - 10}" text-anchor="end">{x_high:g}</text></svg>'
    )


def _path(points: Points, place: object) -> str:
    return " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in points)  # type: ignore[operator]


def moving_mean(points: Points, half: int) -> list[tuple[float, float]]:
    """Each value replaced by the mean of its neighbours up to `half` places away."""
    means = []
    for index, (x, _) in enumerate(points):
        near = [y for _, y in points[max(0, index - half) : index + half + 1]]
        means.append((x, sum(near) / len(near)))
    return means


def nice_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Round numbers that cover [low, high], about `count` steps apart."""
    if high - low < 1e-12:
        low, high = low - 0.5, high + 0.5
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def histogram(title: str, bins: Sequence[tuple[int, int, int]]) -> str:
    """Counts over ranges: (from, up to and without, count); empty where there are none."""
    if not bins:
        return ""
    low, high, top = bins[0][0], bins[-1][1], max(count for _, _, count in bins) or 1
    across, up = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(value: float) -> float:
        return LEFT + (value - low) / (high - low or 1) * across

    bars = "".join(
        f'<rect class="bar" x="{x(start):.1f}" y="{HEIGHT - BOTTOM - count / top * up:.1f}" '
        f'width="{max(x(end) - x(start) - 1, 1):.1f}" height="{count / top * up:.1f}"/>'
        for start, end, count in bins
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">'
        f'<text class="title" x="{LEFT}" y="16">{html.escape(title)}</text>'
        f'<text class="tick" x="{LEFT - 6}" y="{TOP + 8}" text-anchor="end">{top}</text>{bars}'
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>'
        f'<text class="tick" x="{LEFT}" y="{HEIGHT - 10}">{low}</text>'
        f'<text class="tick" x="{WIDTH - RIGHT}" y="{HEIGHT - 10}" text-anchor="end">{high}</text></svg>'
    )


def interval_chart(rows: Sequence[tuple[str, float, float, float]]) -> str:
    """One bar per row from 0 to 1 with its 95 % interval: (label, value, low, high)."""
    height = 26 * len(rows) + 26
    left, width = 110, 560
    span = width - left - 70

    def x(share: float) -> float:
        return left + share * span

    grid = "".join(
        f'<line class="grid" x1="{x(t):.1f}" x2="{x(t):.1f}" y1="4" y2="{height - 22}"/>'
        f'<text class="tick" x="{x(t):.1f}" y="{height - 6}" text-anchor="middle">{t:g}</text>'
        for t in (0, 0.25, 0.5, 0.75, 1)
    )
    bars = "".join(
        f'<text class="label" x="{left - 8}" y="{y + 13}" text-anchor="end">{html.escape(label)}</text>'
        f'<rect class="bar" x="{x(0):.1f}" y="{y}" width="{max(value * span, 0.5):.1f}" height="18" rx="2"/>'
        f'<line class="whisker" x1="{x(low):.1f}" x2="{x(high):.1f}" y1="{y + 9}" y2="{y + 9}"/>'
        f'<text class="value" x="{x(max(value, high)) + 8:.1f}" y="{y + 13}">{value:.3f}</text>'
        for y, (label, value, low, high) in ((6 + 26 * i, row) for i, row in enumerate(rows))
    )
    head = f'<svg class="wide" viewBox="0 0 {width} {height}" role="img" aria-label="pass@1 by stage">'
    return f"{head}{grid}{bars}</svg>"

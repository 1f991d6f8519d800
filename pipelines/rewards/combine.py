"""Several rewards as one: weighted sums and gates, with every component logged under its own name.

The task reward is always the first component and is always logged unshaped, as `task`: the pass rate and
dynamic sampling read that column, never the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from estimators.errors import BadInput

AnyReward = Callable[..., Sequence[float | None]]
Component = tuple[str, AnyReward, float]
"""Name, function, weight."""


class Components:
    """The values of every component of the newest call, by name: `{"task": [...], "overlong": [...]}`."""

    def __init__(self) -> None:
        self.values: dict[str, list[float | None]] = {}


class WeightedSum:
    """task + sum of weight x shaping; None wherever the task reward is None.

    Raises BadInput for no component, a repeated name or an empty one. A shaping component that is None
    counts as 0 in the sum and stays None in the log.
    """

    def __init__(self, task: AnyReward, shaping: Sequence[Component] = (), task_weight: float = 1.0) -> None:
        self.parts: list[Component] = [("task", task, task_weight), *shaping]
        _check_names([name for name, _, _ in self.parts])
        self.components = Components()
        self.__name__ = "weighted_sum"

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float | None]:
        values = _call_all(self.parts, completions, columns)
        self.components.values = values
        _log(values, columns)
        totals: list[float | None] = []
        for row in range(len(completions)):
            if values["task"][row] is None:
                totals.append(None)
            else:
                totals.append(sum(weight * (values[name][row] or 0.0) for name, _, weight in self.parts))
        return totals


class Gate:
    """The task reward where every gate holds, else 0.0: "correct and safe and short".

    A gate is (name, reward, least): it holds where its value is at least `least`. A gate that is None does
    not hold, except that a None of the task reward stays None.
    """

    def __init__(self, task: AnyReward, gates: Sequence[Component]) -> None:
        self.parts: list[Component] = [("task", task, 0.0), *gates]
        _check_names([name for name, _, _ in self.parts])
        self.components = Components()
        self.__name__ = "gate"

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float | None]:
        values = _call_all(self.parts, completions, columns)
        self.components.values = values
        _log(values, columns)
        rewards: list[float | None] = []
        for row in range(len(completions)):
            open_ = all(_at_least(values[name][row], least) for name, _, least in self.parts[1:])
            task = values["task"][row]
            rewards.append(task if open_ or task is None else 0.0)
        return rewards


def _at_least(value: float | None, least: float) -> bool:
    return value is not None and value >= least


def _check_names(names: list[str]) -> None:
    if len(set(names)) != len(names) or not all(names):
        raise BadInput(f"the components of a reward need different names, found {names}")


def _call_all(
    parts: Sequence[Component], completions: Sequence[Any], columns: dict[str, Any]
) -> dict[str, list[float | None]]:
    values = {}
    for name, function, _ in parts:
        values[name] = list(function(completions=completions, **columns))
        if len(values[name]) != len(completions):
            raise ValueError(f"reward {name}: {len(values[name])} values for {len(completions)} completions")
    return values


def _log(values: dict[str, list[float | None]], columns: dict[str, Any]) -> None:
    """Hand each component to TRL's `log_metric` (mean) and `log_extra` (column) where the trainer passes
    them.
    """
    log_metric, log_extra = columns.get("log_metric"), columns.get("log_extra")
    for name, column in values.items():
        scored = [v for v in column if v is not None]
        if callable(log_metric) and scored:
            log_metric(f"reward/{name}", sum(scored) / len(scored))
        if callable(log_extra):
            log_extra(f"reward_{name}", column)

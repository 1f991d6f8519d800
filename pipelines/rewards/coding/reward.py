"""The reward for model-written programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from estimators.errors import BadInput


def score(
    completions: Sequence[Any], tests: Sequence[Any], entry_point: Any = None, timeout_s: Any = None
) -> list[float | None]:
    """One reward per completion, as described in `pipelines.rewards.code_reward`."""
    raise BadInput(
        "code_reward: this version has no sandbox yet, and never runs model-written code without one"
    )

"""A reward that, when it fails, says on which completion: an exception never becomes a 0."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from estimators.errors import BadInput
from pipelines.training.evaluation import text_of

Reward = Callable[..., "list[float | None]"]


class GuardedReward:
    """Calls a reward as TRL does and checks what comes back.

    Raises: BadInput that names the reward, what it did, its file and line, and the completion.
    """

    def __init__(self, reward: Reward, name: str) -> None:
        self.reward = reward
        self.name = name
        self.__name__ = str(getattr(reward, "__name__", name))
        """TRL logs a reward under this name."""

    def __call__(self, completions: list[Any], **columns: Any) -> list[float | None]:
        try:
            scores = self.reward(completions=completions, **columns)
        except BadInput:
            raise
        except (Exception, SystemExit) as error:
            raise self._explained(error, completions, columns) from error
        if not isinstance(scores, (list, tuple)) or len(scores) != len(completions):
            listed = isinstance(scores, (list, tuple))
            found = f"{len(scores)} values" if listed else f"a {type(scores).__name__}"
            raise BadInput(
                f"the reward {self.name} returned {found} for {len(completions)} completions; it must return "
                "a list with one number or None per completion"
            )
        return [self._checked(score, text) for score, text in zip(scores, completions, strict=True)]

    def _checked(self, score: Any, completion: Any) -> float | None:
        """A finite number or None."""
        if score is None:
            return None
        try:
            number = float(score)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise BadInput(
                f"the reward {self.name} returned {score!r}, which is no number, for the completion "
                f"{text_of(completion)[:200]!r}"
            )
        return number

    def _explained(self, error: BaseException, completions: list[Any], columns: dict[str, Any]) -> BadInput:
        """The error with the first completion that raises it alone."""
        frames = traceback.extract_tb(error.__traceback__)
        where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
        sample = next((c for i, c in enumerate(completions) if self._fails(i, completions, columns)), None)
        on = f", on the completion {text_of(sample)[:200]!r}" if sample is not None else ""
        what = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return BadInput(f"the reward {self.name} raised {what} ({where}){on}")

    def _fails(self, index: int, completions: list[Any], columns: dict[str, Any]) -> bool:
        """Whether the reward raises on one completion by itself."""
        size = len(completions)
        alone = {
            name: [value[index]] if isinstance(value, list) and len(value) == size else value
            for name, value in columns.items()
        }
        try:
            self.reward(completions=[completions[index]], **alone)
        except (Exception, SystemExit):
            return True
        return False

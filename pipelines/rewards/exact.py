"""The simplest reward: the last number of the completion, compared exactly."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from pipelines.rewards.text import completion_text, per_completion, warn_once

_NUMBER = re.compile(
    r"(?<![\w.])[-+−]?(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d{1,400})(?:\.\d{1,400})?"
    r"(?:[eE][-+]?\d{1,3}(?!\d)|/[1-9]\d{0,100}(?![\d/.]))?|"
    r"(?<![\w.])[-+−]?\.\d{1,400}"
)


def last_number(text: str) -> Fraction | None:
    """The last number in `text` (thousands commas, a sign, decimals, 1e5), exactly; None where there is
    none.
    """
    found = None
    for found in _NUMBER.finditer(text[-20_000:]):  # noqa: B007
        pass
    if found is None:
        return None
    top, _, bottom = found.group().replace(",", "").replace("−", "-").partition("/")
    return Fraction(top) / Fraction(bottom or 1)


def score(completions: Sequence[Any], answer: Sequence[Any]) -> list[float | None]:
    """1.0 where the last number equals `answer`, else 0.0; None where `answer` holds no number."""
    rewards: list[float | None] = []
    for completion, gold in zip(completions, per_completion(answer, len(completions), "answer"), strict=True):
        wanted = _gold_number(gold)
        if wanted is None:
            warn_once(
                f"exact:{gold!r:.200}",
                f"exact_answer: {gold!r:.80} holds no number; such rows are not scored",
            )
            rewards.append(None)
        else:
            rewards.append(1.0 if last_number(completion_text(completion)) == wanted else 0.0)
    return rewards


def _gold_number(gold: Any) -> Fraction | None:
    if isinstance(gold, bool) or gold is None:
        return None
    try:
        return Fraction(gold) if isinstance(gold, int) else last_number(str(gold))
    except (ValueError, OverflowError):
        return None

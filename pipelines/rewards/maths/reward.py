"""The reward for mathematics: extract, compare the easy pairs here, send the others to a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipelines.rewards.maths.extract import answer_of
from pipelines.rewards.text import completion_text, per_completion, warn_once
from pipelines.rewards.workers import POOL

CHECK_LIMIT_S = 2.0


def score(completions: Sequence[Any], answer: Sequence[Any]) -> list[float | None]:
    """One reward per completion, as described in `pipelines.rewards.math_reward`."""
    golds = per_completion(answer, len(completions), "answer")
    rewards: list[float | None] = [0.0] * len(completions)
    jobs, places = [], []
    for place, (completion, gold_value) in enumerate(zip(completions, golds, strict=True)):
        gold = "" if gold_value is None else str(gold_value).strip()
        if not gold:
            warn_once(
                f"math:{gold_value!r}", "math_reward: a row has an empty answer; such rows are not scored"
            )
            rewards[place] = None
            continue
        pred = answer_of(completion_text(completion))
        if pred is None:
            continue
        if pred.strip() == gold:
            rewards[place] = 1.0
            continue
        jobs.append({"kind": "math", "gold": gold, "pred": pred})
        places.append(place)
    for place, verdict in zip(places, POOL.run(jobs, CHECK_LIMIT_S), strict=True):
        rewards[place] = verdict if isinstance(verdict, float) else 0.0
    return rewards

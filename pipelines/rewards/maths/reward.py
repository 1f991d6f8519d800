"""The reward for mathematics: extract the answer, decide the plain pairs here, send the others to a
worker.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from pipelines.rewards.maths.extract import answer_of, last_box
from pipelines.rewards.text import completion_text, per_completion, warn_once
from pipelines.rewards.workers import POOL

CHECK_LIMIT_S = 2.0
"""Wall clock of one check in its worker; a check that needs longer is worth 0."""

_PLAIN = re.compile(r"[-+]?(?:\d{1,300}(?:\.\d{1,300})?|\.\d{1,300})$")


def score(completions: Sequence[Any], answer: Sequence[Any]) -> list[float | None]:
    """One reward per completion, as described in `pipelines.rewards.math_reward`."""
    golds = [gold_text(g) for g in per_completion(answer, len(completions), "answer")]
    rewards: list[float | None] = [0.0] * len(completions)
    jobs: list[dict[str, Any]] = []
    places: list[int] = []
    for place, (completion, gold) in enumerate(zip(completions, golds, strict=True)):
        pred = answer_of(completion_text(completion))
        plain = _plain_verdict(gold, pred)
        if plain is not None:
            rewards[place] = plain
        else:  # also where there is no answer: only the engine knows whether the gold can be used
            jobs.append({"kind": "math", "gold": gold, "pred": pred or ""})
            places.append(place)
    for place, job, verdict in zip(places, jobs, POOL.run(jobs, CHECK_LIMIT_S), strict=True):
        rewards[place] = _settled(job, verdict)
        if rewards[place] is None:
            warn_once(
                f"math:{job['gold'][:200]}",
                f"math_reward: the answer {job['gold'][:80]!r} cannot be compared with anything; such "
                "rows are not scored (None). Put the bare final answer into the `answer` column",
            )
    return rewards


def gold_text(gold: Any) -> str:
    """The gold answer as text: a number, a string, or a worked solution that ends in a box or in `####
    42`.
    """
    if gold is None or isinstance(gold, bool):
        return "" if gold is None else str(gold)
    text = gold.strip() if isinstance(gold, str) else str(gold)
    boxed = last_box(text)
    if boxed is not None:
        return boxed.strip()
    _, marked, tail = text.rpartition("\n####")
    return (tail if marked else text.removeprefix("####")).strip()


def _plain_verdict(gold: str, pred: str | None) -> float | None:
    """The verdict where both sides are plain decimal numbers, which is most often; None where they are
    not.
    """
    if pred is None or not _PLAIN.match(gold):
        return None
    pred = pred.strip().strip("$").strip()
    if not _PLAIN.match(pred):
        return None
    return 1.0 if gold == pred or Fraction(gold) == Fraction(pred) else 0.0


def _settled(job: dict[str, Any], verdict: Any) -> float | None:
    """A worker's verdict; where it has none (hang, crash), the gold alone decides between 0.0 and None."""
    if isinstance(verdict, int | float):
        return float(verdict)
    if verdict == "unusable gold":
        return None
    (alone,) = POOL.run([{"kind": "math", "gold": job["gold"], "pred": "x+0"}], CHECK_LIMIT_S)
    return 0.0 if isinstance(alone, int | float) else None

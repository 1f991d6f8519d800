"""Scoring one reasoning-gym answer in a worker, under limits.

Some of the package's verifiers hand the model's text to `eval` or to sympy's parser, which evaluates. For
those datasets the text must first pass a narrow grammar: numbers, names from a short list, operators,
brackets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pipelines.rewards.text import warn_once

LIMIT_S = 3.0
MAX_ANSWER_CHARS = 10_000
EVALUATING = frozenset(
    {
        "string_insertion", "spiral_matrix", "binary_matrix", "n_queens", "simple_integration",
        "intermediate_integration", "polynomial_multiplication", "puzzle24", "countdown", "number_sorting",
        "codeio",
        "composite",
    }
)  # fmt: skip
_CALLABLE = frozenset(
    {
        "sqrt",
        "sin",
        "cos",
        "tan",
        "exp",
        "log",
        "ln",
        "abs",
        "Abs",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
    }
)


def score_answers(sources: Sequence[dict[str, Any] | None], answers: Sequence[str]) -> list[float | None]:
    """1.0 where the dataset's own verifier gives an answer its full score, else 0.0; None for an unusable
    row.

    Partial credit is dropped: the package's default pays any text that contains the answer a little.
    """
    from pipelines.rewards.workers import POOL

    rewards: list[float | None] = [None if source is None else 0.0 for source in sources]
    jobs: list[dict[str, Any]] = []
    places: list[int] = []
    for place, (source, answer) in enumerate(zip(sources, answers, strict=True)):
        if source is None or not answer or len(answer) > MAX_ANSWER_CHARS:
            continue
        if source["name"] not in EVALUATING or harmless(answer):
            jobs.append({"kind": "reasoning_gym", "source": source, "answer": answer})
            places.append(place)
    for place, job, verdict in zip(places, jobs, POOL.run(jobs, LIMIT_S), strict=True):
        name = job["source"]["name"]
        if verdict == "bad gold" or (isinstance(verdict, dict) and "error" in verdict):
            warn_once(f"gym:{name}", f"reasoning_gym:{name}: a row cannot be scored ({verdict})")
            rewards[place] = None
        else:
            rewards[place] = 1.0 if isinstance(verdict, int | float) and verdict >= 1.0 else 0.0
    return rewards


def harmless(answer: str) -> bool:
    """Whether `answer` can be handed to an evaluator: no attribute, no call outside a short list, no power
    tower.
    """
    if (
        len(answer) > 2000
        or "__" in answer
        or re.search(r"\.\s*[A-Za-z_]|\*\*.*\*\*|\^.*\^|\d{40}|[{}@;:\\`!%&|<>]", answer)
    ):
        return False
    if re.search(
        r"(?:\*\*|\^)\s*\(?\s*\d{3}|\*\*\s*\(|\b(?:lambda|for|if|import|exec|eval|not|yield|await)\b", answer
    ):
        return False
    calls = re.findall(r"([A-Za-z_]\w*)\s*\(", answer)
    return all(name in _CALLABLE or len(name) == 1 for name in calls)


def score_here(job: dict[str, Any]) -> float | str:
    """Run in the worker: the score, or "bad gold" where the dataset's own answer does not score."""
    from pipelines.rewards.reasoning_gym_source import dataset_of

    source = job["source"]
    dataset = dataset_of(source)
    entry = dataset[int(source["index"])]
    try:
        return float(dataset.score_answer(job["answer"], entry))
    except Exception:
        # the verifier choked on this text: the text is at fault unless the gold chokes it too
        try:
            dataset.score_answer(entry["answer"], entry)
        except Exception:
            return "bad gold"
        return 0.0

"""Rewards that shape how a completion looks, never whether it is right: format, length, repetition, overlong.

Each function here makes a reward with TRL's signature. Add them to the task reward through
`pipelines.rewards.combine`, which keeps the task reward apart: dynamic sampling and the pass rate must be
read from the task reward alone, since a length penalty makes a group without signal look informative.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from estimators.errors import BadInput
from pipelines.rewards.text import completion_text

ShapingReward = Callable[..., list[float]]


def format_reward(pattern: str = r"<think>.*?</think>\s*\S.*", flags: int = re.DOTALL) -> ShapingReward:
    """1.0 where the whole completion matches `pattern` and its tags are used once, else 0.0.

    The default asks for one `<think>...</think>` followed by an answer, as DeepSeek-R1 does
    (arXiv:2501.12948, section 2.2.2). A second `<think>` or `</think>` is refused: it is the usual way to
    game this reward.
    """
    compiled = re.compile(pattern, flags)
    tags = [tag for tag in ("<think>", "</think>", "<answer>", "</answer>") if tag in pattern]

    def format(completions: Sequence[Any], **kwargs: Any) -> list[float]:
        texts = [completion_text(c).strip() for c in completions]
        return [
            1.0 if compiled.fullmatch(t) and all(t.count(tag) == 1 for tag in tags) else 0.0 for t in texts
        ]

    return format


def length_reward(target_len: int, tolerance: int) -> ShapingReward:
    """1.0 within `tolerance` tokens of `target_len`, falling linearly to 0.0 at twice that distance.

    Counts `completion_ids`, the tokens that TRL passes.
    """
    if target_len < 1 or tolerance < 1:
        raise BadInput(f"length reward: target_len {target_len} and tolerance {tolerance} must be at least 1")

    def length(completion_ids: Sequence[Sequence[int]], **kwargs: Any) -> list[float]:
        distances = [abs(len(ids) - target_len) for ids in completion_ids]
        return [min(1.0, max(0.0, 2.0 - distance / tolerance)) for distance in distances]

    return length


def repetition_penalty(ngram_size: int = 4, max_penalty: float = -1.0) -> ShapingReward:
    """`max_penalty` times the share of repeated n-grams of tokens; 0.0 where none repeats.

    Source: arXiv:2502.03373, appendix C.2. Worked example, n = 2, penalty -1: tokens 5 5 5 5 5 hold 4
    bigrams of which 1 is distinct, so the reward is -(1 - 1/4) = -0.75.
    """
    if ngram_size < 1:
        raise BadInput(f"repetition: ngram_size is {ngram_size}, it must be at least 1")
    if max_penalty > 0:
        raise BadInput(f"repetition: max_penalty is {max_penalty}, it must not be positive")

    def repetition(completion_ids: Sequence[Sequence[int]], **kwargs: Any) -> list[float]:
        rewards = []
        for ids in completion_ids:
            ngrams = list(zip(*(ids[i:] for i in range(ngram_size)), strict=False))
            repeated = 1 - len(set(ngrams)) / len(ngrams) if ngrams else 0.0
            rewards.append(repeated * max_penalty if repeated else 0.0)
        return rewards

    return repetition


def soft_overlong(max_completion_len: int, soft_punish_cache: int) -> ShapingReward:
    """DAPO's soft overlong punishment: 0 up to max - cache tokens, then linearly down to -1 at max.

    Source: DAPO, arXiv:2503.14476, equation 13. With max 20480 and cache 4096, a completion of 18432 tokens
    gets ((20480 - 4096) - 18432) / 4096 = -0.5. Counts `completion_ids`.
    """
    if not 0 < soft_punish_cache <= max_completion_len:
        raise BadInput(
            f"soft overlong: soft_punish_cache {soft_punish_cache} must lie in 1 ... max_completion_len "
            f"({max_completion_len})"
        )
    free_len = max_completion_len - soft_punish_cache

    def overlong(completion_ids: Sequence[Sequence[int]], **kwargs: Any) -> list[float]:
        return [
            0.0 if len(ids) <= free_len else max(-1.0, (free_len - len(ids)) / soft_punish_cache)
            for ids in completion_ids
        ]

    overlong.__name__ = "soft_overlong"
    return overlong

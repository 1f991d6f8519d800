"""Reward functions with the signature of TRL, and how a reward is named.

A reward is called with keyword lists, one entry per completion: `prompts`, `completions`, `completion_ids`
and the columns of the dataset. A completion is a string or a list of messages. The result is one number in
[0, 1] per completion, or None where the row cannot be scored (its gold is unusable): None is never a silent
0.

Importing this package is light; a reward's own imports happen when it is first called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pipelines.rewards.loading import RewardFunction, load_reward, required_columns

__all__ = [
    "REWARDS",
    "RewardFunction",
    "code_reward",
    "exact_answer",
    "json_schema_reward",
    "load_reward",
    "math_reward",
    "required_columns",
    "tool_call_reward",
]


def math_reward(completions: Sequence[Any], answer: Sequence[Any], **kwargs: Any) -> list[float | None]:
    r"""1.0 where the answer of the completion equals the gold `answer`, else 0.0; None where the gold is
    unusable.

    The answer is the last `\boxed{...}`, or a final-answer phrase where there is no box. Equality is
    mathematical and exact (`\frac{2}{4}` equals `0.5`, `0.33` does not equal `\frac13`): see
    docs/rewards/math.md.
    """
    from pipelines.rewards.maths.reward import score

    return score(completions, answer)


def code_reward(
    completions: Sequence[Any],
    tests: Sequence[Any],
    entry_point: Sequence[str | None] | str | None = None,
    timeout_s: Sequence[float | None] | float | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """1.0 where the program in the completion passes all `tests` in the sandbox, else 0.0; None where a test
    is unusable.

    A row's tests are a list (or its JSON text) of `{"code": ...}` (asserts), `{"stdin": ..., "stdout": ...}`
    or `{"args": [...], "kwargs": {...}, "returns": ...}`. Raises BadInput where the machine offers no strong
    isolation: model-written code never runs unprotected. See docs/rewards/code.md.
    """
    from pipelines.rewards.coding.reward import score

    return score(completions, tests, entry_point, timeout_s)


def json_schema_reward(
    completions: Sequence[Any], schema: Sequence[Any], partial: bool = False, **kwargs: Any
) -> list[float | None]:
    """1.0 where the completion is JSON that fits `schema`, else 0.0; None where the schema is unusable.

    A schema is a JSON Schema (dict or JSON text) or a pydantic model class. `partial` pays the share of the
    schema's properties that are right. See docs/rewards/json_schema.md.
    """
    from pipelines.rewards.structured import score_json

    return score_json(completions, schema, partial)


def tool_call_reward(
    completions: Sequence[Any], tool_calls: Sequence[Any], **kwargs: Any
) -> list[float | None]:
    """1.0 where the completion makes exactly the gold `tool_calls`, in any order, else 0.0; None for
    unusable gold.

    Reads OpenAI's, Hermes's (`<tool_call>`) and TRL's forms. See docs/rewards/tool_call.md.
    """
    from pipelines.rewards.toolcalls import score_tool_calls

    return score_tool_calls(completions, tool_calls)


def exact_answer(completions: Sequence[Any], answer: Sequence[Any], **kwargs: Any) -> list[float | None]:
    """1.0 where the last number of the completion equals `answer`, else 0.0; None where `answer` holds no
    number.
    """
    from pipelines.rewards.exact import score

    return score(completions, answer)


REWARDS: dict[str, Callable[..., list[float | None]]] = {
    "math": math_reward,
    "code": code_reward,
    "json_schema": json_schema_reward,
    "tool_call": tool_call_reward,
    "exact_answer": exact_answer,
}

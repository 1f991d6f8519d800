"""The reward for tool calls: the same calls with the same arguments, in any order."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from pipelines.rewards.jsontext import NotJson, strict_loads
from pipelines.rewards.text import completion_text, per_completion, warn_once

_HERMES = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_PREFIXES = ("<|python_tag|>", "[TOOL_CALLS]")
_FENCED = re.compile(r"```(?:json|tool_call)?\s*\n(.*?)\n\s*```", re.DOTALL | re.IGNORECASE)

Call = tuple[str, Any]
"""Name and canonical arguments."""


class NotACall(ValueError):
    """Something that should be a tool call is none."""


def score_tool_calls(completions: Sequence[Any], tool_calls: Sequence[Any]) -> list[float | None]:
    """One reward per completion, as described in `pipelines.rewards.tool_call_reward`."""
    rewards: list[float | None] = []
    for completion, gold in zip(
        completions, per_completion(tool_calls, len(completions), "tool_calls"), strict=True
    ):
        try:
            wanted = _gold_calls(gold)
        except (NotACall, NotJson):
            warn_once(
                f"tools:{gold!r:.200}", f"tool_call_reward: {gold!r:.80} is no list of calls; not scored"
            )
            rewards.append(None)
            continue
        try:
            made = calls_in(completion)
        except (NotACall, NotJson, RecursionError):
            rewards.append(0.0)
            continue
        silent = not made and not completion_text(completion).strip()
        rewards.append(1.0 if Counter(made) == Counter(wanted) and not silent else 0.0)
    return rewards


def calls_in(completion: Any) -> list[Call]:
    """Every tool call of a completion: of its messages (OpenAI's and TRL's form), else of its text (Hermes,
    JSON).
    """
    if isinstance(completion, Sequence) and not isinstance(completion, str):
        messages = [
            m for m in completion if isinstance(m, dict) and m.get("role", "assistant") == "assistant"
        ]
        structured = [call for m in messages for call in (m.get("tool_calls") or [])]
        if structured:
            return [_call(call) for call in structured]
    return _calls_in_text(completion_text(completion))


def _gold_calls(gold: Any) -> list[Call]:
    if isinstance(gold, str):
        gold = strict_loads(gold)
    if isinstance(gold, dict):
        gold = gold.get("tool_calls", [gold])
    if not isinstance(gold, list | tuple):
        raise NotACall
    return [_call(call) for call in gold]


def _calls_in_text(text: str) -> list[Call]:
    text = text.rpartition("</think>")[2].strip()
    for end in ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "</s>"):
        text = text.removesuffix(end).rstrip()
    if "<tool_call>" in text:
        if text.count("<tool_call>") != text.count("</tool_call>"):
            raise NotACall("a tool call is cut off")
        return [_call(strict_loads(block.strip())) for block in _HERMES.findall(text)]
    bare = text
    for prefix in _PREFIXES:
        bare = bare.removeprefix(prefix).lstrip()
    fenced = _FENCED.findall(bare)
    if fenced:
        bare = fenced[-1].strip()
    if not bare.startswith(("{", "[")):
        return []
    try:
        value = strict_loads(bare)
    except NotJson:
        if bare is text:
            return []
        raise
    if isinstance(value, dict) and "tool_calls" in value:
        value = value["tool_calls"]
    return [_call(call) for call in (value if isinstance(value, list) else [value])]


def _call(call: Any) -> Call:
    """One call in any of the accepted forms; NotACall where it is none."""
    if not isinstance(call, dict):
        raise NotACall
    inner = call.get("function", call)
    if isinstance(inner, str):  # {"function": "name", "arguments": {...}}
        inner = {"name": inner, **{k: v for k, v in call.items() if k != "function"}}
    if not isinstance(inner, dict):
        raise NotACall
    name = inner.get("name")
    arguments = inner.get("arguments", inner.get("parameters"))
    if isinstance(arguments, str):
        arguments = strict_loads(arguments) if arguments.strip() else {}
    if arguments is None:
        arguments = {}
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        raise NotACall
    return name, canonical(arguments)


def canonical(value: Any) -> Any:
    """Hashable plain data that is equal where two argument values mean the same.

    Numbers by value (1 equals 1.0, true equals neither), keys in any order, keys that hold null left out.
    """
    if isinstance(value, dict):
        items = [(str(k), canonical(v)) for k, v in value.items() if v is not None]
        return ("object", tuple(sorted(items, key=lambda item: item[0])))
    if isinstance(value, list | tuple):
        return ("array", tuple(canonical(v) for v in value))
    if isinstance(value, bool) or value is None:
        return ("constant", value)
    if isinstance(value, int | float):
        try:
            return ("number", Fraction(value))
        except (ValueError, OverflowError):
            return ("number", repr(value))
    if isinstance(value, str):
        return ("string", value)
    return ("other", json.dumps(value, sort_keys=True, default=str))

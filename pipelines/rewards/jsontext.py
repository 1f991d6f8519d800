"""JSON inside a completion, read strictly: a duplicated key, NaN or a number beyond a double is no JSON."""

from __future__ import annotations

import json
import math
import re
from typing import Any

MAX_JSON_CHARS = 200_000
MAX_DEPTH = 200
_FENCE = re.compile(
    r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+-]*)[^\n]*\n(.*?)^[ \t]*\1[`~]*[ \t]*$", re.DOTALL | re.MULTILINE
)


class NotJson(ValueError):
    """The text holds no JSON value that can be read strictly."""


def strict_loads(text: str) -> Any:
    """The one JSON value in `text`; NotJson for duplicated keys, NaN, Infinity, overflow, or deep nesting."""
    if len(text) > MAX_JSON_CHARS or _depth(text) > MAX_DEPTH:
        raise NotJson("too long or too deeply nested")
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from None


def json_in(completion: str) -> Any:
    """The JSON value that a completion gives: its last fenced block, or its last bare value; NotJson if none.

    Text around it is allowed. What stands inside `<think>` is not the answer.
    """
    text = completion.rpartition("</think>")[2].strip()
    if len(text) > MAX_JSON_CHARS:
        raise NotJson("too long")
    blocks = [
        m.group(3) for m in _FENCE.finditer(text) if m.group(2).lower() in ("", "json", "jsonc", "json5")
    ]
    if blocks:
        return strict_loads(blocks[-1].strip())
    try:
        return strict_loads(text)
    except NotJson:
        value = _last_container(text)
        if value is None:
            raise
        return strict_loads(value)


def _last_container(text: str) -> str | None:
    """The last balanced `{...}` or `[...]` of `text` that is not inside another; None where there is none."""
    start, depth, found, in_string, position = 0, 0, None, False, 0
    while position < len(text):
        char = text[position]
        if in_string:
            if char == "\\":
                position += 1
            elif char == '"':
                in_string = False
        elif depth and char == '"':
            in_string = True
        elif char in "{[":
            if not depth:
                start = position
            depth += 1
        elif char in "}]" and depth:
            depth -= 1
            if not depth and (char == "}" or found is None or not found.startswith("{")):
                found = text[start : position + 1]
        position += 1
    return found


def _depth(text: str) -> int:
    depth = deepest = 0
    for char in re.sub(r'"(?:[^"\\]|\\.)*"', "", text):
        if char in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "}]":
            depth -= 1
    return deepest


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is duplicated")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} does not fit a double")
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_no_duplicates, parse_constant=_no_constant, parse_float=_finite
)

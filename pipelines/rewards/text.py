"""The text of a completion, whatever shape it comes in, and a warning that is said once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

_log = logging.getLogger("advisor.rewards")
_said: set[str] = set()
_said_lock = threading.Lock()


def completion_text(completion: Any) -> str:
    """The text of the last assistant message, or the string itself; "" where there is no text."""
    if isinstance(completion, str):
        return completion
    if isinstance(completion, dict):
        return content_text(completion.get("content"))
    if isinstance(completion, Sequence) and not isinstance(completion, bytes | bytearray):
        messages = [m for m in completion if isinstance(m, dict)]
        spoken = [m for m in messages if m.get("role", "assistant") == "assistant"]
        if spoken:
            return content_text(spoken[-1].get("content"))
    return ""


def content_text(content: Any) -> str:
    """The text of a message's content: a string, or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [p if isinstance(p, str) else p.get("text") for p in content if isinstance(p, str | dict)]
        return "".join(p for p in parts if isinstance(p, str))
    return ""


def per_completion(column: Any, count: int, name: str) -> list[Any]:
    """`column` as a list of `count` entries; a single value stands for all. A list of another length is a
    ValueError.
    """
    if column is None or isinstance(column, str | int | float | dict) or not isinstance(column, Sequence):
        return [column] * count
    if len(column) != count:
        raise ValueError(f"{count} completions, but {len(column)} entries of `{name}`")
    return list(column)


def warn_once(key: str, message: str) -> None:
    """Log `message` as a warning the first time that `key` is seen in this process."""
    with _said_lock:
        if key in _said or len(_said) > 10_000:
            return
        _said.add(key)
    _log.warning(message)

"""One JSON text to one value, strictly: no key read twice, no half characters, constants reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pipelines.datasets.errors import excerpt
from pipelines.datasets.explain_json import explain
from pipelines.datasets.rows import ReadLog, RowDict

NON_STANDARD = "non-standard JSON constant {}"


class DuplicateKey(Exception):
    """A key stands twice in one object, so that one of its values would be lost."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise DuplicateKey(key)
            seen.add(key)
    return record


_CONSTANTS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def make_decoder(on_constant: Callable[[str], None]) -> json.JSONDecoder:
    """Python's decoder, which also calls `on_constant` for NaN, Infinity and -Infinity."""

    def constant(name: str) -> float:
        on_constant(name)
        return _CONSTANTS[name]

    def number(text: str) -> float:
        value = float(text)
        if value in (_CONSTANTS["Infinity"], _CONSTANTS["-Infinity"]):
            on_constant(text)  # 1e999: valid JSON that no double holds
        return value

    return json.JSONDecoder(parse_constant=constant, parse_float=number, object_pairs_hook=_pairs)


def surrogate_in(value: Any) -> str | None:
    """The first lone surrogate in the strings of `value`, as it is written in JSON."""
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            return f"\\u{ord(value[error.start]):04x}"
    elif isinstance(value, dict):
        for key, item in value.items():
            found = surrogate_in(key) or surrogate_in(item)
            if found:
                return found
    elif isinstance(value, list):
        for item in value:
            found = surrogate_in(item)
            if found:
                return found
    return None


def check_value(value: Any, place: int, log: ReadLog, text: str = "") -> RowDict:
    """`value` where it is an object of whole characters; raises DataError at `place`."""
    if not isinstance(value, dict):
        kinds = {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
        kind = kinds.get(type(value), "a number")
        raise log.error(
            f"the row is {kind}, not an object",
            place,
            text=excerpt(text),
            remedy='each row is an object such as {"prompt": ..., "completion": ...}',
        )
    found = surrogate_in(value)
    if found:
        column = text.lower().find(found) + 1
        raise log.error(
            f"lone surrogate {found}: half of a character, which is not text",
            place,
            column=column or None,
            text=excerpt(text, column or 1),
            remedy="write the whole character (an emoji is cut in the middle), or remove it",
        )
    return value


def parse_line(text: str, place: int, log: ReadLog, *, last_line: bool = False) -> RowDict:
    """One line as one object, the slow and careful way; raises DataError with the line and column."""
    names: list[str] = []
    decoder = make_decoder(names.append)
    try:
        value = decoder.decode(text)
    except json.JSONDecodeError as error:
        why = explain(text, error, last_line=last_line)
        raise log.error(
            why.reason, place, column=why.column, text=excerpt(text, why.column), remedy=why.remedy
        ) from None
    except DuplicateKey as error:
        raise log.error(
            f'the key "{error}" stands twice in one object',
            place,
            text=excerpt(text),
            remedy="keep one of them",
        ) from None
    except RecursionError:
        raise log.error("the row is nested too deeply", place, text=excerpt(text)) from None
    except ValueError as error:
        raise log.error(f"a number that cannot be read ({error})", place, text=excerpt(text)) from None
    for name in dict.fromkeys(names):
        log.warnings.append((place, NON_STANDARD.format(name)))
    return check_value(value, place, log, text)

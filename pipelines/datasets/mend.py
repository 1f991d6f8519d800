"""Broken lines that have one meaning only, and what they mean."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from pipelines.datasets.explain_json import python_literal
from pipelines.datasets.json_values import DuplicateKey, make_decoder, surrogate_in

TRAILING_COMMA = re.compile(r",(\s*[}\]])")
STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


def mend_line(text: str) -> tuple[list[dict[str, Any]], str] | None:
    """The objects that a broken line holds, and what was done to it; None where that would be a guess.

    Mended are: a Python dict instead of JSON, two or more objects on one line, a comma after an object or
    after the last entry, and raw tabs inside of texts. A line that is cut off, or has a key twice, is not.
    """
    for attempt in (_objects, _without_commas, _with_control_characters, _python):
        try:
            found = attempt(text)
        except DuplicateKey:
            return None  # which of the two values is meant is a guess
        except (ValueError, RecursionError):
            continue
        if found is not None and all(isinstance(v, dict) and surrogate_in(v) is None for v in found[0]):
            return found
    return None


def _objects(text: str) -> tuple[list[Any], str] | None:
    """Whole objects one after another, with nothing but white space or a comma between and after them."""
    decoder = make_decoder(lambda name: None)
    found: list[Any] = []
    at = 0
    comma = False
    while at < len(text):
        value, at = decoder.raw_decode(text, at)
        found.append(value)
        rest = text[at:].lstrip()
        if rest.startswith(","):
            comma = True
            rest = rest[1:].lstrip()
        at = len(text) - len(rest)
    if len(found) > 1:
        return found, f"{len(found)} objects on one line, now one a line"
    return (found, "the comma after the object was removed") if comma and found else None


def _python(text: str) -> tuple[list[Any], str] | None:
    value = python_literal(text)
    if not isinstance(value, dict):
        return None
    for node in ast.walk(ast.parse(text.strip(), mode="eval")):
        if isinstance(node, ast.Dict):
            names = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            if len(set(names)) != len(names):
                raise DuplicateKey(str(names))
    return [json.loads(json.dumps(value))], "a Python dict, written as JSON"


def _without_commas(text: str) -> tuple[list[Any], str] | None:
    """Commas before a closing bracket are removed, outside of strings only."""
    pieces: list[str] = []
    at = 0
    for match in STRING.finditer(text):
        pieces += [TRAILING_COMMA.sub(r"\1", text[at : match.start()]), match.group()]
        at = match.end()
    mended = "".join([*pieces, TRAILING_COMMA.sub(r"\1", text[at:])])
    if mended == text:
        return None
    return [make_decoder(lambda name: None).decode(mended)], "a trailing comma was removed"


def _with_control_characters(text: str) -> tuple[list[Any], str] | None:
    decoder = make_decoder(lambda name: None)
    lenient = json.JSONDecoder(strict=False, object_pairs_hook=decoder.object_pairs_hook)
    return [lenient.decode(text)], "raw control characters inside a text, now escaped"

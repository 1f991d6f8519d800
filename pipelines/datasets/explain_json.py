"""JSON that does not parse, said in words: what is wrong, at which column, and the remedy."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from typing import Any

PYTHON_WORDS = re.compile(r"(?:True|False|None|undefined|nan)\b")
MAX_LITERAL_CHARS = 1_000_000


@dataclass(frozen=True, slots=True)
class Explanation:
    """`column` counts characters from 1."""

    reason: str
    column: int
    remedy: str


def explain(text: str, error: json.JSONDecodeError, *, last_line: bool = False) -> Explanation:
    """Why `text` (one line, or one document from its first row) is not JSON.

    `last_line` says that the file ends with this text without a line end.
    """
    column = error.pos + 1
    rest = text[error.pos :]
    before = text[: error.pos].rstrip()
    if error.msg.startswith("Extra data"):
        return _extra(rest, column)
    if rest[:1] == "'" or (before.endswith("'") and _is_python(text)):
        return Explanation(
            "invalid JSON: single quotes", column, "write rows with json.dumps, not with str() or repr()"
        )
    if rest[:1] in ("“", "”", "„", "‘", "’"):
        return Explanation("invalid JSON: typographic quotes", column, 'use straight double quotes (")')
    if text.strip() in ("{", "["):
        return Explanation(
            "invalid JSON: an object spread over several lines", column, "write each object on one line"
        )
    if _is_open(text, error):
        return _unclosed(text, column, last_line)
    word = PYTHON_WORDS.match(rest)
    if word:
        return Explanation(
            f"invalid JSON: {word.group()} is not a JSON word", column, "write true, false or null"
        )
    if error.msg.startswith("Invalid control character"):
        name = {"\t": "tab", "\n": "line break", "\r": "carriage return"}.get(rest[:1], "control character")
        code = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}.get(rest[:1], "\\u00XX")
        return Explanation(f"invalid JSON: a raw {name} inside a string", column, f"write it as {code}")
    if error.msg.startswith("Invalid \\"):
        return Explanation(
            "invalid JSON: a backslash that starts no known escape", column, "write a backslash as \\\\"
        )
    if before.endswith(",") and rest[:1] in ("}", "]"):
        return Explanation("invalid JSON: trailing comma", column, f"remove the comma before {rest[0]}")
    if rest[:2] in ("//", "/*") or rest[:1] == "#":
        return Explanation("invalid JSON: a comment", column, "JSON has no comments; remove it")
    if "property name" in error.msg and re.match(r"[A-Za-z_]", rest):
        return Explanation("invalid JSON: a key without quotes", column, 'write keys as "key"')
    what = error.msg[0].lower() + error.msg[1:]
    if error.msg.startswith("Expecting ',' delimiter"):
        what = "a comma or a closing bracket is missing"
    if before == "" and error.msg == "Expecting value":
        what = "this is not a JSON object"
    return Explanation(f"invalid JSON: {what}", column, "one complete JSON object a line is needed")


def _extra(rest: str, column: int) -> Explanation:
    if rest[:1] in "{[":
        return Explanation("invalid JSON: two objects on one line", column, "put each object on its own line")
    if rest[:1] == ",":
        return Explanation("invalid JSON: a comma after the object", column, "remove it: lines need no comma")
    return Explanation("invalid JSON: text after the object", column, "remove what follows the closing brace")


def _is_open(text: str, error: json.JSONDecodeError) -> bool:
    """Does the text stop before the value is complete?"""
    return error.msg.startswith("Unterminated string") or error.pos >= len(text.rstrip())


def _unclosed(text: str, column: int, last_line: bool) -> Explanation:
    if last_line:
        return Explanation(
            "invalid JSON: the line ends in the middle of a value (the file is cut off)",
            len(text.rstrip()) + 1,
            "write or copy the file again",
        )
    opened, in_string = _open_brackets(text)
    if in_string:
        return Explanation(
            "invalid JSON: a string is not closed",
            column,
            'close it with "; a line break inside is written \\n',
        )
    closing = "".join("}" if bracket == "{" else "]" for bracket in reversed(opened))
    what = "brace" if closing[:1] == "}" else "bracket"
    return Explanation(
        f"invalid JSON: missing closing {what}", column, f"add {closing} at the end; one object a line"
    )


def _open_brackets(text: str) -> tuple[str, bool]:
    """The brackets that are still open at the end of `text`, and whether a string is."""
    opened: list[str] = []
    in_string = False
    for match in re.finditer(r'\\.|["{}\[\]]', text, re.DOTALL):
        token = match.group()
        if token == '"':
            in_string = not in_string
        elif in_string or token.startswith("\\"):
            continue
        elif token in "{[":
            opened.append(token)
        elif opened:
            opened.pop()
    return "".join(opened), in_string


def _is_python(text: str) -> bool:
    return len(text) <= MAX_LITERAL_CHARS and isinstance(python_literal(text), dict)


def python_literal(text: str) -> Any:
    """`text` as a Python literal, or None where it is none."""
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None

r"""The answer inside a completion: the last balanced `\boxed`, or a final-answer phrase where there is none.

Every scan is linear in the length of the text; none uses a regular expression that can backtrack badly.
"""

from __future__ import annotations

import re

MAX_ANSWER_CHARS = 100_000
_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")
_PHRASE = re.compile(
    r"(?:final\s+answer|the\s+answer|answers?|correct\s+(?:option|choice))\b[*_\s]*(?:is|are|:|=)[*_\s:]*(?:therefore|thus|then)?[\s:]*|"
    r"^[ \t]*####[ \t]*|<answer>",
    flags=re.IGNORECASE | re.MULTILINE,
)


def answer_of(completion: str) -> str | None:
    """The answer that the completion states, or None where it states none."""
    after = completion.rpartition("</think>")[2]
    boxed = last_box(after)
    if boxed is None and after is not completion:
        boxed = last_box(completion)
    if boxed is not None:
        return boxed
    if _has_open_box(after):
        return None  # cut off inside its box: what stands before is not the answer
    return _phrase_answer(after) or _whole_answer(after)


def last_box(text: str) -> str | None:
    r"""The content of the last balanced, non-empty `\boxed{...}`, `\fbox{...}` or `\boxed 7`; None if there
    is none.
    """
    closing = _closing_braces(text)
    for box in reversed(list(_BOX.finditer(text))):
        content = _box_content(text, box.end(), closing)
        if content is not None and content.strip(" \t\n$~"):
            inner = last_box(content) if "\\boxed" in content or "\\fbox" in content else None
            return content if inner is None else inner
    return None


def _closing_braces(text: str) -> dict[int, int]:
    """Where each opening brace closes. Escaped braces do not count."""
    closing: dict[int, int] = {}
    open_: list[int] = []
    for match in re.finditer(r"\\.|[{}]", text, flags=re.DOTALL):
        if match.group() == "{":
            open_.append(match.start())
        elif match.group() == "}" and open_:
            closing[open_.pop()] = match.start()
    return closing


def _box_content(text: str, position: int, closing: dict[int, int]) -> str | None:
    while position < len(text) and text[position] in " \t\n":
        position += 1
    if position >= len(text):
        return None
    if text[position] == "{":
        end = closing.get(position)
        return None if end is None else text[position + 1 : end]
    single = re.compile(
        r"[-+]?\d+(?:\.\d+)?(?!\w)|[A-Z](?![\w'])|[a-z](?=\s*\$)|\\(?:frac|d?frac|tfrac)\s*\d\s*\d"
    ).match(text, position)
    return single.group() if single else None  # "\boxed as told" is prose


def _has_open_box(text: str) -> bool:
    boxes = list(_BOX.finditer(text))
    if not boxes:
        return False
    closing = _closing_braces(text)
    rest = text[boxes[-1].end() :].lstrip()
    start = len(text) - len(rest)
    return rest.startswith("{") and start not in closing


def _phrase_answer(text: str) -> str | None:
    last = None
    for last in _PHRASE.finditer(text):  # noqa: B007
        pass
    if last is None:
        return None
    rest = text[last.end() : last.end() + MAX_ANSWER_CHARS]
    return _first_answer(rest)


def _first_answer(rest: str) -> str | None:
    """The answer at the start of `rest`: what stands in dollars, or the rest of the line up to its full
    stop.
    """
    rest = rest.partition("</answer>")[0].lstrip(" \t\n*_:")
    for left, right in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if rest.startswith(left):
            end = rest.find(right, len(left))
            if end > 0:
                tail = rest[end + len(right) :].split("\n")[0].strip(" .*_")
                inside = rest[len(left) : end].strip()
                return inside if not re.match(r"(?:or|and|,)\s", tail) else rest.split("\n")[0].strip(" .*_")
    line = rest.split("\n")[0].strip()
    bold = re.match(r"(?:\*\*)?([^*]+)\*\*[\s.]*$", line)
    line = (bold.group(1) if bold else line).strip("*_ ")
    line = re.split(r"\.\s+(?=[A-Z])|,?\s+(?:since|because)\s", line)[0]
    return line.rstrip(" .!").strip() or None


def _whole_answer(text: str) -> str | None:
    """The completion itself where it is nothing but an answer: one short line without prose."""
    text = text.strip()
    if not text or "\n" in text or _BOX.search(text) or len(text) > MAX_ANSWER_CHARS:
        return None
    return text

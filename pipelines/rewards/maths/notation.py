r"""From LaTeX or plain text to tokens: one spelling for each sign, thousands groups joined, text kept
apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_TOKENS = 3000


class Unreadable(ValueError):
    """The text is not an answer that this engine can read."""


@dataclass(frozen=True)
class Token:
    """`kind` is num, name, cmd, text, op or end; `value` its spelling; `number` the value of a num."""

    kind: str
    value: str
    number: Fraction | None = None
    spaced: bool = False
    """Whether white space stands before it."""


_UNICODE = {
    "−": "-",
    "–": "-",
    "—": "-",
    "×": r"\times ",
    "·": r"\cdot ",
    "⋅": r"\cdot ",
    "∙": r"\cdot ",
    "÷": r"\div ",
    "π": r"\pi ",
    "∞": r"\infty ",
    "≤": r"\le ",
    "≥": r"\ge ",
    "⩽": r"\le ",
    "⩾": r"\ge ",
    "≠": r"\neq ",
    "∪": r"\cup ",
    "∩": r"\cap ",
    "∈": r"\in ",
    "°": r"^\circ ",
    "º": r"^\circ ",
    "±": r"\pm ",
    "∓": r"\mp ",
    "≈": r"\approx ",
    "∅": r"\emptyset ",
    "ℝ": r"\mathbb{R}",
    "ℤ": r"\mathbb{Z}",
    "√": r"\sqrt ",
    "∛": r"\sqrt[3]",
    "θ": r"\theta ",
    "α": r"\alpha ",
    "β": r"\beta ",
    "γ": r"\gamma ",
    "λ": r"\lambda ",
    "μ": r"\mu ",
    "φ": r"\phi ",
    "½": r"\frac{1}{2}",
    "⅓": r"\frac{1}{3}",
    "⅔": r"\frac{2}{3}",
    "¼": r"\frac{1}{4}",
    "¾": r"\frac{3}{4}",
    "⅕": r"\frac{1}{5}",
    "⅛": r"\frac{1}{8}",
    "⅜": r"\frac{3}{8}",
    "⅝": r"\frac{5}{8}",
    "⅞": r"\frac{7}{8}",
    "\u00a0": " ",
    "\u2009": " ",
    "\u202f": " ",
    "\u2007": " ",
    "\u200b": "",
    "\ufeff": "",
    "∶": ":",
    "：": ":",
    "，": ",",
    "（": "(",
    "）": ")",
    "’": "'",
    "′": "'",
    "“": '"',
    "”": '"',
    "⟨": r"\langle ",
    "⟩": r"\rangle ",
    "⌊": r"\lfloor ",
    "⌋": r"\rfloor ",
    "⌈": r"\lceil ",
    "⌉": r"\rceil ",
    "∧": r"\land ",
    "∨": r"\lor ",
    "…": r"\ldots ",
    "％": "%",
    "＝": "=",
    "⁄": "/",
    "∖": r"\setminus ",
    "∣": "|",
    "€": " ",
    "£": " ",
    "¥": " ",
    "¢": r"\text{ cents}",
}
_TRANSLATE = str.maketrans(_UNICODE)
_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))

_TEXT_MACROS = (
    r"\\(?:text|textnormal|textrm|textbf|textit|textsf|texttt|mbox|hbox|mathrm|operatorname\*?|mathsf|mathit|mathtt|"
    r"emph|underline|bf|rm|it|mathbf|boldsymbol|bm|pmb|mathbfit|textup|textsc)(?![A-Za-z])"
)
_TEXT_START = re.compile(_TEXT_MACROS + r"\s*\{")
_DROP = re.compile(
    r"\\(?:left|right|bigl?|bigr?|Bigl?|Bigr?|biggl?|biggr?|Biggl?|Biggr?|displaystyle|textstyle|scriptstyle|"
    r"limits|nolimits|mathstrut|strut|middle|rm|bf|it|tt|boxed|fbox|phantom|null|normalsize|large|Large)(?![A-Za-z])"
    r"|\\(?:left|right)\."
)
_SPACE = re.compile(
    r"(?<!\\)\\[,;:! ]|\\(?:quad|qquad|thinspace|enspace|hspace\*?\{[^{}]*\}|nonumber|notag)(?![A-Za-z])|~"
)
_ALIASES = {
    r"\dfrac": r"\frac",
    r"\tfrac": r"\frac",
    r"\cfrac": r"\frac",
    r"\nicefrac": r"\frac",
    r"\sfrac": r"\frac",
    r"\leq": r"\le",
    r"\geq": r"\ge",
    r"\leqslant": r"\le",
    r"\geqslant": r"\ge",
    r"\ne": r"\neq",
    r"\lt": "<",
    r"\gt": ">",
    r"\dbinom": r"\binom",
    r"\tbinom": r"\binom",
    r"\ast": "*",
    r"\times": "*",
    r"\cdot": "*",
    r"\div": "/",
    r"\lbrace": r"\{",
    r"\rbrace": r"\}",
    r"\lbrack": "[",
    r"\rbrack": "]",
    r"\lvert": "|",
    r"\rvert": "|",
    r"\vert": "|",
    r"\mid": "|",
    r"\varnothing": r"\emptyset",
    r"\cong": r"\approx",
    r"\simeq": r"\approx",
    r"\thickapprox": r"\approx",
    r"\colon": ":",
    r"\degree": r"^\circ",
    r"\deg": r"^\circ",
    r"\&": r"\and",
    r"\dots": r"\ldots",
    r"\cdots": r"\ldots",
    r"\dotsc": r"\ldots",
    r"\vdots": r"\ldots",
    r"\varphi": r"\phi",
    r"\wedge": r"\land",
    r"\vee": r"\lor",
    r"\backslash": r"\setminus",
    r"\smallsetminus": r"\setminus",
    r"\arccos": r"\acos",
    r"\arcsin": r"\asin",
    r"\arctan": r"\atan",
    r"\varepsilon": r"\epsilon",
    r"\top": "T",
    r"\intercal": "T",
    r"\bullet": "*",
    r"\lg": r"\lg",
    r"\empty": r"\emptyset",
    r"\lnot": r"\neg",
}

_GROUPED = re.compile(r"(?<![\d.])\d{1,3}(?:,\d{3})+(?!\d)(?!,\d)")
_SPACE_GROUPED = re.compile(r"(?<![\d.,/}])(?<!\d )\d{1,3}(?: \d{3})+(?![\d/])(?! \d)")
_REPEATING = re.compile(
    r"(\d*)\.(\d*)\\(?:overline|bar|dot)\s*(?:\{(\d+)\}|(\d))|(\d+)\.(\d*)\((\d+)\)(?![\d(])"
)
_NUMBER = re.compile(r"\d+\.?\d*(?:[eE][-+]?\d{1,6}(?![\d.]))?|\.\d+(?:[eE][-+]?\d{1,6}(?![\d.]))?")
_COMMAND = re.compile(r"\\[A-Za-z]+\*?|\\[{}|%$#&_]|\\\\")


def clean(text: str) -> str:
    """`text` with one spelling per sign, without delimiters, spacing commands, and full stops at its end."""
    text = text.strip()
    text = re.sub(r"√\s*(\d+|[A-Za-z])", r"\\sqrt{\1}", text)
    text = re.sub(
        "[" + "".join(_SUPERSCRIPTS) + "]+",
        lambda m: "^{" + "".join(_SUPERSCRIPTS[c] for c in m[0]) + "}",
        text,
    )
    text = re.sub(
        "[" + "".join(_SUBSCRIPTS) + "]+", lambda m: "_{" + "".join(_SUBSCRIPTS[c] for c in m[0]) + "}", text
    )
    text = text.translate(_TRANSLATE)
    text = re.sub(r"\*\*(.+)\*\*$", r"\1", text) if text.startswith("**") else text
    text = re.sub(r"\{\s*,\s*\}", ",", text)
    text = re.sub(r"(?<=\d),\s*\\[!,]\s*(?=\d{3})", ",", text)
    text = re.sub(r"\\math(?:bb|cal)\s*\{?\s*([RZQNC])\s*\}?", r" \\set\1 ", text)
    text = re.sub(r"(?<=\d)(?:\\[,;: ]|~|\\thinspace )(?=\d{3}(?!\d))", " ", text)
    text = re.sub(r"(?:\bUS)?\s*(?:\\\$|(?<!\\)\$)", " ", text)
    text = re.sub(r"\\[()]|\\\[|(?<!\\)\\\](?!\])", " ", text)
    text = re.sub(r"\{\s*\\(?:rm|bf|it|tt|sf)(?![a-z])([^{}]*)\}", r"\\text{\1}", text)
    text = _DROP.sub(" ", text)
    text = _SPACE.sub(" ", text)
    text = re.sub(r"\\hline|\\tag\{[^{}]*\}|\\label\{[^{}]*\}", " ", text)
    return strip_end(text)


def strip_end(text: str) -> str:
    """`text` without white space, full stops and commas at its end."""
    text = text.strip()
    while (
        text
        and (text[-1] in ".,;!" or text.endswith("\\"))
        and not text.endswith((r"\,", "..."))
        and text[-1] != "!"
    ):
        text = text[:-1].rstrip()
    return text


def tokenize(text: str, grouping: bool = True) -> list[Token]:
    """The tokens of a cleaned text; Unreadable for a sign that has no meaning in an answer.

    `grouping` joins thousands groups ("1,234" is one number); a text with comma and space as separator, or
    one inside brackets, joins only what cannot be a list.
    """
    text = _join_groups(text) if grouping else text
    tokens: list[Token] = []
    position, spaced = 0, False
    while position < len(text):
        if len(tokens) > MAX_TOKENS:
            raise Unreadable("too long")
        char = text[position]
        if char.isspace():
            spaced = True
            position += 1
            continue
        token, position = _next_token(text, position, spaced)
        spaced = False
        if token is not None:
            tokens.append(token)
    tokens.append(Token("end", ""))
    return tokens


def _next_token(text: str, position: int, spaced: bool) -> tuple[Token | None, int]:
    repeating = _REPEATING.match(text, position)
    if repeating:
        return Token("num", repeating.group(), _repeating_value(repeating), spaced), repeating.end()
    number = _NUMBER.match(text, position)
    if number:
        return _number_token(text, number, spaced)
    start = _TEXT_START.match(text, position)
    if start:
        end = closing_brace(text, start.end() - 1)
        content = text[start.end() : end]
        return _text_token(text[position : start.end()], content, spaced), end + 1
    command = _COMMAND.match(text, position)
    if command:
        name = command.group()
        name = _ALIASES.get(name, name)
        if name == r"^\circ":
            return Token("cmd", r"\circ", None, spaced), command.end()
        kind = "cmd" if name.startswith("\\") else ("name" if name == "T" else "op")
        return Token(kind, name, None, spaced), command.end()
    char = text[position]
    if char.isalpha() and char.isascii():
        word = re.compile(r"[A-Za-z]+").match(text, position)
        assert word
        return Token("word", word.group(), None, spaced), word.end()
    if text.startswith(("<=", ">=", "!=", "**", "=="), position):
        two = text[position : position + 2]
        spelled = {"<=": r"\le", ">=": r"\ge", "!=": r"\neq", "**": "^", "==": "="}[two]
        return Token("cmd" if spelled.startswith("\\") else "op", spelled, None, spaced), position + 2
    if text.startswith("...", position):
        return Token("cmd", r"\ldots", None, spaced), position + 3
    if char in "+-*/^_(){}[]=<>|!,;:%'&":
        return Token("op", char, None, spaced), position + 1
    if char == "\\":
        return None, position + 1
    raise Unreadable(f"{char!r} has no meaning in an answer")


def _number_token(text: str, match: re.Match[str], spaced: bool) -> tuple[Token, int]:
    spelling = match.group()
    if spelling.endswith(".") and text.startswith(("..", "."), match.end()):
        spelling = spelling[:-1]  # "1..." is a number before an ellipsis
    end = match.start() + len(spelling)
    mantissa, _, exponent = spelling.lower().partition("e")
    if exponent and abs(int(exponent)) > 5000:
        raise Unreadable("the exponent is out of range")
    whole, _, decimals = mantissa.partition(".")
    number = Fraction(int((whole + decimals) or "0"), 10 ** len(decimals))
    if exponent:
        number *= Fraction(10) ** int(exponent)
    return Token("num", spelling, number, spaced), end


def _repeating_value(match: re.Match[str]) -> Fraction:
    whole, fixed = match.group(1) or match.group(5) or "0", match.group(2) or match.group(6) or ""
    cycle = match.group(3) or match.group(4) or match.group(7)
    value = Fraction(int(whole)) + Fraction(int(fixed or "0"), 10 ** len(fixed))
    return value + Fraction(int(cycle), (10 ** len(cycle) - 1) * 10 ** len(fixed))


def _text_token(macro: str, content: str, spaced: bool) -> Token:
    return Token("text", content, None, spaced or content[:1].isspace())


def closing_brace(text: str, position: int) -> int:
    """Where the brace that opens at `position` closes; Unreadable where it does not."""
    depth = 0
    while position < len(text):
        if text[position] == "\\":
            position += 2
            continue
        if text[position] == "{":
            depth += 1
        elif text[position] == "}":
            depth -= 1
            if not depth:
                return position
        position += 1
    raise Unreadable("a brace is not closed")


def _join_groups(text: str) -> str:
    """Thousands separators removed where they are ones: "12,500.75", "1 000"; not in "(1,234)" or "1,23"."""
    listed = bool(re.search(r",\s", text))

    def join(match: re.Match[str]) -> str:
        inside = _bracket_depth(text, match.start())
        if inside and not listed:
            return match.group()
        return match.group().replace(",", "")

    joined = _GROUPED.sub(join, text)
    return _SPACE_GROUPED.sub(lambda m: m.group().replace(" ", ""), joined)


def _bracket_depth(text: str, position: int) -> int:
    before = text[:position]
    opened = before.count("(") + before.count("[") + before.count(r"\{")
    return opened - before.count(")") - before.count("]") - before.count(r"\}")

"""The verdict on one pair of answers. Runs in a worker process, since a check may need its limits.

Our own parser and exact arithmetic decide wherever the gold can be parsed; math-verify is asked only for
golds that it cannot (an integral, a limit), and never where our parser has read both sides.
"""

from __future__ import annotations

import functools
import re
import sys

from pipelines.rewards.maths.equality import equal
from pipelines.rewards.maths.notation import Unreadable, clean
from pipelines.rewards.maths.parser import Node, parse
from pipelines.rewards.maths.values import symbols
from pipelines.rewards.maths.words import ALL_REALS, NO_SOLUTION, PLACEHOLDER, as_text

sys.set_int_max_str_digits(0)

MAX_CHARS = 20_000
_LABEL = re.compile(
    r"^\\?(?:text(?:bf|rm|it)?|mathrm|mathbf|boldsymbol)?\s*\{?\s*\(\s*(?:\\?(?:text(?:bf|rm|it)?|mathrm|mathbf)\s*\{)?"
    r"\s*([A-Z])\s*\}?\s*\)\s*\}?\s*[.:]?\s*(.*)$",
    re.DOTALL,
)
_BARE_LABEL = re.compile(
    r"^(?:\\(?:text(?:bf|rm|it)?|mathrm|mathbf|boldsymbol)\s*\{)?\s*([A-Z])\s*[).:]?\s*\}?\s*[).:]?$"
)
_LOOSE_LABEL = re.compile(r"^(?:\\text[a-z]*\s*\{)?\s*\(?([A-Ja-j])\s*[).:]\s*\}?\s*(.*)$", re.DOTALL)
_EVALUATED = re.compile(r"^\\(?:i*nt|lim|sum|prod|frac\{d)[^=]*(?:=[^=]*[}_][^=]*)?=([^=]*)$", re.DOTALL)
_PROSE_LABEL = re.compile(r"^(?:option|choice|answer)\s*:?\s*\(?([A-Z])\)?\.?$", re.IGNORECASE)
_MAYBE_LIST = re.compile(r"(?<![\d,.])[1-9]\d{0,2}(?:,[1-9]\d{2})+(?![\d,])")
_CLOCK = re.compile(r"^(\d{1,2}):(\d{2})\s*([ap])\.?\s?m\.?$", re.IGNORECASE)


def judge(gold: str, pred: str) -> float | None:
    """1.0 where `pred` equals `gold`, 0.0 where not, None where `gold` states no answer that can be
    compared.
    """
    gold, pred = gold.strip(), pred.strip()
    if not usable(gold):
        return None
    if not pred:
        return 0.0
    if squeezed(gold) == squeezed(pred):
        return 1.0
    if max(len(pred), len(gold)) > MAX_CHARS:
        return 0.0
    gold_label, pred_label = choice(gold), choice(pred)
    if gold_label and not gold_label[1] and not pred_label:
        pred_label = _loose_choice(pred)
    if gold_label and pred_label:
        return (
            1.0 if gold_label[0] == pred_label[0] and _contents_agree(gold_label[1], pred_label[1]) else 0.0
        )
    if gold_label and gold_label[1]:  # "(C) 42" is met by "42" too
        return judge(gold_label[1], pred)
    if as_text(gold) == as_text(pred) and _is_words(gold):
        return 1.0
    if _CLOCK.match(as_text(gold)) or _CLOCK.match(as_text(pred)):
        return 1.0 if _clocks_agree(as_text(gold), as_text(pred)) else 0.0
    return _compare(gold, pred)


def usable(gold: str) -> bool:
    """Whether a gold states an answer at all."""
    words = as_text(gold)
    if NO_SOLUTION.match(words):
        return True
    return bool(words) and (len(gold) > 1000 or not PLACEHOLDER.search(words))


def squeezed(text: str) -> str:
    """`text` without the marks that never change an answer, for the cheap test of identity."""
    text = re.sub(r"\\[,;:! ]|\\left(?![a-z])|\\right(?![a-z])|\$|~", " ", text)
    return re.sub(r"(?<![0-9A-Za-z])\s+|\s+(?![0-9A-Za-z])", "", text).rstrip(".")


def choice(text: str) -> tuple[str, str] | None:
    """The letter of a multiple-choice answer and the text after it: `\\textbf{(C)}\\ 42` is ("C", "42")."""
    text = text.strip().strip("$").strip()
    match = _BARE_LABEL.match(text) or _PROSE_LABEL.match(as_text(text).upper())
    if match:
        return match.group(1), ""
    match = _LABEL.match(text)
    if match and "(" not in match.group(2)[:3]:
        content = match.group(2).strip().lstrip("}").strip()
        if not re.search(r"\([A-Z]\)|\b(?:or|and)\b", content):
            return match.group(1), content
    return None


def _loose_choice(text: str) -> tuple[str, str] | None:
    """The letter of "B: 12", "B) 12" or "(b)", read only where the gold is a letter."""
    match = _LOOSE_LABEL.match(text.strip().strip("$").strip())
    if not match or re.search(r"\b[A-J]\b\s*[).:,]|\b(?:or|and|not)\b|^[a-j]\s*[.:]", match.group(2)):
        return None
    return match.group(1).upper(), match.group(2)


def _contents_agree(gold: str, pred: str) -> bool:
    return not gold or not pred or bool(judge(gold, pred))


def _compare(gold: str, pred: str) -> float | None:
    if _no_solution(gold) or _no_solution(pred):
        return 1.0 if _no_solution(gold) and _no_solution(pred) else 0.0
    wanted = _parsed(gold)
    if wanted is None:
        return _unparsed_gold(gold, pred)
    found = _parsed(pred)
    if found is None:
        return 0.0
    if equal(wanted, found):
        return 1.0
    return 1.0 if _other_readings(gold, pred, wanted, found) else 0.0


def _no_solution(text: str) -> bool:
    return bool(NO_SOLUTION.match(as_text(text))) or clean(text).replace(" ", "") in (
        r"\emptyset",
        r"\varnothing",
        r"\empty",
        r"\{\}",
        "{}",
    )


def _other_readings(gold: str, pred: str, wanted: Node, found: Node) -> bool:
    """Single letters after a number may be variables on one side; "100,200,300" may be a list."""
    theirs, ours = symbols(found), symbols(wanted)
    if theirs != ours:
        again_gold = _read(gold, foreign=frozenset(theirs))
        again_pred = _read(pred, foreign=frozenset(ours))
        if again_gold is not None and again_pred is not None and (again_gold, again_pred) != (wanted, found):
            return equal(again_gold, again_pred)
    if _MAYBE_LIST.search(gold + "|" + pred) and "list" in (wanted[0], found[0]):
        sides = [
            _read(text, grouping=False) if node[0] == "num" else node
            for text, node in ((gold, wanted), (pred, found))
        ]
        return sides[0] is not None and sides[1] is not None and equal(sides[0], sides[1])
    return False


def needs_math_verify(gold: str) -> bool:
    """Whether a check of this gold will ask math-verify, whose import takes seconds."""
    gold = gold.strip()
    return usable(gold) and len(gold) <= MAX_CHARS and not _is_words(gold) and _parsed(gold) is None


@functools.lru_cache(maxsize=4096)
def _parsed(text: str) -> Node | None:
    return _read(text)


def _read(text: str, foreign: frozenset[str] = frozenset(), grouping: bool = True) -> Node | None:
    if ALL_REALS.match(as_text(text)):
        return ("reals",)
    try:
        return parse(text, foreign, grouping)
    except (Unreadable, RecursionError, ValueError, IndexError):
        evaluated = _EVALUATED.match(text.strip(" $"))
        return _read(evaluated.group(1), foreign, grouping) if evaluated else None


def _unparsed_gold(gold: str, pred: str) -> float | None:
    """Words compare as words, which they have not; a formula that we cannot read goes to math-verify."""
    if as_text(gold) == as_text(pred):
        return 1.0
    if _is_words(gold):
        return 0.0
    from math_verify import parse as mv_parse
    from math_verify import verify

    wanted = mv_parse(f"${gold}$", parsing_timeout=None)
    if not wanted or isinstance(wanted[0], str):
        return None
    found = mv_parse(f"${pred}$", parsing_timeout=None)
    if not found or isinstance(found[0], str):
        return 0.0
    return 1.0 if verify(wanted[0], found[0], timeout_seconds=None) else 0.0


def _is_words(text: str) -> bool:
    """Whether a text is made of words, not of formulas."""
    words = as_text(text)
    return bool(re.fullmatch(r"[a-z][a-z\s'.,:;()\-]*", words)) and bool(
        re.search(r"[a-z]{3}|^(?:no|up)$", words)
    )


def _clocks_agree(gold: str, pred: str) -> bool:
    parts = [
        re.match(r"^(\d{1,2}):(\d{2})\s*(?:([ap])\.?\s?m\.?)?$", text, re.IGNORECASE) for text in (gold, pred)
    ]
    if parts[0] is None or parts[1] is None:
        return False
    (h1, m1, s1), (h2, m2, s2) = parts[0].groups(), parts[1].groups()
    return int(h1) == int(h2) and m1 == m2 and (not s1 or not s2 or s1.lower() == s2.lower())

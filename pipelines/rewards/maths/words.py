"""Which words in an answer are units or nouns to be ignored, and which ones change its meaning."""

from __future__ import annotations

import re

UNITS = frozenset(
    """cm mm km dm nm m in ft yd mi inch inches foot feet yard yards mile miles meter meters metre metres
    centimeter centimeters centimetre centimetres millimeter millimeters kilometer kilometers kilometre
    kilometres kg mg g lb lbs oz ton tons gram grams kilogram kilograms pound pounds ounce ounces s sec
    secs second seconds min mins minute minutes h hr hrs hour hours day days week weeks month months
    year years ml mL L l liter liters litre litres gallon gallons quart quarts pint pints cup cups rad
    radian radians degree degrees deg mph kph kmh rpm Hz kHz MHz N J W V A K C F Pa kPa kJ kW kWh mol
    moles dollar dollars cent cents USD usd euro euros yen rupees rs Rs unit units square cubic sq cu
    percent points point ms us ns kB MB GB TB bytes bits bit byte amu eV""".split()  # noqa: SIM905
)
SINGLE_LETTER_UNITS = frozenset("mgshLlNJWVAKCFd")
SCALES = {
    "dozen": 12,
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
CHANGING = frozenset(
    """or and not no none isn isnt is are was other otherwise any all either neither maybe perhaps unless
    except but answer wrong false true if when where for than least most more less fewer greater between
    to plus minus half quarter third divided over by unknown undefined infinite infinity am pm mod
    modulo base some one two three four five six seven eight nine ten every each also possibly probably
    else instead correct incorrect only choose pick option choice solution solutions value values number
    equal equals variable""".split()  # noqa: SIM905
)
"""Words that are never part of a unit: an answer that holds one says more than its number."""

HARMLESS_BEFORE = frozenset(
    """about approximately roughly exactly approx around nearly the a an answer is final total area volume
    length width height radius distance speed time probability sum product difference number of value
    side perimeter there are so we get therefore thus hence median mean mode average cost price age rate
    option choice yes slope domain range equation line center vertex circumference diameter x y it
    equals count maximum minimum max min""".split()  # noqa: SIM905
)
PLACEHOLDER = re.compile(
    r"^(?:|\?+|-+|n/?a|none given|null|nan|unknown|tbd|todo|\.+|_+|omitted|missing|proof|explanation)$|"
    r"\b(?:see|refer(?: to)?) (?:the |above|below|fig|diag|sol|att|ans|exp|pro|text|page|work)|^see\b|"
    r"\b(?:proof|prove that|proven)\b|^(?:the )?(?:solution|explanation|sketch|figure|diagram|graph)$|"
    r"answers? (?:may )?var(?:y|ies)|\bnot (?:provided|available|given|applicable)\b|answer key|"
    r"solution manual|"
    r"left to the reader|^no answer\b|to be determined|unanswerable|free response|open[- ]ended",
    flags=re.IGNORECASE,
)
"""A gold that states no answer. "no solution" does: see `NO_SOLUTION`."""

ALL_REALS = re.compile(
    r"^(?:all|any)(?: the)? real(?:s| numbers?| x| values(?: of x)?)?$|"
    r"^(?:the )?(?:set of )?(?:all )?reals$"
)
ORDINALS = frozenset({"st", "nd", "rd", "th"})
NO_SOLUTION = re.compile(
    r"^(?:there (?:is|are) )?no(?: real| integer| such| possible| valid)* (?:solutions?|roots?)(?: exists?)?$"
)


def is_unit(words: str) -> bool:
    """Whether a text after a number is a unit or a counted noun: "cm^2", "square miles", "apples"."""
    words = re.sub(r"\\(?:cdot|times)(?![a-z])", "*", words)
    words = re.sub(r"\\[,;: ]|~", " ", words).strip().strip("().,;")
    if not words:
        return True
    if len(words) > 40 or not re.fullmatch(r"[A-Za-z\s/^.\-²³·*{}\d']+", words):
        return False
    words = re.sub(r"\^\s*\{?\s*-?\d+\s*\}?", "", words)
    if re.search(r"(?<![A-Za-z])\d", words):
        return False
    parts = re.findall(r"[A-Za-z]+", words)
    return 0 < len(parts) <= 5 and not any(p.lower() in CHANGING for p in parts)


def is_harmless_before(words: str) -> bool:
    """Whether a text before an answer says nothing about it: "about", "The area is"."""
    parts = re.findall(r"[A-Za-z]+", words)
    return (
        not re.search(r"\d", words) and len(parts) <= 6 and all(p.lower() in HARMLESS_BEFORE for p in parts)
    )


def as_text(text: str) -> str:
    r"""`text` for comparison as words: macros, braces, punctuation at the ends and letter case removed."""
    text = re.sub(
        r"\\(?:text[a-z]*|mathrm|mathbf|mbox|operatorname\*?|emph|underline|mathit|boldsymbol)\s*(?=\{)",
        "",
        text,
    )
    text = re.sub(r"\\[,;:! ]|\\q?quad|~|\\left|\\right", " ", text)
    text = re.sub(r"[{}$]", "", text)
    text = re.sub(r"(?<=[ap])\.\s?m\.?(?![a-z])", "m", text, flags=re.IGNORECASE)
    text = re.sub(r"\s+", " ", text).strip().strip(".,;:!\"'`*").strip().casefold()
    return re.sub(r"^(?:the|a|an) (?=\w)", "", text)

"""Whole blocks of ordinary rows at a time. What is not plainly ordinary is left to the careful way, row by
row.

`scan` answers for a block that every row has the same columns, types and kind of content as the rows before
it, and measures it; or it answers None, which says nothing about what is wrong. Both ways measure alike
(`row_key`).
"""

from __future__ import annotations

import operator
from array import array
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any

import orjson

from pipelines.datasets.checks import CHARS_PER_TOKEN, LONG_CHARS
from pipelines.datasets.end_tokens import END_TOKENS
from pipelines.datasets.forms import Format
from pipelines.datasets.key_scan import count_keys
from pipelines.datasets.messages import order_problems
from pipelines.datasets.normalise import Row, final_answer
from pipelines.datasets.row_hash import MAX_TURNS, ROLE_CODES, ROLE_SALTS, SHAREGPT_CODES, turn_factor

MAX_LISTED = 100
"""Rows of one kind that are listed for a block; the rest is counted."""
MAX_EXACT = float(2**63)
_TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "a number": (int, float),
    "a boolean": (bool,),
    "a list": (list,),
    "an object": (dict,),
}


@dataclass(frozen=True, slots=True)
class Layout:
    """What an ordinary row of a source looks like."""

    format: Format
    conversational: bool
    parts: tuple[tuple[str, str], ...]
    """(TRL's column, the column in the file), in the order in which they are trained on."""
    columns: frozenset[str]
    extras: tuple[tuple[str, tuple[type, ...]], ...]
    """Columns that no part uses, with the types that their values may have (null is always one)."""
    answer: str | None = None
    """The column with the gold of a prompt-only source, where it is text."""
    added: str | None = None
    """The column that is added to the prompt (Alpaca's input)."""
    sharegpt: bool = False
    long_prompt_chars: int = 2_048
    short_answer_share: float | None = 0.05


@dataclass(slots=True)
class Facts:
    """What was measured of some rows; indices count from the first of them."""

    rows: int
    lengths: dict[str, Counter[int]] = field(default_factory=dict)
    row_keys: array[int] = field(default_factory=lambda: array("q"))
    prompt_keys: array[int] = field(default_factory=lambda: array("q"))
    """Only where there are golds, which can contradict each other."""
    ended: list[tuple[int, str]] = field(default_factory=list)
    ended_rows: int = 0
    unended: list[int] = field(default_factory=list)
    long_prompts: list[tuple[int, int]] = field(default_factory=list)

    def add(self, other: Facts) -> None:
        """Add the facts about the rows that follow."""
        start = self.rows
        self.rows += other.rows
        for part, counts in other.lengths.items():
            self.lengths.setdefault(part, Counter()).update(counts)
        self.row_keys.extend(other.row_keys)
        self.prompt_keys.extend(other.prompt_keys)
        self.ended.extend((start + i, token) for i, token in other.ended[: MAX_LISTED - len(self.ended)])
        self.ended_rows += other.ended_rows
        self.unended.extend(start + i for i in other.unended[: MAX_LISTED - len(self.unended)])
        self.long_prompts.extend((start + i, size) for i, size in other.long_prompts)


def parse_block(block: bytes) -> list[Row] | None:
    """The objects on the lines of a block, parsed in one go; None where a line is not exactly one object.

    A comma is put at each line end and the block read as one array. The line ends stay, so that a text that
    goes over two lines is refused, as it has to be; and there must be as many objects as lines.
    """
    commas = block.replace(b"\n", b",\n")
    try:
        # join copies once; "+" would copy twice, into memory that the system has to clear first
        records: list[Row] = orjson.loads(b"".join((b"[", commas, b"]")))
    except (orjson.JSONDecodeError, RecursionError):
        return None
    lines = len(commas) - len(block) + 1
    return records if len(records) == lines and set(map(type, records)) == {dict} else None


def scan_lines(block: bytes, layout: Layout) -> Facts | None:
    """The facts about a block of whole JSON lines, or None where one is not ordinary."""
    records = parse_block(block)
    return None if records is None else scan(records, layout, block)


def scan(records: list[Row], layout: Layout, block: bytes | None = None) -> Facts | None:
    """The facts about some rows (and their text, if they have one), or None where one is not ordinary."""
    if set(map(len, records)) != {len(layout.columns)}:
        return None
    try:
        if not _extras_are_ordinary(records, layout):
            return None
        return (
            _conversations(records, layout, block)
            if layout.conversational
            else _texts(records, layout, block)
        )
    except (KeyError, TypeError):
        # a column or a key is missing, or something is no text: of what JSON can hold, only a text has both a
        # length and a hash, so that measuring is the check
        return None


def _column(records: list[Row], name: str) -> list[Any]:
    return list(map(operator.itemgetter(name), records))


def _extras_are_ordinary(records: list[Row], layout: Layout) -> bool:
    for name, types in layout.extras:
        values = _column(records, name)
        found = set(map(type, values))
        found.discard(type(None))
        if not found <= set(types) or dict in found or list in found:
            return False
        if float in found:
            known = [v for v in values if v is not None] if None in values else values
            if min(known) <= -MAX_EXACT or max(known) >= MAX_EXACT:
                return False  # perhaps an integer beyond 64 bits, which orjson rounds in silence
    return True


def _answers(records: list[Row], layout: Layout) -> list[Any] | None:
    """The golds as they are compared, or None where one of them cannot be used."""
    assert layout.answer is not None
    answers = _column(records, layout.answer)
    if any(map(str.isspace, answers)) or not all(answers):
        return None
    marked = any("####" in answer for answer in answers)
    return list(map(final_answer, answers)) if marked else answers


def _end_tokens_in(block: bytes | None) -> tuple[str, ...]:
    """The end tokens that stand somewhere in a block."""
    if block is None:
        return END_TOKENS
    if b"<" not in block:
        return ()
    import numpy as np

    text = np.frombuffer(block, dtype=np.uint8)
    follows = np.bincount(text[1:][text[:-1] == 0x3C], minlength=256)
    return tuple(token for token in END_TOKENS if follows[token.encode()[1]] and token.encode() in block)


def _texts(records: list[Row], layout: Layout, block: bytes | None) -> Facts | None:
    """Rows whose parts are plain text."""
    facts = Facts(len(records))
    if block is not None and not count_keys(block, len(records) * len(layout.columns)):
        return None
    columns: list[list[Any]] = []
    for ours, theirs in layout.parts:
        values = _column(records, theirs)
        if ours == "prompt" and layout.added is not None:
            added = _column(records, layout.added)
            if set(map(type, added)) != {str}:
                return None
            values = [f"{text}\n\n{more}" if more else text for text, more in zip(values, added, strict=True)]
        if any(map(str.isspace, values)):
            return None
        counts = Counter(list(map(len, values)))
        if 0 in counts or max(counts) > LONG_CHARS:
            return None
        facts.lengths[ours] = counts
        columns.append(values)
    if layout.format == "preference" and any(map(operator.eq, columns[1], columns[2])):
        return None
    hashed = list(columns)
    if layout.answer is not None:
        answers = _answers(records, layout)
        if answers is None:
            return None
        hashed = [*columns, answers]
    facts.row_keys.extend(map(hash, zip(*hashed, strict=True)))
    if layout.answer is not None:
        facts.prompt_keys.extend(map(hash, columns[0]))
    if layout.format != "prompt_only":
        _find_ends(facts, columns[-1], _end_tokens_in(block))
    if len(columns) > 1 and max(facts.lengths[layout.parts[0][0]]) >= layout.long_prompt_chars:
        for index, (prompt, answer) in enumerate(zip(columns[0], columns[1], strict=True)):
            _note_long(facts, index, len(prompt), len(answer), layout)
    return facts


def _note_long(facts: Facts, index: int, asked: int, answered: int, layout: Layout) -> None:
    if is_long_prompt(asked, answered, layout.long_prompt_chars, layout.short_answer_share):
        facts.long_prompts.append((index, asked))


def _find_ends(facts: Facts, texts: list[str], tokens: tuple[str, ...]) -> None:
    if not tokens:
        facts.unended = list(range(min(MAX_LISTED, len(texts))))
        return
    for index, text in enumerate(texts):
        found = [token for token in tokens if token in text] if "<" in text else []
        if found:
            facts.ended_rows += 1
            if len(facts.ended) < MAX_LISTED:
                facts.ended.append((index, max(found, key=text.rfind)))
        elif len(facts.unended) < MAX_LISTED:
            facts.unended.append(index)


def is_long_prompt(asked: int, answered: int, limit: int, share: float | None) -> bool:
    """Is a prompt of so many characters likely to leave no room for its answer?

    A prompt beyond every context is warned about for that.
    """
    return limit <= asked <= LONG_CHARS and (share is None or answered <= share * asked)


def limit_chars(max_length: int | None, default_tokens: int) -> int:
    """The length in characters from which a prompt may fill `max_length` tokens."""
    return (default_tokens if max_length is None else max_length) * CHARS_PER_TOKEN


def _judge_roles(roles: tuple[str, ...], part: str) -> int | None:
    """Where the first answer starts, in roles without a problem for this part; else None."""
    if part in ("completion", "chosen", "rejected"):
        return 0 if roles[0] == "assistant" and roles[-1] == "assistant" else None
    if order_problems(roles, is_prompt=part == "prompt"):
        return None
    if part == "prompt":
        return None if roles[-1] == "assistant" else len(roles)
    return roles.index("assistant") if "assistant" in roles else None


@lru_cache(maxsize=65_536)
def _answer_turn(order: int, part: str) -> int | None:
    """`_judge_roles` of an order of roles in three bits each, the first turn lowest."""
    roles = []
    while order:
        roles.append(_ROLE_OF_CODE[order & 7])
        order >>= 3
    return _judge_roles(tuple(roles), part)


_ROLE_OF_CODE = {code: role for role, code in ROLE_CODES.items()}


def _conversations(records: list[Row], layout: Layout, block: bytes | None) -> Facts | None:
    """Rows whose parts are lists of messages with a role and a text each."""
    facts = Facts(len(records))
    keys = len(records) * len(layout.columns)
    hashed: list[list[Any]] = []
    sides: list[_Side] = []
    for ours, theirs in layout.parts:
        side = _measure_side(_column(records, theirs), ours, layout, block is None)
        if side is None:
            return None
        facts.lengths[ours] = Counter(side.totals)
        if max(facts.lengths[ours]) > LONG_CHARS:
            return None
        keys += 2 * side.messages
        hashed.append(side.hashes)
        sides.append(side)
    if block is not None and not count_keys(block, keys):
        return None
    if layout.format == "preference" and any(map(operator.eq, hashed[1], hashed[2])):
        return None
    if layout.answer is not None:
        answers = _answers(records, layout)
        if answers is None:
            return None
        facts.prompt_keys.extend(map(hash, hashed[0]))
        hashed.append(answers)
    facts.row_keys.extend(map(hash, zip(*hashed, strict=True)))
    _find_long_prompts(facts, records, sides, layout)
    return facts


@dataclass(frozen=True, slots=True)
class _Side:
    """One part of some rows: its conversations' hashes, characters and orders of roles."""

    messages: int
    hashes: list[int]
    totals: list[int]
    orders: list[int]


def _measure_side(conversations: list[list[Any]], part: str, layout: Layout, whole: bool) -> _Side | None:
    """The measures of each conversation; None where one is odd.

    `whole` says that a message's keys are to be counted here, because there is no text to count them in.
    """
    import numpy as np

    sizes = np.fromiter(map(len, conversations), dtype=np.int64, count=len(conversations))
    if not 0 < int(sizes.min()) <= int(sizes.max()) <= MAX_TURNS:
        return None
    flat = list(chain.from_iterable(conversations))
    if whole and set(map(len, flat)) != {2}:
        return None
    texts = _column(flat, "value" if layout.sharegpt else "content")
    roles = _column(flat, "from" if layout.sharegpt else "role")
    if any(map(str.isspace, texts)):
        return None
    code_of = SHAREGPT_CODES if layout.sharegpt else ROLE_CODES
    codes = np.fromiter(map(code_of.__getitem__, roles), dtype=np.int64, count=len(flat))
    ends = np.cumsum(sizes)
    starts = ends - sizes
    turns = np.arange(len(flat)) - np.repeat(starts, sizes)
    orders = np.add.reduceat(codes << (3 * turns), starts)
    if any(_answer_turn(order, part) is None for order in np.unique(orders).tolist()):
        return None
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(flat))
    if int(lengths.min()) == 0:
        return None
    hashes = np.fromiter(map(hash, texts), dtype=np.int64, count=len(flat)).view(np.uint64)
    mixed = (hashes ^ _salts()[codes]) * _factors()[turns]
    return _Side(
        messages=len(flat),
        hashes=np.add.reduceat(mixed, starts).view(np.int64).tolist(),
        totals=(np.add.reduceat(lengths, starts) + sizes - 1).tolist(),
        orders=orders.tolist(),
    )


@lru_cache(maxsize=1)
def _salts() -> Any:
    import numpy as np

    return np.array(ROLE_SALTS, dtype=np.uint64)


@lru_cache(maxsize=1)
def _factors() -> Any:
    import numpy as np

    return np.array([turn_factor(turn) for turn in range(MAX_TURNS)], dtype=np.uint64)


def _find_long_prompts(facts: Facts, records: list[Row], sides: list[_Side], layout: Layout) -> None:
    """Note the prompts that may leave no room for an answer; most blocks have none that is so long."""
    first = sides[0].totals
    if max(first) < layout.long_prompt_chars:
        return
    for index, total in enumerate(first):
        if total < layout.long_prompt_chars:
            continue
        if layout.format == "messages":
            answer = _answer_turn(sides[0].orders[index], "messages") or 0
            messages = records[index][layout.parts[0][1]][:answer]
            name = "value" if layout.sharegpt else "content"
            before = sum(len(message[name]) for message in messages) + max(answer - 1, 0)
            _note_long(facts, index, before, total - before, layout)
        elif len(sides) > 1:
            _note_long(facts, index, total, sides[1].totals[index], layout)


def types_of_kind(kind: str) -> tuple[type, ...]:
    """The types of a kind that `messages.kind_of` names."""
    return _TYPES.get(kind, ())

"""What orjson would pass over in silence, found in the text of whole blocks."""

from __future__ import annotations

import re
from typing import Any

SMALL_BYTES = 1 << 16
KEY_END = re.compile(rb'(?<!\\)":')
QUOTE_COLON = 0x3A22
LONG_DIGITS = re.compile(rb"[0-9]{19}")


def count_keys(block: bytes, expected: int) -> bool:
    """Has a JSON text exactly `expected` keys? Counts the quotes before a colon that no backslash escapes."""
    if len(block) < SMALL_BYTES:
        return len(KEY_END.findall(block)) == expected
    import numpy as np

    # pairs of bytes from even and from odd places; a tenth of the time of comparing shifted bytes
    pairs = len(block) // 2
    found = int(np.count_nonzero(np.frombuffer(block, "<u2", pairs) == QUOTE_COLON))
    found += int(np.count_nonzero(np.frombuffer(block, "<u2", (len(block) - 1) // 2, 1) == QUOTE_COLON))
    if found > expected and b"\\" in block:
        return len(KEY_END.findall(block)) == expected
    return found == expected


def has_long_digits(block: bytes) -> bool:
    """Stand nineteen digits in a row? Integers beyond 64 bits come back rounded from orjson."""
    if len(block) < SMALL_BYTES:
        return LONG_DIGITS.search(block) is not None
    import numpy as np

    digits = (np.frombuffer(block, dtype=np.uint8) - np.uint8(0x30)) < 10
    for step in (1, 2, 4, 8):  # runs of 2, 4, 8 and 16 digits
        digits = digits[:-step] & digits[step:]
    return bool((digits[:-3] & digits[3:]).any())


def is_exact(block: bytes, records: list[Any]) -> bool:
    """Do these records hold all that their text says? A no only means that a careful parser has to look."""
    if has_long_digits(block):
        return False
    flat = sum(map(len, records))
    if count_keys(block, flat):
        return True
    inner = sum(_inner_keys(value) for record in records for value in record.values())
    return bool(inner) and count_keys(block, flat + inner)


def _inner_keys(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_inner_keys, value.values()))
    if isinstance(value, list):
        return sum(map(_inner_keys, value))
    return 0

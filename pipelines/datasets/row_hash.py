"""Hashes of rows, by which rows with the same content are found; equal within one process only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.datasets.messages import SHAREGPT_ROLES

MASK = (1 << 64) - 1
ROLE_CODES = {"system": 1, "developer": 2, "user": 3, "assistant": 4, "tool": 5}
SHAREGPT_CODES = {theirs: ROLE_CODES[ours] for theirs, ours in SHAREGPT_ROLES.items()}
MAX_TURNS = 21
"""So many role codes of three bits fit into 63 bits; longer conversations are looked at one by one."""
_GOLDEN = 0x9E3779B97F4A7C15
ROLE_SALTS = [pow(_GOLDEN, 2 * code + 101, 1 << 64) for code in range(len(ROLE_CODES) + 1)]


def turn_factor(turn: int) -> int:
    """An odd factor for each turn, so that the same messages in another order have another hash."""
    return pow(_GOLDEN, turn + 1, 1 << 64)


def row_key(row: Mapping[str, Any], parts: Sequence[str], gold: Any) -> tuple[int, int]:
    """64-bit hashes of a normalised row and of its first part."""
    keys = [part_key(row[part]) for part in parts]
    return hash((*keys, gold) if gold is not None else tuple(keys)), hash(keys[0])


def part_key(value: Any) -> str | int:
    """A text itself; for messages the sum of (hash of a turn's text xor its role's salt) times a factor."""
    if isinstance(value, str):
        return value
    if not all(len(message) == 2 and isinstance(message["content"], str) for message in value):
        from pipelines.datasets.content import canonical_bytes

        return hash(canonical_bytes(value))
    total = 0
    for turn, message in enumerate(value):
        total += ((hash(message["content"]) & MASK) ^ ROLE_SALTS[ROLE_CODES[message["role"]]]) * turn_factor(
            turn
        )
    total &= MASK
    return total - (1 << 64) if total >> 63 else total

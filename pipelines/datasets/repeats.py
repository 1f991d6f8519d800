"""Rows that stand twice, and prompts that stand with different answers, by 64-bit hashes of their content."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

SMALL = 200_000
SLICE = 1 << 20


class Repeats:
    """Eight bytes a row for its hash, and eight for its prompt's where it has a gold, in the order of the
    rows.

    Hashes are Python's own (64 bits): two of ten million different rows share one with a chance of 3 in a
    million.
    """

    def __init__(self) -> None:
        self.rows = array("q")
        self.prompts = array("q")
        self._duplicates: tuple[array[int], array[int]] | None = None
        self._duplicates_of = 0

    def add(self, row_hash: int, prompt_hash: int | None) -> None:
        """Add one row."""
        self.rows.append(row_hash)
        if prompt_hash is not None:
            self.prompts.append(prompt_hash)

    def extend(self, row_hashes: Iterable[int], prompt_hashes: Iterable[int]) -> None:
        """Add some rows."""
        self.rows.extend(row_hashes)
        self.prompts.extend(prompt_hashes)

    def duplicates(self) -> tuple[array[int], array[int]]:
        """The indices of rows that repeat an earlier one, and of the first such row for each, in order."""
        if self._duplicates is None or self._duplicates_of != len(self.rows):
            self._duplicates, self._duplicates_of = repeated(self.rows), len(self.rows)
        return self._duplicates

    def conflicts(self) -> tuple[array[int], array[int]]:
        """The same for rows that repeat no row, and whose prompt stands earlier with another answer."""
        repeats = bytearray(len(self.rows))
        for index in self.duplicates()[0]:
            repeats[index] = 1
        later, earlier = array("q"), array("q")
        for index, first in zip(*repeated(self.prompts), strict=True):
            if not repeats[index] and self.rows[index] != self.rows[first]:
                later.append(index)
                earlier.append(first)
        return later, earlier


def repeated(hashes: array[int]) -> tuple[array[int], array[int]]:
    """Every later occurrence of a hash: its index, and the index of the first."""
    later, earlier = array("q"), array("q")
    if len(hashes) <= SMALL:
        firsts: dict[int, int] = {}
        for index, value in enumerate(hashes):
            first = firsts.setdefault(value, index)
            if first != index:
                later.append(index)
                earlier.append(first)
        return later, earlier
    import numpy as np

    values = np.frombuffer(hashes, dtype=np.int64)
    twice = _values_seen_twice(values)
    if not len(twice):
        return later, earlier
    first_of = np.full(len(twice), -1, dtype=np.int64)
    for start in range(0, len(values), SLICE):
        part = values[start : start + SLICE]
        at = np.searchsorted(twice, part)
        at[at == len(twice)] = 0
        here = np.flatnonzero(twice[at] == part)
        at = at[here]
        here += start
        known, begin = np.unique(at, return_index=True)
        new = first_of[known] < 0
        first_of[known[new]] = here[begin[new]]
        repeats = first_of[at] != here
        later.frombytes(here[repeats].tobytes())
        earlier.frombytes(first_of[at[repeats]].tobytes())
    return later, earlier


def _values_seen_twice(values: Any) -> Any:
    """The sorted values that stand more than once; an eighth of them is copied at a time."""
    import numpy as np

    found = []
    for eighth in range(-4, 4):
        parts = []
        for start in range(0, len(values), SLICE):
            part = values[start : start + SLICE]
            parts.append(part[(part >> 61) == eighth])
        ordered = np.sort(np.concatenate(parts))
        found.append(np.unique(ordered[1:][ordered[1:] == ordered[:-1]]))
    return np.concatenate(found)

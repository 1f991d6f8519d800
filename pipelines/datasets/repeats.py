"""Rows that stand twice, and prompts that stand with different answers, by 64-bit hashes of their content."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

SMALL = 200_000


class Repeats:
    """Eight bytes a row for its hash, and eight for its prompt's where it has a gold, in the order of the
    rows.

    Hashes are Python's own (64 bits): two of ten million different rows share one with a chance of 3 in a
    million.
    """

    def __init__(self) -> None:
        self.rows = array("q")
        self.prompts = array("q")
        self._duplicates: list[tuple[int, int]] | None = None
        self._duplicates_of = 0

    def add(self, row_hash: int, prompt_hash: int | None) -> None:
        self.rows.append(row_hash)
        if prompt_hash is not None:
            self.prompts.append(prompt_hash)

    def extend(self, row_hashes: Iterable[int], prompt_hashes: Iterable[int]) -> None:
        self.rows.extend(row_hashes)
        self.prompts.extend(prompt_hashes)

    def duplicates(self) -> list[tuple[int, int]]:
        """(index, index of the first row with the same content), in the order of the rows."""
        if self._duplicates is None or self._duplicates_of != len(self.rows):
            self._duplicates, self._duplicates_of = list(repeated(self.rows)), len(self.rows)
        return self._duplicates

    def conflicts(self) -> Iterator[tuple[int, int]]:
        """(index, index of the first row with the same prompt) where the two rows differ."""
        for index, first in repeated(self.prompts):
            if self.rows[index] != self.rows[first]:
                yield index, first


def repeated(hashes: array[int]) -> Iterator[tuple[int, int]]:
    """(index, first index with the same hash) for every later occurrence."""
    if len(hashes) <= SMALL:
        firsts: dict[int, int] = {}
        for index, value in enumerate(hashes):
            first = firsts.setdefault(value, index)
            if first != index:
                yield index, first
        return
    import numpy as np

    values = np.frombuffer(hashes, dtype=np.int64)
    ordered = np.sort(values)
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    del ordered
    if not len(twice):
        return
    firsts = {}
    # in slices, so that the mask over ten million rows is never a Python list
    for start in range(0, len(values), 1 << 20):
        part = values[start : start + (1 << 20)]
        at = np.searchsorted(twice, part)
        at[at == len(twice)] = 0
        for offset in np.flatnonzero(twice[at] == part).tolist():
            value = int(part[offset])
            first = firsts.setdefault(value, start + offset)
            if first != start + offset:
                yield start + offset, first

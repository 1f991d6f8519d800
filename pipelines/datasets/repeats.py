"""Rows that stand twice, and prompts that stand with different answers, by 64-bit hashes of their content."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

SMALL = 200_000


class Repeats:
    """16 bytes a row: a hash of the row and one of its prompt, in the order of the rows.

    Hashes are Python's own (64 bits): two of ten million different rows share one with a chance of 3 in a
    million.
    """

    def __init__(self) -> None:
        self.rows = array("q")
        self.prompts = array("q")

    def add(self, row_hash: int, prompt_hash: int) -> None:
        self.rows.append(row_hash)
        self.prompts.append(prompt_hash)

    def extend(self, row_hashes: Iterable[int], prompt_hashes: Iterable[int]) -> None:
        self.rows.extend(row_hashes)
        self.prompts.extend(prompt_hashes)

    def duplicates(self) -> Iterator[tuple[int, int]]:
        """(index, index of the first row with the same content), in the order of the rows."""
        yield from repeated(self.rows)

    def conflicts(self) -> Iterator[tuple[int, int]]:
        """(index, index of the first row with the same prompt) where the two rows differ."""
        for index, first in repeated(self.prompts):
            if self.rows[index] != self.rows[first]:
                yield index, first

    def distinct_prompts(self) -> int:
        """How many different prompts there are."""
        if len(self.prompts) <= SMALL:
            return len(set(self.prompts))
        import numpy as np

        ordered = np.sort(np.frombuffer(self.prompts, dtype=np.int64))
        return int((ordered[1:] != ordered[:-1]).sum()) + 1


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

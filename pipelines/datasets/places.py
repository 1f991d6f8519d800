"""Which line (or row number) of which file a row has: a few bytes for a run of lines without a gap."""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Sequence

from pipelines.datasets.rows import ReadLog


class Places:
    """Maps the index of a row to its place, and to the file that it is in."""

    def __init__(self) -> None:
        self.count = 0
        self._starts: list[int] = []
        self._runs: list[range | array[int]] = []
        self._files: list[tuple[int, ReadLog]] = []

    def open(self, log: ReadLog) -> None:
        """The rows that follow are from this file."""
        if not self._files or self._files[-1][1] is not log:
            self._files.append((self.count, log))

    def extend(self, places: Sequence[int]) -> None:
        """Add the places of some rows."""
        if not places:
            return
        last = self._runs[-1] if self._runs else None
        if isinstance(places, range) and isinstance(last, range) and last.stop == places.start:
            self._runs[-1] = range(last.start, places.stop)
        elif not isinstance(places, range) and isinstance(last, array):
            last.extend(places)
        else:
            self._starts.append(self.count)
            self._runs.append(places if isinstance(places, range) else array("q", places))
        self.count += len(places)

    def __getitem__(self, index: int) -> int:
        run = bisect.bisect_right(self._starts, index) - 1
        return self._runs[run][index - self._starts[run]]

    def log_of(self, index: int) -> ReadLog:
        """The file of a row; of the last row for an index beyond it."""
        return next(log for start, log in reversed(self._files) if start <= index)

    def index_of(self, log: ReadLog, place: int) -> int | None:
        """The index of the row at a place of a file."""
        starts = [start for start, other in self._files if other is log]
        if not starts:
            return None
        low, high = starts[0], self.count
        while low < high:
            middle = (low + high) // 2
            if self[middle] < place and self.log_of(middle) is log:
                low = middle + 1
            else:
                high = middle
        return low if low < self.count and self[low] == place else None

"""A large file of JSON lines scanned by several processes, each on its own range of bytes.

A range owns the lines that start in it. A process measures blocks of ordinary rows (`fast.scan_lines`) and
only names the other blocks, which the calling process reads with care, in order. Processes are forked, so
that `hash(text)` is the same in all of them.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pipelines.datasets.fast import Facts, Layout, scan_lines
from pipelines.datasets.streams import BLOCK_BYTES

RANGE_BYTES = 16 << 20
WORTH_BYTES = 48 << 20
"""Below this size, starting processes costs more than it saves."""
MAX_WORKERS = 8


@dataclass(frozen=True, slots=True)
class Piece:
    """Some whole lines: measured (`facts`), or to be read with care (bytes `start` to `stop` of the file)."""

    start: int
    stop: int
    lines: int
    facts: Facts | None


def workers_for(path: Path) -> int:
    """How many processes are worth it for a file; 1 means none."""
    if "fork" not in multiprocessing.get_all_start_methods() or threading.active_count() > 1:
        return 1
    if multiprocessing.current_process().daemon or path.stat().st_size < WORTH_BYTES:
        return 1
    return max(1, min(MAX_WORKERS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1))


def scan_file(path: Path, start: int, layout: Layout, workers: int) -> Iterator[Piece]:
    """The pieces of a file from byte `start` (where a line starts) to its end, in order."""
    size = path.stat().st_size
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        waiting: list[Future[list[Piece]]] = []
        at = start
        try:
            while at < size or waiting:
                while at < size and len(waiting) < 2 * workers:
                    stop = min(size, at + RANGE_BYTES)
                    waiting.append(pool.submit(_scan_range, str(path), at, stop, at == start, layout))
                    at = stop
                yield from waiting.pop(0).result()
        finally:
            for future in waiting:
                future.cancel()


def _scan_range(path: str, start: int, stop: int, first: bool, layout: Layout) -> list[Piece]:
    """The lines that start in [start, stop); `first` says that a line starts at `start`."""
    pieces: list[Piece] = []
    with open(path, "rb") as file:
        if first:
            file.seek(start)
        else:
            file.seek(start - 1)
            file.readline()  # the rest of a line that starts before
        at = file.tell()
        while at < stop:
            block = file.read(min(BLOCK_BYTES, stop - at))
            if not block.endswith(b"\n"):
                block += file.readline()
            end = at + len(block)
            lines = block.count(b"\n") + (not block.endswith(b"\n"))
            text = block[:-1] if block.endswith(b"\n") else block
            _join(pieces, Piece(at, end, lines, scan_lines(text, layout)))
            at = end
    return pieces


def _join(pieces: list[Piece], piece: Piece) -> None:
    """Add a piece, as one with the last where both are measured."""
    last = pieces[-1] if pieces else None
    if last is None or last.facts is None or piece.facts is None:
        pieces.append(piece)
        return
    last.facts.add(piece.facts)
    pieces[-1] = Piece(last.start, piece.stop, last.lines + piece.lines, last.facts)

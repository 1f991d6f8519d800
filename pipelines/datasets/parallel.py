"""A large file of JSON lines scanned by several processes, each on its own range of bytes.

A range owns the lines that start in it. A process measures blocks of ordinary rows (`fast.scan_lines`) and
only names the other blocks, which the calling process reads with care, in order. Processes are forked, so
that `hash(text)` is the same in all of them.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from io import RawIOBase
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
    gc.disable()  # as in `inspect_source`
    pieces: list[Piece] = []
    with open(path, "rb", buffering=0) as file:
        at = start if first else _next_line(file, start - 1)
        file.seek(at)
        rest: list[bytes] = []
        while at < stop:
            block = file.read(BLOCK_BYTES)
            cut = block.rfind(b"\n")
            if block and cut < 0:
                rest.append(block)
                continue
            ended = bool(block)
            lines = b"".join((*rest, memoryview(block)[:cut])) if ended else b"".join(rest)
            if not ended and not lines:
                break
            rest = [block[cut + 1 :]] if cut + 1 < len(block) else []
            if at + len(lines) >= stop:
                # the last line is the one that holds the range's last byte, wherever it ends
                end = lines.find(b"\n", max(0, stop - 1 - at))
                if end >= 0:
                    lines, ended = lines[:end], True
            end = at + len(lines) + ended
            _join(pieces, Piece(at, end, lines.count(b"\n") + 1, scan_lines(lines, layout)))
            at = end
    return pieces


def _next_line(file: RawIOBase, position: int) -> int:
    """Where the line after the one that holds `position` starts."""
    file.seek(position)
    while block := file.read(BLOCK_BYTES):
        cut = block.find(b"\n")
        if cut >= 0:
            return position + cut + 1
        position += len(block)
    return position


def _join(pieces: list[Piece], piece: Piece) -> None:
    """Add a piece, as one with the last where both are measured."""
    last = pieces[-1] if pieces else None
    if last is None or last.facts is None or piece.facts is None:
        pieces.append(piece)
        return
    last.facts.add(piece.facts)
    pieces[-1] = Piece(last.start, piece.stop, last.lines + piece.lines, last.facts)

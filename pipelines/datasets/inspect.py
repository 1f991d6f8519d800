"""One pass over a source: its format, its rows, and everything that is odd about them."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Mapping
from pathlib import Path

from pipelines.datasets.errors import DataError
from pipelines.datasets.inspector import Inspector, TooManyProblems
from pipelines.datasets.jsonlines import careful_batches
from pipelines.datasets.report import DataReport
from pipelines.datasets.rows import Batch, DataFile, ReadLog
from pipelines.datasets.sources import find_files, read_file


def inspect_source(
    source: str | Path,
    *,
    mapping: Mapping[str, str] | None = None,
    sample: int | None = None,
    mend: bool = False,
    unpaired: bool = False,
    max_length: int | None = None,
    workers: int | None = None,
    on_progress: Callable[[int, int, int], None] | None = None,
) -> DataReport:
    """Read a source once and say what it is and what is odd about it; what the data holds never raises.

    `mapping` names columns that have no known name (TRL's column -> the file's); `sample` reads only so
    many rows; `mend` reads what `--fix` can mend; `unpaired` accepts KTO's format; `max_length` in tokens
    is what training will cut at; `workers` is the number of processes for large files of JSON lines
    (default: one for each core); `on_progress` is called with rows, bytes read and bytes in all. Raises
    BadInput for a mapping that fits no column.
    """
    inspector = Inspector(str(source), mapping=mapping, mend=mend, unpaired=unpaired, max_length=max_length)
    logs: list[ReadLog] = []
    sampled = False
    collects = gc.isenabled()
    gc.disable()  # rows hold no cycles, and the search for them takes a third of the time
    try:
        sampled = _read_files(inspector, source, logs, sample, workers, on_progress)
    except TooManyProblems:
        pass
    except DataError as error:
        with contextlib.suppress(TooManyProblems):
            inspector.problem(error)
    finally:
        if collects:
            gc.enable()
    return inspector.report(logs, sampled=sampled)


def _read_files(
    inspector: Inspector,
    source: str | Path,
    logs: list[ReadLog],
    sample: int | None,
    workers: int | None,
    on_progress: Callable[[int, int, int], None] | None,
) -> bool:
    """Add the rows of all files; True where `sample` left some unread."""
    files, notes = find_files(source)
    total = sum(file.path.stat().st_size for file in files)
    done = 0
    for file in files:
        log = ReadLog(file.shown, on_error=inspector.problem, quick=True, notes=list(notes))
        notes = []
        logs.append(log)

        def progress(log: ReadLog = log, done: int = done) -> None:
            if on_progress:
                on_progress(inspector.rows, done + log.bytes_read, total)

        if sample is None:
            _read_all(inspector, file, log, workers, progress)
        elif _read_some(inspector, file, log, sample, progress):
            return True
        done += file.path.stat().st_size
    return False


def _read_some(
    inspector: Inspector, file: DataFile, log: ReadLog, sample: int, progress: Callable[[], None]
) -> bool:
    """Add rows until there are `sample`; True where the file holds more."""
    for batch in read_file(file, log):
        rest = sample - inspector.rows
        if len(batch.records) > rest:
            if rest:
                raw = b"\n".join(batch.raw.split(b"\n")[:rest]) if batch.raw is not None else None
                inspector.add(log, Batch(batch.places[:rest], batch.records[:rest], raw))
            return True
        inspector.add(log, batch)
        progress()
    return False


def _read_all(
    inspector: Inspector, file: DataFile, log: ReadLog, workers: int | None, progress: Callable[[], None]
) -> None:
    """Add all rows of a file; a large file of JSON lines goes to several processes after its first batch."""
    from pipelines.datasets.parallel import scan_file, workers_for

    at = 0
    for batch in read_file(file, log):
        inspector.add(log, batch)
        progress()
        at = log.resume_at or 0
        count = workers if workers is not None else (workers_for(file.path) if at else 1)
        if at and count > 1 and inspector.layout is not None and not inspector.mend:
            break
    else:
        return
    layout, line = inspector.layout, batch.places[-1] + 1
    assert layout is not None
    with file.path.open("rb") as raw:
        for piece in scan_file(file.path, at, layout, count):
            if piece.facts is not None:
                inspector.places.open(log)
                inspector.tally.add_facts(piece.facts)
                inspector.places.extend(range(line, line + piece.lines))
            else:
                raw.seek(piece.start)
                block = raw.read(piece.stop - piece.start)
                ended = block.endswith(b"\n")
                careful = careful_batches(block[:-1] if ended else block, line, log, not ended)
                for one in careful:
                    inspector.add(log, one)
            line += piece.lines
            log.bytes_read = piece.stop
            progress()

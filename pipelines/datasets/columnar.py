"""Parquet and Arrow files, in batches; places are row numbers, counted from 1."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.datasets.rows import Batch, ReadLog

BATCH_ROWS = 512
PARQUET = b"PAR1"
ARROW = b"ARROW1"


def read_parquet(path: Path, log: ReadLog) -> Iterator[Batch]:
    """Batches of rows of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    log.by_row = True
    _check_parquet(path, log)
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise log.error(f"not a readable Parquet file: {_first_line(error)}") from None
    with file:
        yield from _batches(file.iter_batches(batch_size=BATCH_ROWS), log)


def _check_parquet(path: Path, log: ReadLog) -> None:
    size = log.bytes_total = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(64)
        file.seek(max(0, size - 4))
        tail = file.read(4)
    if not head.startswith(PARQUET):
        remedy = "save the data as Parquet, or rename the file"
        if head.lstrip()[:1] in (b"{", b"["):
            remedy = f"the content looks like JSON: rename the file to {path.with_suffix('.jsonl').name}"
        elif not head:
            remedy = "the file is empty; write it again"
        raise log.error("not a Parquet file (no PAR1 magic)", remedy=remedy)
    if tail != PARQUET or size < 12:
        raise log.error(
            "not a complete Parquet file (no PAR1 magic at its end: the file is cut off)",
            remedy="write or copy the file again",
        )


def read_arrow(path: Path, log: ReadLog) -> Iterator[Batch]:
    """Batches of rows of an Arrow file (also Feather) or an Arrow stream (what `datasets` writes)."""
    import pyarrow as pa

    log.by_row = True
    log.bytes_total = path.stat().st_size
    with pa.OSFile(str(path), "rb") as source:
        try:
            magic = source.read(len(ARROW))
            source.seek(0)
            if magic == ARROW:
                reader = pa.ipc.open_file(source)
                batches: Iterator[Any] = (reader.get_batch(i) for i in range(reader.num_record_batches))
            else:
                batches = iter(pa.ipc.open_stream(source))
        except (pa.ArrowException, OSError) as error:
            raise log.error(
                f"not an Arrow file or stream: {_first_line(error)}",
                remedy="save the data as Arrow or JSON lines",
            ) from None
        yield from _batches(batches, log)


def _batches(batches: Iterator[Any], log: ReadLog) -> Iterator[Batch]:
    import pyarrow as pa

    first = 1
    try:
        for whole in batches:
            names = whole.schema.names
            if len(set(names)) != len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise log.error(
                    f'the column "{twice}" stands twice in the schema', remedy="rename one of them"
                )
            for start in range(0, whole.num_rows, BATCH_ROWS):
                records = whole.slice(start, BATCH_ROWS).to_pylist()
                yield Batch(range(first, first + len(records)), records)
                first += len(records)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise log.error(f"row {first} or one after it cannot be read: {_first_line(error)}", first) from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]

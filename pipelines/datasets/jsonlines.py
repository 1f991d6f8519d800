"""JSON lines: one object a line, in batches; whole batches at orjson's speed, odd lines with care."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.datasets import text as encodings
from pipelines.datasets.errors import DataError
from pipelines.datasets.fast import parse_block
from pipelines.datasets.json_values import parse_line
from pipelines.datasets.key_scan import is_exact
from pipelines.datasets.rows import Batch, ReadLog, RowDict
from pipelines.datasets.streams import BLOCK_BYTES, ByteStream

WHITESPACE = b" \t\r\n\x0b\x0c"


def line_blocks(stream: ByteStream, log: ReadLog, head: bytes) -> Iterator[tuple[bytes, bool]]:
    """Blocks of whole lines without the last line end, and whether the file ended without one."""
    rest = [head] if head else []
    while block := stream.read(BLOCK_BYTES):
        cut = block.rfind(b"\n")
        if cut < 0:
            rest.append(block)
            continue
        yield b"".join((*rest, memoryview(block)[:cut])), False
        rest = [block[cut + 1 :]] if cut + 1 < len(block) else []
    tail = b"".join(rest)
    if tail:
        ended = tail.endswith(b"\n")
        yield (tail[:-1] if ended else tail), not ended


def read_json_lines(stream: ByteStream, log: ReadLog, head: bytes = b"") -> Iterator[Batch]:
    """Batches of rows. `head` is what was already read from `stream`.

    With `log.quick`, whole batches carry their text, and it is the caller who makes sure that it says no
    more than the records (`careful_batches` reads it again).
    """
    next_line = 1
    consumed = 0
    for block, unended in line_blocks(stream, log, head):
        consumed += len(block) + 1
        log.resume_at = None if stream.compression or unended else consumed
        if next_line == 1 and block.startswith(encodings.UTF8_BOM):
            log.repaired("strip_bom")
            block = block[len(encodings.UTF8_BOM) :]
        first = next_line
        records = parse_block(block)
        if records is None or not (log.quick or is_exact(block, records)):
            next_line += block.count(b"\n") + 1
            yield from careful_batches(block, first, log, unended)
            continue
        next_line += len(records)
        yield Batch(range(first, next_line), records, block)


def careful_batches(block: bytes, first: int, log: ReadLog, unended: bool = False) -> Iterator[Batch]:
    """Whole lines one by one, the first of which is line `first`: blank ones skipped, broken ones explained.

    `unended` says that the file ends with this block, without a line end.
    """
    lines = block.split(b"\n")
    places: list[int] = []
    records: list[RowDict] = []
    for place, line in enumerate(lines, first):
        if not line.strip(WHITESPACE):
            log.repaired("skip_blank_lines")
            if place < first + len(lines) - 1 or unended:
                log.mended(place, "a blank line was left out")
            continue
        if line.startswith(encodings.UTF8_BOM):  # files with a mark, put one after another
            log.repaired("strip_bom")
            line = line[len(encodings.UTF8_BOM) :]
        try:
            last = unended and place == first + len(lines) - 1
            text = encodings.decode(line, log, place, last=last)
            record = parse_line(text, place, log, last_line=last)
        except DataError as error:
            mended = _mend(line, place, log)
            if mended is not None:
                places += [place] * len(mended)
                records += mended
                continue
            if records:
                yield Batch(places, records)
                places, records = [], []
            log.reject(error)
            continue
        places.append(place)
        records.append(record)
    if records:
        yield Batch(places, records)


def _mend(line: bytes, place: int, log: ReadLog) -> list[RowDict] | None:
    """The rows that a broken line means, where broken lines are mended and it means only one thing."""
    if log.on_mended is None:
        return None
    from pipelines.datasets.mend import mend_line

    try:
        found = mend_line(line.decode("utf-8").strip())
    except UnicodeDecodeError:
        return None
    if found is None:
        return None
    log.mended(place, found[1])
    return found[0]

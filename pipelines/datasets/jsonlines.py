"""JSON lines: one object a line, in batches; whole batches at orjson's speed, odd lines with care."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from pipelines.datasets import text as encodings
from pipelines.datasets.errors import DataError
from pipelines.datasets.json_values import parse_line
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
        yield (b"".join(rest) + block[:cut] if rest else block[:cut]), False
        rest = [block[cut + 1 :]] if cut + 1 < len(block) else []
    tail = b"".join(rest)
    if tail:
        ended = tail.endswith(b"\n")
        yield (tail[:-1] if ended else tail), not ended


def read_json_lines(stream: ByteStream, log: ReadLog, head: bytes = b"") -> Iterator[Batch]:
    """Batches of rows. `head` is what was already read from `stream`."""
    loads = orjson.loads
    next_line = 1
    for block, unended in line_blocks(stream, log, head):
        if log.on_bytes:
            log.on_bytes(block)
        if next_line == 1 and block.startswith(encodings.UTF8_BOM):
            log.repaired("strip_bom")
            block = block[len(encodings.UTF8_BOM) :]
        lines = block.split(b"\n")
        first, next_line = next_line, next_line + len(lines)
        try:
            records = [loads(line) for line in lines]
        except (orjson.JSONDecodeError, RecursionError):
            yield from _careful(lines, first, log, unended)
            continue
        if set(map(type, records)) != {dict} or repeats_key(block, records):
            yield from _careful(lines, first, log, unended)
            continue
        yield Batch(range(first, next_line), records, block)


def repeats_key(block: bytes, records: list[RowDict]) -> bool:
    """May a top-level key stand twice in one row? (A parser keeps the last value in silence.)

    Compares how often each key of the first row stands in the text with how many rows have it: more may
    also be a nested key, so a yes only means to look closely.
    """
    for key in records[0]:
        quoted = orjson.dumps(key) + b":"
        if block.count(quoted) > len(records):
            return True
    return False


def _careful(lines: list[bytes], first: int, log: ReadLog, unended: bool) -> Iterator[Batch]:
    """The same lines one by one: blank ones skipped, broken ones explained."""
    places: list[int] = []
    records: list[RowDict] = []
    raw: list[bytes] = []
    for place, line in enumerate(lines, first):
        if not line.strip(WHITESPACE):
            # a file that ends in several line ends has an empty last block, which is no line of its own
            log.repaired("skip_blank_lines")
            continue
        try:
            text = encodings.decode(line, log, place)
            record = parse_line(text, place, log, last_line=unended and place == first + len(lines) - 1)
        except DataError as error:
            if records:
                yield Batch(places, records, b"\n".join(raw))
                places, records, raw = [], [], []
            log.reject(error)
            continue
        places.append(place)
        records.append(record)
        raw.append(line)
    if records:
        yield Batch(places, records, b"\n".join(raw))

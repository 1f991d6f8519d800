"""CSV and its relatives: every cell is the text that is written there, every row has the header's fields."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator

import orjson

from pipelines.datasets import text as encodings
from pipelines.datasets.errors import DataError, excerpt
from pipelines.datasets.explain_json import python_literal
from pipelines.datasets.jsonlines import line_blocks
from pipelines.datasets.rows import Batch, ReadLog, RowDict
from pipelines.datasets.streams import ByteStream

BATCH_ROWS = 512
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}
# cells of these columns may hold a list of messages, written as JSON
LIST_COLUMNS = (
    "messages",
    "conversations",
    "prompt",
    "completion",
    "chosen",
    "rejected",
    "tools",
    "tool_calls",
)
LIST_COLUMNS_GOLD = ("tests", "schema")


def read_table(stream: ByteStream, log: ReadLog, head: bytes, delimiter: str) -> Iterator[Batch]:
    """Batches of rows of a table with a header (line 1); places are the lines on which rows start."""
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    lines = _Lines(stream, log, head)
    header, delimiter = _header(lines, log, delimiter)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    places: list[int] = []
    records: list[RowDict] = []
    while True:
        start = lines.count + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            if records:
                yield Batch(places, records)
            raise _csv_error(error, start, lines, log) from None
        if cells is None:
            break
        if not cells or (len(cells) == 1 and not cells[0].strip() and len(header) > 1):
            log.repaired("skip_blank_lines")
            continue
        try:
            record = _record(header, cells, start, log, delimiter)
        except DataError as error:
            if records:
                yield Batch(places, records)
                places, records = [], []
            log.reject(error)
            continue
        places.append(start)
        records.append(record)
        if len(records) >= BATCH_ROWS:
            yield Batch(places, records)
            places, records = [], []
    if records:
        yield Batch(places, records)


class _Lines:
    """The decoded lines of a table, with their line ends; `count` is how many were given out."""

    def __init__(self, stream: ByteStream, log: ReadLog, head: bytes) -> None:
        self.count = 0
        self.last = ""
        self._lines = self._read(stream, log, head)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.last = next(self._lines)
        self.count += 1
        return self.last

    @staticmethod
    def _read(stream: ByteStream, log: ReadLog, head: bytes) -> Iterator[str]:
        first_line = 1
        for block, unended in line_blocks(stream, log, head):
            if first_line == 1 and block.startswith(encodings.UTF8_BOM):
                log.repaired("strip_bom")
                block = block[len(encodings.UTF8_BOM) :]
            lines = block.split(b"\n")
            try:
                text = block.decode("utf-8").split("\n")
            except UnicodeDecodeError:
                for offset, line in enumerate(lines):  # give out what comes before the bad line
                    last = unended and offset == len(lines) - 1
                    yield encodings.decode(line, log, first_line + offset, last=last) + "\n"
                continue
            for one in text:
                yield one + "\n"
            first_line += len(lines)


def _header(lines: _Lines, log: ReadLog, delimiter: str) -> tuple[list[str], str]:
    """The column names and the delimiter that is in use."""
    from pipelines.datasets.forms import find_form

    line = next(lines, "")
    while line and not line.strip():
        log.repaired("skip_blank_lines")
        line = next(lines, "")
    if not line:
        return [], delimiter
    place = log.header = lines.count
    if '"' in line and line.count('"') % 2:
        # a quoted name with a line break inside
        while line.count('"') % 2:
            more = next(lines, None)
            if more is None:
                raise log.error("a quote in the header is not closed", place, text=excerpt(line))
            line += more
    if "\r" in line.rstrip("\r\n"):
        raise log.error(
            "the line ends are bare carriage returns (old Macintosh)",
            place,
            remedy="save the table with the line ends of Unix or Windows",
        )
    names = _split(line, delimiter)
    if find_form(dict.fromkeys(names, "")) is None:
        for other, word in DELIMITERS.items():
            if other == delimiter or other not in line:
                continue
            found = _split(line, other)
            if len(found) > len(names) or find_form(dict.fromkeys(found, "")) is not None:
                log.repaired(f"delimiter_{word}")
                names, delimiter = found, other
                break
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise log.error(
                f'the header names the column "{name}" twice',
                place,
                text=excerpt(line),
                remedy="rename one of them",
            )
        seen.add(name)
    return names, delimiter


def _split(line: str, delimiter: str) -> list[str]:
    try:
        cells = next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error:
        cells = line.rstrip("\r\n").split(delimiter)
    return [cell.strip() for cell in cells]


def _record(header: list[str], cells: list[str], place: int, log: ReadLog, delimiter: str) -> RowDict:
    if len(cells) != len(header):
        fields = "1 field" if len(cells) == 1 else f"{len(cells)} fields"
        remedy = 'put text that holds the delimiter in double quotes ("...")'
        if len(cells) == 1:
            for other, word in DELIMITERS.items():
                if other != delimiter and cells[0].count(other) == len(header) - 1:
                    remedy = f"this line is separated by {word}, the header by {DELIMITERS[delimiter]}"
        raise log.error(
            f"{fields}, expected {len(header)}", place, text=excerpt(delimiter.join(cells)), remedy=remedy
        )
    record: RowDict = dict(zip(header, cells, strict=True))
    for name in (*LIST_COLUMNS, *LIST_COLUMNS_GOLD):
        cell = record.get(name)
        if cell and cell[0] in "[{":
            record[name] = _list_cell(name, cell, place, log)
    return record


def _list_cell(name: str, cell: str, place: int, log: ReadLog) -> object:
    """A cell that holds a JSON list of objects (or a schema) is that list; other text stays text."""
    try:
        value = orjson.loads(cell)
    except orjson.JSONDecodeError:
        value = python_literal(cell)
        if _is_objects(value):
            raise log.error(
                f'the column "{name}" holds a Python list, not JSON',
                place,
                text=excerpt(cell),
                remedy="write the cell with json.dumps, or save the data as JSON lines",
            ) from None
        return cell
    if _is_objects(value) or (name == "schema" and isinstance(value, dict)):
        log.repaired("parse_json_cells")
        return value
    return cell


def _is_objects(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _csv_error(error: csv.Error, start: int, lines: _Lines, log: ReadLog) -> DataError:
    message = str(error)
    if "unexpected end of data" in message:
        return log.error("a quoted field is not closed", start, remedy='close it with "')
    if "expected after" in message:
        return log.error(
            "text after a closing quote",
            lines.count,
            text=excerpt(lines.last),
            remedy='a quote inside a quoted field is written twice ("")',
        )
    return log.error(f"not a readable CSV row: {message}", start, text=excerpt(lines.last))

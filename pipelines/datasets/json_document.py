"""A JSON document: an array of objects, or one object that holds them; streamed, with physical lines."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from pipelines.datasets import text as encodings
from pipelines.datasets.errors import excerpt
from pipelines.datasets.explain_json import explain
from pipelines.datasets.json_values import NON_STANDARD, DuplicateKey, check_value, make_decoder
from pipelines.datasets.rows import Batch, ReadLog
from pipelines.datasets.streams import BLOCK_BYTES, ByteStream

BATCH_ROWS = 512
SPACE = re.compile(r"[ \t\r\n]*")


class _Text:
    """Decoded text with a sliding window; knows the physical line of its start."""

    def __init__(self, stream: ByteStream, log: ReadLog, head: bytes) -> None:
        self._stream = stream
        self._log = log
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._first = True
        self._bytes_line = 1
        self.text = ""
        self.at = 0
        self.line = 1
        self._counted = (0, 1)
        """A position and its line, from which later lines are counted."""
        self.ended = False
        self._add(head)

    def _add(self, data: bytes) -> None:
        if self._first and data:
            self._first = False
            if data.startswith(encodings.UTF8_BOM):
                self._log.repaired("strip_bom")
                data = data[len(encodings.UTF8_BOM) :]
        try:
            self.text += self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise encodings.not_utf8(
                bytes(error.object), error, self._log, self._bytes_line, last=not data
            ) from None
        self._bytes_line += data.count(b"\n")

    def more(self) -> bool:
        """Read on; the amount doubles with what is already held, so that a huge row costs twice its size."""
        self.drop()
        if self.ended:
            return False
        data = self._stream.read(max(BLOCK_BYTES, len(self.text)))
        if not data:
            self.ended = True
        self._add(data)
        return True

    def drop(self) -> None:
        """Forget what was consumed."""
        self.line = self.line_at(self.at)
        self.text = self.text[self.at :]
        self.at = 0
        self._counted = (0, self.line)

    def skip_space(self) -> str:
        """The next character that is no white space, or "" at the end."""
        while True:
            match = SPACE.match(self.text, self.at)
            self.at = match.end() if match else self.at
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return ""

    def line_at(self, position: int) -> int:
        """The physical line of a position in `text`."""
        known, line = self._counted
        if position < known:
            known, line = 0, self.line
        self._counted = (position, line + self.text.count("\n", known, position))
        return self._counted[1]

    def column_at(self, position: int) -> int:
        return position - (self.text.rfind("\n", 0, position) + 1) + 1

    def text_line(self, position: int) -> str:
        start = self.text.rfind("\n", 0, position) + 1
        end = self.text.find("\n", position)
        return self.text[start : len(self.text) if end < 0 else end]


class _Scanner:
    """Values one after another from a document."""

    def __init__(self, text: _Text, log: ReadLog) -> None:
        self.text = text
        self.log = log
        self.constants: list[str] = []
        self.decoder = make_decoder(self.constants.append)

    def value(self) -> tuple[Any, int]:
        """The next value and the physical line on which it starts."""
        self.text.skip_space()
        while True:
            place = self.text.line_at(self.text.at)
            try:
                value, end = self.decoder.raw_decode(self.text.text, self.text.at)
            except json.JSONDecodeError as error:
                cut = error.pos >= len(self.text.text) - 16 or error.msg.startswith("Unterminated")
                self.constants.clear()
                if cut and self.text.more():
                    continue
                raise self._explained(error) from None
            except DuplicateKey as error:
                raise self.log.error(
                    f'the key "{error}" stands twice in one object', place, remedy="keep one of them"
                ) from None
            except RecursionError:
                raise self.log.error("the row is nested too deeply", place) from None
            except ValueError as error:
                raise self.log.error(f"a number that cannot be read ({error})", place) from None
            if end >= len(self.text.text) and not isinstance(value, (dict, list)) and self.text.more():
                continue  # a number may go on in the next block
            for name in dict.fromkeys(self.constants):
                self.log.warnings.append((place, NON_STANDARD.format(name)))
            self.constants.clear()
            self.text.at = end
            return value, place

    def expect(self, allowed: str, place_hint: str) -> str:
        """The next character, which must be one of `allowed`."""
        found = self.text.skip_space()
        if found and found in allowed:
            self.text.at += 1
            return found
        position = self.text.at
        if not found:
            raise self.log.error(
                "invalid JSON: the document ends before its closing bracket (the file is cut off)",
                self.text.line_at(position),
                remedy="write or copy the file again",
            )
        raise self.log.error(
            f"invalid JSON: {place_hint}",
            self.text.line_at(position),
            column=self.text.column_at(position),
            text=excerpt(self.text.text_line(position), self.text.column_at(position)),
            remedy=f"one of {' '.join(allowed)} belongs here",
        )

    def _explained(self, error: json.JSONDecodeError) -> Exception:
        window = self.text.text
        at_end = error.pos >= len(window.rstrip()) or error.msg.startswith("Unterminated")
        why = explain(window, error, last_line=at_end)
        position = min(error.pos, len(window))
        return self.log.error(
            why.reason,
            self.text.line_at(position),
            column=self.text.column_at(position),
            text=excerpt(self.text.text_line(position), self.text.column_at(position)),
            remedy=why.remedy,
        )


def read_json_document(stream: ByteStream, log: ReadLog, head: bytes) -> Iterator[Batch]:
    """Batches of the objects in a JSON document; places are the lines on which the objects start."""
    scanner = _Scanner(_Text(stream, log, head), log)
    first = scanner.text.skip_space()
    if first == "[":
        scanner.text.at += 1
        yield from _batched(_elements(scanner), log)
    elif first == "{":
        value, place = scanner.value()
        rows, unwrapped = unwrap(value)
        if unwrapped:
            log.repaired("unwrap_" + unwrapped)
            others = [key for key in value if key != unwrapped]
            if others:
                log.note(f'rows are taken from "{unwrapped}"; not rows, and left out: {", ".join(others)}')
        if scanner.text.skip_space():
            position = scanner.text.at
            raise log.error(
                "invalid JSON: more than one object, spread over several lines",
                scanner.text.line_at(position),
                remedy="write one object a line (JSON lines), or one array of objects",
            )
        yield from _batched(((row, place) for row in rows), log)
    elif first:
        value, place = scanner.value()
        raise log.error(
            f"the document is {type(value).__name__}, not an array of objects",
            place,
            remedy="write an array of objects, or one object a line",
        )


def unwrap(value: dict[str, Any]) -> tuple[list[Any], str | None]:
    """The rows of {"data": [{...}, ...]} and the key that holds them; else the object itself as one row.

    An object that has the columns of a known format is a row, and its lists are messages.
    """
    from pipelines.datasets.forms import find_form

    if find_form(value) is None:
        lists = [
            k for k, v in value.items() if isinstance(v, list) and v and all(isinstance(i, dict) for i in v)
        ]
        if len(lists) == 1:
            return value[lists[0]], lists[0]
    return [value], None


def _elements(scanner: _Scanner) -> Iterator[tuple[Any, int]]:
    if scanner.text.skip_space() == "]":
        scanner.text.at += 1
        return
    while True:
        yield scanner.value()
        if scanner.expect(",]", "a comma or a closing bracket is missing between two rows") == "]":
            break
        if scanner.text.skip_space() == "]":
            raise scanner.log.error(
                "invalid JSON: trailing comma",
                scanner.text.line_at(scanner.text.at),
                column=scanner.text.column_at(scanner.text.at),
                remedy="remove the comma after the last row",
            )
    if scanner.text.skip_space():
        position = scanner.text.at
        raise scanner.log.error(
            "invalid JSON: text after the closing bracket",
            scanner.text.line_at(position),
            column=scanner.text.column_at(position),
            text=excerpt(scanner.text.text_line(position), scanner.text.column_at(position)),
            remedy="one array of objects, or one object a line",
        )


def _batched(values: Iterator[tuple[Any, int]], log: ReadLog) -> Iterator[Batch]:
    from pipelines.datasets.errors import DataError

    places: list[int] = []
    records: list[dict[str, Any]] = []
    while True:
        try:
            item = next(values, None)
        except DataError:
            if records:
                yield Batch(places, records)
            raise
        if item is None:
            break
        try:
            record = check_value(item[0], item[1], log)
        except DataError as error:
            if records:
                yield Batch(places, records)
                places, records = [], []
            log.reject(error)
            continue
        places.append(item[1])
        records.append(record)
        if len(records) >= BATCH_ROWS:
            yield Batch(places, records)
            places, records = [], []
    if records:
        yield Batch(places, records)

"""Encodings: UTF-8 or an error that names the line and what the file seems to be."""

from __future__ import annotations

import codecs

from pipelines.datasets.errors import DataError, excerpt
from pipelines.datasets.rows import ReadLog
from pipelines.datasets.streams import ByteStream

UTF8_BOM = codecs.BOM_UTF8
# UTF-32 little endian starts with the mark of UTF-16, so it is tried first
WIDE_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
SAVE_AS_UTF8 = "save the file as UTF-8 (iconv -f {} -t utf-8)"


def check_marks(head: bytes, log: ReadLog) -> None:
    """Raise where the first bytes are UTF-16 or UTF-32, with or without a mark."""
    for mark, name in WIDE_MARKS:
        if head.startswith(mark):
            raise log.error(f"not UTF-8: {name} byte order mark", 1, remedy=SAVE_AS_UTF8.format(name.lower()))
    if len(head) >= 4 and head[:64].count(0) * 3 >= len(head[:64]):
        name = "UTF-16" if head[:64].count(0) * 8 <= len(head[:64]) * 5 else "UTF-32"
        raise log.error(
            f"not UTF-8: looks like {name} without a byte order mark", 1, remedy=SAVE_AS_UTF8.format("utf-16")
        )


def wide_mark(head: bytes) -> str | None:
    """The codec of a file that starts with the mark of UTF-16 or UTF-32."""
    return next((name.lower() for mark, name in WIDE_MARKS if head.startswith(mark)), None)


class Transcoded:
    """A stream of UTF-16 or UTF-32 as one of UTF-8, without its mark."""

    compression = "transcoded"

    def __init__(self, stream: ByteStream, head: bytes, codec: str, log: ReadLog) -> None:
        self._stream = stream
        self._head = head
        self._decoder = codecs.getincrementaldecoder(codec)()
        self._codec = codec
        self._log = log

    def read(self, size: int) -> bytes:
        """About `size` bytes; empty at the end. Raises DataError where the text is broken."""
        while True:
            data = self._head or self._stream.read(size)
            self._head = b""
            try:
                text = self._decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                raise self._log.error(f"not {self._codec.upper()} throughout: {error.reason}") from None
            if text or not data:
                return text.encode("utf-8", "surrogatepass")


def decode(data: bytes, log: ReadLog, first_line: int = 1, *, last: bool = False) -> str:
    """`data` as text; DataError with the physical line and column of the first byte that is not UTF-8.

    `last` says that the file ends with `data`, so that half of a character at its end was cut off.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise not_utf8(data, error, log, first_line, last=last) from None


def not_utf8(
    data: bytes, error: UnicodeDecodeError, log: ReadLog, first_line: int, *, last: bool = False
) -> DataError:
    """The error for a byte that is not UTF-8."""
    line = first_line + data.count(b"\n", 0, error.start)
    start = data.rfind(b"\n", 0, error.start) + 1
    end = data.find(b"\n", error.start)
    text = data[start : len(data) if end < 0 else end]
    column = len(data[start : error.start].decode("utf-8", "replace")) + 1
    byte = data[error.start]
    if last and error.reason == "unexpected end of data":
        return log.error(
            "not UTF-8: the text ends in the middle of a character (the file is cut off)",
            line,
            column=column,
            text=excerpt(text.decode("utf-8", "replace"), column),
            remedy="write or copy the file again",
        )
    if byte >= 0xA0 or byte in _WINDOWS_1252:
        guess, codec = "Latin-1 or Windows-1252", "cp1252"
    else:
        guess, codec = "another encoding", "ENCODING"
    return log.error(
        f"not UTF-8: byte 0x{byte:02X} (looks like {guess})",
        line,
        column=column,
        text=excerpt(text.decode("latin-1"), column),
        remedy=SAVE_AS_UTF8.format(codec),
    )


_WINDOWS_1252 = frozenset(range(0x80, 0xA0)) - {0x81, 0x8D, 0x8F, 0x90, 0x9D}

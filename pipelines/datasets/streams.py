"""A file's bytes, decompressed; a stream that ends early is an error and never a shorter file."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, BinaryIO

from pipelines.datasets.rows import ReadLog

GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
BZIP2 = b"BZh"
XZ = b"\xfd7zXZ\x00"
BLOCK_BYTES = 1 << 17
"""Small enough that what is parsed of a block stays in the processor's cache while it is looked at."""


class TruncatedStream(OSError):
    """The compressed stream ends before its end mark."""


class _ZstdReader(io.RawIOBase):
    """Zstandard frames one after another. `zstandard.stream_reader` takes a cut frame for a whole one."""

    def __init__(self, raw: BinaryIO) -> None:
        import zstandard

        self._raw = raw
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=2**31)
        self._frame: Any = None
        self._ready = b""
        self._pending = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            block = self._pending or self._raw.read(BLOCK_BYTES)
            self._pending = b""
            if not block:
                if self._frame is not None:
                    raise TruncatedStream("zstd")
                return 0
            if self._frame is None:
                self._frame = self._decompressor.decompressobj()
            self._ready = self._frame.decompress(block)
            if self._frame.eof:
                self._pending = self._frame.unused_data
                self._frame = None
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size


class ByteStream:
    """The decompressed bytes of one file, with its position in the file on disk."""

    def __init__(self, path: Path, log: ReadLog) -> None:
        self._log = log
        try:
            self.raw: BinaryIO = path.open("rb")
        except OSError as error:
            raise log.error(f"cannot be read ({error.strerror})") from None
        log.bytes_total = path.stat().st_size
        magic = self.raw.read(6)
        self.raw.seek(0)
        self.compression = ""
        self.reader: Any = self.raw
        if magic.startswith(GZIP):
            import gzip

            self.compression = "gzip"
            self.reader = gzip.GzipFile(fileobj=self.raw)
        elif magic.startswith(ZSTD):
            self.compression = "zstd"
            self.reader = io.BufferedReader(_ZstdReader(self.raw), BLOCK_BYTES)
        elif magic.startswith(BZIP2):
            import bz2

            self.compression = "bzip2"
            self.reader = bz2.BZ2File(self.raw)
        elif magic.startswith(XZ):
            import lzma

            self.compression = "xz"
            self.reader = lzma.LZMAFile(self.raw)  # noqa: SIM115 (closed with the stream)

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; empty at the end."""
        data = self._decompress(size) if self.compression else self.raw.read(size)
        self._log.bytes_read = self.raw.tell()
        return data

    def _decompress(self, size: int) -> bytes:
        import zlib

        failures: tuple[type[Exception], ...] = (EOFError, TruncatedStream, zlib.error, OSError, ValueError)
        if self.compression == "zstd":
            import zstandard

            failures = (*failures, zstandard.ZstdError)
        elif self.compression == "xz":
            import lzma

            failures = (*failures, lzma.LZMAError)
        try:
            return bytes(self.reader.read(size))
        except failures as error:
            early = isinstance(error, (EOFError, TruncatedStream))
            what = "ends early" if early else f"is damaged ({error})"
            raise self._log.error(
                f"the {self.compression} stream {what}", remedy="copy or compress the file again"
            ) from None

    def close(self) -> None:
        """Close the file."""
        self.reader.close()
        self.raw.close()

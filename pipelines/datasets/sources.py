"""A source by its name: a file in any readable container, a folder of them, or a hub id."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from estimators.errors import BadInput
from estimators.record import nearest
from pipelines.datasets import text as encodings
from pipelines.datasets.columnar import ARROW, PARQUET, read_arrow, read_parquet
from pipelines.datasets.errors import DataError
from pipelines.datasets.json_document import read_json_document
from pipelines.datasets.jsonlines import read_json_lines
from pipelines.datasets.rows import Batch, DataFile, ReadLog
from pipelines.datasets.streams import ByteStream
from pipelines.datasets.tables import read_table

COMPRESSED = (".gz", ".gzip", ".zst", ".zstd", ".bz2", ".xz")
LINES = (".jsonl", ".ndjson", ".jl", ".jsonlines")
TABLES = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
ARROWS = (".arrow", ".feather", ".ipc", ".arrows")
SUFFIXES = (*LINES, ".json", *TABLES, ".parquet", *ARROWS)
READABLE = "JSON lines, JSON, CSV, TSV, Parquet and Arrow, also with gzip or zstd"
HEAD_BYTES = 1 << 16
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
# files of a saved `datasets` folder that hold no rows
DATASETS_METADATA = ("dataset_info.json", "state.json", "dataset_dict.json", "dataset_infos.json")
TRAIN_PART = re.compile(r"(^|[^a-z])train(ing)?([^a-z]|$)", re.IGNORECASE)
EVAL_PART = re.compile(r"(^|[^a-z])(test|valid|validation|eval|evaluation|dev|val)([^a-z]|$)", re.IGNORECASE)


def suffix_of(path: Path) -> str:
    """The suffix that names the container, in lower case, without the one that names the compression."""
    suffixes = [s.lower() for s in path.suffixes]
    while suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def stream_suffix(name: str) -> str:
    """The compression that a file's name speaks of, or nothing."""
    return {
        ".gz": "gzip",
        ".gzip": "gzip",
        ".zst": "zstd",
        ".zstd": "zstd",
        ".bz2": "bzip2",
        ".xz": "xz",
    }.get(Path(name).suffix.lower(), "")


def is_hub_id(source: str | Path) -> bool:
    """Does `source` look like `org/name` and name nothing on this disk?"""
    text = str(source)
    return bool(HUB_ID.fullmatch(text)) and not Path(text).exists() and suffix_of(Path(text)) not in SUFFIXES


def find_files(source: str | Path) -> tuple[list[DataFile], list[str]]:
    """The data files of a source in a fixed order, and what was found beside them and is not read."""
    path = Path(source).expanduser()
    if path.is_dir():
        return _folder_files(path)
    if not path.exists():
        if is_hub_id(source):
            from pipelines.datasets.hub import fetch

            return _folder_files(fetch(str(source)))
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        guess = nearest(path.name, siblings)
        raise DataError(
            "no such file or folder",
            file=str(source),
            remedy=f'did you mean "{path.parent / guess}"?'
            if guess
            else "give a file, a folder or a hub id (org/name)",
        )
    return [DataFile(path, str(source))], []


def _folder_files(folder: Path) -> tuple[list[DataFile], list[str]]:
    found: list[Path] = []
    others: list[str] = []
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if any(part.startswith((".", "_")) for part in relative.parts) or not path.is_file():
            continue
        if suffix_of(path) in SUFFIXES and path.name not in DATASETS_METADATA:
            found.append(path)
        elif path.name not in DATASETS_METADATA:
            others.append(str(relative))
    if not found:
        raise DataError("no data files in this folder", file=str(folder), remedy=f"readable are {READABLE}")
    notes = [f"not read, no data: {', '.join(others[:5])}{' …' if len(others) > 5 else ''}"] if others else []
    names = {path: str(path.relative_to(folder)) for path in found}
    train = [path for path in found if TRAIN_PART.search(names[path])]
    held_out = [path for path in found if EVAL_PART.search(names[path]) and path not in train]
    if train and held_out:
        notes.append(f"not read, kept for evaluation: {', '.join(names[path] for path in held_out)}")
        found = [path for path in found if path not in held_out]
    return [DataFile(path, str(path)) for path in found], notes


def read_file(file: DataFile, log: ReadLog) -> Iterator[Batch]:
    """The rows of one file in batches; its content decides how it is read, its name what it has to be."""
    suffix = suffix_of(file.path)
    try:
        with file.path.open("rb") as raw:
            magic = raw.read(8)
    except OSError as error:
        raise log.error(f"cannot be read ({error.strerror})") from None
    if suffix == ".parquet" or magic.startswith(PARQUET):
        log.container = "parquet"
        yield from read_parquet(file.path, log)
        return
    if suffix in ARROWS or magic.startswith(ARROW):
        log.container = "arrow"
        yield from read_arrow(file.path, log)
        return
    stream = ByteStream(file.path, log)
    try:
        yield from _read_text(stream, suffix, log)
    finally:
        stream.close()


def _read_text(stream: ByteStream, suffix: str, log: ReadLog) -> Iterator[Batch]:
    head = stream.read(HEAD_BYTES)
    if head.startswith((PARQUET, ARROW)):
        raise log.error(
            "a compressed Parquet or Arrow file", remedy="unpack it first; these containers compress inside"
        )
    if head[:4] == b"PK\x03\x04":
        raise log.error(
            "a zip archive, which is not read", remedy="unpack it and give the file or the folder"
        )
    if log.on_mended is not None:
        wide = encodings.wide_mark(head)
        if wide is not None:
            log.mended(1, f"{wide.upper()}, written as UTF-8")
            stream = encodings.Transcoded(stream, head, wide, log)  # type: ignore[assignment]
            head = stream.read(HEAD_BYTES)
    encodings.check_marks(head, log)
    packed = stream_suffix(log.file)
    if packed and not stream.compression and head[:1] not in (b"{", b"["):
        raise log.error(f"not a {packed} file (no {packed} magic)", remedy="compress it again, or rename it")
    if suffix in TABLES:
        log.container = "csv"
        yield from read_table(stream, log, head, TABLES[suffix])
        return
    start = head.removeprefix(encodings.UTF8_BOM).lstrip()
    if suffix not in (*LINES, ".json") and start[:1] not in (b"{", b"["):
        raise log.error(f'the suffix "{suffix}" names no known container', remedy=f"readable are {READABLE}")
    if (
        start[:1] == b"["
        or (start[:1] == b"{" and suffix not in LINES and not _first_line_is_whole(start))
        or (suffix == ".json" and start[:1] == b"{" and b"\n" not in start.rstrip())
    ):
        log.container = "json"
        yield from read_json_document(stream, log, head)
    else:
        log.container = "jsonl"
        yield from read_json_lines(stream, log, head)


def _first_line_is_whole(start: bytes) -> bool:
    """Is the first line an object of its own (JSON lines in a file named .json)?"""
    import orjson

    line, separator, _ = start.partition(b"\n")
    if not separator:
        return False
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        # broken in a way that a line-wise reader explains better, if it at least looks like a whole line
        return line.rstrip().endswith((b"}", b"},")) and line.count(b'"') >= 4
    return True


def read_batches(source: str | Path, logs: list[ReadLog], **hooks: object) -> Iterator[tuple[ReadLog, Batch]]:
    """All rows of a source, file by file; one ReadLog for each file is appended to `logs`."""
    files, notes = find_files(source)
    for file in files:
        log = ReadLog(file.shown, **hooks)  # type: ignore[arg-type]
        log.notes.extend(notes)
        notes = []
        logs.append(log)
        for batch in read_file(file, log):
            yield log, batch


__all__ = ["BadInput", "find_files", "is_hub_id", "read_batches", "read_file", "suffix_of"]

"""Reports kept by the content of what they are about, so that the same data is read once.

A file that has not changed since (path, size, time of change) is not even hashed; a copy of it, or one that
was touched, is found by the sha256 of its bytes, which is only computed where a file of the same size was
seen before.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from estimators.errors import BadInput
from estimators.record import write_atomic
from pipelines.datasets.errors import DataError
from pipelines.datasets.report import DataReport
from pipelines.datasets.sources import find_files

VERSION = 1
"""Raised whenever the same rows would give another report."""
WORTH_BYTES = 4 << 20
"""Smaller sources are read faster than a cache is looked after."""
MAX_ENTRIES = 200


def cache_folder() -> Path:
    """$ADVISOR_CACHE, or `advisor` below $XDG_CACHE_HOME or ~/.cache; the reports are in data/."""
    chosen = os.environ.get("ADVISOR_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(chosen) if chosen else Path(base or Path.home() / ".cache") / "advisor") / "data"


def cached_report(
    source: str | Path, options: dict[str, Any], inspect: Callable[[], DataReport]
) -> tuple[DataReport, bool]:
    """The report of `inspect()`, from the cache where the same content was inspected with the same options.

    The second value says whether it came from the cache. A cache that cannot be read or written is done
    without.
    """
    try:
        paths = [file.path for file in find_files(source)[0]]
        size = sum(path.stat().st_size for path in paths)
    except (DataError, OSError):
        return inspect(), False
    if size < WORTH_BYTES:
        return inspect(), False
    folder = cache_folder()
    options_text = json.dumps([VERSION, options], sort_keys=True, default=str)
    identity = json.dumps([[str(p.resolve()), p.stat().st_size, p.stat().st_mtime_ns] for p in paths])
    entry = folder / f"{size}-{_short(options_text)}"
    found = _read(entry, identity, paths)
    if found is not None:
        return found.model_copy(update={"file": str(source)}), True
    report = inspect()
    _write(entry, identity, paths, report)
    return report, False


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def content_of(paths: list[Path]) -> str:
    """sha256 over the bytes of some files, one after another."""
    whole = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def _read(entry: Path, identity: str, paths: list[Path]) -> DataReport | None:
    """The report in `entry` with this identity, else with this content."""
    try:
        known = json.loads(entry.read_text(encoding="utf-8"))
        kept = next((item for item in known if identity in item["identities"]), None)
        if kept is None:
            content = content_of(paths)
            kept = next((item for item in known if item["content"] == content), None)
        return DataReport.model_validate(kept["report"]) if kept is not None else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(entry: Path, identity: str, paths: list[Path], report: DataReport) -> None:
    try:
        known = json.loads(entry.read_text(encoding="utf-8")) if entry.exists() else []
    except (OSError, ValueError):
        known = []
    item = {"content": content_of(paths), "identities": [identity], "report": report.model_dump(mode="json")}
    try:
        write_atomic(entry, json.dumps([item, *known][:4], ensure_ascii=False))
        entries = sorted(entry.parent.iterdir(), key=lambda path: path.stat().st_mtime)
        for old in entries[:-MAX_ENTRIES]:
            old.unlink(missing_ok=True)
    except (BadInput, OSError):
        return  # a cache that cannot be kept is no reason to fail

"""Reading, recognising and checking training data, without importing anything heavy.

read_records(source)          every row as a dict, or DataError with file, line (or row) and a plain sentence
inspect_source(source)        DataReport: format, rows, what was repaired, what is odd, why it cannot be used
normalise(record, report)     a row in TRL's columns for the report's format
split_records(rows, f, seed)  training and evaluation rows by content hash; no prompt on both sides
content_digest(source)        sha256 over the normalised rows
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.datasets.content import digest_of, prompt_key, split_records
from pipelines.datasets.errors import DataError
from pipelines.datasets.forms import FORMS, Match
from pipelines.datasets.inspect import inspect_source
from pipelines.datasets.messages import RowProblem
from pipelines.datasets.normalise import normalise_row
from pipelines.datasets.report import DataReport, DataWarning, Finding, Lengths, as_error
from pipelines.datasets.rows import ReadLog
from pipelines.datasets.sources import is_hub_id, read_batches

__all__ = [
    "DataError",
    "DataReport",
    "DataWarning",
    "Finding",
    "Lengths",
    "content_digest",
    "inspect_source",
    "is_hub_id",
    "normalise",
    "prompt_key",
    "raise_for_error",
    "read_normalised",
    "read_records",
    "split_records",
]


def read_records(source: str | Path) -> Iterator[dict[str, Any]]:
    """Every row of a source as it is written there, in order.

    A source is a file (JSON lines, JSON, CSV, TSV, Parquet, Arrow; gzip, zstd, bzip2 or xz around the text
    ones), a folder of them, or a hub id. Raises DataError at the first row that cannot be read.
    """
    for _, batch in read_batches(source, []):
        yield from batch.records


def normalise(record: dict[str, Any], report: DataReport) -> dict[str, Any]:
    """`record` in TRL's columns for `report.format`, extra columns kept; DataError where it does not fit."""
    match = _match_of(report)
    try:
        return normalise_row(
            record, match, bool(report.conversational), mend=report.mended, drop_nulls=report.by_row
        )
    except RowProblem as problem:
        raise DataError(problem.reason, file=report.file, remedy=problem.remedy) from None


def read_normalised(source: str | Path, report: DataReport) -> Iterator[dict[str, Any]]:
    """Every row of a source in TRL's columns; DataError names the line or row that does not fit."""
    match = _match_of(report)
    logs: list[ReadLog] = []
    for log, batch in read_batches(source, logs):
        for place, record in zip(batch.places, batch.records, strict=True):
            try:
                yield normalise_row(
                    record, match, bool(report.conversational), mend=report.mended, drop_nulls=log.by_row
                )
            except RowProblem as problem:
                raise log.error(problem.reason, place, remedy=problem.remedy) from None


def content_digest(source: str | Path, report: DataReport | None = None) -> str:
    """sha256 (hex) over the normalised rows in order, streamed: the same rows in another container, or with
    other white space and key order, have the same digest. Raises DataError where the source cannot be used.
    """
    report = report or inspect_source(source)
    raise_for_error(report)
    return digest_of(read_normalised(source, report))


def raise_for_error(report: DataReport) -> None:
    """Raise a report's error as the DataError it was."""
    if report.error is not None:
        raise as_error(report.error, report.file)


def _match_of(report: DataReport) -> Match:
    raise_for_error(report)
    form = next(form for form in FORMS if form.name == report.form)
    return Match(form, dict(report.mapping))

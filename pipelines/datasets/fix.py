"""Rows as TRL wants them in a new file, and a list of every row that was changed or left out."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import orjson

from estimators.errors import BadInput
from estimators.record import Record
from pipelines.datasets.checks import parts_of, row_warnings
from pipelines.datasets.content import canonical_bytes
from pipelines.datasets.errors import DataError
from pipelines.datasets.forms import Match
from pipelines.datasets.inspector import Inspector, TooManyProblems
from pipelines.datasets.messages import RowProblem, kind_of
from pipelines.datasets.normalise import Row, normalise_row
from pipelines.datasets.rows import Batch, ReadLog
from pipelines.datasets.sources import find_files, read_file

# a row with one of these can be read, and teaches nothing
USELESS = (
    "is empty",
    "chosen and rejected are identical",
    "no usable gold",
    "longer than any context window",
)


class Fixed(Record):
    """What `--fix` wrote."""

    output: str
    changes: str
    """JSON lines: {"file", "line" or "row", "did": changed | left out | all rows, "what"}."""
    format: str
    rows: int
    changed: int
    left_out: int


class _Changes:
    """Writes the list of changes as they come."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self.changed = 0
        self.left_out = 0

    def note(self, log: ReadLog, place: int | None, did: str, what: str) -> None:
        """One line of the list; `place` None means all rows."""
        self.changed += did == "changed"
        self.left_out += did == "left out"
        where = {("row" if log.by_row else "line"): place} if place is not None else {}
        entry = {"file": log.file, **where, "did": did, "what": what}
        self._file.write(json.dumps(entry, ensure_ascii=False) + "\n")


def fix_source(
    source: str | Path,
    output: str | Path,
    *,
    mapping: Mapping[str, str] | None = None,
    unpaired: bool = False,
) -> Fixed:
    """Write the rows of `source` in TRL's columns to `output` (JSON lines), and the list of changes beside
    it.

    Mended is what has one meaning only (see `mend`); a row that cannot be used, that teaches nothing or
    that repeats an earlier one is left out. Each change and each row left out is in the list. The source is
    never touched: an output inside of it is refused. Raises BadInput where no row is left or the columns
    match no format.
    """
    target = Path(output)
    _refuse_overwriting(source, target)
    target.parent.mkdir(parents=True, exist_ok=True)
    changes_path = target.with_name(target.name.removesuffix(".jsonl") + ".changes.jsonl")
    temporary = [path.with_name(f".{path.name}.tmp") for path in (target, changes_path)]
    try:
        with temporary[0].open("wb") as rows_file, temporary[1].open("w", encoding="utf-8") as changes_file:
            fixer = _Fixer(source, _Changes(changes_file), mapping, unpaired)
            written = 0
            for row in fixer.rows():
                rows_file.write(_line(row))
                written += 1
        if not written:
            raise BadInput(f"{source}: no row can be used, so {target} was not written")
        for made, final in zip(temporary, (target, changes_path), strict=True):
            made.replace(final)
    finally:
        for path in temporary:
            path.unlink(missing_ok=True)
    assert fixer.match is not None
    return Fixed(
        output=str(target),
        changes=str(changes_path),
        format=fixer.match.format,
        rows=written,
        changed=fixer.changes.changed,
        left_out=fixer.changes.left_out,
    )


def _refuse_overwriting(source: str | Path, target: Path) -> None:
    path = Path(source)
    if target.is_dir():
        raise BadInput(f"{target} is a folder; name a file for the clean rows")
    if path.exists() and (target.resolve() == path.resolve() or path.resolve() in target.resolve().parents):
        raise BadInput(f"{target} is, or is in, the source; the original is never touched: name another file")


def _line(row: Row) -> bytes:
    try:
        return orjson.dumps(row, default=str) + b"\n"
    except TypeError:  # integers beyond 64 bits
        return json.dumps(row, ensure_ascii=False, default=str).encode() + b"\n"


class _Fixer:
    """Reads a source, and yields each row that can be used, mended."""

    def __init__(
        self, source: str | Path, changes: _Changes, mapping: Mapping[str, str] | None, unpaired: bool
    ) -> None:
        self.source = source
        self.changes = changes
        self.inspector = Inspector(str(source), mapping=mapping, mend=True, unpaired=unpaired)
        self.seen: dict[bytes, str] = {}
        self.kinds: dict[str, str] = {}
        self.columns: list[str] = []

    @property
    def match(self) -> Match | None:
        return self.inspector.match

    def rows(self) -> Iterator[Row]:
        files, _ = find_files(self.source)
        for file in files:
            log = ReadLog(file.shown)
            log.on_error = lambda error, log=log: self._leave_out(log, error.line or error.row, error.reason)
            log.on_mended = lambda place, what, log=log: self.changes.note(log, place, "changed", what)
            for batch in read_file(file, log):
                if self.match is None:
                    self._settle(log, batch)
                for place, record in zip(batch.places, batch.records, strict=True):
                    row = self._row(log, place, record)
                    if row is not None:
                        yield row

    def _settle(self, log: ReadLog, batch: Batch) -> None:
        """Take the format from the first batch, and say what happens to all rows."""
        with contextlib.suppress(TooManyProblems):
            self.inspector.settle(log, batch)
        if self.match is None:
            raise self.inspector.first_error()
        self._choose_columns(batch)
        steps = [
            step for step in self.inspector.steps([log]) if step not in ("skip_blank_lines", "strip_bom")
        ]
        for step in steps:
            names = ", ".join(f"{theirs} -> {ours}" for ours, theirs in self.match.renamed.items())
            self.changes.note(log, None, "all rows", step + (f" ({names})" if names else ""))

    def _choose_columns(self, batch: Batch) -> None:
        """The columns that every row shall have, those of the first batch, and the kinds of their values."""
        assert self.match is not None
        used = set(self.match.columns.values())
        for record in batch.records:
            for name, value in record.items():
                if name in used:
                    continue
                if name not in self.columns:
                    self.columns.append(name)
                if value is None:
                    continue
                kind = kind_of(value)
                if self.kinds.setdefault(name, kind) != kind:
                    self.kinds[name] = "text"

    def _row(self, log: ReadLog, place: int, record: Row) -> Row | None:
        assert self.match is not None
        inspector = self.inspector
        try:
            row = normalise_row(
                record, self.match, inspector.conversational, mend=True, drop_nulls=log.by_row
            )
        except RowProblem as problem:
            self._leave_out(log, place, problem.reason)
            return None
        for reason in row_warnings(row, self.match.format, inspector.gold):
            if any(useless in reason for useless in USELESS):
                self._leave_out(log, place, reason)
                return None
        key = hashlib.blake2b(canonical_bytes(self._content(row)), digest_size=16).digest()
        name = f"{'row' if log.by_row else 'line'} {place}"
        if key in self.seen:
            self._leave_out(log, place, f"duplicate of {self.seen[key]}")
            return None
        self.seen[key] = name
        if _has_sharegpt_tools(record, self.match):
            self.changes.note(
                log, place, "changed", "function_call and observation, now tool calls and tool messages"
            )
        source = self.match.columns.get(inspector.gold or "")
        if (
            source is not None
            and isinstance(row.get("answer"), str)
            and not isinstance(record.get(source), (str, dict))
        ):
            self.changes.note(log, place, "changed", f"{source}: {kind_of(record.get(source))}, now text")
        self._mend_extras(log, place, row)
        return row

    def _content(self, row: Row) -> list[Any]:
        assert self.match is not None
        gold = self.inspector.gold
        return [row[part] for part in parts_of(self.match.format)] + ([row.get(gold)] if gold else [])

    def _mend_extras(self, log: ReadLog, place: int, row: Row) -> None:
        """Columns beside the parts: one type each, no constants that JSON does not know, none missing."""
        parts = set(parts_of(self.inspector.match.format)) if self.inspector.match else set()
        for name in list(row):
            value = row[name]
            if name in parts or value is None:
                continue
            if isinstance(value, float) and not math.isfinite(value):
                row[name] = None
                self.changes.note(log, place, "changed", f"{name}: {value} is not JSON, now null")
            elif self.kinds.get(name) == "text" and not isinstance(value, str):
                row[name] = json.dumps(value, ensure_ascii=False, default=str)
                self.changes.note(
                    log, place, "changed", f"{name}: {kind_of(value)}, now text as in other rows"
                )
        for name in self.columns:
            if name not in row:
                row[name] = None
                self.changes.note(log, place, "changed", f"{name}: missing, now null")

    def _leave_out(self, log: ReadLog, place: int | None, reason: str) -> None:
        self.changes.note(log, place, "left out", reason)


def _has_sharegpt_tools(record: Row, match: Match) -> bool:
    if not match.form.name.startswith("sharegpt"):
        return False
    value = record.get(match.columns["messages" if "messages" in match.columns else "prompt"])
    return isinstance(value, list) and any(
        isinstance(m, dict)
        and m.get("from") in ("function_call", "observation", "tool_call", "tool_response")
        for m in value
    )


__all__ = ["DataError", "Fixed", "fix_source"]

"""One pass over a source: its format, its rows, and everything that is odd about them."""

from __future__ import annotations

import contextlib
from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipelines.datasets.checks import CHARS_PER_TOKEN, LONG_CHARS, parts_of, row_warnings, text_of
from pipelines.datasets.content import canonical_bytes
from pipelines.datasets.end_tokens import end_token_in
from pipelines.datasets.errors import DataError, excerpt
from pipelines.datasets.forms import GOLDS, OPTIONAL, Match, find_form, gold_of, mapped_form
from pipelines.datasets.lengths import lengths_of, percentile
from pipelines.datasets.messages import RowProblem, kind_of
from pipelines.datasets.normalise import Row, normalise_row
from pipelines.datasets.repeats import Repeats
from pipelines.datasets.report import DataProblem, DataReport, DataWarning, Finding, Lengths
from pipelines.datasets.rows import Batch, ReadLog
from pipelines.datasets.sources import read_batches

MAX_WARNINGS = 100
"""Of one kind; the rest is counted."""
MAX_PROBLEMS = 20
"""After so many rows that cannot be used, reading stops."""
SAMPLES = 3
SAMPLE_CHARS = 2_000
# a prompt so long, and so much longer than the others, is cut at the max_length the others suggest
LONG_PROMPT_TOKENS = 512
OUTLIER_FACTOR = 8
SHORT_ANSWER_SHARE = 0.05


class TooManyProblems(Exception):
    """Enough rows cannot be used to stop reading."""


class Inspector:
    """Takes batches in their order, and gives a DataReport.

    Indices count the rows that are used; `places` maps them to lines or row numbers.
    """

    def __init__(
        self,
        name: str,
        *,
        mapping: Mapping[str, str] | None = None,
        mend: bool = False,
        unpaired: bool = False,
        max_length: int | None = None,
    ) -> None:
        self.name = name
        self.mapping = mapping
        self.mend = mend
        self.unpaired = unpaired
        self.max_length = max_length
        self.match: Match | None = None
        self.conversational = False
        self.gold: str | None = None
        self.columns: dict[str, int] = {}
        self.kinds: dict[str, tuple[str, int]] = {}
        self.odd_columns: set[str] = set()
        self.places = array("q")
        self.files: list[tuple[int, ReadLog]] = []
        self.problems: list[DataProblem] = []
        self.warnings: dict[str, list[tuple[int, str]]] = {}
        self.counts: Counter[str] = Counter()
        self.repeats = Repeats()
        self.lengths: dict[str, Counter[int]] = {}
        self.with_end: list[tuple[int, str]] = []
        self.without_end: list[int] = []
        self.with_end_count = 0
        self.long_prompts: list[tuple[int, int]] = []
        self.samples: list[Row] = []
        self.repairs: list[str] = []

    @property
    def rows(self) -> int:
        return len(self.places)

    # reading

    def add(self, log: ReadLog, batch: Batch) -> None:
        """Check the rows of one batch."""
        if not self.files or self.files[-1][1] is not log:
            self.files.append((self.rows, log))
        if self.match is None and not self._settle(log, batch):
            return
        for place, record in zip(batch.places, batch.records, strict=True):
            try:
                self._row(place, record)
            except RowProblem as problem:
                self.problem(self._data_error(log, place, problem, record))

    def _settle(self, log: ReadLog, batch: Batch) -> bool:
        """Decide the format from the rows of the first batch; False where there is none."""
        first, place = batch.records[0], batch.places[0]
        if self.mapping:
            self._check_mapping(first)
            match = mapped_form(self.mapping)
        else:
            match = find_form(first)
            union: Row = {}
            for record in batch.records:
                for key, value in record.items():
                    if union.get(key) is None:
                        union[key] = value
            whole = find_form(union)
            parts = {match.columns[part] for part in match.form.parts} if match else set()
            uses_first = all(parts <= record.keys() for record in batch.records)
            if match is None or (whole is not None and uses_first):
                match = whole
        if match is None:
            self.problem(self._unknown_columns(log, place, first))
            raise TooManyProblems
        if match.format == "unpaired_preference" and not self.unpaired:
            error = log.error(
                "unpaired preference (prompt, completion, label) is not supported",
                place,
                remedy="KTO data would teach the rejected answers in SFT; keep the rows whose label is true, "
                "or pair them for DPO",
            )
            self.problem(error)
            raise TooManyProblems
        self.match = match
        self.gold = gold_of(match.columns) if match.format == "prompt_only" else None
        self.conversational = self._is_conversational(match, batch.records)
        self.columns = dict.fromkeys(first, place)
        self.repairs.extend(match.form.steps)
        return True

    def _check_mapping(self, first: Row) -> None:
        for ours, theirs in (self.mapping or {}).items():
            if theirs not in first:
                from estimators.record import unknown

                raise unknown(f"column for {ours}", theirs, first)

    def _is_conversational(self, match: Match, records: list[Row]) -> bool:
        if match.format == "messages" or "history" in match.columns or match.form.name.startswith("sharegpt"):
            return True
        if match.form.name == "openai_preference":
            return True
        if match.form.name in ("alpaca", "renamed_prompt_completion") and "system" in match.columns:
            return any(record.get(match.columns["system"]) for record in records)
        part = "chosen" if match.format == "preference" else parts_of(match.format)[0]
        value = next(
            (r[match.columns[part]] for r in records if r.get(match.columns[part]) is not None), None
        )
        return isinstance(value, list) or (isinstance(value, str) and _is_json_messages(value))

    def _unknown_columns(self, log: ReadLog, place: int, first: Row) -> DataError:
        names = ", ".join(f'"{name}"' for name in list(first)[:8])
        texts = [name for name, value in first.items() if isinstance(value, str)]
        if len(texts) >= 2:
            example = f"--map prompt={texts[0]} --map completion={texts[1]} (or answer=, chosen=, rejected=)"
        elif texts:
            example = f"--map text={texts[0]} (or prompt=)"
        else:
            example = "name the columns text, messages, prompt and completion, or prompt, chosen and rejected"
        return log.error(
            f"the columns {names} match no known format" if names else "the row has no columns",
            place,
            remedy=f"say which column is which: {example}" if texts else example,
        )

    # one row

    def _row(self, place: int, record: Row) -> None:
        match = self.match
        assert match is not None
        self._check_columns(place, record)
        row = normalise_row(record, match, self.conversational, mend=self.mend)
        self._check_kinds(place, record)
        index = self.rows
        self.places.append(place)
        for reason in row_warnings(row, match.format, self.gold):
            self.warn(index, reason)
        self._measure(index, row)
        if len(self.samples) < SAMPLES:
            self.samples.append(row)

    def _check_columns(self, place: int, record: Row) -> None:
        if record.keys() == self.columns.keys():
            return
        assert self.match is not None
        used = set(self.match.columns.values())
        for name in record.keys() - self.columns.keys() - self.odd_columns:
            self.odd_columns.add(name)
            if name not in OPTIONAL:
                first = next(iter(self.columns.values()))
                self.warn(
                    self.rows, f'column "{name}" is not in {self._word()} {first}; readers fill it with null'
                )
        for name in self.columns.keys() - record.keys() - self.odd_columns:
            if name in OPTIONAL or name in used:
                continue  # a missing part is an error, a missing gold a warning of its own
            self.odd_columns.add(name)
            self.warn(
                self.rows,
                f'column "{name}" of {self._word()} {self.columns[name]} is missing here; '
                "readers fill it with null",
            )

    def _check_kinds(self, place: int, record: Row) -> None:
        for name, value in record.items():
            if value is None:
                continue
            kind = kind_of(value)
            known, first = self.kinds.setdefault(name, (kind, place))
            if kind != known:
                assert self.match is not None
                if name in self.match.columns.values() and name not in self._gold_columns():
                    continue  # normalising it said so already, or takes both (text that holds a list)
                raise RowProblem(
                    f'column "{name}" is {kind} here and {known} in {self._word()} {first}',
                    "a column has one type; write all of its values alike (--fix writes them as text)",
                )

    def _gold_columns(self) -> set[str]:
        assert self.match is not None
        return {source for ours, source in self.match.columns.items() if ours in GOLDS}

    def _measure(self, index: int, row: Row) -> None:
        assert self.match is not None
        parts = parts_of(self.match.format)
        texts = [text_of(row[part]) for part in parts]
        for part, text in zip(parts, texts, strict=True):
            self.lengths.setdefault(part, Counter())[len(text)] += 1
        hashes = [hash(row[p]) if isinstance(row[p], str) else hash(canonical_bytes(row[p])) for p in parts]
        gold = canonical_bytes(row.get(self.gold)) if self.gold else b""
        self.repeats.add(hash((*hashes, gold)), hashes[0])
        self._end_token(index, texts[-1])
        if self.match.format == "messages":
            asked, answered = _lengths_of_turns(row["messages"])
        elif len(texts) > 1:
            asked, answered = len(texts[0]), len(texts[1])
        else:
            return
        self._long_prompt(index, asked, answered)

    def _end_token(self, index: int, text: str) -> None:
        assert self.match is not None
        if self.match.format not in ("text", "prompt_completion", "preference") or self.conversational:
            return
        token = end_token_in(text)
        if token is None:
            if len(self.without_end) < MAX_WARNINGS:
                self.without_end.append(index)
            return
        self.with_end_count += 1
        if len(self.with_end) < MAX_WARNINGS:
            self.with_end.append((index, token))

    def _long_prompt(self, index: int, asked: int, answered: int) -> None:
        if asked > LONG_CHARS:
            return  # warned about as longer than any context
        limit = self.max_length if self.max_length is not None else LONG_PROMPT_TOKENS
        if asked < limit * CHARS_PER_TOKEN:
            return
        if self.max_length is None and answered > SHORT_ANSWER_SHARE * asked:
            return
        if len(self.long_prompts) < 10 * MAX_WARNINGS:
            self.long_prompts.append((index, asked))

    # results

    def warn(self, index: int, reason: str) -> None:
        """Note a warning for the row at `index`; of each kind only the first are kept."""
        kind = _kind_of_reason(reason)
        self.counts[kind] += 1
        kept = self.warnings.setdefault(kind, [])
        if len(kept) < MAX_WARNINGS:
            kept.append((index, reason))

    def problem(self, error: DataError) -> None:
        """Note a row that cannot be used; raises TooManyProblems after twenty."""
        self.problems.append(
            DataProblem(
                reason=error.reason,
                line=error.line,
                row=error.row,
                column=error.column,
                text=error.text,
                remedy=error.remedy,
                file=error.file if error.file != self.name else None,
            )
        )
        if len(self.problems) >= MAX_PROBLEMS:
            raise TooManyProblems

    def _data_error(self, log: ReadLog, place: int, problem: RowProblem, record: Row) -> DataError:
        return log.error(
            problem.reason,
            place,
            text=excerpt(canonical_bytes(record)[:400].decode("utf-8", "replace")),
            remedy=problem.remedy,
        )

    def _word(self) -> str:
        return "row" if self.files and self.files[-1][1].by_row else "line"

    def _log_of(self, index: int) -> ReadLog:
        return next(log for start, log in reversed(self.files) if start <= index)

    def _finish(self) -> None:
        """Warnings that need all rows."""
        assert self.match is not None
        duplicates = set()
        for index, first in self.repeats.duplicates():
            duplicates.add(index)
            self.warn(index, f"duplicate of {self._place_name(first, index)}")
        if self.gold:
            for index, first in self.repeats.conflicts():
                if index not in duplicates:
                    self.warn(index, f"same prompt as {self._place_name(first, index)} with another answer")
        if self.with_end_count and self.without_end:
            part = parts_of(self.match.format)[-1]
            if self.with_end_count * 2 <= self.rows:
                for index, token in self.with_end:
                    other = self._place_name(self.without_end[0], index)
                    self.warn(index, f"literal end token {token} in {part}; {other} has none")
            else:
                index_with, token = self.with_end[0]
                for index in self.without_end:
                    self.warn(
                        index,
                        f"no literal end token in {part}; {self._place_name(index_with, index)} has {token}",
                    )
        self._finish_long_prompts()

    def _finish_long_prompts(self) -> None:
        asked_lengths = self.lengths.get("prompt") or Counter()
        typical = (
            percentile(sorted(asked_lengths.items()), asked_lengths.total(), 0.5) if asked_lengths else 0
        )
        if asked_lengths.total() == 2:
            typical = min(asked_lengths)
        for index, asked in self.long_prompts:
            tokens = asked // CHARS_PER_TOKEN
            if self.max_length is not None:
                self.warn(
                    index,
                    f"no completion token left at max_length {self.max_length}: "
                    f"the prompt has about {tokens} tokens",
                )
            elif typical and asked > OUTLIER_FACTOR * typical:
                self.warn(
                    index,
                    f"no completion token left at max_length {LONG_PROMPT_TOKENS} or less: "
                    f"the prompt has about {tokens} tokens, most have {max(1, typical // CHARS_PER_TOKEN)}",
                )

    def _place_name(self, index: int, seen_from: int) -> str:
        log = self._log_of(index)
        name = f"{'row' if log.by_row else 'line'} {self.places[index]}"
        return name if log is self._log_of(seen_from) else f"{name} of {log.file}"

    def report(self, logs: list[ReadLog], *, sampled: bool = False) -> DataReport:
        """The report about what was added; `logs` are the readers' notes."""
        container = next((log.container for log in logs if log.container), "")
        notes = list(dict.fromkeys(note for log in logs for note in log.notes))
        repairs = list(dict.fromkeys([repair for log in logs for repair in log.repairs]))
        common: dict[str, Any] = {
            "file": self.name,
            "container": container,
            "notes": notes,
            "sampled": sampled,
            "mended": self.mend,
        }
        if not self.problems and not self.rows:
            self.problems.append(
                DataProblem(reason="no rows", remedy="the file holds no data; write it again")
            )
        if self.match is None or self.problems:
            return DataReport(
                **common,
                normalise=[],
                error=self.problems[0],
                problems=self.problems,
                columns=list(self.columns),
                mapping=self.match.columns if self.match else {},
            )
        self._finish()
        if self.match.format == "preference" and "prompt" not in self.match.columns:
            self.repairs.append("extract_implicit_prompt")
        if self.match.renamed and not self.match.form.steps:
            self.repairs.append("rename_columns")
        for log in logs:
            for place, reason in log.warnings:
                self._reader_warning(log, place, reason)
        return DataReport(
            **common,
            format=self.match.format,
            conversational=self.conversational,
            rows=self.rows,
            normalise=list(dict.fromkeys([*repairs, *self.repairs])),
            warnings=self._warnings(),
            warning_counts=dict(self.counts),
            columns=list(self.columns),
            form=self.match.form.name,
            mapping=self.match.columns,
            gold=self.gold,
            sample=_shown(self.samples[0]) if self.samples else None,
            samples=[_shown(row) for row in self.samples],
            findings=self._findings(),
            lengths=self._lengths(),
        )

    def _reader_warning(self, log: ReadLog, place: int, reason: str) -> None:
        start = next((start for start, other in self.files if other is log), 0)
        index = start
        while index < self.rows and self.places[index] < place:
            index += 1
        if index < self.rows:
            self.warn(index, reason)

    def _warnings(self) -> list[DataWarning]:
        found = sorted({item for kept in self.warnings.values() for item in kept})
        warnings = []
        for index, reason in found:
            log = self._log_of(index)
            place = self.places[index]
            warnings.append(
                DataWarning(
                    line=place,
                    row=place if log.by_row else None,
                    reason=reason,
                    file=log.file if log.file != self.name else None,
                )
            )
        return warnings

    def _lengths(self) -> dict[str, Lengths]:
        found = {part: lengths_of(counts) for part, counts in self.lengths.items()}
        return {part: lengths for part, lengths in found.items() if lengths is not None}

    def _findings(self) -> list[Finding]:
        return []


def inspect_source(
    source: str | Path,
    *,
    mapping: Mapping[str, str] | None = None,
    sample: int | None = None,
    mend: bool = False,
    unpaired: bool = False,
    max_length: int | None = None,
    on_progress: Callable[[int, int, int], None] | None = None,
) -> DataReport:
    """Read a source once and say what it is and what is odd about it; never raises for what the data holds.

    `mapping` names columns that have no known name (TRL's column -> the file's); `sample` reads only so
    many rows; `mend` reads what `--fix` can mend; `unpaired` accepts KTO's format; `max_length` in tokens
    is what training will cut at; `on_progress` is called with rows, bytes read and bytes in all.
    """
    inspector = Inspector(str(source), mapping=mapping, mend=mend, unpaired=unpaired, max_length=max_length)
    logs: list[ReadLog] = []
    sampled = False
    try:
        for log, batch in read_batches(source, logs, on_error=inspector.problem):
            if sample is not None and inspector.rows + len(batch.records) > sample:
                rest = sample - inspector.rows
                batch = Batch(batch.places[:rest], batch.records[:rest])
                sampled = True
            if batch.records:
                inspector.add(log, batch)
            if on_progress:
                on_progress(inspector.rows, log.bytes_read, log.bytes_total)
            if sampled:
                break
    except TooManyProblems:
        pass
    except DataError as error:
        with contextlib.suppress(TooManyProblems):
            inspector.problem(error)
    return inspector.report(logs, sampled=sampled)


def _is_json_messages(text: str) -> bool:
    if not text.lstrip().startswith("[{"):
        return False
    import json

    try:
        value = json.loads(text)
    except ValueError:
        return False
    return isinstance(value, list) and all(
        isinstance(m, dict) and ("role" in m or "from" in m) for m in value
    )


def _lengths_of_turns(messages: list[Row]) -> tuple[int, int]:
    """Characters before the first answer, and from it on."""
    first = next(i for i, message in enumerate(messages) if message["role"] == "assistant")
    return len(text_of(messages[:first])), len(text_of(messages[first:]))


def _kind_of_reason(reason: str) -> str:
    """The kind of a warning: its words without the numbers and names that differ from row to row."""
    import re

    return re.sub(r'"[^"]*"|<[^>]*>|\d+', "…", reason)


def _shown(value: Any) -> Any:
    """A row as JSON can hold it, long texts cut."""
    if isinstance(value, str):
        return value if len(value) <= SAMPLE_CHARS else value[:SAMPLE_CHARS] + "…"
    if isinstance(value, dict):
        return {str(key): _shown(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shown(entry) for entry in value[:50]]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return str(value)

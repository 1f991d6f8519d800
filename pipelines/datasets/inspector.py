"""Everything that is odd about the rows of a source, given in batches."""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pipelines.datasets.checks import CHARS_PER_TOKEN, parts_of, row_warnings
from pipelines.datasets.choose import choose_form, is_conversational, unknown_columns
from pipelines.datasets.errors import DataError, excerpt
from pipelines.datasets.fast import Layout, limit_chars, scan, types_of_kind
from pipelines.datasets.findings import findings_of
from pipelines.datasets.forms import OPTIONAL, Match, gold_of
from pipelines.datasets.jsonlines import careful_batches
from pipelines.datasets.lengths import lengths_of, percentile
from pipelines.datasets.messages import RowProblem, kind_of
from pipelines.datasets.normalise import Row, normalise_row
from pipelines.datasets.places import Places
from pipelines.datasets.report import DataProblem, DataReport, DataWarning, Lengths, as_error
from pipelines.datasets.rows import Batch, ReadLog
from pipelines.datasets.tally import Tally

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
    """Takes the batches of a source in their order, and gives a DataReport."""

    def __init__(
        self,
        name: str,
        *,
        mapping: Mapping[str, str] | None = None,
        mend: bool = False,
        unpaired: bool = False,
        max_length: int | None = None,
        careful: bool = False,
    ) -> None:
        self.careful = careful
        """Row by row only, as slow as it is."""
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
        self.places = Places()
        self.tally = Tally()
        self.layout: Layout | None = None
        self.problems: list[DataProblem] = []
        self.warnings: dict[str, list[tuple[int, str]]] = {}
        self.counts: Counter[str] = Counter()
        self.samples: list[Row] = []

    @property
    def rows(self) -> int:
        """Rows that can be used, so far."""
        return self.tally.rows

    # reading

    def add(self, log: ReadLog, batch: Batch) -> None:
        """Check the rows of one batch: all at once where they are ordinary, else one by one."""
        self.places.open(log)
        if self.layout is not None and not self.mend and not self.careful:
            facts = scan(batch.records, self.layout, batch.raw)
            if facts is not None:
                self.tally.add_facts(facts)
                self.places.extend(batch.places)
                return
        if batch.raw is None:
            self._add_rows(log, batch)
            return
        for careful in careful_batches(batch.raw, batch.places[0], log):
            self._add_rows(log, careful)

    def _add_rows(self, log: ReadLog, batch: Batch) -> None:
        if self.match is None:
            self.settle(log, batch)
        known = len(self.kinds)
        for place, record in zip(batch.places, batch.records, strict=True):
            try:
                self._row(place, record)
            except RowProblem as problem:
                self.problem(_error_in_row(log, place, problem, record))
        if self.layout is None or len(self.kinds) != known:
            self.layout = self._layout()

    def settle(self, log: ReadLog, batch: Batch) -> None:
        """Decide the format from the rows of the first batch; raises TooManyProblems where there is none."""
        first, place = batch.records[0], batch.places[0]
        match = choose_form(batch.records, self.mapping)
        at = log.header or place
        if match is None:
            self.problem(unknown_columns(log, at, first))
            raise TooManyProblems
        if match.format == "unpaired_preference" and not self.unpaired:
            self.problem(
                log.error(
                    "unpaired preference (prompt, completion, label) is not supported",
                    at,
                    remedy="SFT on it would teach the rejected answers; keep the rows whose label is true, "
                    "or pair them for DPO",
                )
            )
            raise TooManyProblems
        self.match = match
        self.gold = gold_of(match.columns) if match.format == "prompt_only" else None
        self.conversational = is_conversational(match, batch.records)
        self.columns = dict.fromkeys(first, place)
        self.parts = parts_of(match.format)

    def _layout(self) -> Layout | None:
        """What an ordinary row looks like, where there is such a thing for this form."""
        match = self.match
        assert match is not None
        parts = self.parts
        fixed = match.form.name in ("sharegpt", "alpaca") or not match.form.steps
        if not fixed or not set(parts) <= match.columns.keys() or not self.kinds:
            return None
        if {"system", "history", "tools"} & match.columns.keys() or self.gold not in (None, "answer"):
            return None
        used = {match.columns[part] for part in (*parts, "input") if part in match.columns}
        answer = match.columns.get("answer") if self.gold else None
        if answer and self.kinds.get(answer, ("text", 0))[0] != "text":
            return None
        extras = tuple(
            (name, types_of_kind(self.kinds[name][0]) if name in self.kinds else ())
            for name in self.columns
            if name not in used and name != answer
        )
        return Layout(
            format=match.format,
            conversational=self.conversational,
            parts=tuple((part, match.columns[part]) for part in parts),
            columns=frozenset(self.columns),
            extras=extras,
            answer=answer,
            added=match.columns.get("input"),
            sharegpt=match.form.name == "sharegpt",
            long_prompt_chars=limit_chars(self.max_length, LONG_PROMPT_TOKENS),
            short_answer_share=SHORT_ANSWER_SHARE if self.max_length is None else None,
        )

    # one row

    def _row(self, place: int, record: Row) -> None:
        match = self.match
        assert match is not None
        self._check_columns(record)
        log = self.places.log_of(self.rows)
        row = normalise_row(record, match, self.conversational, mend=self.mend, drop_nulls=log.by_row)
        self._check_kinds(place, record)
        index = self.rows
        self.places.extend((place,))
        for reason in row_warnings(row, match.format, self.gold):
            self.warn(index, reason)
        self.tally.add_row(row, self._measured_as(), self.gold)
        if len(self.samples) < SAMPLES:
            self.samples.append(row)

    def _measured_as(self) -> Layout:
        """How a row is measured, also where no row is ordinary."""
        assert self.match is not None
        return self.layout or Layout(
            format=self.match.format,
            conversational=self.conversational,
            parts=tuple((part, part) for part in self.parts),
            columns=frozenset(),
            extras=(),
            long_prompt_chars=limit_chars(self.max_length, LONG_PROMPT_TOKENS),
            short_answer_share=SHORT_ANSWER_SHARE if self.max_length is None else None,
        )

    def _check_columns(self, record: Row) -> None:
        if record.keys() == self.columns.keys():
            return
        assert self.match is not None
        used = set(self.match.columns.values())
        word = "row" if self.places.log_of(self.rows).by_row else "line"
        for name in record:
            if name in self.columns or name in self.odd_columns or name in OPTIONAL or name in used:
                continue
            self.odd_columns.add(name)
            first = next(iter(self.columns.values()))
            self.warn(self.rows, f'column "{name}" is not in {word} {first}: other readers fill it with null')
        for name, first in self.columns.items():
            if name in record or name in self.odd_columns or name in OPTIONAL or name in used:
                continue  # a missing part is an error, a missing gold a warning of its own
            self.odd_columns.add(name)
            self.warn(
                self.rows, f'column "{name}" of {word} {first} is missing: other readers fill it with null'
            )

    def _check_kinds(self, place: int, record: Row) -> None:
        """A column has one type in all rows, or it cannot be loaded; nulls are of every type."""
        assert self.match is not None
        parts = {self.match.columns.get(part) for part in self.parts}
        for name, value in record.items():
            if value is None:
                continue
            kind = kind_of(value)
            known, first = self.kinds.setdefault(name, (kind, place))
            if kind == known or name in parts or self.mend:
                continue  # parts are checked by their own rules, which take a list and its JSON text alike
            word = "row" if self.places.log_of(self.rows).by_row else "line"
            raise RowProblem(
                f'column "{name}" is {kind} here and {known} in {word} {first}',
                "a column has one type; write its values alike (--fix writes them as text)",
            )

    # results

    def warn(self, index: int, reason: str) -> None:
        """Note a warning for the row at `index`; of each kind only the first are kept."""
        kind = warning_kind(reason)
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

    def first_error(self) -> DataError:
        """The first row that cannot be used, as an error."""
        return as_error(self.problems[0], self.name)

    def _finish(self, logs: list[ReadLog]) -> None:
        """Warnings that need all rows."""
        assert self.match is not None
        self._warn_pairs(self.tally.repeats.duplicates(), "duplicate of {}")
        if self.gold:
            self._warn_pairs(self.tally.repeats.conflicts(), "same prompt as {} with another answer")
        self._finish_end_tokens()
        self._finish_long_prompts()
        for log in logs:
            for place, reason in log.warnings:
                index_of_place = self.places.index_of(log, place)
                if index_of_place is not None:
                    self.warn(index_of_place, reason)

    def _warn_pairs(self, pairs: tuple[array[int], array[int]], says: str) -> None:
        """Warn about rows that belong to an earlier row; the first are named, all are counted."""
        later, earlier = pairs
        for index, first in zip(later[:MAX_WARNINGS], earlier[:MAX_WARNINGS], strict=True):
            self.warn(index, says.format(self._place_name(first, index)))
        self._count_more(says.format("line 1"), len(later), min(len(later), MAX_WARNINGS))

    def _count_more(self, example: str, rows: int, listed: int) -> None:
        """Count the rows of a kind of warning beyond those that were listed."""
        if rows > listed:
            self.counts[warning_kind(example)] += rows - listed

    def _finish_end_tokens(self) -> None:
        tally = self.tally
        if not tally.ended_rows or not tally.unended:
            return
        part = self.parts[-1]
        if tally.ended_rows * 2 <= tally.rows:
            for index, token in tally.ended:
                other = self._place_name(tally.unended[0], index)
                self.warn(index, f"literal end token {token} in {part}; {other} has none")
            self._count_more(
                f"literal end token <> in {part}; line 1 has none", tally.ended_rows, len(tally.ended)
            )
        else:
            first, token = tally.ended[0]
            for index in tally.unended:
                other = self._place_name(first, index)
                self.warn(index, f"no literal end token in {part}; {other} has {token}")
            self._count_more(
                f"no literal end token in {part}; line 1 has <>",
                tally.rows - tally.ended_rows,
                len(tally.unended),
            )

    def _finish_long_prompts(self) -> None:
        counts = self.tally.lengths.get("prompt") or Counter()
        # of two rows the shorter is the usual one
        typical = percentile(sorted(counts.items()), counts.total(), 0.5) if counts else 0
        for index, asked in self.tally.long_prompts:
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
        log = self.places.log_of(index)
        name = f"{'row' if log.by_row else 'line'} {self.places[index]}"
        return name if log is self.places.log_of(seen_from) else f"{name} of {log.file}"

    def report(self, logs: list[ReadLog], *, sampled: bool = False) -> DataReport:
        """The report about what was added; `logs` are the readers' notes."""
        common: dict[str, Any] = {
            "file": self.name,
            "container": next((log.container for log in logs if log.container), ""),
            "notes": list(dict.fromkeys(note for log in logs for note in log.notes)),
            "sampled": sampled,
            "mended": self.mend,
            "columns": list(self.columns),
            "mapping": self.match.columns if self.match else {},
        }
        if not self.problems and not self.rows:
            self.problems.append(
                DataProblem(reason="no rows", remedy="the file holds no data; write it again")
            )
        if self.match is None or self.problems:
            return DataReport(**common, error=self.problems[0], problems=self.problems)
        self._finish(logs)
        samples = [_shown(row) for row in self.samples]
        lengths = {part: lengths_of(counts) for part, counts in self.tally.lengths.items()}
        measured: dict[str, Lengths] = {part: found for part, found in lengths.items() if found is not None}
        return DataReport(
            **common,
            format=self.match.format,
            conversational=self.conversational,
            rows=self.rows,
            normalise=self.steps(logs),
            warnings=self._warnings(),
            warning_counts=dict(self.counts),
            kinds={name: kind for name, (kind, _) in self.kinds.items()},
            form=self.match.form.name,
            gold=self.gold,
            sample=samples[0] if samples else None,
            samples=samples,
            findings=findings_of(self.match.format, self.tally, self.places, measured),
            lengths=measured,
        )

    def steps(self, logs: list[ReadLog]) -> list[str]:
        """The names of all repairs and conversions, each once."""
        assert self.match is not None
        steps = [repair for log in logs for repair in log.repairs]
        steps.extend(self.match.form.steps)
        if self.match.format == "preference" and "prompt" not in self.match.columns:
            steps.append("extract_implicit_prompt")
        if self.match.renamed and not self.match.form.steps:
            steps.append("rename_columns")
        return list(dict.fromkeys(steps))

    def _warnings(self) -> list[DataWarning]:
        warnings = []
        for index, reason in sorted({item for kept in self.warnings.values() for item in kept}):
            log = self.places.log_of(index)
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


def warning_kind(reason: str) -> str:
    """What all warnings of one kind have in common: their words without numbers and names."""
    return re.sub(r'"[^"]*"|<[^>]*>|(?:line|row) \d+(?: of \S+)?|\d+', "…", reason)


def _error_in_row(log: ReadLog, place: int, problem: RowProblem, record: Row) -> DataError:
    text = json.dumps(record, ensure_ascii=False, default=str)
    return log.error(problem.reason, place, text=excerpt(text), remedy=problem.remedy)


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

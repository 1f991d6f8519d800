"""What `advisor check data` finds out about one source, as one record."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from estimators.record import Record
from pipelines.datasets.errors import DataError
from pipelines.datasets.forms import Format


class DataWarning(Record):
    """Something odd in one row; the row is used."""

    line: int | None
    """The physical line, or the row for containers without lines."""
    row: int | None = None
    reason: str
    file: str | None = None
    """Set where the source is a folder."""


class DataProblem(Record):
    """Why a source cannot be used, and where."""

    reason: str
    line: int | None = None
    row: int | None = None
    column: int | None = None
    text: str | None = None
    remedy: str | None = None
    file: str | None = None
    """Set where the source is a folder."""


class Finding(Record):
    """Something about the whole source, with a number and what to do."""

    code: str
    severity: Literal["note", "warning"] = "warning"
    says: str
    remedy: str | None = None
    count: int = 0
    share: float | None = None
    places: list[int] = Field(default_factory=list)
    """The first lines (or rows) concerned, at most twenty."""


class Lengths(Record):
    """The distribution of a part's length over the rows."""

    unit: Literal["characters", "tokens"]
    mean: float
    p50: int
    p90: int
    p95: int
    p99: int
    max: int
    histogram: list[tuple[int, int, int]] = Field(default_factory=list)
    """(from, up to and without, rows)."""


class TokenLint(Record):
    """What the model's tokenizer and chat template make of the rows."""

    model: str
    rows: int
    max_length: int | None = None
    proposed_max_length: int | None = None
    lengths: dict[str, Lengths] = Field(default_factory=dict)
    truncated_share: float | None = None
    masked_out_share: float | None = None
    masked_out_places: list[int] = Field(default_factory=list)


class DataReport(Record):
    """One source: its format, its rows, what was repaired, what is odd, and why it cannot be used.

    Where `error` is set, `format`, `conversational` and `rows` are None.
    """

    file: str
    format: Format | None = None
    conversational: bool | None = None
    rows: int | None = None
    normalise: list[str] = Field(default_factory=list)
    warnings: list[DataWarning] = Field(default_factory=list)
    error: DataProblem | None = None
    problems: list[DataProblem] = Field(default_factory=list)
    """The first rows that cannot be used, `error` among them; reading stops after twenty."""
    container: str = ""
    columns: list[str] = Field(default_factory=list)
    kinds: dict[str, str] = Field(default_factory=dict)
    """Each column's kind in the file: text, a number, a boolean, a list or an object."""
    form: str | None = None
    """The name of the form in `pipelines.datasets.forms.FORMS`."""
    mapping: dict[str, str] = Field(default_factory=dict)
    """TRL's column -> the column in the file."""
    gold: str | None = None
    """The column that a reward reads: answer, tests, schema or tool_calls."""
    sample: dict[str, Any] | None = None
    """The first row in TRL's columns."""
    samples: list[dict[str, Any]] = Field(default_factory=list)
    warning_counts: dict[str, int] = Field(default_factory=dict)
    findings: list[Finding] = Field(default_factory=list)
    lengths: dict[str, Lengths] = Field(default_factory=dict)
    tokens: TokenLint | None = None
    digest: str | None = None
    """sha256 of the normalised rows (`content_digest`), where it was asked for."""
    sampled: bool = False
    """Only the first rows were read (`--sample`)."""
    mended: bool = False
    """Rows are read as `--fix` mends them."""
    notes: list[str] = Field(default_factory=list)

    @property
    def by_row(self) -> bool:
        """Are places row numbers (Parquet, Arrow) and not lines?"""
        return self.container in ("parquet", "arrow")


def as_error(problem: DataProblem, file: str) -> DataError:
    """A report's problem as the error it was."""
    return DataError(
        problem.reason,
        file=problem.file or file,
        line=problem.line,
        row=problem.row,
        column=problem.column,
        text=problem.text,
        remedy=problem.remedy,
    )

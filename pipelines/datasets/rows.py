"""What crosses between a container's reader and those who use its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.datasets.errors import DataError

RowDict = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows with their places (physical lines, or row numbers) and, for JSON lines, their bytes."""

    places: Sequence[int]
    records: list[RowDict]
    raw: bytes | None = None


@dataclass
class ReadLog:
    """What a reader noticed on its way: harmless repairs, warnings, and how far it is.

    `on_error` is called with each row that cannot be read; the row is then left out and reading goes on.
    Without it the first such row is raised.
    """

    file: str
    container: str = ""
    by_row: bool = False
    """Places are row numbers (Parquet, Arrow) and not lines."""
    repairs: list[str] = field(default_factory=list)
    warnings: list[tuple[int, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    bytes_read: int = 0
    bytes_total: int = 0
    on_error: Callable[[DataError], None] | None = None
    quick: bool = False
    """The caller looks for what a fast parser passes over (see `jsonlines`)."""
    on_mended: Callable[[int, str], None] | None = None
    """Called with the place of each broken line that is mended, and how; without it nothing is mended."""
    resume_at: int | None = None
    """The byte after the last batch, where another reader may go on; None where none can."""
    header: int | None = None
    """The line of a table's header."""

    def mended(self, place: int, what: str) -> None:
        """Tell that a row was mended."""
        if self.on_mended is not None:
            self.on_mended(place, what)

    def repaired(self, name: str) -> None:
        """Note a harmless repair once."""
        if name not in self.repairs:
            self.repairs.append(name)

    def note(self, text: str) -> None:
        """Note something about the whole source once."""
        if text not in self.notes:
            self.notes.append(text)

    def error(
        self,
        reason: str,
        place: int | None = None,
        *,
        column: int | None = None,
        text: str | None = None,
        remedy: str | None = None,
    ) -> DataError:
        """The error for a place in this file."""
        return DataError(
            reason,
            file=self.file,
            line=None if self.by_row else place,
            row=place if self.by_row else None,
            column=column,
            text=text,
            remedy=remedy,
        )

    def reject(self, error: DataError) -> None:
        """Give a bad row to `on_error`, or raise it."""
        if self.on_error is None:
            raise error
        self.on_error(error)


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a source."""

    path: Path
    shown: str
    """Its name as the user wrote it."""

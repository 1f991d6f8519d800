"""What is wrong with a data file, where it is, and how to mend it."""

from __future__ import annotations

from estimators.errors import BadInput

SHOWN_CHARS = 80


class DataError(BadInput):
    """A place in a data file that cannot be used.

    `line` is the physical line, counted from 1 (text containers); `row` the row, counted from 1 (Parquet,
    Arrow); both are None where the whole file is meant. The message has the place, the reason, the
    offending text and the remedy, on at most three lines.
    """

    def __init__(
        self,
        reason: str,
        *,
        file: str,
        line: int | None = None,
        row: int | None = None,
        column: int | None = None,
        text: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.reason = reason
        self.file = file
        self.line = line
        self.row = row
        self.column = column
        self.text = text
        self.remedy = remedy
        super().__init__(self._message())

    def _message(self) -> str:
        place = self.file
        if self.line is not None:
            place += f":{self.line}" + (f":{self.column}" if self.column is not None else "")
        elif self.row is not None:
            place += f", row {self.row}"
        lines = [f"{place}: {self.reason}"]
        if self.text:
            lines.append(f"  found: {self.text}")
        if self.remedy:
            lines.append(f"  fix: {self.remedy}")
        return "\n".join(lines)


def excerpt(text: str, column: int = 1) -> str:
    """At most 80 characters of `text` around `column` (counted from 1), on one line."""
    start = max(0, min(column - 1 - SHOWN_CHARS // 2, len(text) - SHOWN_CHARS))
    piece = text[start : start + SHOWN_CHARS]
    shown = piece.encode("utf-8", "backslashreplace").decode().replace("\n", "\\n").replace("\r", "\\r")
    return ("…" if start else "") + shown.strip() + ("…" if start + SHOWN_CHARS < len(text) else "")

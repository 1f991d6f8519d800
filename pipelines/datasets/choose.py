"""Which form the first rows of a source have, and what to say where they have none."""

from __future__ import annotations

import json
from collections.abc import Mapping

from estimators.record import unknown
from pipelines.datasets.checks import parts_of
from pipelines.datasets.errors import DataError
from pipelines.datasets.forms import Match, find_form, mapped_form
from pipelines.datasets.normalise import Row
from pipelines.datasets.rows import ReadLog


def choose_form(records: list[Row], mapping: Mapping[str, str] | None = None) -> Match | None:
    """The form of the first row, or of all rows' columns where each row fits the first row's form.

    So a second row of another format is the fault and not the first, and a first row that lacks what
    others have is the fault and not the others.
    """
    first = records[0]
    if mapping:
        for ours, theirs in mapping.items():
            if theirs not in first:
                raise unknown(f"column for {ours}", theirs, first)
        return mapped_form(mapping)
    match = find_form(first)
    union: Row = {}
    for record in records:
        for key, value in record.items():
            if union.get(key) is None:
                union[key] = value
    parts = {match.columns[part] for part in match.form.parts} if match else set()
    if all(parts <= record.keys() for record in records):
        return find_form(union) or match
    return match


def is_conversational(match: Match, records: list[Row]) -> bool:
    """Are the parts lists of messages? The first row that is not null decides."""
    if (
        match.format == "messages"
        or "history" in match.columns
        or match.form.name.startswith(("sharegpt", "openai"))
    ):
        return True
    if "system" in match.columns and any(record.get(match.columns["system"]) for record in records):
        return True
    part = "chosen" if match.format == "preference" else parts_of(match.format)[0]
    value = next((r[match.columns[part]] for r in records if r.get(match.columns[part]) is not None), None)
    return isinstance(value, list) or (isinstance(value, str) and _is_json_messages(value))


def _is_json_messages(text: str) -> bool:
    if not text.lstrip().startswith("[{"):
        return False
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return isinstance(value, list) and all(
        isinstance(m, dict) and ("role" in m or "from" in m) for m in value
    )


def unknown_columns(log: ReadLog, place: int, first: Row) -> DataError:
    names = ", ".join(f'"{name}"' for name in list(first)[:8])
    texts = [name for name, value in first.items() if isinstance(value, str)]
    if len(texts) >= 2:
        known = f"--map prompt={texts[0]} --map completion={texts[1]} (or answer=, chosen=, rejected=)"
    elif texts:
        known = f"--map text={texts[0]} (or prompt=)"
    else:
        known = "text, messages, prompt and completion, or prompt, chosen and rejected"
    return log.error(
        f"the columns {names} match no known format" if names else "the row has no columns",
        place,
        remedy=f"say which column is which: {known}" if texts else f"name the columns {known}",
    )

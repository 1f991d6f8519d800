"""What is odd about a source as a whole, each with a number and what to do."""

from __future__ import annotations

from pipelines.datasets.forms import Format
from pipelines.datasets.places import Places
from pipelines.datasets.report import Finding, Lengths
from pipelines.datasets.tally import Tally

LISTED = 20
LENGTH_BIAS = 1.25
"""Chosen answers so much longer (or shorter) than rejected ones teach length."""
MIN_ROWS_FOR_BIAS = 20


def findings_of(format: Format, tally: Tally, places: Places, lengths: dict[str, Lengths]) -> list[Finding]:
    """Everything that is worth saying about all rows together."""
    found = []
    repeated, _ = tally.repeats.duplicates()
    if repeated:
        found.append(
            Finding(
                code="duplicate_rows",
                says=f"{len(repeated)} of {tally.rows} rows repeat an earlier row",
                remedy="--fix writes each row once",
                count=len(repeated),
                share=len(repeated) / tally.rows,
                places=[places[index] for index in repeated[:LISTED]],
            )
        )
    if format == "preference" and tally.rows >= MIN_ROWS_FOR_BIAS:
        found.extend(_length_bias(lengths))
    return found


def _length_bias(lengths: dict[str, Lengths]) -> list[Finding]:
    chosen, rejected = lengths["chosen"].mean, lengths["rejected"].mean
    if not chosen or not rejected or 1 / LENGTH_BIAS < chosen / rejected < LENGTH_BIAS:
        return []
    word = "longer" if chosen > rejected else "shorter"
    return [
        Finding(
            code="length_bias",
            says=f"chosen answers are {word} than rejected ones: {chosen:.0f} against {rejected:.0f} "
            "characters on average",
            remedy="DPO will also learn the length; balance the pairs, or divide by it (SimPO)",
            share=round(chosen / rejected, 3),
        )
    ]

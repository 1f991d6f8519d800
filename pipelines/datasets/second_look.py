"""What needs the texts side by side: near duplicates, pairs that contradict each other, loose prompt ends.

A second reading of at most `LOOKED_AT` rows; the first reading (`inspect`) keeps only hashes of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pipelines.datasets.checks import parts_of, text_of
from pipelines.datasets.forms import FORMS, Match
from pipelines.datasets.messages import RowProblem
from pipelines.datasets.normalise import Row, normalise_row
from pipelines.datasets.report import DataReport, Finding
from pipelines.datasets.sources import read_batches

LOOKED_AT = 5_000
LISTED = 20
MAX_COMPARED = 8
"""Of the rows that share a band; where hundreds do, one of the first is as good as another."""
WORD = re.compile(r"\w+")
SHINGLE_WORDS = 3
MIN_WORDS = 12
"""Shorter texts are alike by chance."""
SIMILAR = 0.8
"""Shared share of three-word runs (Jaccard) from which two texts count as nearly the same."""
BANDS, ROWS_A_BAND = 16, 4
"""64 minimal hashes: a pair at 0.8 shares a band with a chance of 99.98 %; pairs are then compared."""


def second_look(report: DataReport) -> DataReport:
    """`report` with findings about texts side by side."""
    if report.error is not None or report.format is None:
        return report
    places: list[int] = []
    rows: list[Row] = []
    for place, row in _rows(report):
        places.append(place)
        rows.append(row)
        if len(rows) == LOOKED_AT:
            break
    found = [*_near_duplicates(report, places, rows), *_contradictions(report, places, rows)]
    found += _loose_ends(report, places, rows)
    return report.model_copy(update={"findings": [*report.findings, *found]}) if found else report


def _rows(report: DataReport) -> Iterator[tuple[int, Row]]:
    form = next(form for form in FORMS if form.name == report.form)
    match = Match(form, dict(report.mapping))
    for log, batch in read_batches(report.file, []):
        for place, record in zip(batch.places, batch.records, strict=True):
            try:
                yield place, normalise_row(record, match, bool(report.conversational), drop_nulls=log.by_row)
            except RowProblem:
                continue


def _near_duplicates(report: DataReport, places: list[int], rows: list[Row]) -> list[Finding]:
    assert report.format is not None
    parts = parts_of(report.format)
    texts = ["\n".join(text_of(row[part]) for part in parts) for row in rows]
    pairs = near_pairs(texts)
    if not pairs:
        return []
    looked = _looked_at(report, rows)
    first, second = pairs[0]
    return [
        Finding(
            code="near_duplicates",
            says=f"{len(pairs)} {looked} say nearly what an earlier row says "
            f"(first: {places[second]}, like {places[first]})",
            remedy="keep one of each, above all across training and evaluation",
            count=len(pairs),
            share=len(pairs) / len(rows),
            places=[places[second] for _, second in pairs[:LISTED]],
        )
    ]


def near_pairs(texts: list[str]) -> list[tuple[int, int]]:
    """(earlier, later) for each text that is nearly, and not exactly, the same as an earlier one.

    Sets of three-word runs, compared by MinHash bands and then exactly (Jaccard at least 0.8). Source:
    Broder, "On the resemblance and containment of documents", 1997.
    """
    import numpy as np

    generator = np.random.default_rng(0)
    factors = generator.integers(1, 2**61, size=BANDS * ROWS_A_BAND, dtype=np.uint64) | np.uint64(1)
    offsets = generator.integers(0, 2**61, size=BANDS * ROWS_A_BAND, dtype=np.uint64)
    buckets: dict[tuple[int, bytes], list[int]] = {}
    shingles: dict[int, frozenset[int]] = {}
    seen: set[str] = set()
    pairs: list[tuple[int, int]] = []
    for index, text in enumerate(texts):
        words = WORD.findall(text.casefold())
        if len(words) < MIN_WORDS or text in seen:
            continue
        seen.add(text)
        runs = zip(*(words[start:] for start in range(SHINGLE_WORDS)), strict=False)
        own = frozenset(map(hash, runs))
        hashes = np.fromiter(own, dtype=np.int64, count=len(own)).view(np.uint64)
        minima = (hashes[:, None] * factors + offsets).min(axis=0)
        keys = [
            (band, minima[band * ROWS_A_BAND : (band + 1) * ROWS_A_BAND].tobytes()) for band in range(BANDS)
        ]
        candidates = sorted({other for key in keys for other in buckets.get(key, [])[:MAX_COMPARED]})
        match = next((c for c in candidates if _jaccard(shingles[c], own) >= SIMILAR), None)
        if match is not None:
            pairs.append((match, index))
        shingles[index] = own
        for key in keys:
            buckets.setdefault(key, []).append(index)
    return pairs


def _jaccard(one: frozenset[int], other: frozenset[int]) -> float:
    return len(one & other) / len(one | other)


def _looked_at(report: DataReport, rows: list[Row]) -> str:
    return f"of {len(rows):,} rows" if len(rows) == report.rows else f"of the first {len(rows):,} rows"


def _contradictions(report: DataReport, places: list[int], rows: list[Row]) -> list[Finding]:
    """Answers to one prompt that are chosen in one row and rejected in another, or liked and disliked."""
    good: dict[tuple[str, str], int] = {}
    bad: dict[tuple[str, str], int] = {}
    for place, row in zip(places, rows, strict=True):
        prompt = text_of(row.get("prompt"))
        if report.format == "preference":
            good.setdefault((prompt, text_of(row["chosen"])), place)
            bad.setdefault((prompt, text_of(row["rejected"])), place)
        elif report.format == "unpaired_preference":
            (good if row["label"] else bad).setdefault((prompt, text_of(row["completion"])), place)
    both = sorted(max(good[key], bad[key]) for key in good.keys() & bad.keys() if good[key] != bad[key])
    if not both:
        return []
    return [
        Finding(
            code="label_noise",
            says=f"{len(both)} answers are preferred in one row and refused in another with the same prompt",
            remedy="these labels contradict each other; decide which is right, or leave both rows out",
            count=len(both),
            share=len(both) / len(rows),
            places=both[:LISTED],
        )
    ]


def _loose_ends(report: DataReport, places: list[int], rows: list[Row]) -> list[Finding]:
    """Plain prompts that end with a space: their last token is another one than when the answer follows."""
    if report.conversational or report.format not in ("prompt_completion", "preference"):
        return []
    loose = [place for place, row in zip(places, rows, strict=True) if _ends_in_space(row["prompt"])]
    if not loose:
        return []
    return [
        Finding(
            code="prompt_ends_in_space",
            says=f"{len(loose)} {_looked_at(report, rows)} have a prompt that ends with a space",
            remedy="move the space to the start of the answer: most tokenizers join it with the next word",
            count=len(loose),
            share=len(loose) / len(rows),
            places=loose[:LISTED],
        )
    ]


def _ends_in_space(text: Any) -> bool:
    return isinstance(text, str) and text.endswith(" ")

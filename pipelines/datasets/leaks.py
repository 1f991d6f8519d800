"""Prompts that stand both in training and in evaluation data."""

from __future__ import annotations

from pathlib import Path

from pipelines.datasets.content import prompt_key
from pipelines.datasets.forms import FORMS, Match
from pipelines.datasets.messages import RowProblem
from pipelines.datasets.normalise import normalise_row
from pipelines.datasets.report import DataReport, Finding, as_error
from pipelines.datasets.sources import read_batches

LISTED = 20


def prompt_keys(report: DataReport) -> dict[bytes, list[int]]:
    """The key of each prompt of a source, and the places (at most twenty) of the rows that ask it."""
    if report.error is not None:
        raise as_error(report.error, report.file)
    form = next(form for form in FORMS if form.name == report.form)
    match = Match(form, dict(report.mapping))
    keys: dict[bytes, list[int]] = {}
    for log, batch in read_batches(report.file, []):
        for place, record in zip(batch.places, batch.records, strict=True):
            try:
                row = normalise_row(record, match, bool(report.conversational), drop_nulls=log.by_row)
            except RowProblem:
                continue
            places = keys.setdefault(prompt_key(row), [])
            if len(places) < LISTED:
                places.append(place)
    return keys


def with_leaks(report: DataReport, evaluation: str | Path) -> DataReport:
    """`report` with a finding about the prompts of `evaluation` that its rows ask too.

    Prompts are equal where their words are, whatever their case and white space. Raises DataError where the
    evaluation data cannot be used.
    """
    from pipelines.datasets.inspect import inspect_source

    if report.error is not None:
        return report
    held_out = prompt_keys(inspect_source(evaluation))
    places = [place for key, found in prompt_keys(report).items() if key in held_out for place in found]
    leaked = sum(1 for key in prompt_keys(report) if key in held_out) if places else 0
    if not leaked:
        return report
    finding = Finding(
        code="eval_leak",
        says=f"{leaked} of {len(held_out)} prompts of {evaluation} are also trained on",
        remedy="leave these rows out of training, or the evaluation measures memory",
        count=leaked,
        share=leaked / len(held_out),
        places=sorted(places)[:LISTED],
    )
    return report.model_copy(update={"findings": [*report.findings, finding]})

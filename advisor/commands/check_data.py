"""`advisor check data`: what is wrong with data files, before it costs a GPU hour."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from advisor.commands import new_app
from estimators.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipelines.datasets import DataReport, Lengths
    from pipelines.datasets.fix import Fixed

app = new_app()

SHOWN_WARNINGS = 12
WIDTH = 100
FORMAT_WORDS = {
    "text": "text",
    "messages": "messages",
    "prompt_completion": "prompt + completion",
    "preference": "preference pairs (prompt, chosen, rejected)",
    "unpaired_preference": "unpaired preference (prompt, completion, label)",
    "prompt_only": "prompts",
}


@app.command(name="data")
def check_data(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Files, folders of files, or hub ids (org/name).")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list on stdout.")] = False,
    mapping: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="OURS=THEIRS", help="Name a column, e.g. --map prompt=q; repeatable."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Count tokens with this model's tokenizer and chat template.")
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(min=1, help="The max_length in tokens that training will cut at.")
    ] = None,
    assistant_only: Annotated[
        bool, typer.Option("--assistant-only-loss", help="Only assistant tokens will be trained.")
    ] = False,
    eval_file: Annotated[
        str | None, typer.Option("--eval", metavar="FILE", help="Look for its prompts in the training files.")
    ] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="Read only so many rows: a quick look.")] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Write the rows that can be used to --output.")] = False,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="OUT", help="Where --fix writes (JSON lines).")
    ] = None,
    unpaired: Annotated[
        bool, typer.Option("--unpaired", help="Accept prompt, completion, label (KTO).")
    ] = False,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Read again what was read before.")] = False,
) -> None:
    """What is wrong with data files, where, and how to mend it."""
    names = _mapping(mapping or [])
    if fix:
        _fix(files, output, names, unpaired, as_json)
        return
    if output is not None:
        raise BadInput("--output is where --fix writes; add --fix")
    reports = [_inspect(file, names, sample, max_length, unpaired, no_cache) for file in files]
    if sample is None:
        from pipelines.datasets.second_look import second_look

        reports = [second_look(report) for report in reports]
    if model is not None:
        reports = _count_tokens(reports, model, max_length, assistant_only, sample)
    if eval_file is not None:
        from pipelines.datasets.leaks import with_leaks

        reports = [with_leaks(report, eval_file) for report in reports]
    if as_json:
        json.dump([as_plain(report) for report in reports], sys.stdout, indent=2, ensure_ascii=False)
        sys.stdout.write("\n")
    else:
        for report in reports:
            show(report)
    if any(report.error for report in reports):
        raise typer.Exit(1)


def _mapping(pairs: list[str]) -> dict[str, str] | None:
    """["prompt=q"] as {"prompt": "q"}; None for nothing."""
    from estimators.record import unknown
    from pipelines.datasets.forms import GOLDS

    known = ("text", "messages", "prompt", "completion", "chosen", "rejected", "label", "tools", *GOLDS)
    found: dict[str, str] = {}
    for pair in pairs:
        ours, separator, theirs = pair.partition("=")
        if not separator or not theirs:
            raise BadInput(f"--map {pair}: write it as OURS=THEIRS, for example --map prompt=question")
        if ours not in known:
            raise unknown("column in --map", ours, known)
        found[ours] = theirs
    return found or None


def _inspect(
    file: str,
    mapping: dict[str, str] | None,
    sample: int | None,
    max_length: int | None,
    unpaired: bool,
    no_cache: bool,
) -> DataReport:
    from pipelines.datasets import inspect_source
    from pipelines.datasets.cache import cached_report

    options: dict[str, Any] = {
        "mapping": mapping,
        "sample": sample,
        "max_length": max_length,
        "unpaired": unpaired,
    }

    def inspect() -> DataReport:
        return inspect_source(file, **options, on_progress=_progress(file))

    if no_cache:
        return inspect()
    return cached_report(file, options, inspect)[0]


def _progress(file: str) -> Callable[[int, int, int], None] | None:
    """On a terminal, one line that is written over twice a second: rows, share, speed, time left."""
    if not sys.stderr.isatty():
        return None
    start = time.monotonic()
    last = [start + 0.5]

    def report(rows: int, done: int, total: int) -> None:
        now = time.monotonic()
        if now < last[0] and done < total:
            return
        last[0] = now + 0.5
        speed = done / max(now - start, 1e-6)
        if done >= total:
            sys.stderr.write("\r\033[K")
        else:
            left = (total - done) / max(speed, 1.0)
            sys.stderr.write(
                f"\r\033[K{file}: {rows:,} rows, {done / max(total, 1):.0%}, {speed / 1e6:.0f} MB/s, "
                f"{left:.0f} s left"
            )
        sys.stderr.flush()

    return report


def _count_tokens(
    reports: list[DataReport], model: str, max_length: int | None, assistant_only: bool, sample: int | None
) -> list[DataReport]:
    """The reports with token counts; those with an error as they are."""
    from pipelines.datasets.token_lint import LintRequest, lint_tokens

    usable = [report for report in reports if report.error is None]
    if not usable:
        return reports
    counted = lint_tokens(
        [
            LintRequest(
                report=report,
                model=model,
                max_length=max_length,
                assistant_only_loss=assistant_only,
                sample=sample,
            )
            for report in usable
        ]
    )
    by_file = {report.file: report for report in counted}
    return [by_file.get(report.file, report) for report in reports]


def _fix(
    files: list[str], output: str | None, mapping: dict[str, str] | None, unpaired: bool, as_json: bool
) -> None:
    from pipelines.datasets.fix import fix_source

    if output is None:
        raise BadInput("--fix needs a file to write: add -o clean.jsonl")
    if len(files) > 1:
        raise BadInput("--fix takes one source; put several files into one folder")
    fixed = fix_source(files[0], output, mapping=mapping, unpaired=unpaired)
    if as_json:
        json.dump(fixed.model_dump(mode="json"), sys.stdout, indent=2, ensure_ascii=False)
        sys.stdout.write("\n")
    else:
        typer.echo(_show_fixed(fixed))


def _show_fixed(fixed: Fixed) -> str:
    return (
        f"{fixed.output}: {fixed.rows} rows of {FORMAT_WORDS[fixed.format]}\n"
        f"{fixed.changes}: {fixed.changed} changes, {fixed.left_out} rows left out, "
        "each with its line and reason"
    )


def as_plain(report: DataReport) -> dict[str, Any]:
    """A report as JSON: a place is "line" in text containers and "row" in Parquet and Arrow."""
    plain = report.model_dump(mode="json")
    for problem in (plain["error"], *plain["problems"]):
        if problem is not None:
            problem.pop("line" if problem["row"] is not None else "row")
    for warning in plain["warnings"]:
        for name in ("row", "file"):
            if warning[name] is None:
                del warning[name]
    return plain


def show(report: DataReport) -> None:
    """A report in words: stdout where the source can be used, stderr where it cannot."""
    if report.error is not None:
        from pipelines.datasets.report import as_error

        typer.echo(f"error: {as_error(report.error, report.file)}", err=True)
        others = report.problems[1:]
        if others:
            places = ", ".join(
                f"{problem.file or ''}{':' if problem.file else ''}{problem.line or problem.row}"
                for problem in others[:8]
            )
            more = " and more" if len(others) > 8 or len(report.problems) >= 20 else ""
            typer.echo(f"  also in {_word(report)} {places}{more}", err=True)
        return
    assert report.format is not None
    kind = FORMAT_WORDS[report.format] + (f" with {report.gold}" if report.gold else "")
    shape = "conversational" if report.conversational else "plain"
    rows = f"{report.rows:,} rows" + (" (sample)" if report.sampled else "")
    typer.echo(f"{report.file}: {kind}, {shape}, {rows} ({report.container})")
    renamed = [f"{ours} <- {theirs}" for ours, theirs in report.mapping.items() if ours != theirs]
    if renamed:
        typer.echo(f"  columns   {', '.join(renamed)}")
    if report.normalise:
        typer.echo(f"  done      {', '.join(report.normalise)}")
    for note in report.notes:
        typer.echo(f"  note      {note}")
    for part, found in report.lengths.items():
        typer.echo(f"  length    {part}: {_distribution(found)} {found.unit}")
    if report.sample is not None:
        shown = json.dumps(report.sample, ensure_ascii=False)
        typer.echo(f"  first row {shown if len(shown) <= WIDTH else shown[: WIDTH - 1] + '…'}")
    _show_tokens(report)
    for warning in report.warnings[:SHOWN_WARNINGS]:
        place = f"{warning.file}, " if warning.file else ""
        typer.echo(f"  {place}{_word(report)} {warning.line}: {warning.reason}")
    total = sum(report.warning_counts.values())
    if total > SHOWN_WARNINGS:
        typer.echo(f"  … and {total - SHOWN_WARNINGS:,} more warnings (--json lists a hundred of each kind)")
    for finding in report.findings:
        typer.echo(f"  {finding.severity}: {finding.says}")
        if finding.remedy:
            typer.echo(f"    fix: {finding.remedy}")


def _show_tokens(report: DataReport) -> None:
    tokens = report.tokens
    if tokens is None:
        return
    for part, found in tokens.lengths.items():
        typer.echo(f"  tokens    {part}: {_distribution(found)} ({tokens.model})")
    if tokens.proposed_max_length is not None:
        typer.echo(f"  tokens    max_length {tokens.proposed_max_length:,} would hold 99 % of the rows")


def _distribution(lengths: Lengths) -> str:
    return f"median {lengths.p50:,}, 95 % below {lengths.p95:,}, longest {lengths.max:,}"


def _word(report: DataReport) -> str:
    return "row" if report.by_row else "line"


def main() -> int:
    """`python -m advisor.commands.check_data`: the verb alone, with the exit codes of `advisor`."""
    from estimators.errors import AdvisorError

    try:
        code = app(standalone_mode=False)
    except AdvisorError as error:
        typer.echo(f"error: {error}", err=True)
        return error.exit_code
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    sys.exit(main())

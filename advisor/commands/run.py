"""`advisor run`: run a folder's stages, or resume them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from advisor.commands import new_app

if TYPE_CHECKING:
    from pipelines.runs import RunRecord

app = new_app()


@app.command()
def run(
    folder: Path = typer.Argument(..., help="A run folder, as `advisor plan` writes it."),
    as_json: bool = typer.Option(False, "--json", help="The run record as one JSON document."),
) -> None:
    """Run FOLDER's stages one after the other; what is finished is skipped, what was interrupted goes on."""
    record = run_folder(folder)
    if as_json:
        typer.echo(record.model_dump_json(indent=2))


def run_folder(folder: Path) -> RunRecord:
    """Run a folder with live progress, write its report, and say where to look; a finished one says so."""
    from advisor.progress import Progress
    from advisor.summary import say_outcome
    from pipelines.runner import pending_stages, run_pipeline
    from pipelines.runs import check_run_dir, read_run, read_tracking

    check_run_dir(folder)
    record = read_run(folder)
    tracking = read_tracking(folder)
    sent = tracking is not None and tracking.complete
    if record is not None and record.status == "finished" and not pending_stages(folder) and sent:
        typer.echo(f"{folder} is finished; nothing to run.", err=True)
        say_outcome(folder, sys.stderr)
        return record
    progress = Progress()
    try:
        record = run_pipeline(folder, progress, on_end=lambda: _write_report(folder))
    finally:
        progress.close()
    say_outcome(folder, sys.stderr)
    return record


def _write_report(folder: Path) -> None:
    from advisor.report import write_report

    write_report(folder)

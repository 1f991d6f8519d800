"""`advisor report`: write report.html and report.md."""

from __future__ import annotations

from pathlib import Path

import typer

from advisor.commands import new_app

app = new_app()


@app.command()
def report(folder: Path = typer.Argument(..., help="A run folder.")) -> None:
    """Write report.html (self-contained) and report.md for FOLDER, from what has run so far."""
    from advisor.report import write_report
    from pipelines.runs import check_run_dir

    check_run_dir(folder)
    for path in write_report(folder):
        typer.echo(path)

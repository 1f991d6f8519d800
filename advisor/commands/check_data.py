"""`advisor check data`: what is wrong with data files, before it costs a GPU hour."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from advisor.commands import new_app

app = new_app()


@app.command(name="data")
def check_data(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Files, folders or hub ids.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list on stdout.")] = False,
) -> None:
    """What is wrong with data files, where, and how to mend it."""
    from pipelines.datasets import inspect_source

    reports = [inspect_source(file) for file in files]
    if as_json:
        json.dump(
            [report.model_dump(mode="json") for report in reports], sys.stdout, indent=2, ensure_ascii=False
        )
        sys.stdout.write("\n")
    if any(report.error for report in reports):
        raise typer.Exit(1)


if __name__ == "__main__":
    app()

"""`advisor plan`: size a recipe and write its run folder."""

from __future__ import annotations

from pathlib import Path

import typer

from advisor.commands import new_app

app = new_app()


@app.command()
def plan(
    answers: Path = typer.Argument(..., help="answers.yaml, as `advisor ask` writes it."),
    out: Path = typer.Option(Path("run"), "-o", "--out", help="The run folder to write."),
    settings: list[str] = typer.Option(
        [], "--set", metavar="METHOD.FIELD=VALUE", help="Set a trainer argument of a stage; may be repeated."
    ),
    force: bool = typer.Option(False, "--force", help="Write it although it does not fit."),
    as_json: bool = typer.Option(False, "--json", help="The plan as one JSON document."),
) -> None:
    """Size a pipeline for ANSWERS on this machine and write it to a run folder."""
    from advisor.answers import read_answers
    from advisor.display import show_plan
    from advisor.planning import make_plan, parse_settings
    from estimators.errors import DoesNotFit

    try:
        made = make_plan(read_answers(answers), out, settings=parse_settings(settings), force=force)
    except DoesNotFit as error:
        raise DoesNotFit(f"{error}\n--force writes the plan anyway.") from None
    if as_json:
        typer.echo(made.model_dump_json(indent=2))
    else:
        typer.echo(show_plan(made))
        typer.echo(f"\nWritten to {out}. Run it with: advisor run {out}")
    if made.verdict == "does-not-fit":
        raise typer.Exit(1)

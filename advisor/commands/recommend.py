"""`advisor recommend`: the pipeline for a file of answers, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor import prompts
from advisor.commands import new_app

app = new_app()


@app.command()
def recommend(
    answers: Annotated[
        Path | None, typer.Argument(help="answers.yaml; without it the questions are asked.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print recommendation.json.")] = False,
) -> None:
    """Which pipeline to train, why, what would change the choice."""
    if answers is None:
        prompts.need_terminal("name the file: `advisor recommend answers.yaml`")
        from advisor.commands.ask import ask_and_keep

        answers = Path("answers.yaml")
        ask_and_keep(answers, "`advisor recommend` goes on from there")
        prompts.say()

    from advisor.answers import read_answers
    from advisor.recommend import recommend as recommend_for

    recommendation = recommend_for(read_answers(answers))
    if as_json:
        import json

        typer.echo(json.dumps(recommendation.model_dump(mode="json"), indent=2, ensure_ascii=False))
        return
    from advisor.display import show_recommendation

    typer.echo(show_recommendation(recommendation))
    typer.echo(f"\nnext: `advisor plan {answers} -o run` sizes it for the hardware")

"""`advisor ask`: the six questions, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor import asking, prompts
from advisor.commands import new_app

app = new_app()


@app.command()
def ask(
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the answers are kept.")] = Path(
        "answers.yaml"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the answers as JSON.")] = False,
) -> None:
    """Ask the six questions and save the answers.

    Answers are saved one by one: after Ctrl-C, the same command asks for the rest.
    """
    prompts.need_terminal(
        'write the file by hand, one line per answer: "verifiable: yes" (then preference_pairs, long_cot, '
        "limited_compute, base_capable, large_scale: each yes, no or unsure)"
    )
    answers = ask_and_keep(out, f"`advisor ask -o {out}` goes on from there")
    if as_json:
        import json

        typer.echo(json.dumps(answers))
    else:
        typer.echo(f"saved {out}")
        typer.echo(
            f"next: `advisor recommend {out}` for the pipeline and why, or `advisor` for all the way to a run"
        )


def ask_and_keep(out: Path, how_to_go_on: str) -> dict[str, object]:
    """Ask the six questions, keeping each answer in `out`; Ctrl-C leaves with `how_to_go_on`."""
    try:
        return asking.ask_six(asking.load_draft(out), out)
    except KeyboardInterrupt:
        kept = f"the answers so far are in {out}; " if out.exists() else "nothing is answered yet; "
        prompts.stopped(kept + how_to_go_on)

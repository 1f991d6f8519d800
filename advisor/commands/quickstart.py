"""`advisor quickstart`: the main job on an embedded task, from answers to a report."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from importlib import resources
from pathlib import Path

import typer
import yaml

from advisor.answers import Answers, write_answers
from advisor.commands import new_app
from advisor.commands.run import run_folder
from advisor.display import show_plan, show_recommendation
from advisor.planning import make_plan
from advisor.progress import clock
from advisor.recommend import recommend
from estimators.errors import BadInput, StageFailed
from pipelines.methods import Setting
from pipelines.runs import ANSWERS, PLAN

app = new_app()


@app.command()
def quickstart(
    out: Path = typer.Option(Path("quickstart"), "-o", "--out", help="The run folder."),
    seed: int = typer.Option(0, min=0, help="Seed of the data, the weights and the training."),
) -> None:
    """SFT → DAPO on two-digit sums: a model of 0.9 M parameters learns to work instead of guess.

    No GPU, no download, a few minutes on two cores. The answers, the data and the model are embedded; all
    else is what any run does. Repeating it goes on where it was, or says that it is finished.
    """
    started = time.monotonic()
    if (out / PLAN).exists():
        typer.echo(f"{out} is there already; going on with it.", err=True)
    else:
        _write_folder(out, seed)
    run_folder(out)
    typer.echo(f"  Took:    {clock(time.monotonic() - started)}", err=True)


def _write_folder(out: Path, seed: int) -> None:
    """Make the model and the data, and plan the run; the folder appears whole or not at all."""
    if out.exists() and any(out.iterdir()):
        raise BadInput(f"{out} is not empty and holds no plan; name another folder with -o")
    out.parent.mkdir(parents=True, exist_ok=True)
    typer.echo("Making a base model of 0.9 M parameters and 10,000 sums …", err=True)
    with tempfile.TemporaryDirectory(prefix=".quickstart-", dir=out.absolute().parent) as temporary:
        draft = Path(temporary) / "run"
        draft.mkdir()
        _make_task(draft, seed)
        answers = _answers(draft, seed)
        typer.echo(show_recommendation(recommend(answers)), err=True)
        again = f"advisor quickstart --seed {seed} -o again"
        plan = make_plan(answers, draft, settings=_settings(), repeat_with=again)
        write_answers(_answers(out, seed), draft / ANSWERS)
        typer.echo(f"\n{show_plan(plan)}\n", err=True)
        if out.exists():
            out.rmdir()
        draft.rename(out)


def _make_task(draft: Path, seed: int) -> None:
    """The model and the data, made by a process of their own, since it needs torch; and the reward."""
    files = resources.files("templates.quickstart")
    with resources.as_file(files.joinpath("make_task.py")) as script:
        command = [sys.executable, str(script), str(draft / "task"), str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StageFailed(f"the quickstart's model could not be made:\n{done.stderr.strip()[-2000:]}")
    (draft / "reward.py").write_text(
        files.joinpath("reward.py").read_text(encoding="utf-8"), encoding="utf-8"
    )


def _answers(folder: Path, seed: int) -> Answers:
    """The embedded answers, on the files of `folder`."""
    task = folder / "task"
    text = resources.files("templates.quickstart").joinpath("answers.yaml").read_text(encoding="utf-8")
    given = {
        **yaml.safe_load(text),
        "model": str(task / "base-model"),
        "data": {name: str(task / f"{name}.jsonl") for name in ("demonstrations", "prompts", "eval")},
        "reward": f"{folder / 'reward.py'}:right_sum",
        "seed": seed,
    }
    return Answers.model_validate(given)


def _settings() -> dict[str, dict[str, Setting]]:
    """The embedded settings, with their reasons."""
    text = resources.files("templates.quickstart").joinpath("settings.yaml").read_text(encoding="utf-8")
    return {
        method: {name: Setting(value=value, why=why) for name, (value, why) in arguments.items()}
        for method, arguments in yaml.safe_load(text).items()
    }

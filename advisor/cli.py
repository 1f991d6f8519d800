"""The command line: which verb lives in which module, and what an error looks like to a user.

A verb's module is imported when the verb is called, so that `advisor --help` stays under 0.2 s.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import NoReturn

import typer

from advisor.lazy import LazyGroup, no_such_verb
from estimators.errors import AdvisorError

# verb -> (module under advisor.commands, one line of help); the order is the order of use
VERBS: dict[str, tuple[str, str]] = {
    "quickstart": (
        "quickstart",
        "The main job on an embedded task: no GPU, no download, minutes.",
    ),
    "ask": ("ask", "The six questions only; saves answers.yaml."),
    "recommend": ("recommend", "Which recipe to use, and why."),
    "plan": ("plan", "Size a recipe for the hardware and write its run folder."),
    "run": ("run", "Run a run folder, or resume it."),
    "check": ("check", "What is wrong with the data or the reward, before it costs a GPU hour."),
    "estimate": ("estimate", "Memory, time and cost of one training stage, before it runs."),
    "gpus": ("gpus", "This machine's GPUs: what is free, and who holds the rest."),
    "report": ("report", "Write report.html and report.md for a run folder."),
    "ui": ("ui", "Open MLflow's page on the tracking store (loopback only)."),
}


class Advisor(LazyGroup):
    """All verbs."""

    verbs = VERBS


app = typer.Typer(
    cls=Advisor,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    version: bool = typer.Option(False, "--version", help="Show the version and leave."),
) -> None:
    """Which post-training method, will it fit, and run it: SFT, DPO, GRPO, DAPO on TRL, logged to MLflow.

    Without a command, on a terminal: the whole wizard.
    """
    if version:
        from advisor import __version__

        typer.echo(f"advisor {__version__}")
    elif ctx.invoked_subcommand is None:
        from advisor.commands.wizard import start

        start()


def main() -> NoReturn:
    """The entry point: every problem a user can mend is one message and an exit code."""
    gc.set_threshold(100_000)  # imports make no garbage; looking for it takes a seventh of the start
    sys.exit(run_app(sys.argv[1:]))


def run_app(arguments: list[str]) -> int:
    """Run one verb; returns its exit code (0 done, 1 mend it, 2 usage, 3 a stage failed, 130 interrupted)."""
    try:
        if not arguments:  # without Typer's parsing, which imports pydantic: the first question comes sooner
            from advisor.commands.wizard import start

            start()
            return 0
        if not arguments[0].startswith("-") and arguments[0] not in VERBS:
            typer.echo(f"error: {no_such_verb(arguments[0], VERBS)}", err=True)
            return 2
        result = app(args=arguments, prog_name="advisor", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except AdvisorError as error:
        typer.echo(f"error: {error}", err=True)
        return error.exit_code
    except KeyboardInterrupt:
        typer.echo("\ninterrupted; the same command goes on from here", err=True)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _click_exit_code(error)


def _click_exit_code(error: Exception) -> int:
    """The exit code of a usage error, Abort or Exit; any other exception goes on up, as a bug."""
    kind = type(error).__name__
    if kind == "Abort":
        typer.echo("\ninterrupted; the same command goes on from here", err=True)
        return 130
    if hasattr(error, "exit_code") and hasattr(error, "show"):
        error.show()
        return int(error.exit_code)
    if kind == "Exit" and hasattr(error, "exit_code"):
        return int(error.exit_code)
    raise error

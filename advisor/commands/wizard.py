"""Bare `advisor`: the whole wizard, from the first question to a finished run."""

from __future__ import annotations

from advisor import prompts


def start() -> None:
    """Run the wizard on a terminal; off one, say which verbs do the same."""
    prompts.need_terminal(
        "use the verbs: `advisor recommend answers.yaml`, `advisor plan answers.yaml -o run`, "
        "`advisor run run` (`advisor --help` lists them all)"
    )
    from pathlib import Path

    from advisor import wizard

    wizard.whole(Path("answers.yaml"))

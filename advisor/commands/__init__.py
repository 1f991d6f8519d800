"""One module per verb; `advisor.cli` names them, and imports one only when it is called."""

from __future__ import annotations

import typer


def new_app() -> typer.Typer:
    """An empty Typer application with this project's settings, for one verb or one group of verbs."""
    return typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

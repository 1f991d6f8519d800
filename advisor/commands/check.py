"""`advisor check`: what is wrong with the data or the reward, before it costs a GPU hour."""

from __future__ import annotations

import typer

from advisor.lazy import LazyGroup


class CheckGroup(LazyGroup):
    """The things that can be checked."""

    verbs = {
        "data": ("check_data", "Data files: their format, what is wrong and where; --fix mends it."),
        "reward": ("check_reward", "A reward: golds that are not paid, probes that are."),
    }


app = typer.Typer(
    cls=CheckGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def check() -> None:
    """What is wrong with the data or the reward, before it costs a GPU hour."""

"""A group of verbs whose modules are imported only when they are called."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

Verbs = Mapping[str, tuple[str, str]]
"""Verb -> (module under advisor.commands, one line of help), in the order of use."""


class LazyGroup(TyperGroup):
    """Lists its verbs without importing them."""

    verbs: ClassVar[Verbs] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.verbs)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.verbs:
            return None
        module = importlib.import_module(f"advisor.commands.{self.verbs[cmd_name][0]}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.verbs.items()])


def no_such_verb(name: str, verbs: Verbs) -> str:
    """What to say to a verb that is not there."""
    near = difflib.get_close_matches(name, verbs, n=1)
    hint = f'; did you mean "{near[0]}"?' if near else ""
    return f'there is no command "{name}"{hint} The commands: {", ".join(verbs)}'

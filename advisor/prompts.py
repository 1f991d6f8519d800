"""Asking on a terminal: a choice, a line of text, a yes or no.

All of it is written to stderr, so that stdout holds results only. A wrong line of text is asked for again,
with the reason above it. Ctrl-C and Ctrl-D raise KeyboardInterrupt.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NoReturn, TypeVar

import typer

from estimators.errors import AdvisorError

T = TypeVar("T")


def on_terminal() -> bool:
    """Whether there is someone to ask: stdin to type on and stderr to read from are terminals."""
    return (
        sys.stdin is not None
        and sys.stdin.isatty()
        and sys.stderr.isatty()
        and os.environ.get("TERM") != "dumb"
    )


def need_terminal(remedy: str) -> None:
    """Leave with a usage error that says how to do it without a terminal, unless there is one."""
    if not on_terminal():
        say(f"error: there is no terminal to ask on; {remedy}")
        raise typer.Exit(2)


def stopped(how_to_go_on: str) -> NoReturn:
    """Leave after Ctrl-C with one line on how to go on; a second Ctrl-C changes nothing any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    say(f"\nstopped; {how_to_go_on}")
    raise typer.Exit(130)


def failed(error: AdvisorError, how_to_go_on: str) -> NoReturn:
    """Leave after a problem that the user can mend, with one line on how to go on."""
    say(f"error: {error}")
    say(how_to_go_on)
    raise typer.Exit(error.exit_code)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C in here takes effect at the end: what was answered is kept first."""
    pending: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: pending.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pending:
        raise KeyboardInterrupt


def say(text: str = "") -> None:
    """Talk, on stderr."""
    typer.echo(text, err=True)


def width() -> int:
    """Columns to write in: the terminal's, at most 80."""
    return min(80, shutil.get_terminal_size().columns)


def wrap(text: str, indent: str = "", first: str | None = None) -> str:
    """`text` wrapped to the terminal, every line after `indent` (the first after `first`)."""
    return textwrap.fill(
        text,
        width(),
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def complaint(text: str) -> str:
    """Why an answer cannot be, indented under it; lines stay lines."""
    first, *rest = text.splitlines()
    return "\n".join(
        [wrap(first, "    ", first="  ! "), *(wrap(line.strip(), "      ", "    ") for line in rest)]
    )


def choose(
    message: str,
    choices: Sequence[tuple[str, str]],
    *,
    help: str = "",
    default: str | None = None,
    keys: str = "",
) -> str:
    """The value that the user picks from `choices` (value, title).

    `keys` are the letters that jump to each choice, one per choice; without them arrows alone move.
    """
    import questionary

    options = [
        questionary.Choice(title=title, value=value, shortcut_key=keys[i] if keys else None)
        for i, (value, title) in enumerate(choices)
    ]
    how = f"({', '.join(keys[:-1])} or {keys[-1]}, or arrows; then Enter)" if keys else "(arrows, then Enter)"
    instruction = "\n" + "\n".join(wrap(line, "  ") for line in [*help.splitlines(), how])
    picked: str = _ask(
        questionary.select(
            message,
            options,
            default=default,
            instruction=instruction,
            use_shortcuts=bool(keys),
            use_jk_keys=False,
            style=_style(),
            output=_output(),
        )
    )
    return picked


def line(
    message: str,
    check: Callable[[str], T],
    *,
    help: str = "",
    default: str = "",
    optional: str = "",
    path: bool = False,
) -> T | None:
    """What `check` makes of a line of text; asked again, with the reason above, while it raises ValueError.

    Enter alone gives `default` where there is one; else None where leaving it out means something (`optional`
    says what: "no limit"). With a default, "-" leaves it out. `path` completes file names with Tab.
    """
    import questionary

    enter = default or optional
    instruction = f"(Enter: {enter}{'; - for none' if default and optional else ''})" if enter else None
    if help:
        say(wrap(help, "  "))
    while True:
        more = {"completer": _path_completer(), "complete_while_typing": False} if path else {}
        text = _ask(
            questionary.text(message, instruction=instruction, style=_style(), output=_output(), **more)
        )
        text = text.strip() or default
        if optional and text in ("", "-"):
            return None
        try:
            return check(text)
        except (ValueError, AdvisorError) as reason:
            say(complaint(str(reason)))


def confirm(message: str, *, default: bool = True) -> bool:
    """Yes or no."""
    import questionary

    agreed: bool = _ask(questionary.confirm(message, default=default, style=_style(), output=_output()))
    return agreed


def _ask(question: Any) -> Any:
    """The answer; Ctrl-D is Ctrl-C."""
    try:
        return question.unsafe_ask()
    except EOFError:
        raise KeyboardInterrupt from None


@cache
def _path_completer() -> Any:
    from prompt_toolkit.completion import PathCompleter

    return PathCompleter(expanduser=True)


@cache
def _style() -> Any:
    from prompt_toolkit.styles import Style

    return Style([("instruction", "fg:ansibrightblack"), ("highlighted", "bold"), ("selected", "bold")])


@cache
def _output() -> Any:
    """stderr, without questions on the cursor's position (not every terminal answers them)."""
    from prompt_toolkit.output import create_output

    output = create_output(stdout=sys.stderr)
    if hasattr(output, "enable_cpr"):
        output.enable_cpr = False
    return output

"""A real pseudo-terminal with `advisor` on it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest

ROOT = Path(__file__).parents[2]
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>]|\r")
CTRL_C = "\x03"


class Terminal:
    """One `advisor` process on a terminal of 80 x 24."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "NO_COLOR": "1"}
        self.process = pexpect.spawn(
            sys.executable,
            ["-m", "advisor", *arguments],
            cwd=str(folder),
            env=environment,
            dimensions=(24, 80),
            encoding="utf-8",
            timeout=30,
            echo=False,
        )
        self.seen = ""

    def expect(self, words: str) -> str:
        """Wait until `words` (plain text) are on the screen; returns what came before and with them."""
        self.process.expect_exact(words)
        new = ESCAPE.sub("", str(self.process.before) + str(self.process.after))
        self.seen += new
        return new

    def type(self, keys: str) -> None:
        self.process.send(keys)

    def answer(self, question: str, keys: str) -> str:
        """Wait for a question and answer it with `keys` and Enter."""
        before = self.expect(question)
        self.type(f"{keys}\r")
        return before

    def end(self) -> int:
        """Wait for the process to end; its exit code."""
        self.process.expect(pexpect.EOF)
        self.seen += ESCAPE.sub("", str(self.process.before))
        self.process.close()
        assert self.process.signalstatus is None, self.seen
        assert "Traceback" not in self.seen
        return int(self.process.exitstatus or 0)


@pytest.fixture
def advisor(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `advisor ARGUMENTS` in `tmp_path` without a terminal."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "advisor", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    return run


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Start `advisor ARGUMENTS` on a terminal in `tmp_path`; ends what is left at the end."""
    started: list[Terminal] = []

    def start(*arguments: str) -> Terminal:
        started.append(Terminal(list(arguments), tmp_path))
        return started[-1]

    yield start
    for one in started:
        one.process.close(force=True)

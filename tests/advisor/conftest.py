"""A real pseudo-terminal with `advisor` on it."""

from __future__ import annotations

import os
import re
import sys
import time
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
        self._raw = ""
        self._read = 0

    @property
    def seen(self) -> str:
        """All that was written so far, as plain text."""
        return ESCAPE.sub("", self._raw)

    def expect(self, words: str, seconds: float = 30) -> str:
        """Wait until `words` are written after what was waited for before; returns what came up to them."""
        end = time.monotonic() + seconds
        while True:
            text = self.seen
            found = text.find(words, self._read)
            if found >= 0:
                new = text[self._read : found + len(words)]
                self._read = found + len(words)
                return new
            try:
                self._raw += self.process.read_nonblocking(4096, timeout=max(0.01, end - time.monotonic()))
            except (pexpect.EOF, pexpect.TIMEOUT) as reason:
                raise AssertionError(
                    f"{words!r} did not come ({type(reason).__name__}); the screen:\n{text[-2000:]}"
                ) from None

    def type(self, keys: str) -> None:
        self.process.send(keys)

    def answer(self, question: str, keys: str) -> str:
        """Wait for a question and answer it with `keys` and Enter."""
        before = self.expect(question)
        self.type(f"{keys}\r")
        return before

    def end(self, seconds: float = 30) -> int:
        """Wait for the process to end; its exit code."""
        end = time.monotonic() + seconds
        try:
            while True:
                self._raw += self.process.read_nonblocking(4096, timeout=max(0.01, end - time.monotonic()))
        except pexpect.EOF:
            pass
        self.process.close()
        assert self.process.signalstatus is None, self.seen
        assert "Traceback" not in self.seen, self.seen
        return int(self.process.exitstatus or 0)


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

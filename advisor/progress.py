"""Live progress of a run on the terminal: one line per stage that is rewritten, or plain lines in a log."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

from pipelines.events import Event

PLAIN_SECONDS = 15.0
"""Seconds between lines where the output is no terminal."""

SHOWN = (
    ("rewards/", "/mean", "reward"),
    ("loss", "", "loss"),
    ("mean_token_accuracy", "", "token accuracy"),
    ("groups/informative", "", "groups with signal"),
    ("rewards/accuracies", "", "pairs ranked right"),
)


class Progress:
    """Shows the events of a run as they come."""

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        self.stream = stream
        self.live = stream.isatty()
        self.started = time.monotonic()
        self._open = False
        self._last_plain = 0.0
        self._first_step: tuple[int, float] | None = None
        self._phase = "starting"

    def __call__(self, folder: str, event: Event) -> None:
        """Show one event of a stage."""
        kind = event["kind"]
        if kind == "started":
            self.started, self._first_step, self._last_plain = time.monotonic(), None, 0.0
            self._phase = "starting"
            self._line(folder, "starting")
        elif kind == "skipped":
            self._final(folder, "already finished")
        elif kind == "phase":
            self._phase = event["name"]
            self._line(folder, f"{_doing(event['name'])} …")
        elif kind == "metrics" and event["max_steps"]:
            self._metrics(folder, event)
        elif kind == "note":
            self._final(folder, event["text"])
        elif kind == "finished":
            self._final(folder, f"finished in {clock(time.monotonic() - self.started)}")

    def _metrics(self, folder: str, event: Event) -> None:
        """A line with step, time left and the numbers that matter, or the held-out result."""
        values = event["values"]
        if "eval/pass_at_1" in values:
            share, low, high = (_percent(values[f"eval/pass_at_1{end}"]) for end in ("", "_low", "_high"))
            self._final(folder, f"held-out pass@1 {share} [{low} to {high}]")
            return
        if self._phase != "train":
            return
        step, total = event["step"], event["max_steps"]
        if self._first_step is None:
            self._first_step = (step, event["time"])
        first, since = self._first_step
        left = (event["time"] - since) / (step - first) * (total - step) if step > first else None
        parts = [f"step {step}/{total}", *_numbers(values)]
        if left is not None and step < total:
            parts.append(f"{clock(left)} left")
        self._line(folder, "  ".join(parts))

    def _line(self, folder: str, text: str) -> None:
        """A line that the next one replaces."""
        line = f"  {folder:<10} {text}"
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            self.stream.write(f"\r\033[K{line[:width]}")
            self._open = True
        elif time.monotonic() - self._last_plain >= PLAIN_SECONDS:
            self._last_plain = time.monotonic()
            self.stream.write(line + "\n")
        self.stream.flush()

    def _final(self, folder: str, text: str) -> None:
        """A line that stays."""
        self.stream.write(f"{chr(13) + chr(27) + '[K' if self._open else ''}  {folder:<10} {text}\n")
        self._open = False
        self.stream.flush()

    def close(self) -> None:
        """Leave the cursor on a fresh line."""
        if self._open:
            self.stream.write("\n")
            self._open = False


def _numbers(values: dict[str, float | None]) -> list[str]:
    """The numbers of a training step that matter, at most three."""
    found = []
    for start, end, label in SHOWN:
        for name, value in values.items():
            matches = name.startswith(start) and name.endswith(end) if end else name == start
            if matches and value is not None and "overlong" not in name and name != "rewards/margins":
                found.append(f"{label} {value:.3f}")
                break
    return found[:3]


def _doing(phase: str) -> str:
    return {
        "load": "loading",
        "train": "training",
        "evaluate": "evaluating on held-out prompts",
        "save": "saving",
    }.get(phase, phase)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def clock(seconds: float) -> str:
    """Seconds as people say them: 42 s, 3 min 05 s, 2 h 10 min."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"

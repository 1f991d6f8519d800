"""The event log of a stage: one JSON object a line, appended by the worker, read by everybody else.

The worker knows nothing of MLflow or of the screen. It appends what happened; the tracker sends it to
MLflow, the runner shows it, the report draws it. So a fault in logging cannot stop a training, and what was
not sent can be sent later.

Events: {"time", "kind", ...} with kind
  attempt                                    a process began to work on the stage
  phase        name                          what the worker does now: load, train, evaluate, save
  metrics      step, max_steps, values
  completions  step, name, rows              prompt, completion, one key per reward
  note         text                          a sentence worth showing
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class EventLog:
    """Appends events to a file, each in one write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, kind: str, **fields: Any) -> None:
        """Append one event; numbers that are not finite become null."""
        event = {"time": round(time.time(), 3), "kind": kind, **_finite(fields)}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event, ensure_ascii=False) + "\n")


def _finite(value: Any) -> Any:
    """`value` with NaN and infinities replaced by None, for JSON."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


class EventReader:
    """Reads new events of a growing file; a half-written last line is left for the next call."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset

    def new(self) -> list[Event]:
        """Events since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return []
        end = data.rfind(b"\n") + 1
        self.offset += end
        return list(_parse(data[:end]))


def _parse(data: bytes) -> Iterator[Event]:
    """The events in whole lines; a line cut short by a kill is passed over."""
    for line in data.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and "kind" in event:
            yield event


def read_events(path: Path) -> list[Event]:
    """All events of a stage, in order."""
    return EventReader(path).new()


def seconds_so_far(events: list[Event]) -> float:
    """Wall seconds of all attempts in a log, each from its first event to its last."""
    total = 0.0
    begun: float | None = None
    last = 0.0
    for event in events:
        if event["kind"] == "attempt":
            total += last - begun if begun is not None else 0.0
            begun = event["time"]
        last = event["time"]
    return round(total + (last - begun if begun is not None else 0.0), 3)


def metric_series(events: list[Event]) -> dict[str, list[tuple[int, float]]]:
    """Metric name -> (step, value), ascending; of a step that was redone after a resume, the last counts."""
    series: dict[str, dict[int, float]] = {}
    for event in events:
        if event["kind"] == "metrics":
            for name, value in event["values"].items():
                if isinstance(value, (int, float)):
                    series.setdefault(name, {})[int(event["step"])] = float(value)
    return {name: sorted(points.items()) for name, points in series.items()}

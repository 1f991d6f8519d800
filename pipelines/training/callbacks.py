"""Callbacks of every trainer: metrics to the event log, and a mark on complete checkpoints."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from pipelines.events import EventLog
from pipelines.training.evaluation import text_of

COMPLETE = "COMPLETE"
SAMPLES_PER_TABLE = 16
TABLES_PER_STAGE = 10


class EventCallback(TrainerCallback):
    """Writes what the trainer logs to the stage's event log, and now and then a table of completions."""

    def __init__(self, events: EventLog) -> None:
        self.events = events
        self.trainer: Any = None
        """Set by the stage once the trainer exists; one with `last_samples` gets its completions logged."""

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not state.is_world_process_zero or not logs:
            return
        values = {name: value for name, value in logs.items() if isinstance(value, (int, float))}
        values.pop("total_flos", None)
        self.events.write("metrics", step=state.global_step, max_steps=state.max_steps, values=values)
        samples = getattr(self.trainer, "last_samples", None)
        every = max(1, state.max_steps // TABLES_PER_STAGE)
        if samples and state.global_step and state.global_step % every == 0:
            self.events.write("completions", step=state.global_step, name="rollouts", rows=_table(samples))
            self.trainer.last_samples = {}


def _table(samples: dict[str, Any]) -> list[dict[str, Any]]:
    """The first rows of a batch of rollouts, one key per reward."""
    rows = zip(samples["prompts"], samples["completions"], samples["rewards"], strict=True)
    return [
        {
            "prompt": text_of(prompt),
            "completion": text_of(completion),
            **dict(zip(samples["names"], rewards, strict=True)),
        }
        for prompt, completion, rewards in list(rows)[:SAMPLES_PER_TABLE]
    ]


class CompleteMark(TrainerCallback):
    """Writes COMPLETE (files and sizes) last into a checkpoint, so that half of one is never resumed from."""

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if not state.is_world_process_zero:
            return
        folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
        sizes = {str(p.relative_to(folder)): p.stat().st_size for p in folder.rglob("*") if p.is_file()}
        for name in sizes:
            _flush(folder / name)
        temporary = folder / f".{COMPLETE}.tmp"
        temporary.write_text(json.dumps(sizes))
        os.replace(temporary, folder / COMPLETE)


def _flush(path: Path) -> None:
    """Force a file to the disk, so that the mark cannot outlive what it vouches for."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint; incomplete ones (a kill while saving) are removed."""
    best: tuple[int, Path] | None = None
    for path in folder.glob("checkpoint-*"):
        step = path.name.rsplit("-", 1)[1]
        if not (step.isdigit() and is_complete(path)):
            shutil.rmtree(path, ignore_errors=True)
        elif best is None or int(step) > best[0]:
            best = (int(step), path)
    return best[1] if best else None


def is_complete(checkpoint: Path) -> bool:
    """Whether every file that COMPLETE names is there in full size."""
    try:
        sizes: dict[str, int] = json.loads((checkpoint / COMPLETE).read_text())
        return all((checkpoint / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False

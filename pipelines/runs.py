"""run.json: what has become of a run folder's stages, and the file names of a run folder."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from estimators.errors import BadInput
from estimators.record import Record, nearest, read_text, validate, write_json

ANSWERS = "answers.yaml"
RECOMMENDATION = "recommendation.json"
PLAN = "plan.yaml"
RUN = "run.json"
TRACKING = "tracking.json"
REPORT = "report.html"
REPORT_TEXT = "report.md"

Status = Literal["pending", "running", "finished", "failed", "interrupted"]


class StageRun(Record):
    """One stage of a run."""

    folder: str
    method: str
    status: Status = "pending"
    identity: str | None = None
    started: str | None = None
    ended: str | None = None
    message: str | None = None


class RunRecord(Record):
    """The state of a run folder."""

    id: str
    name: str
    status: Status = "pending"
    created: str
    stages: tuple[StageRun, ...]

    def with_stage(self, folder: str, **changes: object) -> RunRecord:
        """This record with one stage changed."""
        stages = tuple(s.model_copy(update=changes) if s.folder == folder else s for s in self.stages)
        return self.model_copy(update={"stages": stages})


class TrackingState(Record):
    """tracking.json: where MLflow keeps this run, and how much of it was sent."""

    uri: str
    experiment_id: str | None = None
    parent_run_id: str | None = None
    stages: dict[str, TrackedStage] = {}
    complete: bool = False
    error: str | None = None


class TrackedStage(Record):
    """One stage's run in MLflow."""

    run_id: str
    identity: str
    offset: int = 0
    """Bytes of the event log that were sent."""
    last_step: dict[str, int] = {}
    """Highest step sent per metric: steps that are redone after a resume are not sent twice."""
    params_sent: bool = False
    ended: bool = False


def now() -> str:
    """The time, in UTC, as ISO 8601 with seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def new_id() -> str:
    """An id for a run."""
    return uuid.uuid4().hex[:12]


def check_run_dir(path: Path) -> Path:
    """`path`, where it is a run folder; BadInput with the remedy where it is none."""
    if not path.exists():
        siblings = [p.name for p in path.absolute().parent.glob("*") if (p / PLAN).exists()]
        guess = nearest(path.name, siblings)
        hint = f'; did you mean "{guess}"?' if guess else "."
        raise BadInput(f"{path}: no such folder{hint} Write one with: advisor plan answers.yaml -o {path}")
    if not (path / PLAN).exists():
        raise BadInput(
            f"{path} has no {PLAN}, so it is no run folder. Write one with: advisor plan answers.yaml -o DIR"
        )
    return path


def read_run(run_dir: Path) -> RunRecord | None:
    """The run record of a folder, or None where it never ran."""
    path = run_dir / RUN
    if not path.exists():
        return None
    try:
        return validate(RunRecord, json.loads(read_text(path)), str(path))
    except json.JSONDecodeError as error:
        raise BadInput(
            f"{path}:{error.lineno}: not valid JSON; remove the file, and the run goes on"
        ) from None


def write_run(run_dir: Path, record: RunRecord) -> None:
    """Replace the run record of a folder."""
    write_json(run_dir / RUN, record)


def read_tracking(run_dir: Path) -> TrackingState | None:
    """What is known about this run in MLflow, or None."""
    try:
        return validate(TrackingState, json.loads((run_dir / TRACKING).read_text()), TRACKING)
    except (OSError, ValueError, BadInput):
        return None

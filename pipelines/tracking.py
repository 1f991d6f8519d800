"""MLflow: one parent run per pipeline, one nested run per stage, sent from the event logs.

A process of its own reads the run folder and sends what is new; so training never waits for MLflow and never
dies of it, `advisor` never imports it, and what could not be sent is sent by the next `advisor run`.
Run as: python -m pipelines.tracking RUN_DIR. It ends after a last pass when its stdin closes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from estimators.errors import BadInput
from estimators.record import write_json
from pipelines import stages
from pipelines.datasets.provenance import dataset_fields
from pipelines.events import Event, EventReader
from pipelines.prepare import read_sources
from pipelines.runs import (
    ANSWERS,
    PLAN,
    RECOMMENDATION,
    REPORT,
    REPORT_TEXT,
    TRACKING,
    RunRecord,
    StageRun,
    TrackedStage,
    TrackingState,
    read_run,
    read_tracking,
)

EXPERIMENT = "advisor"
SYNC_SECONDS = 1.0
MAX_TAG = 5000
MAX_METRICS = 1000
"""MLflow takes at most so many metrics in one batch."""
STATUS = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


def default_uri() -> str:
    """MLFLOW_TRACKING_URI, or a SQLite file in the working folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path('mlflow.db').absolute()}"


def check_mlflow() -> None:
    """BadInput with the remedy where MLflow is not installed; takes no time where it is."""
    if importlib.util.find_spec("mlflow") is None:
        raise BadInput(
            "MLflow is not installed, so nothing would be logged; install it with: pip install mlflow"
        )


class Tracker:
    """The tracking process of one `advisor run`, seen from outside."""

    def __init__(self, run_dir: Path, process: subprocess.Popen[bytes]) -> None:
        self.run_dir = run_dir
        self.process = process

    @classmethod
    def start(cls, run_dir: Path) -> Tracker:
        """Start the process; it keeps what it knows in tracking.json."""
        check_mlflow()
        state = read_tracking(run_dir)
        known = state is not None and state.parent_run_id is not None
        uri = state.uri if state and known and not os.environ.get("MLFLOW_TRACKING_URI") else default_uri()
        environment = {
            **os.environ,
            "MLFLOW_TRACKING_URI": uri,
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": os.environ.get("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1"),
            "MLFLOW_HTTP_REQUEST_TIMEOUT": os.environ.get("MLFLOW_HTTP_REQUEST_TIMEOUT", "10"),
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }
        with (run_dir / "tracking.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "pipelines.tracking", str(run_dir)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        return cls(run_dir, process)

    def stop(self, patience: float = 60.0) -> None:
        """Let it make its last pass and end."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Sync:
    """Sends a run folder to MLflow, what is new at each call."""

    def __init__(self, run_dir: Path, uri: str) -> None:
        import mlflow

        self.run_dir = run_dir
        self.client: Any = mlflow.MlflowClient(tracking_uri=uri)
        self.entities: Any = mlflow.entities
        known = read_tracking(run_dir)
        if known is None or known.uri != uri or not self._is_there(known, mlflow.exceptions.MlflowException):
            known = TrackingState(uri=uri)
        self.state: TrackingState = known.model_copy(update={"complete": False, "error": None})

    def _is_there(self, known: TrackingState, not_found: type[Exception]) -> bool:
        """Whether the store still holds the parent run: a store that was removed is filled again."""
        if known.parent_run_id is None:
            return False
        try:
            return bool(self.client.get_run(known.parent_run_id).info.lifecycle_stage == "active")
        except not_found as error:
            if getattr(error, "error_code", "") == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise

    def save(self, **changes: Any) -> None:
        """Change the state and write it."""
        self.state = self.state.model_copy(update=changes)
        write_json(self.run_dir / TRACKING, self.state)

    def once(self) -> None:
        """Send everything that is new in the run folder."""
        run = read_run(self.run_dir)
        if run is None:
            return
        self._ensure_parent(run)
        for stage in run.stages:
            if stage.identity is not None:
                self._send_stage(run, stage)

    def last(self) -> None:
        """The final pass: what is new, the artifacts, and the status that the supervisor recorded."""
        self.once()
        run = read_run(self.run_dir)
        if run is None or self.state.parent_run_id is None:
            return
        parent = self.state.parent_run_id
        for name in (ANSWERS, RECOMMENDATION, PLAN, REPORT, REPORT_TEXT, "run.json"):
            if (self.run_dir / name).exists():
                self.client.log_artifact(parent, str(self.run_dir / name))
        self._log_summary(parent, run)
        if (self.run_dir / REPORT_TEXT).exists():  # MLflow shows it as the run's description
            text = (self.run_dir / REPORT_TEXT).read_text(encoding="utf-8")
            self.client.set_tag(parent, "mlflow.note.content", text[:MAX_TAG])
        self.client.set_terminated(parent, status=STATUS.get(run.status, "FAILED"))
        self.save(complete=run.status == "finished", error=None)

    def _ensure_parent(self, run: RunRecord) -> None:
        """The experiment and the parent run, made once."""
        if self.state.experiment_id is None:
            self.save(experiment_id=self._experiment())
        if self.state.parent_run_id is None:
            plan = self._plan()
            tags = {
                "mlflow.runName": run.name,
                "advisor.run": run.id,
                "advisor.pipeline": " → ".join(plan.get("pipeline", [])),
                "advisor.plan_sha256": stages.file_digest(self.run_dir / PLAN),
            }
            parent = self._find_or_create(run.name, tags, {"advisor.run": run.id})
            self.save(parent_run_id=parent)
            params = [self.entities.Param(k, str(v)[:6000]) for k, v in _flat(_parent_params(plan)).items()]
            self.client.log_batch(parent, params=params)
        elif run.status == "running":
            self.client.update_run(self.state.parent_run_id, status="RUNNING")

    def _plan(self) -> dict[str, Any]:
        """plan.yaml as plain data."""
        import yaml

        data = yaml.safe_load((self.run_dir / PLAN).read_text(encoding="utf-8"))
        return data if isinstance(data, dict) else {}

    def _experiment(self) -> str:
        """The experiment's id; with a local store, its artifacts lie beside the store."""
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        found = self.client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        location = None
        if self.state.uri.startswith("sqlite:///"):
            store = Path(self.state.uri.removeprefix("sqlite:///")).absolute()
            location = (store.parent / "mlartifacts").as_uri()
        return str(self.client.create_experiment(name, artifact_location=location))

    def _send_stage(self, run: RunRecord, stage: StageRun) -> None:
        """One stage's run: made once, then its new events, then its end."""
        tracked = self.state.stages.get(stage.folder)
        if tracked is None or tracked.identity != stage.identity:
            tracked = self._create_stage(run, stage)
        elif tracked.ended and stage.status == "running":
            self.client.update_run(tracked.run_id, status="RUNNING")
            tracked = tracked.model_copy(update={"ended": False})
        if not tracked.params_sent:
            tracked = self._send_params(stage, tracked)
        reader = EventReader(self.run_dir / stage.folder / stages.EVENTS, offset=tracked.offset)
        steps = dict(tracked.last_step)
        try:
            for event in reader.new():
                self._send_event(tracked.run_id, event, steps)
            tracked = tracked.model_copy(update={"offset": reader.offset})
        finally:  # what was sent before a fault is not sent again
            tracked = tracked.model_copy(update={"last_step": steps})
            if tracked != self.state.stages.get(stage.folder):
                self.save(stages={**self.state.stages, stage.folder: tracked})
        if stage.status in STATUS and not tracked.ended:
            for name in (stages.CONFIG, stages.SCRIPT, stages.LOG, stages.DONE):
                if (self.run_dir / stage.folder / name).exists():
                    self.client.log_artifact(tracked.run_id, str(self.run_dir / stage.folder / name))
            self.client.set_terminated(tracked.run_id, status=STATUS[stage.status])
            tracked = tracked.model_copy(update={"ended": True})
        if tracked != self.state.stages.get(stage.folder):
            self.save(stages={**self.state.stages, stage.folder: tracked})

    def _create_stage(self, run: RunRecord, stage: StageRun) -> TrackedStage:
        """A nested run with the tags of its stage."""
        config = stages.read_stage(self.run_dir / stage.folder)
        data = config.data.train or config.data.prompts
        tags = {
            "mlflow.parentRunId": self.state.parent_run_id,
            "mlflow.runName": stage.folder,
            "advisor.run": run.id,
            "advisor.stage": stage.folder,
            "advisor.method": stage.method,
            "advisor.identity": stage.identity,
            "advisor.config_sha256": stages.file_digest(self.run_dir / stage.folder / stages.CONFIG),
        }
        if data and (self.run_dir / data).exists():
            tags["advisor.data"] = data
            tags["advisor.data_sha256"] = stages.file_digest(self.run_dir / data)
        known = {
            "advisor.run": run.id,
            "advisor.stage": stage.folder,
            "advisor.identity": str(stage.identity),
        }
        tracked = TrackedStage(
            run_id=self._find_or_create(stage.folder, tags, known), identity=str(stage.identity)
        )
        self.save(stages={**self.state.stages, stage.folder: tracked})
        return tracked

    def _find_or_create(self, name: str, tags: dict[str, Any], known: dict[str, str]) -> str:
        """The run with the tags `known`, or a new one.

        A fault between making a run and noting its id, or a kill there, must not make a second one. A parent
        is told from its stages by having no stage.
        """
        wanted = " and ".join(f"tags.`{key}` = '{value}'" for key, value in known.items())
        found = self.client.search_runs([self.state.experiment_id], filter_string=wanted)
        for run in found:
            if "advisor.stage" in known or "advisor.stage" not in run.data.tags:
                return str(run.info.run_id)
        created = self.client.create_run(self.state.experiment_id, tags=tags, run_name=name)
        return str(created.info.run_id)

    def _send_params(self, stage: StageRun, tracked: TrackedStage) -> TrackedStage:
        """The stage's config as parameters, and what the plan predicted for it as metrics."""
        config = stages.read_stage(self.run_dir / stage.folder)
        flat = _flat(config.model_dump(mode="json", exclude_none=True))
        params = [self.entities.Param(key, str(value)[:6000]) for key, value in flat.items()]
        for start in range(0, len(params), 100):
            self.client.log_batch(tracked.run_id, params=params[start : start + 100])
        for planned in self._plan().get("stages", []):
            if planned.get("folder") == stage.folder:
                for name, value in planned.items():
                    if isinstance(value, (int, float)) and not isinstance(value, bool):
                        self.client.log_metric(tracked.run_id, f"estimated/{name}", float(value))
        self._log_data(tracked.run_id, config.data.train)
        return tracked.model_copy(update={"params_sent": True})

    def _log_data(self, run_id: str, train: str | None) -> None:
        """The stage's training data as MLflow's input: name, digest, source, schema and lengths."""
        source = read_sources(self.run_dir).get(Path(train).stem) if train else None
        if source is None:
            return
        fields = dataset_fields(source.report, source.digest)
        context = self.entities.InputTag("mlflow.data.context", "training")
        entry = self.entities.DatasetInput(self.entities.Dataset(**fields), [context])
        self.client.log_inputs(run_id, [entry])

    def _send_event(self, run_id: str, event: Event, steps: dict[str, int]) -> None:
        """One event: metrics as metrics, completions as a table."""
        if event["kind"] == "metrics":
            step, stamp = int(event["step"]), int(event["time"] * 1000)
            fresh = {
                name: value
                for name, value in event["values"].items()
                if isinstance(value, (int, float)) and step > steps.get(name, -1)
            }
            metrics = [self.entities.Metric(name, float(value), stamp, step) for name, value in fresh.items()]
            for start in range(0, len(metrics), MAX_METRICS):
                self.client.log_batch(run_id, metrics=metrics[start : start + MAX_METRICS])
            steps.update(dict.fromkeys(fresh, step))
        elif event["kind"] == "completions" and event["rows"]:
            columns = list(event["rows"][0])
            table = {column: [row.get(column) for row in event["rows"]] for column in columns}
            name = f"step_{event['step']:05d}" if event["name"] == "rollouts" else event["name"]
            self.client.log_table(run_id, table, artifact_file=f"completions/{name}.json")
        elif event["kind"] == "note":
            self.client.set_tag(run_id, "advisor.note", event["text"])

    def _log_summary(self, parent: str, run: RunRecord) -> None:
        """The held-out numbers of every stage on the parent, one step a stage."""
        for step, stage in enumerate(run.stages):
            result = stages.read_result(self.run_dir / stage.folder)
            if result is None or result.pass_rates is None:
                continue
            rates = result.pass_rates
            self.client.log_metric(parent, "eval/pass_at_1", rates.pass_at_1.value, step=step)
            self.client.log_metric(parent, f"eval/pass_at_{rates.samples}", rates.pass_at_k.value, step=step)


def _parent_params(plan: dict[str, Any]) -> dict[str, Any]:
    """What of the plan belongs on the parent run."""
    return {key: value for key, value in plan.items() if key not in ("stages", "notes")}


def _flat(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys joined with dots."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = json.dumps(value) if isinstance(value, list) else value
    return flat


def main(run_dir: Path) -> None:
    """Send until stdin closes; faults are noted and tried again, never raised."""
    uri = default_uri()
    stopping = threading.Event()

    def wait_for_end() -> None:
        while os.read(0, 4096):  # not sys.stdin: its lock would abort the interpreter's own end
            pass
        stopping.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    sync: Sync | None = None
    while not stopping.is_set():
        sync = _attempt(run_dir, uri, sync, last=False)
        stopping.wait(SYNC_SECONDS)
    _attempt(run_dir, uri, sync, last=True)


def _attempt(run_dir: Path, uri: str, sync: Sync | None, last: bool) -> Sync | None:
    """One pass; a fault becomes the state's `error`."""
    try:
        sync = sync or Sync(run_dir, uri)
        if last:
            sync.last()
        else:
            sync.once()
    except Exception as error:
        reason = str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
        print(f"{type(error).__name__}: {error}", flush=True)  # noqa: T201 - this process's log
        state = read_tracking(run_dir)
        state = state if state is not None and state.uri == uri else TrackingState(uri=uri)
        write_json(run_dir / TRACKING, state.model_copy(update={"complete": False, "error": reason}))
    return sync


if __name__ == "__main__":
    main(Path(sys.argv[1]))

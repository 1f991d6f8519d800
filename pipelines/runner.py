"""Run the stages of a folder one after the other, each in its own process, and resume what was cut short.

A stage is done when its done.json holds its identity. An exit code alone is not believed.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from estimators.errors import BadInput, Interrupted, StageFailed
from estimators.record import unknown
from pipelines import stages
from pipelines.datasets import read_records
from pipelines.events import Event, EventReader
from pipelines.methods import METHODS
from pipelines.methods.fields import check_field
from pipelines.plan import Plan, read_plan
from pipelines.rewards.preflight import preflight
from pipelines.runs import RunRecord, StageRun, check_run_dir, new_id, now, read_run, write_run
from pipelines.tracking import Tracker

Show = Callable[[str, Event], None]
"""Called with the stage's folder and each of its events, as they come."""

POLL_SECONDS = 0.2
LOG_TAIL = 15
IDENTITY = ".identity"
PREFLIGHT_ROWS = 64
STARTED_WITH = ".config.yaml"
"""The config as the stage was started, for `previous/`."""
KEPT = (stages.DONE, stages.MODEL, stages.EVENTS, stages.LOG)


def pending_stages(run_dir: Path) -> list[str]:
    """Folders of the stages that are not done, in order."""
    plan = read_plan(run_dir)
    return [stage.folder for stage in plan.stages if not is_done(run_dir, stage.folder)]


def is_done(run_dir: Path, folder: str) -> bool:
    """Whether a stage is finished, as it is configured now."""
    result = stages.read_result(run_dir / folder)
    return result is not None and result.identity == stages.stage_identity(run_dir, folder)


def check_stage(run_dir: Path, folder: str) -> None:
    """BadInput for a config that the stage's trainer would refuse, before anything is moved or started."""
    config = stages.read_stage(run_dir / folder)
    if config.method == stages.PROBE:
        return
    if config.method not in METHODS:
        raise BadInput(f"{run_dir / folder / stages.CONFIG}: {unknown('method', config.method, METHODS)}")
    for name in config.trainer:
        try:
            check_field(METHODS[config.method].script, name)
        except BadInput as error:
            raise BadInput(f"{run_dir / folder / stages.CONFIG}: trainer: {error}") from None


def check_rewards(run_dir: Path, folders: list[str], show: Show) -> None:
    """Try the reward of the stages to come on some rows, before any model is loaded.

    Raises: BadInput where it raises, or returns what is no list of numbers. A gold that is not paid, or a
    probe that is, may be the format that the task wants: it is shown; `advisor check reward` says more.
    """
    for folder in folders:
        config = stages.read_stage(run_dir / folder)
        rows = config.data.prompts
        if config.reward is None or rows is None:
            continue
        sample = list(itertools.islice(read_records(run_dir / rows), PREFLIGHT_ROWS))
        for finding in preflight(config.reward, sample, run_dir).findings:
            place = f" ({finding.place})" if finding.place else ""
            on = f", on {finding.sample}" if finding.sample else ""
            if finding.severity == "error" and finding.code not in ("gold-not-paid", "probe-paid"):
                raise BadInput(f"the reward {config.reward}: {finding.says}{place}{on}")
            if finding.severity != "note":
                says = f"reward: {finding.says}; see advisor check reward"
                show(folder, {"kind": "note", "text": says})
        return


def run_pipeline(run_dir: Path, show: Show, on_end: Callable[[], None] = lambda: None) -> RunRecord:
    """Run every stage that is not done.

    `on_end` is called when all stages are done, or one failed, before the tracker's last pass, so that what
    it writes (the report) is logged too.

    Raises: StageFailed, Interrupted; BadInput where another process runs the folder.
    """
    check_run_dir(run_dir)
    plan = read_plan(run_dir)
    with _locked(run_dir):
        waiting = [stage.folder for stage in plan.stages if not is_done(run_dir, stage.folder)]
        for folder in waiting:
            check_stage(run_dir, folder)
        check_rewards(run_dir, waiting, show)
        record = _start_record(run_dir, plan)
        tracker = Tracker.start(run_dir)
        try:
            with _terminate_as_interrupt():
                for planned in plan.stages:
                    record = _run_stage(run_dir, planned.folder, record, show)
            record = record.model_copy(update={"status": "finished"})
            write_run(run_dir, record)
            return record
        finally:
            on_end()
            tracker.stop()


def _start_record(run_dir: Path, plan: Plan) -> RunRecord:
    """The run record of this run: the old one's id, the plan's stages."""
    old = read_run(run_dir)
    known = {stage.folder: stage for stage in old.stages} if old else {}
    record = RunRecord(
        id=old.id if old else new_id(),
        name=plan.name,
        status="running",
        created=old.created if old else now(),
        stages=tuple(known.get(s.folder, StageRun(folder=s.folder, method=s.method)) for s in plan.stages),
    )
    write_run(run_dir, record)
    return record


def _run_stage(run_dir: Path, folder: str, record: RunRecord, show: Show) -> RunRecord:
    """Run one stage unless it is done; returns the new run record."""

    def update(**changes: object) -> None:
        nonlocal record
        record = record.with_stage(folder, **changes)
        write_run(run_dir, record)

    identity = stages.stage_identity(run_dir, folder)
    if is_done(run_dir, folder):
        update(status="finished", identity=identity)
        show(folder, {"kind": "skipped"})
        return record
    _set_aside(run_dir / folder, identity)
    update(status="running", identity=identity, started=now(), ended=None, message=None)
    try:
        code = _supervise(run_dir, folder, show)
    except KeyboardInterrupt:
        update(status="interrupted", ended=now())
        record = record.model_copy(update={"status": "interrupted"})
        write_run(run_dir, record)
        raise Interrupted(f"interrupted in {folder}; go on with: advisor run {run_dir}") from None
    if code == 0 and is_done(run_dir, folder):
        update(status="finished", ended=now())
        show(folder, {"kind": "finished"})
        return record
    message = _failure(run_dir / folder, code)
    update(status="failed", ended=now(), message=message.splitlines()[0])
    record = record.model_copy(update={"status": "failed"})
    write_run(run_dir, record)
    raise StageFailed(
        f"stage {folder} failed: {message}\nWhen it is mended, go on with: advisor run {run_dir}"
    )


def _supervise(run_dir: Path, folder: str, show: Show) -> int:
    """Start the stage's process, pass its events on, and return its exit code."""
    path = run_dir / folder
    reader = EventReader(path / stages.EVENTS, offset=_size(path / stages.EVENTS))
    show(folder, {"kind": "started"})
    with (path / stages.LOG).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-u", str(path / stages.SCRIPT)],
            stdin=subprocess.PIPE,  # its end closes when this process dies, and the stage ends with it
            stdout=log,
            stderr=subprocess.STDOUT,
            env=_environment(run_dir, folder),
            start_new_session=True,
        )
        try:
            while True:
                code = process.poll()
                for event in reader.new():
                    show(folder, event)
                if code is not None:
                    return code
                time.sleep(POLL_SECONDS)
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all it started, politely first."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    for sent, patience in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 10.0)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, sent)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            return


def _environment(run_dir: Path, folder: str) -> dict[str, str]:
    """The stage's environment: quiet tokenizers, and no look at the hub where the model is at hand."""
    config = stages.read_stage(run_dir / folder)
    environment = {
        **os.environ,
        "ADVISOR_SUPERVISED": "1",
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONWARNINGS": os.environ.get("PYTHONWARNINGS", "ignore"),
    }
    for name, value in stages.STAGE_THREADS.items():
        environment.setdefault(name, value)
    if (run_dir / config.base_model).is_dir():
        environment.setdefault("HF_HUB_OFFLINE", "1")
    return environment


def _set_aside(folder: Path, identity: str) -> None:
    """Keep what a stage of another identity left in `previous/`, so that this one starts clean."""
    mark = folder / IDENTITY
    old = mark.read_text() if mark.exists() else None
    if old is None:
        result = stages.read_result(folder)
        old = result.identity if result else None
    if old is not None and old != identity:
        place = folder / "previous" / (old[:12] or "unknown")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        for name in KEPT:
            if (folder / name).exists():
                shutil.move(str(folder / name), place / name)
        if (folder / STARTED_WITH).exists():
            shutil.move(str(folder / STARTED_WITH), place / stages.CONFIG)
        for checkpoint in folder.glob("checkpoint-*"):
            shutil.rmtree(checkpoint, ignore_errors=True)
    mark.write_text(identity)
    shutil.copyfile(folder / stages.CONFIG, folder / STARTED_WITH)


def _failure(folder: Path, code: int) -> str:
    """Why a stage ended without a result: its own sentence, or how it died, and the end of its log."""
    lines = (
        (folder / stages.LOG).read_text(errors="replace").splitlines()
        if (folder / stages.LOG).exists()
        else []
    )
    told = [line for line in lines if line.startswith("error: ")]
    if code > 0 and told:
        message = told[-1].removeprefix("error: ")
        return message if code == 1 else f"{message}\nIts log: {folder / stages.LOG}"
    if code == -signal.SIGKILL:
        cause = "it was killed (SIGKILL: out of memory, or kill -9)"
    elif code < 0:
        cause = f"it was ended by signal {signal.Signals(-code).name}"
    elif code == 0:
        cause = f"it ended without writing {stages.DONE}"
    else:
        cause = lines[-1].strip() if lines else f"exit code {code}"
    tail = "\n".join(f"  {line}" for line in lines[-LOG_TAIL:])
    return f"{cause}\nThe end of {folder / stages.LOG}:\n{tail}"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextlib.contextmanager
def _locked(run_dir: Path) -> Iterator[None]:
    """Hold the folder's lock, so that two runs cannot train into the same files."""
    try:
        opened = (run_dir / ".lock").open("w")
    except OSError as error:
        raise BadInput(
            f"{run_dir} cannot be written to ({error.strerror}); a run writes into its folder"
        ) from None
    with opened as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInput(
                f"{run_dir} is being run by another process; wait for it, or end it first"
            ) from None
        yield


@contextlib.contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C, so that a job system's end is clean too."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    try:
        old = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)

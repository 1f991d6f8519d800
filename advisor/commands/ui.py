"""`advisor ui`: MLflow's page on the tracking store, on loopback."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import typer

from advisor.commands import new_app
from estimators.errors import BadInput

app = new_app()
START_SECONDS = 90


@app.command()
def ui(
    folder: Path | None = typer.Argument(None, help="A run folder: open its store and its run."),
    port: int = typer.Option(5000, help="Port on 127.0.0.1; a free one is taken where it is busy."),
) -> None:
    """Open MLflow's page on the tracking store, on loopback only. Ctrl-C ends it."""
    from pipelines.runs import check_run_dir, read_tracking
    from pipelines.tracking import check_mlflow, default_uri

    check_mlflow()
    tracking = read_tracking(check_run_dir(folder)) if folder is not None else None
    uri = tracking.uri if tracking is not None else default_uri()
    if uri.startswith("http"):
        typer.echo(f"The tracking store is a server: {uri}")
        return
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).exists():
        raise BadInput(f"there is no tracking store at {uri} yet; run something first: advisor quickstart")
    port = _free_port(port)
    process = _start(uri, port)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        _wait(process, port)
        typer.echo(f"MLflow's page: {run_page(port, tracking)}")
        typer.echo("Ctrl-C ends it.", err=True)
        process.wait()
    except KeyboardInterrupt:
        typer.echo("\nMLflow's page is closed.", err=True)
    finally:
        _end(process)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the server with its workers, which a signal to it alone would leave behind."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sent)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
            if sent == signal.SIGKILL:
                return


def run_page(port: int, tracking: object) -> str:
    """The address of a run, or of the experiment's list of runs: MLflow's first page shows neither."""
    base = f"http://127.0.0.1:{port}/"
    experiment = getattr(tracking, "experiment_id", None)
    if experiment is None:
        return base
    parent = getattr(tracking, "parent_run_id", None)
    return f"{base}#/experiments/{experiment}/runs" + (f"/{parent}" if parent else "")


def _start(uri: str, port: int) -> subprocess.Popen[bytes]:
    """MLflow's server with one worker and no job runner: a fourth of its usual memory and start time."""
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", uri]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    environment = {
        **os.environ,
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    """Until the page answers."""
    for _ in range(START_SECONDS * 5):
        if process.poll() is not None:
            raise BadInput(f"MLflow's server ended with code {process.returncode}; try another --port")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise BadInput(f"MLflow's server did not answer on port {port} within {START_SECONDS} s")


def _free_port(wanted: int) -> int:
    """`wanted`, or a free port where it is taken."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                return int(probe.getsockname()[1])
            except OSError:
                continue
    raise BadInput("no free port on 127.0.0.1")

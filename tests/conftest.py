"""A tiny model and task for tests that train for real on the CPU."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"


@pytest.fixture(scope="session")
def make_task():
    """The quickstart's module that makes its model and data."""
    return importlib.import_module("templates.quickstart.make_task")


@pytest.fixture(scope="session")
def task(tmp_path_factory) -> Path:
    """base-model/, demonstrations.jsonl, prompts.jsonl and eval.jsonl of the quickstart, seed 0."""
    folder = tmp_path_factory.mktemp("task")
    script = ROOT / "templates" / "quickstart" / "make_task.py"
    subprocess.run([sys.executable, str(script), str(folder), "0"], check=True, capture_output=True)
    return folder


@pytest.fixture
def advisor(tmp_path):
    """Runs `advisor ARGS` as a real process in tmp_path, off a terminal."""

    def run(*args: object, check: int | None = 0, timeout: float = 300, **env: str):
        done = subprocess.run(
            [sys.executable, "-m", "advisor", *map(str, args)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert "Traceback" not in done.stderr, done.stderr
        if check is not None:
            assert done.returncode == check, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run

"""A tiny model and task for tests that train for real on the CPU."""

import functools
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.small import plan_small, run_advisor

ROOT = Path(__file__).parent.parent
os.environ.setdefault("GOMP_SPINCOUNT", "20000")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that no worker waits for them at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


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
    return functools.partial(run_advisor, tmp_path)


@pytest.fixture
def small_run(tmp_path, task) -> Path:
    """Plans a small SFT → DAPO run in tmp_path/run; returns the folder."""
    return plan_small(tmp_path, task, ("sft", "dapo"))


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory, task) -> Path:
    """A small SFT → DAPO run that has finished, with its MLflow store beside it; not to be changed."""
    folder = tmp_path_factory.mktemp("finished")
    run = plan_small(folder, task, ("sft", "dapo"))
    run_advisor(folder, "run", "run")
    return run

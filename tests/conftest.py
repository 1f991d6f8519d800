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


SMALL = {
    "sft.max_steps": 4,
    "sft.per_device_train_batch_size": 8,
    "sft.max_length": 48,
    "sft.save_steps": 2,
    "sft.learning_rate": 1e-3,
    "dpo.max_steps": 3,
    "dpo.per_device_train_batch_size": 4,
    "dpo.save_steps": 2,
    "dapo.max_steps": 6,
    "dapo.per_device_train_batch_size": 16,
    "dapo.num_generations": 4,
    "dapo.max_completion_length": 8,
    "dapo.save_steps": 1,
    "dapo.logging_steps": 1,
    "dapo.max_rounds": 2,
    "dapo.eval_prompts": 8,
    "dapo.eval_samples": 2,
}
"""Settings with which a pipeline trains for real within seconds."""

ANY_DIGIT = """
def any_digit(completions, answer, **kwargs):
    return [1.0 if any(c.isdigit() for c in text[:2]) else 0.0 for text in completions]
"""
"""A reward that random weights earn now and then, so that groups have signal."""


def small_settings(methods: tuple[str, ...]) -> list[str]:
    """`--set` options of SMALL for the methods of a pipeline."""
    return [o for k, v in SMALL.items() if k.split(".")[0] in methods for o in ("--set", f"{k}={v}")]


@pytest.fixture
def small_run(tmp_path, task, advisor):
    """Plans a small SFT → DAPO run in tmp_path/run; returns the folder."""
    return plan_small(tmp_path, task, advisor, ("sft", "dapo"), pairs=False)


def plan_small(tmp_path, task, advisor, methods, pairs, **answers) -> Path:
    """answers.yaml for the tiny task, planned with `advisor plan`."""
    (tmp_path / "reward.py").write_text(ANY_DIGIT)
    data = {k: str(task / f"{k}.jsonl") for k in ("demonstrations", "prompts", "eval")}
    if pairs:
        rows = [f'{{"prompt": "{i:02d}+11=", "chosen": "#{i + 11}", "rejected": "#{i}"}}' for i in range(40)]
        (tmp_path / "pairs.jsonl").write_text("\n".join(rows) + "\n")
        data["preferences"] = "pairs.jsonl"
    given = {
        "verifiable": "yes",
        "preference_pairs": "yes" if pairs else "no",
        "long_cot": "yes",
        "limited_compute": "no",
        "base_capable": "no",
        "large_scale": "no",
        "task": "math",
        "model": str(task / "base-model"),
        "reward": "reward.py:any_digit",
        "tuning": "full",
        **answers,
    }
    lines = [f"{key}: {value}" for key, value in given.items()]
    lines += ["data:", *(f"  {key}: {value}" for key, value in data.items())]
    (tmp_path / "answers.yaml").write_text("\n".join(lines) + "\n")
    advisor("plan", "answers.yaml", "-o", "run", *small_settings(methods))
    return tmp_path / "run"

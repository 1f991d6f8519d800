"""A small pipeline that trains for real within seconds, and `advisor` as a process."""

import os
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent

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
    "grpo.max_steps": 2,
    "grpo.per_device_train_batch_size": 16,
    "grpo.num_generations": 4,
    "grpo.max_completion_length": 8,
    "grpo.eval_prompts": 8,
    "grpo.eval_samples": 2,
}
"""Settings with which a pipeline trains for real within seconds."""

ANY_DIGIT = """
def any_digit(completions, answer, **kwargs):
    return [1.0 if any(c.isdigit() for c in text[:2]) else 0.0 for text in completions]
"""
"""A reward that random weights earn now and then, so that groups have signal."""


def write_answers(folder: Path, gpu: str, **changes: object) -> Path:
    """answers.yaml of SFT → DAPO on sums, with its data beside it; a change to None leaves a key out."""
    (folder / "demos.jsonl").write_text(
        "".join(f'{{"prompt": "What is {i}+1?", "completion": "{i + 1}"}}\n' for i in range(40))
    )
    (folder / "prompts.jsonl").write_text(
        "".join(f'{{"prompt": "What is {i}+2?", "answer": "{i + 2}"}}\n' for i in range(60))
    )
    given = {
        "verifiable": "yes",
        "preference_pairs": "no",
        "long_cot": "no",
        "limited_compute": "no",
        "base_capable": "no",
        "large_scale": "no",
        "task": "math",
        "data": {"demonstrations": "demos.jsonl", "prompts": "prompts.jsonl"},
        "hardware": {"gpu": gpu, "count": 1},
        **changes,
    }
    path = folder / "answers.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in given.items() if value is not None}))
    return path


def small_settings(methods: tuple[str, ...]) -> list[str]:
    """`--set` options of SMALL for the methods of a pipeline."""
    return [o for k, v in SMALL.items() if k.split(".")[0] in methods for o in ("--set", f"{k}={v}")]


def run_advisor(folder: Path, *args: object, check: int | None = 0, timeout: float = 600, **env: str):
    """`advisor ARGS` as a real process in `folder`, off a terminal; never with a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "advisor", *map(str, args)],
        cwd=folder,
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


def plan_small(
    folder: Path,
    task: Path,
    methods: tuple[str, ...],
    pairs: bool = False,
    answers: dict[str, str] | None = None,
) -> Path:
    """answers.yaml for the tiny task in `folder`, planned with `advisor plan`; returns the run folder."""
    (folder / "reward.py").write_text(ANY_DIGIT)
    data = {k: str(task / f"{k}.jsonl") for k in ("demonstrations", "prompts", "eval")}
    if pairs:
        rows = [f'{{"prompt": "{i:02d}+11=", "chosen": "#{i + 11}", "rejected": "#{i}"}}' for i in range(40)]
        (folder / "pairs.jsonl").write_text("\n".join(rows) + "\n")
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
        **(answers or {}),
    }
    lines = [f"{key}: {value}" for key, value in given.items()]
    lines += ["data:", *(f"  {key}: {value}" for key, value in data.items())]
    (folder / "answers.yaml").write_text("\n".join(lines) + "\n")
    run_advisor(folder, "plan", "answers.yaml", "-o", "run", *small_settings(methods))
    return folder / "run"

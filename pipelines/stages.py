"""What one stage of a pipeline is: the record in its config.yaml, its identity, its completion mark."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from estimators.errors import BadInput
from estimators.record import Record, read_record, read_text, validate, write_json

Tuning = Literal["full", "lora", "qlora"]
CONFIG = "config.yaml"
SCRIPT = "train.py"
DONE = "done.json"
LOG = "log.txt"
EVENTS = "events.jsonl"
MODEL = "model"
STAGE_THREADS = {"GOMP_SPINCOUNT": "20000"}
"""Environment of every process that trains on a CPU.

Threads that spin at a barrier without end slow it ten times once anything else wants a core; threads that
never spin make it as slow as one thread. Some microseconds of spinning do neither.
"""
SAMPLED_BYTES = 4 << 20
PROBE = "probe"
"""The method of a stage that trains nothing."""


class Lora(Record):
    """A low-rank adapter (arXiv:2106.09685)."""

    r: Annotated[int, Field(ge=1)] = 16
    alpha: Annotated[int, Field(ge=1)] = 32
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    targets: str | tuple[str, ...] = "all-linear"


class DynamicSampling(Record):
    """Bounds on how long DAPO samples until its batch is full of groups with signal."""

    max_rounds: Annotated[int, Field(ge=1)] = 10
    """Rounds of rollouts per batch at most; the authors' recipe uses 10. Then it trains on what there is."""


class Overlong(Record):
    """Soft overlong punishment (DAPO, arXiv:2503.14476, eq. 13), a shaping reward beside the task's."""

    cache: Annotated[int, Field(ge=1)]
    """The last so many tokens before `max_completion_length` are punished, linearly from 0 to -1."""
    weight: Annotated[float, Field(ge=0)] = 1.0


class Evaluation(Record):
    """Sampling on held-out prompts, scored with the task's own reward."""

    prompts: Annotated[int, Field(ge=1)] = 200
    samples: Annotated[int, Field(ge=1)] = 4
    """Completions per prompt: the k of pass@k."""
    max_new_tokens: Annotated[int, Field(ge=1)] = 512
    temperature: Annotated[float, Field(gt=0)] = 1.0
    batch_size: Annotated[int, Field(ge=1)] = 32
    """Completions generated at once."""


class StageData(Record):
    """Files of one stage, relative to the run folder. All are JSONL in TRL's columns."""

    train: str | None = None
    eval: str | None = None
    """Held-out rows in the training format: a loss, or the share of pairs ranked right."""
    prompts: str | None = None
    """Held-out prompts for the task's reward."""


class StageConfig(Record):
    """Everything that one stage process reads. Paths are relative to the run folder."""

    method: str
    base_model: str
    """The model that the whole pipeline starts from: a hub id or a folder."""
    start_from: str | None = None
    """The previous stage's model; None where this stage starts from `base_model`."""
    tuning: Tuning = "full"
    lora: Lora | None = None
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of the weights as loaded; adapters are always kept in float32."""
    data: StageData = StageData()
    reward: str | None = None
    """The task's reward: a built-in name, `file.py:function`, or `reasoning_gym:NAME`."""
    overlong: Overlong | None = None
    dynamic_sampling: DynamicSampling | None = None
    evaluation: Evaluation | None = None
    trainer: dict[str, Any] = {}
    """Fields of the trainer's own config class in TRL, by TRL's names."""
    seed: int = 0


class Interval(Record):
    """A share with its 95 % interval."""

    value: float
    low: float
    high: float


class PassRates(Record):
    """How often sampled completions were right on held-out prompts."""

    prompts: int
    samples: int
    pass_at_1: Interval
    pass_at_k: Interval
    all_right: float
    """Share of prompts with every completion right."""
    all_wrong: float
    truncated: float
    """Share of completions that met the length limit before an end token."""
    mean_tokens: float
    unscored: int = 0
    """Completions whose reward was None (an unusable gold)."""


class StageResult(Record):
    """done.json: written last, so that a stage with it is finished, and one without is not."""

    identity: str
    method: str
    steps: int
    seconds: dict[str, float]
    """Wall time by phase: start (imports, loading), train, evaluate, save, and earlier attempts."""
    peak_memory_bytes: int
    memory_kind: Literal["device", "process"]
    """Device: reserved by the GPU allocator. Process: resident set of a CPU run."""
    num_parameters: int
    num_trainable_parameters: int
    pass_rates: PassRates | None = None
    metrics: dict[str, float] = {}
    """Last value of each held-out metric."""
    note: str | None = None
    versions: dict[str, str] = {}


def read_stage(folder: Path) -> StageConfig:
    """The config of a stage folder."""
    return read_record(StageConfig, folder / CONFIG)


def read_result(folder: Path) -> StageResult | None:
    """The result of a finished stage, or None where it is not finished or its model is gone."""
    path = folder / DONE
    if not path.exists() or not _has_model(folder):
        return None
    try:
        return validate(StageResult, json.loads(read_text(path)), str(path))
    except json.JSONDecodeError:
        return None


def _has_model(folder: Path) -> bool:
    """Whether a stage's model is there; a probe makes none."""
    if read_stage(folder).method == PROBE:
        return True
    return any((folder / MODEL / name).exists() for name in ("config.json", "adapter_config.json"))


def write_result(folder: Path, result: StageResult) -> None:
    """Mark a stage as finished."""
    write_json(folder / DONE, result)


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from None


def _weights_digest(folder: Path) -> dict[str, str]:
    """What tells a local model from another: its config, and of each file of weights the size and the start.

    Hashing all of them would take minutes on a model of many gigabytes, at every call.
    """
    digests: dict[str, str] = {}
    if (folder / "config.json").exists():
        digests["config.json"] = file_digest(folder / "config.json")
        for path in sorted(folder.glob("*.safetensors")):
            with path.open("rb") as file:
                start = hashlib.sha256(file.read(SAMPLED_BYTES)).hexdigest()
            digests[path.name] = f"{path.stat().st_size}/{start}"
    return digests


def stage_identity(run_dir: Path, folder: str) -> str:
    """What a stage is: its resolved config, its script, the content of its files, and its parent's identity.

    Two folders with the same identity would train the same model; a change to any part makes another one,
    and so does a change to a stage before it.
    """
    config = read_stage(run_dir / folder)
    script = run_dir / folder / SCRIPT
    files = [name for name in (config.data.train, config.data.eval, config.data.prompts) if name is not None]
    if config.reward is not None and ".py:" in config.reward:
        files.append(config.reward.rsplit(":", 1)[0])
    parts: dict[str, Any] = {
        "config": config.model_dump(mode="json"),
        "script": file_digest(script) if script.exists() else None,
        "files": {name: file_digest(run_dir / name) for name in files if (run_dir / name).exists()},
        "base": _weights_digest(run_dir / config.base_model),
        "parent": stage_identity(run_dir, str(Path(config.start_from).parent)) if config.start_from else None,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

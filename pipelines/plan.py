"""plan.yaml: the stages of a run folder with what each needs, and how it is written for people to read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from estimators.record import Record, read_record, write_atomic
from pipelines.methods import Setting
from pipelines.runs import PLAN

STAGE_FIELDS = (
    "tuning",
    "lora_r",
    "lora_alpha",
    "lora_dropout",
    "lora_targets",
    "dtype",
    "overlong_cache",
    "max_rounds",
    "eval_prompts",
    "eval_samples",
    "eval_temperature",
    "effective_batch",
)
"""What `--set METHOD.FIELD=VALUE` takes beside the trainer's own arguments."""


class PlanRequest(Record):
    """What a plan is made from."""

    pipeline: tuple[str, ...]
    model: str
    data: dict[str, str]
    """Kind of data -> file, folder or hub id."""
    eval: str | None = None
    reward: str | None = None
    task: str | None = None
    tuning: str = "auto"
    economy: bool = False
    """RL with an adapter and `num_generations` 4."""
    long_cot: bool = False
    limited_compute: bool = False
    max_gpu_hours: float | None = None
    max_usd: float | None = None
    seed: int = 0
    repeat_with: str | None = None
    settings: dict[str, dict[str, Setting]] = {}
    """Method -> argument -> a value that the user set, and why."""


class PlannedStage(Record):
    """One stage, its size against what is free, and what was given up to make it fit."""

    folder: str
    method: str
    tuning: str
    steps: int
    memory_low_gib: float
    memory_gib: float
    memory_high_gib: float
    free_gib: float
    verdict: Literal["fits", "tight", "does-not-fit"]
    hours_low: float
    hours_high: float
    usd_low: float | None = None
    usd_high: float | None = None
    changes: tuple[str, ...] = ()
    shortfall: tuple[str, ...] | None = None
    """Where it does not fit: by how much, and the cheapest changes."""


class Plan(Record):
    """plan.yaml. The settings of each stage are in its own config.yaml."""

    name: str
    pipeline: tuple[str, ...]
    model: str
    tuning: str
    hardware: str
    seed: int
    repeat_with: str | None = None
    """The command that makes the same plan in another folder."""
    stages: tuple[PlannedStage, ...]
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The worst of the stages'."""
        order = ("fits", "tight", "does-not-fit")
        return max((stage.verdict for stage in self.stages), key=order.index)

    @property
    def hours(self) -> tuple[float, float]:
        """Low and high, over all stages."""
        return sum(s.hours_low for s in self.stages), sum(s.hours_high for s in self.stages)

    @property
    def usd(self) -> tuple[float, float] | None:
        """Low and high, over all stages; None where no price is known."""
        low = [s.usd_low for s in self.stages if s.usd_low is not None]
        high = [s.usd_high for s in self.stages if s.usd_high is not None]
        return (sum(low), sum(high)) if low and high else None


def read_plan(run_dir: Path) -> Plan:
    """The plan of a run folder."""
    return read_record(Plan, run_dir / PLAN)


def write_plan(run_dir: Path, plan: Plan) -> None:
    """Write plan.yaml."""
    head = "# What will be run, in order, and what it needs. Settings are in each stage's config.yaml.\n"
    write_atomic(run_dir / PLAN, head + render(plan.model_dump(mode="json", exclude_none=True), {}))


def render(data: Mapping[str, Any], why: Mapping[str, str], indent: str = "", prefix: str = "") -> str:
    """YAML with one line per value, and behind it the reason under the key's dotted path in `why`."""
    lines = ""
    for key, value in data.items():
        path = f"{prefix}{key}"
        comment = f"  # {why[path]}" if path in why else ""
        if isinstance(value, Mapping) and value:
            lines += f"{indent}{key}:{comment}\n{render(value, why, indent + '  ', path + '.')}"
        elif isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping):
            lines += f"{indent}{key}:{comment}\n"
            for item in value:
                body = render(item, why, indent + "    ", path + ".")
                lines += f"{indent}  - {body.lstrip()}"
        elif isinstance(value, (list, tuple)) and any(len(str(item)) > 30 for item in value):
            lines += f"{indent}{key}:{comment}\n"
            lines += "".join(f"{indent}  - {_scalar(item)}\n" for item in value)
        else:
            lines += f"{indent}{key}: {_scalar(value)}{comment}\n"
    return lines


def _scalar(value: Any) -> str:
    """A value on one line of YAML."""
    if isinstance(value, float):
        text = f"{value:.6g}"
        if "e" in text and "." not in text:  # YAML 1.1 reads 1e-05 as a string
            mantissa, exponent = text.split("e")
            text = f"{mantissa}.0e{exponent}"
        return text if any(c in text for c in ".en") else f"{text}.0"
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**9)
    return text.removesuffix("\n").removesuffix("\n...").strip()

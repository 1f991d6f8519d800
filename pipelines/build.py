"""From a recipe, a model, data and hardware to a run folder: its data, its stage folders and plan.yaml."""

from __future__ import annotations

import json
import shutil
from importlib import resources
from pathlib import Path

from estimators.errors import BadInput
from estimators.hardware import Hardware
from estimators.record import unknown, write_atomic
from pipelines import stages
from pipelines.configure import size_and_configure
from pipelines.methods import METHODS, Method
from pipelines.methods.fields import check_field
from pipelines.plan import STAGE_FIELDS, Plan, PlanRequest, render, write_plan
from pipelines.prepare import PreparedData, prepare_data
from pipelines.rewards import load_reward, required_columns
from pipelines.runs import PLAN
from pipelines.stages import StageConfig


def build_run(request: PlanRequest, hardware: Hardware, run_dir: Path, force: bool = False) -> Plan:
    """Size every stage, write the data, the stage folders and plan.yaml, and return the plan.

    Raises: BadInput for what the user can mend; DoesNotFit where no change makes it fit, unless `force`.
    Nothing is written to an existing run folder that has a plan.
    """
    if (run_dir / PLAN).exists():
        raise BadInput(
            f"{run_dir} already holds a plan; run it with: advisor run {run_dir}, or name another folder"
        )
    methods = [_method(name) for name in request.pipeline]
    _check_settings(request, methods)
    sources = _sources(request, methods)
    reward = _reward(request, methods)
    base_model = _base_model(request.model, run_dir)
    fresh = not run_dir.exists()
    try:
        # prompts that no stage trains on still show what the training did, where there is a reward
        held_out = request.eval or (None if "prompts" in sources else request.data.get("prompts"))
        data = prepare_data(run_dir, request.model, sources, held_out, reward is not None, request.seed)
        reward = _check_reward(reward, data, run_dir)
        plan, configs = size_and_configure(
            request, methods, data, reward, base_model, hardware, run_dir, force
        )
        for folder, (config, why) in configs.items():
            _write_stage(run_dir / folder, config, why)
        write_plan(run_dir, plan)
        return plan
    except BaseException:
        if fresh:  # a plan that failed leaves nothing behind
            shutil.rmtree(run_dir, ignore_errors=True)
        raise


# What the user gave -----------------------------------------------------------------------------------


def _method(name: str) -> Method:
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


def _check_settings(request: PlanRequest, methods: list[Method]) -> None:
    """BadInput for a setting of a stage that is not there, or of an argument that does not exist."""
    for name, settings in request.settings.items():
        method = next((m for m in methods if m.name == name), None)
        if method is None:
            raise BadInput(
                f"--set {name}.…: this pipeline has no {name} stage; it has {', '.join(request.pipeline)}"
            )
        for field in settings:
            if field not in STAGE_FIELDS:
                check_field(method.script, field)


def _sources(request: PlanRequest, methods: list[Method]) -> dict[str, str]:
    """Kind of data -> source, for the kinds that the pipeline needs."""
    sources: dict[str, str] = {}
    for method in methods:
        if method.data not in request.data:
            raise BadInput(
                f"{method.title} needs data.{method.data} in the answers: a file, a folder or a hub id"
                + (
                    "; or answer base_capable: yes, where the model already solves some prompts"
                    if method.name == "sft" and len(methods) > 1
                    else ""
                )
            )
        sources[method.data] = request.data[method.data]
    return sources


def _reward(request: PlanRequest, methods: list[Method]) -> str | None:
    """The task's reward: what the user named, or the built-in one for the task."""
    if request.reward is not None:
        return request.reward
    by_task = {"math": "math", "code": "code", "extraction": "json_schema", "tool-calling": "tool_call"}
    found = by_task.get(request.task or "")
    if found is None and any(method.is_rl for method in methods):
        return ""  # decided by the data's gold column
    return found


def _check_reward(reward: str | None, data: PreparedData, run_dir: Path) -> str | None:
    """The reward's name with its file made absolute; BadInput where it does not fit the data."""
    prompts = data.files.get("prompts")
    if reward == "":
        by_gold = {"answer": "math", "tests": "code", "schema": "json_schema", "tool_calls": "tool_call"}
        reward = by_gold.get(prompts.gold or "") if prompts else None
        if reward is None:
            raise BadInput(
                "RL needs a reward: set `reward` in the answers to a built-in name or to file.py:function"
            )
    if reward is None or data.eval_prompts is None:
        return reward
    if ".py:" in reward:
        path, name = reward.rsplit(":", 1)
        reward = f"{_portable(Path(path), run_dir)}:{name}"
    function = load_reward(reward, run_dir)
    with (run_dir / data.eval_prompts).open(encoding="utf-8") as file:
        row = json.loads(file.readline())
    missing = [column for column in required_columns(function) if column not in row]
    if missing:
        raise BadInput(
            f"the reward {reward} reads the column {', '.join(missing)}, which the prompts do not have; "
            f"they have {', '.join(row)}"
        )
    return reward


def _base_model(model: str, run_dir: Path) -> str:
    """A hub id as it is; a folder relative to the run folder where it lies inside, absolute elsewhere."""
    path = Path(model)
    if not path.exists():
        if model.startswith((".", "/", "~")) or model.count("/") != 1:
            raise BadInput(f"the model {model} is neither a folder here nor a hub id like Qwen/Qwen3-0.6B")
        return model
    if path.is_file() or not (path / "config.json").exists():
        raise BadInput(f"{model} has no config.json, so it is no model folder")
    return _portable(path, run_dir)


def _portable(path: Path, run_dir: Path) -> str:
    """A path relative to the run folder where it lies inside, absolute elsewhere."""
    path, run_dir = path.resolve(), run_dir.resolve()
    return str(path.relative_to(run_dir) if path.is_relative_to(run_dir) else path)


# What is written --------------------------------------------------------------------------------


def _write_stage(folder: Path, config: StageConfig, why: dict[str, str]) -> None:
    """The stage's config.yaml with reasons, and its script."""
    data = config.model_dump(mode="json", exclude_defaults=True)
    if config.dynamic_sampling is not None:
        data["dynamic_sampling"] = config.dynamic_sampling.model_dump()
    head = f"# {METHODS[config.method].title if config.method in METHODS else 'Probe'}. "
    head += "Yours to change: the stage and those after it then run again.\n"
    write_atomic(folder / stages.CONFIG, head + render(data, why))
    script = METHODS[config.method].script if config.method in METHODS else "probe.py"
    text = resources.files("templates.stages").joinpath(script).read_text(encoding="utf-8")
    write_atomic(folder / stages.SCRIPT, text)

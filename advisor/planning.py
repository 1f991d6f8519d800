"""From answers to a run folder: what the recommendation says, on the hardware and data that are there."""

from __future__ import annotations

import contextlib
import json
import shlex
from pathlib import Path

from advisor.answers import Answers, write_answers
from advisor.recommend import Recommendation, recommend
from estimators.errors import BadInput
from estimators.hardware import Hardware, hardware_from_name, read_hardware
from estimators.record import write_json
from pipelines.build import build_run
from pipelines.methods import Setting
from pipelines.plan import Plan, PlanRequest
from pipelines.runs import ANSWERS, RECOMMENDATION


def hardware_for(answers: Answers) -> Hardware:
    """The machine at hand, or the hardware that the answers name."""
    if answers.hardware == "auto":
        return read_hardware()
    asked = answers.hardware
    return hardware_from_name(asked.gpu, asked.count, asked.nodes)


def make_plan(
    answers: Answers,
    out: Path,
    hardware: Hardware | None = None,
    settings: dict[str, dict[str, Setting]] | None = None,
    force: bool = False,
    repeat_with: str | None = None,
) -> Plan:
    """Recommend, size and write the run folder `out`.

    `repeat_with` is the command that does this again, for the report; None builds it from the settings.
    Raises: BadInput where an answer is missing or does not fit the data; DoesNotFit unless `force`.
    """
    recommendation = recommend(answers)
    request = _request(answers, recommendation, settings or {})
    request = request.model_copy(update={"repeat_with": repeat_with or _repeat_with(out, settings or {})})
    plan = build_run(request, hardware or hardware_for(answers), out, force)
    write_answers(answers, out / ANSWERS)
    write_json(out / RECOMMENDATION, recommendation)
    return plan


def _request(
    answers: Answers, recommendation: Recommendation, settings: dict[str, dict[str, Setting]]
) -> PlanRequest:
    """What the builder needs, in training words."""
    if answers.model is None:
        raise BadInput(
            "the answers name no model; add `model:` with a hub id such as Qwen/Qwen3-0.6B, or a folder"
        )
    data = answers.data
    sources = {
        "demonstrations": data.demonstrations,
        "preferences": data.preferences,
        "prompts": data.prompts,
    }
    return PlanRequest(
        pipeline=recommendation.pipeline,
        model=answers.model,
        data={kind: source for kind, source in sources.items() if source is not None},
        eval=data.eval,
        reward=answers.reward,
        task=answers.task,
        tuning=answers.tuning,
        economy=recommendation.economy,
        long_cot=answers.long_cot == "yes",
        limited_compute=answers.limited_compute != "no",
        max_gpu_hours=_least(answers.budget.gpu_hours, answers.budget.wall_hours),
        max_usd=answers.budget.usd,
        seed=answers.seed,
        settings=settings,
    )


def _repeat_with(out: Path, settings: dict[str, dict[str, Setting]]) -> str:
    """The `advisor plan` command for the same plan."""
    sets = [
        f"--set {shlex.quote(f'{method}.{name}={json.dumps(setting.value)}')}"
        for method, arguments in settings.items()
        for name, setting in arguments.items()
    ]
    return " ".join([f"advisor plan {shlex.quote(str(out / ANSWERS))} -o again", *sets])


def _least(*limits: float | None) -> float | None:
    """The strictest of the limits; a stage runs on one GPU, so its hours are GPU-hours."""
    given = [limit for limit in limits if limit is not None]
    return min(given) if given else None


def parse_settings(pairs: list[str]) -> dict[str, dict[str, Setting]]:
    """`METHOD.FIELD=VALUE` as settings; the value is read as YAML."""
    import yaml

    settings: dict[str, dict[str, Setting]] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        method, dot, field = name.partition(".")
        if not (equals and dot and method and field):
            raise BadInput(f'--set takes METHOD.FIELD=VALUE, such as dapo.learning_rate=1e-6, not "{pair}"')
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            raise BadInput(f'--set {name}: "{text}" is no value') from None
        if isinstance(value, str):  # YAML 1.1 reads 1e-6 as text
            with contextlib.suppress(ValueError):
                value = float(value)
        settings.setdefault(method, {})[field] = Setting(value=value, why="set by the user")
    return settings

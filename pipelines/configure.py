"""The settings of every stage and its size: what a method asks for, made to fit hardware and budget."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

from estimators.errors import BadInput, DoesNotFit
from estimators.hardware import Hardware
from estimators.optimizers import find_optimizer
from estimators.record import Record
from estimators.units import GIB, gib
from pipelines import stages
from pipelines.methods import Method, Setting
from pipelines.plan import STAGE_FIELDS, Plan, PlannedStage, PlanRequest
from pipelines.prepare import PreparedData, PreparedFile
from pipelines.sizing import (
    Change,
    FitResult,
    StageRequest,
    StageSize,
    calibrated_speed,
    fit_stage,
    shortfall,
    size_stage,
)
from pipelines.sizing_ladder import tuning_costs
from pipelines.sizing_request import command, signal_share
from pipelines.stages import (
    PROBE,
    DynamicSampling,
    Evaluation,
    Lora,
    Overlong,
    StageConfig,
    StageData,
    Tuning,
)
from pipelines.token_counts import context_length

EVAL_COMPLETIONS_AT_ONCE = 256
CHECKPOINTS_PER_STAGE = 10
LOG_POINTS_PER_STAGE = 50
MIN_STEPS = 10
MAX_TOKENS = {"math": 1024, "code": 1024}
DEFAULT_TOKENS = 512
LONG_COT_TOKENS = 4096

SIZED = {
    "tuning": "tuning",
    "dtype": "weights_dtype",
    "optim": "optimizer",
    "per_device_train_batch_size": "micro_batch",
    "gradient_accumulation_steps": "gradient_accumulation",
    "steps_per_generation": "steps_per_generation",
    "num_generations": "num_generations",
    "max_length": "max_length",
    "max_completion_length": "max_completion_length",
    "gradient_checkpointing": "gradient_checkpointing",
    "precompute_ref_log_probs": "reference",
    "use_vllm": "rollouts",
    "vllm_gpu_memory_utilization": "vllm_memory_utilization",
    "vllm_enable_sleep_mode": "vllm_enable_sleep_mode",
}
"""Settings of a stage that its size follows: what the user set of them stays as it is."""
DTYPES: dict[str, Literal["fp32", "bf16", "fp16"]] = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
}


def one_device(hardware: Hardware) -> tuple[Hardware, str | None]:
    """What a stage process uses: one GPU, the one with most free memory; and a note where there are more."""
    if len(hardware.devices) <= 1 and hardware.nodes == 1:
        return hardware, None
    best = max(hardware.devices, key=lambda device: device.free_bytes)
    total = len(hardware.devices) * hardware.nodes
    return (
        hardware.model_copy(update={"devices": (best,), "nodes": 1}),
        f"{total} GPUs are there; a stage trains on one (GPU {best.index}, with most free memory)",
    )


class _Stage(Record):
    """A stage on its way from a method to a config."""

    method: Method
    request: StageRequest
    effective_batch: int
    user: dict[str, Setting]

    @property
    def tuning(self) -> Tuning:
        return self.request.tuning


def size_and_configure(
    request: PlanRequest,
    methods: list[Method],
    data: PreparedData,
    reward: str | None,
    base_model: str,
    hardware: Hardware,
    run_dir: Path,
    force: bool,
) -> tuple[Plan, dict[str, tuple[StageConfig, dict[str, str]]]]:
    """The plan, and per stage folder its config with the reason for each setting."""
    hardware, note = one_device(hardware)
    notes = [*([note] if note else []), *data.notes]
    evaluation = _evaluation(request, methods, data, hardware)
    drafts = [_draft(request, m, data, evaluation, hardware) for m in methods]
    fitted = _fit_all(request, drafts, data, hardware, force)
    fitted, cut = _within_budget(request, fitted, hardware)
    notes += cut
    evaluation = _fit_evaluation(evaluation, [result.request for _, result in fitted], hardware)
    planned: list[PlannedStage] = []
    configs: dict[str, tuple[StageConfig, dict[str, str]]] = {}
    probe = evaluation is not None and reward is not None and data.eval_prompts is not None
    first = 0 if probe else 1
    if probe and evaluation is not None:
        config = StageConfig(
            method=PROBE,
            base_model=base_model,
            tuning="qlora" if all(r.request.tuning == "qlora" for _, r in fitted) else "full",
            dtype=_dtype(fitted[0][1].request, hardware),
            data=StageData(prompts=data.eval_prompts),
            reward=reward,
            evaluation=evaluation,
            seed=request.seed,
        )
        configs["00-probe"] = (
            config,
            {"method": "pass@k of the base model on held-out prompts, before any training"},
        )
        asked = _probe_request([r.request for _, r in fitted], evaluation, hardware)
        size = _size(asked, hardware)
        if size.verdict == "does-not-fit" and not force:
            raise DoesNotFit(
                f"on {size.device}, sampling held-out prompts from {request.model} one at a time needs "
                f"{gib(size.peak_bytes)}; {gib(size.available_bytes)} is free; leave `eval` and `reward` "
                "out, or take a smaller model"
            )
        planned.append(
            PlannedStage(
                folder="00-probe",
                method=PROBE,
                tuning="none",
                steps=0,
                estimate=_command(asked, size),
                **_numbers(size),
            )
        )
    previous: str | None = None
    for number, (draft, result) in enumerate(fitted, start=first or 1):
        folder = f"{number:02d}-{draft.method.name}"
        config, why = _configure(
            request,
            draft,
            result.request,
            data,
            reward,
            evaluation if reward else None,
            base_model,
            previous,
            hardware,
        )
        configs[folder] = (config, why)
        planned.append(_planned(folder, draft, result, hardware, _kept(request, draft)))
        previous = f"{folder}/{stages.MODEL}"
    titles = " → ".join(m.title for m in methods)
    plan = Plan(
        name=f"{titles} on {Path(request.model).name}",
        pipeline=request.pipeline,
        model=base_model,
        tuning=fitted[0][0].tuning if len({d.tuning for d, _ in fitted}) == 1 else "mixed",
        hardware=hardware.message,
        seed=request.seed,
        repeat_with=request.repeat_with,
        stages=tuple(planned),
        notes=tuple(notes),
    )
    return plan, configs


def _evaluation(
    request: PlanRequest, methods: list[Method], data: PreparedData, hardware: Hardware
) -> Evaluation | None:
    """How held-out prompts are sampled: as in the RL stage, so that its gains are seen."""
    if data.eval_prompts is None:
        return None
    user = next((request.settings.get(m.name, {}) for m in methods if m.is_rl), {})
    user = {
        **{k: v for s in request.settings.values() for k, v in s.items() if k.startswith("eval_")},
        **user,
    }

    def value(name: str, default: Any) -> Any:
        return user[name].value if name in user else default

    tokens = value("max_completion_length", _completion_tokens(request))
    samples = value("eval_samples", 4)
    return Evaluation(
        prompts=min(data.num_eval_prompts, value("eval_prompts", 200)),
        samples=samples,
        max_new_tokens=tokens,
        temperature=value("eval_temperature", 1.0),
        batch_size=EVAL_COMPLETIONS_AT_ONCE if tokens <= 64 else 64 if hardware.kind == "gpu" else 16,
    )


def _fit_evaluation(
    evaluation: Evaluation | None, requests: list[StageRequest], hardware: Hardware
) -> Evaluation | None:
    """The evaluation with the completions of the RL stage as it fits, and as many at once as fit too."""
    if evaluation is None:
        return None
    lengths = [r.max_completion_length for r in requests if r.max_completion_length is not None]
    evaluation = evaluation.model_copy(update={"max_new_tokens": min([evaluation.max_new_tokens, *lengths])})
    while evaluation.batch_size > 1:
        if _size(_probe_request(requests, evaluation, hardware), hardware).verdict == "fits":
            break
        evaluation = evaluation.model_copy(update={"batch_size": evaluation.batch_size // 2})
    return evaluation


def _probe_request(requests: list[StageRequest], evaluation: Evaluation, hardware: Hardware) -> StageRequest:
    """Sampling alone, with weights as wide as the widest of the stages that are evaluated."""
    widest = min((request.tuning for request in requests), key=("full", "lora", "qlora").index)
    wide = any(_dtype(request, hardware) == "float32" for request in requests)
    return requests[0].model_copy(
        update={
            "method": PROBE,
            "tuning": widest,
            "weights_dtype": "fp32" if wide else "bf16",
            "rollouts": "hf",
            "steps": None,
            "steps_per_generation": None,
            "gradient_accumulation": 1,
            "micro_batch": evaluation.batch_size,
            "num_generations": 1,
            "max_completion_length": evaluation.max_new_tokens,
            "eval_completions": evaluation.prompts * evaluation.samples,
            "eval_tokens": evaluation.max_new_tokens,
        }
    )


def _completion_tokens(request: PlanRequest) -> int:
    """`max_completion_length` where the user did not say it."""
    return LONG_COT_TOKENS if request.long_cot else MAX_TOKENS.get(request.task or "", DEFAULT_TOKENS)


def _draft(
    request: PlanRequest,
    method: Method,
    data: PreparedData,
    evaluation: Evaluation | None,
    hardware: Hardware,
) -> _Stage:
    """The stage as one would like to run it, before it is made to fit."""
    file = data.files[method.data]
    user = request.settings.get(method.name, {})
    on_gpu = hardware.kind == "gpu"

    def value(name: str, default: Any) -> Any:
        return user[name].value if name in user else default

    group = value("num_generations", 4 if request.economy else 8)
    effective = value("effective_batch", method.effective_batch)
    if "per_device_train_batch_size" in user:
        effective = value("per_device_train_batch_size", 0) * value("gradient_accumulation_steps", 1)
    wanted = {"sft": 8, "dpo": 4}.get(method.name, 16) if on_gpu else effective
    micro = value("per_device_train_batch_size", math.gcd(min(wanted, effective), effective))
    tuning = value("tuning", request.tuning)
    if tuning == "auto":
        tuning = "lora" if request.limited_compute or (method.is_rl and request.economy) else "full"
    if method.is_rl and file.rows * group < effective and "per_device_train_batch_size" not in user:
        effective = file.rows * group  # TRL drops a batch that it cannot fill with different prompts
        wanted = wanted if on_gpu else effective
        micro = math.gcd(min(wanted, effective), effective)
    examples = effective // group if method.is_rl else effective
    passes = math.ceil(file.rows * method.epochs / examples)
    steps = value("max_steps", min(method.max_steps, max(method.min_steps, passes)))
    room = context_length(request.model) or 1_000_000
    longest = max(1, min(_completion_tokens(request), room - file.max_prompt_tokens))
    completion = value("max_completion_length", longest) if method.is_rl else None
    max_length = value("max_length", min(_round_up(file.max_tokens), 8192, room))
    return _Stage(
        method=method,
        effective_batch=effective,
        user=user,
        request=StageRequest(
            model=request.model,
            method=method.name,
            tuning=tuning,
            lora_rank=value("lora_r", 16),
            lora_targets=value("lora_targets", "all-linear"),
            weights_dtype=DTYPES.get(value("dtype", ""), "auto"),
            optimizer=_optimizer(value("optim", None)),
            max_length=None if method.is_rl else max_length,
            max_prompt_length=file.max_prompt_tokens if method.is_rl else None,
            max_completion_length=completion,
            micro_batch=micro,
            gradient_accumulation=max(1, effective // micro),
            num_generations=group,
            gradient_checkpointing=value("gradient_checkpointing", False),
            num_gpus=1 if on_gpu else None,
            steps_per_generation=value("steps_per_generation", None),
            reference="precomputed" if value("precompute_ref_log_probs", False) else "auto",
            rollouts=_rollouts(value("use_vllm", False), value("vllm_mode", "colocate")),
            vllm_memory_utilization=value("vllm_gpu_memory_utilization", 0.3),
            vllm_enable_sleep_mode=value("vllm_enable_sleep_mode", False),
            steps=steps,
            beta=value("beta", method.settings["beta"].value if "beta" in method.settings else None),
            eval_completions=evaluation.prompts * evaluation.samples if evaluation else 0,
            eval_tokens=evaluation.max_new_tokens if evaluation else 0,
            eval_batch=evaluation.batch_size if evaluation else 1,
            dynamic_sampling_rate=signal_share(value("max_rounds", DynamicSampling().max_rounds))
            if method.dynamic_sampling
            else None,
        ),
    )


def _with_padding(request: StageRequest, method: Method, data: PreparedData) -> StageRequest:
    """The request with the mean lengths of padded batches, which time follows.

    What was imitated is the best guess at the length of what will be sampled; where nothing was, every
    completion is taken as long as it may be.
    """
    demonstrations = data.files.get("demonstrations")
    update: dict[str, int] = {}
    if not method.is_rl:
        update["mean_length"] = data.files[method.data].lengths.longest_of(request.micro_batch)
    elif demonstrations is not None:
        completions = demonstrations.completion_lengths
        at_once = request.micro_batch * (request.steps_per_generation or request.gradient_accumulation)
        waits = request.rollouts in ("auto", "hf")
        update["mean_completion_length"] = completions.longest_of(at_once if waits else 1)
    if request.eval_tokens and demonstrations is not None:
        answers = demonstrations.completion_lengths.longest_of(request.eval_batch)
        update["eval_tokens"] = min(request.eval_tokens, answers)
    return request.model_copy(update=update)


def _round_up(tokens: int) -> int:
    """`tokens` as a multiple of 64."""
    return max(64, math.ceil(tokens / 64) * 64)


def _fit_all(
    request: PlanRequest, drafts: list[_Stage], data: PreparedData, hardware: Hardware, force: bool
) -> list[tuple[_Stage, FitResult]]:
    """Every stage made to fit. All stages tune alike: one that needs an adapter makes all use one."""
    asked = [draft.request.tuning for draft in drafts]
    for _ in range(3):
        results = []
        for draft in drafts:
            keep = _kept(request, draft)
            try:
                fitted = fit_stage(draft.request, hardware, keep=keep)
                padded = _with_padding(fitted.request, draft.method, data)
                size = _size(padded, hardware)
                results.append(fitted.model_copy(update={"request": padded, "size": size}))
            except DoesNotFit:
                if not force:
                    raise
                padded = _with_padding(draft.request, draft.method, data)
                results.append(FitResult(request=padded, size=_size(padded, hardware), changes=()))
        tunings = [result.request.tuning for result in results]
        if len(set(tunings)) == 1 or request.tuning != "auto":
            break
        common = max(tunings, key=("full", "lora", "qlora").index)
        drafts = [
            draft.model_copy(update={"request": draft.request.model_copy(update={"tuning": common})})
            for draft in drafts
        ]
    told = [_alike(was, result) for was, result in zip(asked, results, strict=True)]
    return list(zip(drafts, told, strict=True))


def _alike(asked: str, result: FitResult) -> FitResult:
    """The result with its tuning among the changes, where it is another stage's that made it so."""
    now = result.request.tuning
    own = next((change for change in result.changes if change.what == "tuning"), None)
    if now == asked or (own and own.from_value == asked):
        return result
    change = Change(
        what="tuning",
        from_value=asked,
        to_value=now,
        saves_bytes=0,
        gives_up=f"{tuning_costs(asked, now)}; all stages tune alike",
    )
    others = tuple(change for change in result.changes if change is not own)
    return result.model_copy(update={"changes": (*others, change)})


def _kept(request: PlanRequest, draft: _Stage) -> tuple[str, ...]:
    """Keys of the stage's request that the user set."""
    kept = [key for name, key in SIZED.items() if name in draft.user]
    if request.tuning != "auto":
        kept.append("tuning")
    return tuple(dict.fromkeys(kept))


def _optimizer(name: str | None) -> str:
    """The optimizer to size; one that is not in the estimators' table is taken as AdamW."""
    try:
        find_optimizer(name or "")
    except BadInput:
        return "adamw_torch_fused"
    return name or "adamw_torch_fused"


def _rollouts(use_vllm: bool, mode: str) -> Any:
    """What samples, in the words of a request."""
    return f"vllm-{mode}" if use_vllm else "auto"


def _within_budget(
    request: PlanRequest, fitted: list[tuple[_Stage, FitResult]], hardware: Hardware
) -> tuple[list[tuple[_Stage, FitResult]], list[str]]:
    """Fewer steps for the last stage where the whole would cost more than the budget, with a note."""
    total = sum(_hours(result.size) for _, result in fitted)
    limits = [(request.max_gpu_hours, total, "GPU-hours")]
    dollars = [sum(r.size.usd.values()) / 2 for _, r in fitted if r.size.usd]
    if dollars:
        limits.append((request.max_usd, sum(dollars), "USD"))
    notes: list[str] = []
    for limit, likely, unit in limits:
        if limit is None or likely <= limit:
            continue
        draft, result = fitted[-1]
        last = _hours(result.size) * likely / total
        share = max(0.0, limit - (likely - last)) / last
        steps = max(MIN_STEPS, int((result.request.steps or MIN_STEPS) * share))
        if "max_steps" in draft.user or steps >= (result.request.steps or 0):
            notes.append(f"the plan needs about {likely:.1f} {unit}, more than the budget of {limit:g}")
            continue
        shorter = result.request.model_copy(update={"steps": steps})
        notes.append(
            f"{draft.method.title}: {steps} steps instead of {result.request.steps}, to stay near the budget "
            f"of {limit:g} {unit}"
            + (
                ""
                if share > 0
                else f"; even so the whole needs more, about {likely - last:.1f} before this stage"
            )
        )
        result = result.model_copy(update={"request": shorter, "size": _size(shorter, hardware)})
        fitted = [*fitted[:-1], (draft, result)]
    return fitted, notes


def _size(request: StageRequest, hardware: Hardware) -> StageSize:
    """The size at the speed that was measured on this machine, where it was."""
    return size_stage(request, hardware, calibrated_speed(request, hardware))


def _hours(size: StageSize) -> float:
    """The middle of a stage's range, on a log scale."""
    return math.sqrt(size.seconds["low"] * size.seconds["high"]) / 3600


def _dtype(request: StageRequest, hardware: Hardware) -> Any:
    """Frozen weights in bfloat16 on a GPU; trained ones, and all on a CPU, in float32; or as was sized."""
    if request.weights_dtype != "auto":
        return next(name for name, short in DTYPES.items() if short == request.weights_dtype)
    return "bfloat16" if hardware.kind == "gpu" and request.tuning != "full" else "float32"


def _planned(
    folder: str, draft: _Stage, result: FitResult, hardware: Hardware, kept: tuple[str, ...]
) -> PlannedStage:
    """The plan's line for a stage."""
    size, request = result.size, result.request
    short = None
    if size.verdict == "does-not-fit":
        short = tuple(shortfall(draft.request, hardware, kept))
    return PlannedStage(
        folder=folder,
        method=draft.method.name,
        tuning=request.tuning,
        steps=size.steps,
        changes=tuple(
            f"{c.what}: {c.from_value} → {c.to_value} (gives up {c.gives_up})" for c in result.changes
        ),
        estimate=_command(request, size),
        shortfall=short,
        **_numbers(size),
    )


def _command(request: StageRequest, size: StageSize) -> str:
    """The `advisor estimate` that gives `size` again."""
    return command(request, None if size.device.startswith("CPU") else size.device)


def _numbers(size: StageSize) -> dict[str, Any]:
    """A stage's size in GiB, hours and dollars."""
    usd = {f"usd_{k}": round(v, 2) for k, v in size.usd.items() if k in ("low", "high")} if size.usd else {}
    return {
        "memory_low_gib": round(size.low_bytes / GIB, 2),
        "memory_gib": round(size.peak_bytes / GIB, 2),
        "memory_high_gib": round(size.high_bytes / GIB, 2),
        "free_gib": round(size.available_bytes / GIB, 2),
        "verdict": size.verdict,
        "hours_low": round(size.seconds["low"] / 3600, 4),
        "hours_high": round(size.seconds["high"] / 3600, 4),
        **usd,
    }


def _configure(
    request: PlanRequest,
    draft: _Stage,
    fitted: StageRequest,
    data: PreparedData,
    reward: str | None,
    evaluation: Evaluation | None,
    base_model: str,
    previous: str | None,
    hardware: Hardware,
) -> tuple[StageConfig, dict[str, str]]:
    """The stage's config, and the reason for each of its settings by dotted path."""
    method, user = draft.method, draft.user
    trainer: dict[str, Any] = {}
    why: dict[str, str] = {}

    def put(name: str, value: Any, reason: str) -> None:
        trainer[name] = value
        why[f"trainer.{name}"] = reason

    steps = fitted.steps or 1
    put("max_steps", steps, _steps_why(method, data.files[method.data], draft))
    put("per_device_train_batch_size", fitted.micro_batch, "examples at once, as many as memory allows")
    if fitted.gradient_accumulation > 1:
        put(
            "gradient_accumulation_steps",
            fitted.gradient_accumulation,
            f"effective batch {draft.effective_batch}",
        )
    put("learning_rate", method.learning_rate[fitted.tuning], method.learning_rate_why)
    for name, setting in method.settings.items():
        put(name, setting.value, setting.why)
    if method.is_rl:
        if request.economy:
            put("num_generations", fitted.num_generations, "the economy form: fewer rollouts per prompt")
        elif fitted.num_generations != trainer["num_generations"]:
            put("num_generations", fitted.num_generations, "smaller groups, so that it fits")
        put("max_completion_length", fitted.max_completion_length, "longest completion in a rollout")
        if fitted.steps_per_generation not in (None, fitted.gradient_accumulation):
            put(
                "steps_per_generation",
                fitted.steps_per_generation,
                "fewer rollouts at once, so that they fit",
            )
    elif fitted.max_length is not None:
        put(
            "max_length",
            fitted.max_length,
            "covers the longest row" if "max_length" not in user else "set by the user",
        )
    put("gradient_checkpointing", fitted.gradient_checkpointing, "activations are kept" if not
        fitted.gradient_checkpointing else "activations are computed twice, to save memory")  # fmt: skip
    if fitted.optimizer != "adamw_torch_fused":
        put("optim", fitted.optimizer, "8-bit optimizer states, so that it fits")
    if fitted.reference == "precomputed":
        put("precompute_ref_log_probs", True, "the reference is not kept in memory, so that it fits")
    if fitted.rollouts == "vllm-colocate":
        put("vllm_gpu_memory_utilization", fitted.vllm_memory_utilization, "vLLM's share of the GPU")
        put("vllm_enable_sleep_mode", fitted.vllm_enable_sleep_mode, "whether vLLM frees it while training")
        longest = (fitted.max_prompt_length or 0) + (fitted.max_completion_length or 0)
        put("vllm_max_model_length", longest, "the longest prompt and completion; more would need more cache")
    put(
        "logging_steps",
        max(1, steps // LOG_POINTS_PER_STAGE),
        f"about {LOG_POINTS_PER_STAGE} points on a curve",
    )
    put("save_steps", max(1, math.ceil(steps / CHECKPOINTS_PER_STAGE)), "a checkpoint to resume from")
    put("save_total_limit", 2, "only the newest are kept")
    for name, setting in user.items():
        if name not in STAGE_FIELDS:
            put(name, setting.value, setting.why)

    def given(name: str, default: Any) -> Any:
        return user[name].value if name in user else default

    overlong = None
    if method.overlong:
        cache = given("overlong_cache", max(1, trainer["max_completion_length"] // 5))
        overlong = Overlong(cache=cache)
        why["overlong"] = "soft punishment near the length limit (DAPO, section 3.4)"
    if method.dynamic_sampling:
        why["dynamic_sampling"] = "only groups whose task rewards differ enter a batch (DAPO, section 3.2)"
    file = data.files[method.data]
    config = StageConfig(
        method=method.name,
        base_model=base_model,
        start_from=previous,
        tuning=fitted.tuning,
        lora=None
        if fitted.tuning == "full"
        else Lora(
            r=fitted.lora_rank,
            alpha=given("lora_alpha", 2 * fitted.lora_rank),
            dropout=given("lora_dropout", 0.0),
            targets=given("lora_targets", fitted.lora_targets),
        ),
        dtype=given("dtype", _dtype(fitted, hardware)),
        data=StageData(train=file.train, eval=file.eval, prompts=data.eval_prompts if reward else None),
        reward=reward,
        overlong=overlong,
        dynamic_sampling=DynamicSampling(max_rounds=given("max_rounds", DynamicSampling().max_rounds))
        if method.dynamic_sampling
        else None,
        evaluation=evaluation,
        trainer=trainer,
        seed=request.seed,
    )
    why["tuning"] = "all weights" if fitted.tuning == "full" else "an adapter; the base stays frozen"
    why["start_from"] = "the previous stage's model"
    return config, why


def _steps_why(method: Method, file: PreparedFile, draft: _Stage) -> str:
    """Where the number of steps comes from."""
    if "max_steps" in draft.user:
        return draft.user["max_steps"].why
    times = "one pass" if method.epochs == 1 else f"{method.epochs:g} passes"
    least = (
        f"{method.min_steps} to {method.max_steps}" if method.min_steps > 1 else f"at most {method.max_steps}"
    )
    return f"{times} over {file.rows} rows, {least} steps"

"""The cheapest changes that make a stage fit, and the smallest hardware where none do.

A ladder of changes is climbed in order of what they give up: first those that only cost time, then those that
change what is trained, then those that change the data. Once a rung fits, every change that is not needed is
taken back, the dearest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from estimators.errors import DoesNotFit
from estimators.gpus import known_gpus, price_of
from estimators.hardware import Hardware, hardware_from_name
from estimators.record import Record
from estimators.units import gib
from pipelines.sizing_request import WORKLOADS, StageRequest, whole_groups
from pipelines.sizing_stage import StageSize, size_stage


class Change(Record):
    """One change that the fit search made."""

    what: str
    """The key of the request."""
    from_value: str
    to_value: str
    saves_bytes: int
    """Bytes of the high estimate that the change saved, when it was made."""
    gives_up: str


class FitResult(Record):
    """A request that fits, its size, and what was changed to get there."""

    request: StageRequest
    size: StageSize
    changes: tuple[Change, ...]


class Step(Record):
    """One rung of the ladder: new values for some keys of the request."""

    what: str
    update: dict[str, str | int | float | bool]
    gives_up: str


def fit_stage(request: StageRequest, hardware: Hardware, keep: tuple[str, ...] = ()) -> FitResult:
    """The request with the fewest concessions that fits `hardware` at the high estimate.

    The effective batch stays, and sampled batches stay divisible by the group. Keys named in `keep` are not
    touched. Where the high estimate fits nowhere but the likely one does, that is returned (verdict `tight`).
    Raises DoesNotFit with the smallest hardware that would do.
    """
    start, repairs = valid_groups(request, hardware)
    climbed = _climb(start, hardware, keep)
    for wanted in ("fits", "tight"):
        steps = next((s for s, size in climbed if _good(size, wanted)), None)
        if steps is not None:
            return _result(start, _prune(start, steps, hardware, wanted), repairs, hardware)
    raise DoesNotFit(_no_way(start, climbed, hardware))


def valid_groups(request: StageRequest, hardware: Hardware) -> tuple[StageRequest, tuple[Change, ...]]:
    """The request with whole groups per generation, accumulating more where they were not.

    TRL requires per-device batch × processes × steps per generation to be divisible by `num_generations`.
    """
    if WORKLOADS[request.method].rollouts == "none":
        return request, ()
    gpus = request.num_gpus or max(len(hardware.devices), 1)
    factor = whole_groups(request, gpus)
    if factor == 1:
        return request, ()
    accumulation = request.gradient_accumulation * factor
    change = Change(
        what="gradient_accumulation",
        from_value=str(request.gradient_accumulation),
        to_value=str(accumulation),
        saves_bytes=0,
        gives_up=f"a larger effective batch: {request.micro_batch * gpus * request.gradient_accumulation} "
        f"completions are no whole number of groups of {request.num_generations}",
    )
    generation = request.steps_per_generation
    update = {
        "gradient_accumulation": accumulation,
        "steps_per_generation": generation * factor if generation else None,
    }
    return request.model_copy(update=update), (change,)


def _good(size: StageSize, wanted: str) -> bool:
    return size.verdict == "fits" or (wanted == "tight" and size.verdict == "tight")


def _apply(request: StageRequest, steps: list[Step]) -> StageRequest:
    update: dict[str, object] = {}
    for step in steps:
        update.update(step.update)
    return request.model_copy(update=update)


def _climb(
    start: StageRequest, hardware: Hardware, keep: tuple[str, ...]
) -> list[tuple[list[Step], StageSize]]:
    """Every rung's steps so far with its size; ends at the first that fits."""
    steps: list[Step] = []
    climbed = [(list(steps), size_stage(start, hardware))]
    if climbed[0][1].verdict == "fits":
        return climbed
    for rung in LADDER:
        for step in rung(_apply(start, steps), hardware):
            if step.what in keep or not set(step.update) - set(keep):
                continue
            steps = [*steps, step]
            size = size_stage(_apply(start, steps), hardware)
            climbed.append((list(steps), size))
            if size.verdict == "fits":
                return climbed
    return climbed


def _prune(start: StageRequest, steps: list[Step], hardware: Hardware, wanted: str) -> list[Step]:
    """`steps` without those that are not needed, the dearest tried first."""
    kept = list(steps)
    for step in reversed(steps):
        fewer = [other for other in kept if other is not step]
        if _good(size_stage(_apply(start, fewer), hardware), wanted):
            kept = fewer
    return kept


def _result(
    start: StageRequest, steps: list[Step], repairs: tuple[Change, ...], hardware: Hardware
) -> FitResult:
    changes: dict[str, Change] = {change.what: change for change in repairs}
    before = start
    for number in range(len(steps)):
        after = _apply(start, steps[: number + 1])
        saved = size_stage(before, hardware).high_bytes - size_stage(after, hardware).high_bytes
        step = steps[number]
        earlier = changes.get(step.what)
        changes[step.what] = Change(
            what=step.what,
            from_value=earlier.from_value if earlier else str(getattr(before, step.what)),
            to_value=str(getattr(after, step.what)),
            saves_bytes=saved + (earlier.saves_bytes if earlier else 0),
            gives_up=step.gives_up,
        )
        before = after
    final = _apply(start, steps)
    return FitResult(request=final, size=size_stage(final, hardware), changes=tuple(changes.values()))


# The rungs: each yields steps that save ever more, given what was changed before.


def _smaller_micro_batch(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    micro, accumulation = request.micro_batch, request.gradient_accumulation
    generation = request.steps_per_generation
    while micro > 1:
        smaller = max(divisor for divisor in range(1, micro) if micro % divisor == 0)
        factor = micro // smaller
        micro, accumulation = smaller, accumulation * factor
        update: dict[str, str | int | float | bool] = {
            "micro_batch": micro,
            "gradient_accumulation": accumulation,
        }
        if generation is not None:
            generation *= factor
            update["steps_per_generation"] = generation
        yield Step(
            what="micro_batch",
            update=update,
            gives_up=f"some speed: {accumulation} smaller micro-batches make the same effective batch",
        )


def _checkpointing(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    if not request.gradient_checkpointing:
        yield Step(
            what="gradient_checkpointing",
            update={"gradient_checkpointing": True},
            gives_up="about a quarter of the speed: each layer's forward pass runs twice",
        )


def _fused_loss(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    if request.loss not in ("auto", "fused"):
        yield Step(what="loss", update={"loss": "fused"}, gives_up="nothing; needs TRL 1.16 or later")


def _sleeping_vllm(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    if request.rollouts == "vllm-colocate" and not request.vllm_enable_sleep_mode:
        yield Step(
            what="vllm_enable_sleep_mode",
            update={"vllm_enable_sleep_mode": True},
            gives_up="some seconds per generation: vLLM frees its memory while training runs",
        )


def _precompute_reference(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    if request.method == "dpo" and request.tuning == "full" and request.reference in ("auto", "copy"):
        yield Step(
            what="reference",
            update={"reference": "precomputed"},
            gives_up="one pass over the data before training; the reference is not kept in memory",
        )


def _eight_bit(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    if hardware.kind == "gpu" and "8bit" not in request.optimizer and request.optimizer != "sgd":
        yield Step(
            what="optimizer",
            update={"optimizer": "adamw_8bit"},
            gives_up="the optimizer's moments are kept in 8 bits (arXiv:2110.02861); needs bitsandbytes",
        )


def _shard(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    gpus = request.num_gpus or len(hardware.devices)
    if gpus > 1 and request.sharding not in ("zero3", "fsdp"):
        # TRL gathers a reference copy whole under FSDP2, so DeepSpeed may need less
        kinds = [request.model_copy(update={"sharding": kind}) for kind in ("fsdp", "zero3")]
        sizes = {kind.sharding: size_stage(kind, hardware) for kind in kinds}
        least = min(sizes, key=lambda kind: sizes[kind].high_bytes)
        yield Step(
            what="sharding",
            update={"sharding": "fsdp" if sizes["fsdp"].verdict == "fits" else least},
            gives_up="some speed: weights are gathered layer by layer over the links between GPUs",
        )


def _lora(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    if request.tuning == "full":
        yield Step(
            what="tuning",
            update={"tuning": "lora", "weights_dtype": "auto"},
            gives_up="full tuning: an adapter is trained, not all weights; raise the learning rate tenfold",
        )


def _qlora(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    if request.tuning != "qlora" and hardware.kind == "gpu":
        yield Step(
            what="tuning",
            update={"tuning": "qlora", "weights_dtype": "auto"},
            gives_up="the base model is held in 4 bits, and about a fifth of the speed",
        )


def _shorter(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    for share in (0.75, 0.5, 0.25):
        update: dict[str, str | int | float | bool] = {}
        for key in ("max_length", "max_completion_length"):
            value = getattr(request, key)
            if value is not None and value > 256:
                update[key] = max(256, int(value * share) // 64 * 64)
        if not update and request.max_length is None and request.max_completion_length is None:
            key = "max_completion_length" if request.method in ("grpo", "dapo", "rloo") else "max_length"
            update[key] = int((512 if key == "max_completion_length" else 1024) * share)
        if update:
            what = "max_completion_length" if "max_completion_length" in update else "max_length"
            yield Step(
                what=what,
                update=update,
                gives_up=f"longer texts are cut: {share:.0%} of the asked length stays",
            )


def _fewer_generations(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    if request.method not in ("grpo", "dapo", "rloo"):
        return
    group = request.num_generations
    sampled = request.micro_batch * (request.steps_per_generation or request.gradient_accumulation)
    while group > 2 and group % 2 == 0:
        group //= 2
        fewer = max(1, sampled * group // request.num_generations)
        if request.gradient_accumulation % max(sampled // fewer, 1):
            return
        accumulation = max(1, request.gradient_accumulation * fewer // sampled)
        yield Step(
            what="num_generations",
            update={"num_generations": group, "gradient_accumulation": accumulation},
            gives_up="smaller groups: noisier advantages, and more groups without signal",
        )


Rung = Callable[[StageRequest, Hardware], Iterator[Step]]

LADDER: tuple[Rung, ...] = (
    _fused_loss,
    _smaller_micro_batch,
    _sleeping_vllm,
    _checkpointing,
    _precompute_reference,
    _shard,
    _lora,
    _qlora,
    _eight_bit,
    _shorter,
    _fewer_generations,
)


def _no_way(start: StageRequest, climbed: list[tuple[list[Step], StageSize]], hardware: Hardware) -> str:
    """Why nothing fits, with both numbers, and the smallest hardware that would do."""
    leanest_steps, leanest = min(climbed, key=lambda pair: pair[1].high_bytes)
    asked = climbed[0][1]
    leanest_request = _apply(start, leanest_steps)
    where = smallest_hardware(start)
    lean_where = smallest_hardware(leanest_request)
    text = (
        f"{start.method} of {start.model} ({start.tuning}) needs up to {gib(asked.high_bytes)}, and with "
        f"every saving {gib(leanest.high_bytes)}; {leanest.device} has {gib(leanest.available_bytes)} free"
    )
    if where:
        text += f"; as asked it fits {where}"
    if lean_where and lean_where != where:
        text += f"; with every saving it fits {lean_where}"
    return text


def smallest_hardware(request: StageRequest) -> str | None:
    """The cheapest single GPU, or else the smallest number of the largest GPUs, that fits `request`."""
    free = request.model_copy(update={"gpu": None, "num_gpus": 1})
    ranked = sorted(known_gpus().values(), key=lambda gpu: (gpu.memory_bytes, _price(gpu.name)))
    for gpu in ranked:
        if not gpu.architecture.startswith("CDNA") and _fits(free, gpu.name, 1):
            return f"one {gpu.name} ({gib(gpu.memory_bytes)})"
    for count in (2, 4, 8, 16, 32, 64, 128):
        for name in ("H100 80GB", "H200", "B200"):
            for kind in ("fsdp", "zero3"):
                sharded = request.model_copy(update={"gpu": None, "num_gpus": count, "sharding": kind})
                if _fits(sharded, name, count):
                    return f"{count} × {name} with sharding {kind}"
    return None


def _price(name: str) -> float:
    price = price_of(name)
    return price.median if price else 1e9


def _fits(request: StageRequest, gpu: str, count: int) -> bool:
    return size_stage(request, hardware_from_name(gpu, count)).verdict == "fits"


def savings(request: StageRequest, hardware: Hardware) -> tuple[Change, ...]:
    """What each change would save on its own, in the order of what it gives up; those that save nothing are
    out."""
    before = size_stage(request, hardware)
    found: list[Change] = []
    for rung in LADDER:
        step = next(rung(request, hardware), None)
        if step is None:
            continue
        after = request.model_copy(update=step.update)
        saved = before.high_bytes - size_stage(after, hardware).high_bytes
        if saved > 0 and step.what not in {change.what for change in found}:
            found.append(
                Change(
                    what=step.what,
                    from_value=str(getattr(request, step.what)),
                    to_value=str(getattr(after, step.what)),
                    saves_bytes=saved,
                    gives_up=step.gives_up,
                )
            )
    return tuple(found)

"""The ladder of the fit search: every change that saves memory, in the order of what it gives up.

1. What costs time only, the least first: the result is the same. Sharding over GPUs that are there belongs
   here: it gives up nothing but communication. So does the number of completions that Hugging Face's generate
   samples at once; it comes last, because rollouts in parts of one group take many times as long.
2. What changes the arithmetic a little: moments in 8 bits (arXiv:2110.02861), and under SFT weights in bf16.
3. What changes what is trained: an adapter, then one on a base in 4 bits.
4. What changes the data: shorter texts, then smaller groups.

8-bit moments come before LoRA, not after QLoRA, because they keep full tuning. bf16 weights do so for SFT
only: bf16 rounds away what is less than 1/512 of a weight, and the rates of RL and DPO (1e-6 and less) are
below that for all but the smallest weights. There LoRA gives up less, and bf16 comes after it, for those who
keep full tuning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from estimators.gpus import guess_gpu
from estimators.hardware import Hardware
from estimators.optimizers import find_optimizer
from pipelines.sizing_request import GROUP_METHODS, MIN_GENERATIONS, StageRequest
from pipelines.sizing_resolve import Resolved
from pipelines.sizing_stage import size_stage

Apply = Callable[[StageRequest], StageRequest]


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """One change. It is made relative to what it finds, so that earlier ones can be taken back alone."""

    what: str
    """The key of the request that it is about."""
    apply: Apply
    gives_up: str | Callable[[StageRequest], str]
    """Names in braces are keys of the request that comes out in the end; or it depends on the request as it
    is without this change."""


Rung = Callable[[StageRequest, Hardware], Iterator[Step]]
"""Steps of one kind that save ever more. The hardware is that which is planned for."""


def num_gpus(request: StageRequest, hardware: Hardware) -> int:
    """How many processes train."""
    return request.num_gpus or max(len(hardware.devices), 1)


def _set(**update: Any) -> Apply:
    return lambda request: request.model_copy(update=update)


def _samples_itself(request: StageRequest) -> bool:
    """Whether rollouts are Hugging Face's generate."""
    return request.method in GROUP_METHODS and request.rollouts in ("auto", "hf")


def _colocates(request: StageRequest) -> bool:
    """Whether vLLM shares the GPU."""
    return request.method in GROUP_METHODS and request.rollouts == "vllm-colocate"


# What costs time only ---------------------------------------------------------------------------------


def _fused_loss(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    if request.loss not in ("auto", "fused"):
        yield Step("loss", _set(loss="fused"), "nothing; needs TRL 1.16 or later")


def _whole_vllm(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    """Where vLLM cannot start, nothing else helps."""
    least = _least_share(request, hardware)
    if least is not None and request.vllm_memory_utilization < least:
        yield _share(least, "memory for training: with less than {vllm_memory_utilization:g} of the card "
                            "vLLM does not start")  # fmt: skip


def _smaller_vllm(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    least = _least_share(request, hardware)
    if least is not None and request.vllm_memory_utilization > least:
        yield _share(least, "speed of the rollouts: vLLM's cache holds few sequences at once")


def _share(least: float, gives_up: str) -> Step:
    return Step("vllm_memory_utilization", _set(vllm_memory_utilization=least), gives_up)


def _least_share(request: StageRequest, hardware: Hardware) -> float | None:
    """The least share of the card that vLLM can start in; None where there is none."""
    if not _colocates(request):
        return None
    _, least = Resolved(request, hardware).vllm_need()
    return least if least <= 1 else None


def _precomputed_reference(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    """Not under FSDP, where TRL keeps the reference all the same (dpo_trainer.py)."""
    copied = request.tuning == "full" and request.reference in ("auto", "copy")
    if request.method == "dpo" and copied and request.sharding != "fsdp":
        yield Step(
            "reference",
            _set(reference="precomputed"),
            "the time of one pass over the data before training; the reference is not kept in memory",
        )


def _smaller_micro_batch(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    micro = request.micro_batch
    while micro > 1:
        smaller = max(divisor for divisor in range(1, micro) if micro % divisor == 0)
        yield Step(
            "micro_batch",
            partial(_split, parts=micro // smaller),
            "some speed: {gradient_accumulation} smaller micro-batches make the same effective batch",
        )
        micro = smaller


def _split(request: StageRequest, parts: int) -> StageRequest:
    """Micro-batches in `parts`; accumulation grows along, and so does a stated number per generation."""
    generation = request.steps_per_generation
    return request.model_copy(
        update={
            "micro_batch": request.micro_batch // parts,
            "gradient_accumulation": request.gradient_accumulation * parts,
            "steps_per_generation": generation * parts if generation else None,
        }
    )


def _sleeping_vllm(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    if _colocates(request) and not request.vllm_enable_sleep_mode:
        yield Step(
            "vllm_enable_sleep_mode",
            _set(vllm_enable_sleep_mode=True),
            "some seconds per generation: vLLM frees its memory while training runs",
        )


def _checkpointing(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    if not request.gradient_checkpointing:
        yield Step(
            "gradient_checkpointing",
            _set(gradient_checkpointing=True),
            "about a quarter of the speed: each layer's forward pass runs twice",
        )


def _sharding(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    """FSDP where that is enough; DeepSpeed may need less, since TRL gathers a reference copy under FSDP2."""
    if num_gpus(request, hardware) == 1 or request.sharding in ("zero3", "fsdp"):
        return
    sizes = {kind: size_stage(_shard(request, kind), hardware) for kind in ("fsdp", "zero3")}
    least = min(sizes, key=lambda kind: sizes[kind].high_bytes)
    yield Step(
        "sharding",
        partial(_shard, kind="fsdp" if sizes["fsdp"].verdict == "fits" else least),
        "some speed: weights are gathered layer by layer over the links between GPUs",
    )


def _shard(request: StageRequest, kind: str) -> StageRequest:
    """Sharded, by ZeRO 3 where FSDP would bring back the reference."""
    return request.model_copy(update={"sharding": "zero3" if request.reference == "precomputed" else kind})


def _own_rollouts(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    if _colocates(request):
        yield Step(
            "rollouts",
            _set(rollouts="hf"),
            "most of the speed of the rollouts: Hugging Face's generate samples instead of vLLM",
        )


def rollout_steps(request: StageRequest, gpus: int) -> list[int]:
    """Values of `steps_per_generation` that sample whole groups and divide the optimizer's step, ascending.

    TRL samples `per_device_train_batch_size` × `steps_per_generation` completions at once. Fewer than a whole
    optimizer step's take less memory and are as much on-policy: no update lies between them.
    """
    accumulation = request.gradient_accumulation
    return [
        steps
        for steps in range(1, accumulation + 1)
        if accumulation % steps == 0 and request.micro_batch * gpus * steps % request.num_generations == 0
    ]


def _fewer_rollouts_at_once(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    now = request.steps_per_generation or request.gradient_accumulation
    if not _samples_itself(request) or now > request.gradient_accumulation:
        return
    gpus = num_gpus(request, hardware)
    for steps in reversed(rollout_steps(request, gpus)):
        if steps < now:
            yield Step(
                "steps_per_generation",
                partial(_in_parts, gpus=gpus, parts=request.gradient_accumulation // steps),
                "speed of the rollouts: fewer are sampled at once; each step trains on as many",
            )


def _in_parts(request: StageRequest, gpus: int, parts: int) -> StageRequest:
    """Each optimizer step's completions sampled in up to `parts` parts of whole groups."""
    enough = [n for n in rollout_steps(request, gpus) if n * parts >= request.gradient_accumulation]
    return request.model_copy(update={"steps_per_generation": enough[0]}) if enough else request


# What changes the arithmetic --------------------------------------------------------------------------


def _eight_bit(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    optimizer = find_optimizer(request.optimizer)
    wide = optimizer.state_bytes is None or optimizer.state_bytes >= 4
    if hardware.kind != "gpu" or not wide or not optimizer.states:
        return
    name = "lion_8bit" if optimizer.states == 1 else "paged_adamw_8bit" if optimizer.paged else "adamw_8bit"
    yield Step(
        "optimizer",
        _set(optimizer=name),
        "precision of the optimizer's moments: 8 bits (arXiv:2110.02861); needs bitsandbytes",
    )


def _narrow_sft(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    if request.method == "sft":
        yield from _narrow_trained(request, hardware)


def _narrow_trained(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    """Trained weights in bf16, where nobody asked for another dtype and the GPU computes in it."""
    free = request.tuning == "full" and request.weights_dtype == "auto"
    if free and request.precision in ("auto", "bf16", "none") and _narrow_dtype(hardware) == "bf16":
        yield Step(
            "weights_dtype",
            _set(weights_dtype="bf16"),
            "fp32 weights: what an update adds below 1/512 of a weight is rounded away",
        )


def _narrow_dtype(hardware: Hardware) -> str | None:
    """The 16-bit type that the GPU computes in; None on a CPU."""
    if hardware.kind == "cpu":
        return None
    gpu = guess_gpu(hardware.devices[0].name)
    return "bf16" if gpu is None or gpu.bf16_flops else "fp16"


# What changes what is trained -------------------------------------------------------------------------


def tuning_costs(before: str, after: str) -> str:
    """What is given up between two ways of tuning: full, lora, qlora."""
    adapter = "full tuning: an adapter is trained, not all weights; raise the learning rate tenfold"
    four_bits = "about a fifth of the speed, and precision: the base model is held in 4 bits"
    parts = [adapter] if before == "full" else []
    return "; ".join([*parts, four_bits] if after == "qlora" else parts)


def _lora(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    if request.tuning == "full":
        yield Step("tuning", _set(tuning="lora"), tuning_costs("full", "lora"))


def _narrow_frozen(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    """A frozen base in fp32 is only read; it was asked for, so it is a change of its own."""
    narrow = _narrow_dtype(hardware)
    if request.tuning != "full" and request.weights_dtype == "fp32" and narrow is not None:
        yield Step(
            "weights_dtype",
            _set(weights_dtype=narrow),
            "fp32 for the frozen base, which is only read",
        )


def _qlora(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    if request.tuning != "qlora" and hardware.kind == "gpu":
        yield Step("tuning", _set(tuning="qlora"), lambda before: tuning_costs(before.tuning, "qlora"))


# What changes the data --------------------------------------------------------------------------------


def _shorter(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    given = {
        key: value
        for key in ("max_length", "max_completion_length")
        if (value := getattr(request, key)) is not None
    }
    if not given and request.method in GROUP_METHODS:
        given = {"max_completion_length": 512}
    elif not given:
        given = {"max_length": 1024}
    for share in (0.75, 0.5, 0.25):
        update = {key: max(256, int(v * share) // 64 * 64) for key, v in given.items() if v > 256}
        if update:
            yield Step(
                "max_completion_length" if "max_completion_length" in update else "max_length",
                _set(**update),
                f"longer texts: they are cut to {share:.0%} of the asked length",
            )


def _fewer_generations(request: StageRequest, hardware: Hardware) -> Iterator[Step]:
    """Smaller groups, so that fewer completions need to be sampled at once; the effective batch stays."""
    generation = request.steps_per_generation or request.gradient_accumulation
    if not _samples_itself(request) or generation > request.gradient_accumulation:
        return  # where several optimizer steps train on one generation, the group is not what is too large
    gpus = num_gpus(request, hardware)
    group = request.num_generations
    completions = request.micro_batch * gpus * request.gradient_accumulation
    while True:
        smaller = max((d for d in range(MIN_GENERATIONS, group) if group % d == 0), default=None)
        if smaller is None:
            return
        group = smaller
        yield Step(
            "num_generations",
            partial(_regroup, gpus=gpus, group=group),
            f"larger groups: advantages are noisier and more groups have no signal; the {completions} "
            f"completions of a step come from {completions // group} prompts, not "
            f"{completions // request.num_generations}",
        )


def _regroup(request: StageRequest, gpus: int, group: int) -> StageRequest:
    """Groups of `group`, sampled a few at a time."""
    smaller = request.model_copy(update={"num_generations": group})
    return _in_parts(smaller, gpus, request.gradient_accumulation)


LADDER: tuple[Rung, ...] = (
    _whole_vllm,
    _fused_loss,
    _precomputed_reference,
    _smaller_micro_batch,
    _sleeping_vllm,
    _smaller_vllm,
    _checkpointing,
    _sharding,
    _own_rollouts,
    _fewer_rollouts_at_once,
    _eight_bit,
    _narrow_sft,
    _lora,
    _narrow_frozen,
    _qlora,
    _narrow_trained,
    _shorter,
    _fewer_generations,
)

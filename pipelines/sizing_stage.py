"""Whether a training stage fits, how long it takes and what it costs."""

from __future__ import annotations

from typing import Literal

from estimators.adapters import trainable_params
from estimators.gpus import guess_gpu, price_of
from estimators.hardware import Hardware
from estimators.memory import Memory, estimate
from estimators.record import Record
from estimators.sharding import ddp_bucket_bytes
from estimators.throughput import Seconds, Speed, stage_seconds
from estimators.units import gib
from pipelines.sizing_request import StageRequest
from pipelines.sizing_resolve import Assumption, Resolved

Verdict = Literal["fits", "tight", "does-not-fit"]


class StageSize(Record):
    """Bytes per GPU, seconds and dollars of one stage."""

    peak_bytes: int
    low_bytes: int
    high_bytes: int
    allocated_bytes: int
    """In tensors: what `torch.cuda.max_memory_allocated` would show."""
    reserved_bytes: int
    """Held by the allocator: `torch.cuda.max_memory_reserved`."""
    components: dict[str, int]
    """Of the phase with the highest peak; they sum to `peak_bytes`."""
    phase: str
    phases: dict[str, int]
    """Allocated bytes of every phase of a step."""
    phase_components: dict[str, dict[str, int]]
    """Allocated bytes of every phase, component by component: what rollouts cost shows here also where
    training is the peak."""
    formulas: dict[str, str]
    """How each component was computed; evaluates to its bytes. What only a rollout has is there too."""
    available_bytes: int
    verdict: Verdict
    headroom_bytes: int
    """Available minus peak."""
    seconds: dict[str, float]
    time_components: dict[str, float]
    usd: dict[str, float] | None
    steps: int
    num_gpus: int
    params: int
    trainable_params: int
    assumptions: tuple[Assumption, ...]
    device: str
    problem: str | None = None
    """Why it cannot run even where its likely peak would fit: vLLM's share is too small, or DDP's buckets do
    not fit. Makes it `does-not-fit`."""


def size_stage(request: StageRequest, hardware: Hardware, speed: Speed | None = None) -> StageSize:
    """Memory, time and cost of one stage on this hardware. BadInput for a model that cannot be found.

    `speed` is one that was measured (`pipelines.sizing_calibration`); without it the table of GPUs or the
    number of cores stands for it.
    """
    resolved = Resolved(request, hardware)
    slack, speed = resolved.slack(), resolved.speed(speed)
    available, total = resolved.available()
    shape, workload, setup = resolved.shape, resolved.workload, resolved.setup
    memory = estimate(shape, workload, setup, slack, total)
    problem = resolved.vllm_shortage() or _bucket_shortage(resolved, memory, available)
    resolved.assume_sharding()
    seconds = stage_seconds(shape, workload, resolved.mean_setup(), resolved.schedule, speed)
    if resolved.on_gpu and resolved.num_gpus > len(resolved.hardware.devices):
        resolved.assume(
            "GPUs", resolved.num_gpus, f"asked for; {len(resolved.hardware.devices)} are here, taken as alike"
        )
    return StageSize(
        peak_bytes=memory.peak,
        low_bytes=memory.low,
        high_bytes=memory.high,
        allocated_bytes=memory.allocated,
        reserved_bytes=memory.reserved,
        components=memory.components,
        phase=memory.phase,
        phases=memory.phases,
        phase_components=memory.phase_components,
        formulas=memory.formulas,
        available_bytes=available,
        verdict="does-not-fit" if problem else _verdict(memory, available),
        headroom_bytes=available - memory.peak,
        seconds={"low": round(seconds.low, 1), "high": round(seconds.high, 1)},
        time_components={name: round(value, 2) for name, value in seconds.components.items()},
        usd=_usd(resolved, seconds),
        steps=resolved.schedule.steps,
        num_gpus=resolved.num_gpus,
        params=shape.params,
        trainable_params=trainable_params(shape, setup) if workload.trains else 0,
        assumptions=tuple(resolved.assumptions),
        device=resolved.devices()[0].name if resolved.on_gpu else f"CPU, {hardware.cpu_cores} cores",
        problem=problem,
    )


def _bucket_shortage(resolved: Resolved, memory: Memory, available: int) -> str | None:
    """What DistributedDataParallel always allocates and the likely peak leaves out, where it does not fit."""
    buckets = ddp_bucket_bytes(resolved.shape, resolved.setup) if resolved.workload.trains else 0.0
    if not buckets or memory.peak > available or memory.peak + buckets <= available:
        return None
    return (
        f"the gradient buckets of several GPUs without sharding need {gib(buckets)} more, and "
        f"{gib(available - memory.peak)} are left; shard (zero2, fsdp) or use one GPU"
    )


def _verdict(memory: Memory, available: int) -> Verdict:
    """`fits` where even the high end does, `tight` where only the likely peak does."""
    if memory.high <= available:
        return "fits"
    return "tight" if memory.peak <= available else "does-not-fit"


def _usd(resolved: Resolved, seconds: Seconds) -> dict[str, float] | None:
    """Rent for the stage's range of hours: the fast end at the low price, the slow end at the high one."""
    if not resolved.on_gpu:
        return None
    gpu = guess_gpu(resolved.devices()[0].name)
    price = price_of(gpu.name) if gpu else None
    if price is None:
        return None
    hours = resolved.num_gpus / 3600
    resolved.assume(
        "price",
        f"{price.low:.2f} to {price.high:.2f} USD per GPU-hour",
        f"{price.offers} offers up to {price.newest}: {price.source}",
    )
    return {
        "low": round(seconds.low * hours * price.low, 2),
        "high": round(seconds.high * hours * price.high, 2),
    }

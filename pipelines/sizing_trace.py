"""The peak of the real training code, run on fake tensors in a process of its own: `advisor estimate
--trace`.

What cannot run on fake tensors (bitsandbytes, vLLM, DeepSpeed) is composed: the closed form of what is
asked, plus what the trace of the nearest thing that can be traced differs from its closed form.
"""

from __future__ import annotations

import time
from typing import Any

from estimators.adapters import target_names
from estimators.errors import BadInput
from estimators.hardware import Hardware
from estimators.memory import phase_bytes
from estimators.models import find_config
from estimators.record import Record
from estimators.shapes import ModelShape
from estimators.workload import Setup, Workload
from pipelines.sizing_request import StageRequest
from pipelines.sizing_resolve import Assumption, Resolved
from pipelines.sizing_stage import StageSize, size_stage
from pipelines.sizing_worker import ask_worker

TIMEOUT_SECONDS = 300
TRACE_WORKER = "pipelines.training.trace_worker"
FSDP_WORKER = "pipelines.training.fsdp_worker"
NOT_TRACED = ("allocator slack", "context", "workspaces", "sampled batch", "vLLM's share")
"""Components that lie outside of what the trace allocates."""
REPLAY_SPREAD = 0.08
"""How far above the replay the high end is: 30 published peaks on an A100 were 0.94 to 1.09 of the replay and
0.5 GiB (`docs/estimates.md`)."""


class Trace(Record):
    """Allocated bytes of one traced step."""

    allocated_bytes: int
    closed_form_bytes: int
    """What the closed form says of the same step."""
    reserved_bytes: int | None = None
    """What CUDA's caching allocator would hold of it, replayed (`pipelines.training.allocator`); None where
    it was not: on a CPU and under sharding."""
    phases: dict[str, int]
    composed: tuple[str, ...]
    """What could not be traced and comes from the closed form."""
    seconds: float
    """How long the trace took."""


def traceable(workload: Workload, setup: Setup) -> tuple[Workload, Setup, tuple[str, ...]]:
    """The nearest thing that runs on fake tensors, and what is left out of it."""
    left_out: list[str] = []
    update: dict[str, Any] = {"on_gpu": setup.on_gpu}
    if setup.tuning == "qlora":
        left_out.append("bitsandbytes' kernels: stand-ins allocate what its Linear4bit does")
    if setup.optimizer not in ("adamw_torch", "adamw_torch_fused", "adamw_torch_foreach"):
        left_out.append(f"optimizer {setup.optimizer}: traced with fused AdamW")
        update["optimizer"] = "adamw_torch_fused"
    if (setup.sharding != "none" or setup.num_gpus > 1) and not runs_sharded(workload, setup):
        left_out.append("sharding: traced on one GPU")
        update |= {"sharding": "none", "num_gpus": 1}
    if setup.loss not in ("fused", "full-logits", "full-logits-kept"):
        left_out.append(f"loss {setup.loss}: traced with the fused loss")
        update["loss"] = "fused"
    if setup.experts_4bit:
        raise BadInput(
            "experts in 4 bits cannot be traced: transformers 5 fuses them, and bitsandbytes packs nn.Linear "
            "only; leave --trace out"
        )
    if workload.rollouts != "none":
        left_out.append("rollouts: generation and vLLM's share come from the closed form")
    reference = "none" if workload.reference == "precomputed" else workload.reference
    return (
        workload.model_copy(update={"rollouts": "none", "reference": reference}),
        setup.model_copy(update=update),
        tuple(left_out),
    )


def runs_sharded(workload: Workload, setup: Setup) -> bool:
    """Whether FSDP2 itself can be run: it scores whole sequences, as supervised tuning does."""
    scores_all = workload.scores_prompt or not setup.prompt_length
    usual = workload.rollouts == "none" and setup.tuning != "qlora" and setup.loss in ("fused", "full-logits")
    return setup.sharding == "fsdp" and setup.num_gpus > 1 and scores_all and usual


def worker_request(
    config: dict[str, Any],
    shape: ModelShape,
    workload: Workload,
    setup: Setup,
    capacity: int | None = None,
) -> dict[str, Any]:
    """What `pipelines.training.trace_worker` reads; `capacity` bounds what the allocator may hold, bytes."""
    modules: str | list[str] = "all-linear"
    if setup.lora_targets != "all-linear":
        modules = target_names(shape, setup.lora_targets)
    return {
        "config": config,
        "tuning": setup.tuning,
        "lora_rank": setup.lora_rank,
        "lora_modules": modules,
        "weights_dtype": setup.weights_dtype,
        "adapter_dtype": setup.adapter_dtype,
        "kbit_prepared": setup.kbit_prepared,
        "double_quantisation": setup.double_quantisation,
        "autocast": setup.autocast,
        "attention": setup.attention,
        "gradient_checkpointing": setup.gradient_checkpointing,
        "gradient_accumulation": setup.gradient_accumulation,
        "optimizer": setup.optimizer,
        "loss": setup.loss,
        "reference": workload.reference,
        "sequences_per_example": workload.sequences_per_example,
        "micro_batch": setup.micro_batch,
        "length": setup.length,
        "scored_length": setup.length if workload.scores_prompt else setup.completion_length,
        "capacity": capacity,
    }


def run_worker(requests: list[dict[str, Any]], module: str = TRACE_WORKER) -> list[dict[str, Any]]:
    """The worker's answers; BadInput where it cannot run at all."""
    answers: list[dict[str, Any]] = ask_worker(
        module,
        requests,
        {"OMP_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error"},
        TIMEOUT_SECONDS,
        "the trace",
        "leave --trace out",
    )
    return answers


def allocator_capacity(resolved: Resolved) -> int | None:
    """Bytes that torch's allocator can get on the GPU that is planned for."""
    if not resolved.on_gpu:
        return None
    slack = resolved.slack()
    return round(resolved.available()[0] - slack.context_bytes - slack.workspace_bytes)


def trace_stage(request: StageRequest, hardware: Hardware) -> tuple[StageSize, Trace]:
    """The stage's size with the traced peak in place of the closed form's, and the trace itself."""
    resolved = Resolved(request, hardware)
    if not resolved.workload.trains:
        raise BadInput("--trace runs a training step; the probe only generates")
    workload, setup, left_out = traceable(resolved.workload, resolved.setup)
    config, _ = find_config(request.model)
    began = time.monotonic()
    asked = worker_request(config, resolved.shape, workload, setup, allocator_capacity(resolved))
    asked["num_gpus"] = setup.num_gpus
    answer = run_worker([asked], FSDP_WORKER if setup.sharding == "fsdp" else TRACE_WORKER)[0]
    if "error" in answer:
        raise BadInput(f"this step cannot be traced ({answer['error']}); leave --trace out")
    closed = max(phase_bytes(resolved.shape, workload, setup).values())
    trace = Trace(
        allocated_bytes=int(answer["peak_bytes"]),
        closed_form_bytes=closed,
        reserved_bytes=answer.get("reserved_bytes") if resolved.on_gpu else None,
        phases={name: int(size) for name, size in answer["phases"].items()},
        composed=left_out,
        seconds=round(time.monotonic() - began, 1),
    )
    return _corrected(size_stage(request, hardware), trace), trace


def _corrected(size: StageSize, trace: Trace) -> StageSize:
    """`size` with the trace's difference to the closed form as a part of its own, and the range moved
    along; the allocator's slack is the replayed one, unless rollouts are what peaks."""
    difference = trace.allocated_bytes - trace.closed_form_bytes
    components, formulas = dict(size.components), dict(size.formulas)
    if difference >= 0:
        beyond = "traced beyond the closed form"
        components[beyond] = difference
        formulas[beyond] = f"{trace.allocated_bytes} - {trace.closed_form_bytes}"
    else:
        largest = max(components, key=lambda name: components[name])
        components[largest] += difference
        formulas[largest] += f" - {-difference}"
    high = size.high_bytes + difference
    assumptions = size.assumptions
    if trace.reserved_bytes is not None and size.phase != "rollout":
        tensors = sum(part for name, part in components.items() if name not in NOT_TRACED)
        components["allocator slack"] = max(0, trace.reserved_bytes - tensors)
        formulas["allocator slack"] = f"max(0, {trace.reserved_bytes} - {tensors})"
        high = round(sum(components.values()) + REPLAY_SPREAD * trace.reserved_bytes)
        replayed = Assumption(
            name="allocator slack", value="replayed", source="CUDA's caching allocator on this very step"
        )
        assumptions = tuple(replayed if one.name == replayed.name else one for one in assumptions)
    peak = sum(components.values())
    verdict = "fits" if high <= size.available_bytes else "does-not-fit"
    if verdict == "does-not-fit" and peak <= size.available_bytes:
        verdict = "tight"
    if size.problem:
        verdict = "does-not-fit"
    return StageSize.model_validate(
        {
            **size.model_dump(),
            "components": components,
            "formulas": formulas,
            "assumptions": assumptions,
            "peak_bytes": peak,
            "low_bytes": min(peak, size.low_bytes + difference),
            "high_bytes": max(peak, high),
            "allocated_bytes": size.allocated_bytes + difference,
            "reserved_bytes": peak - components.get("context", 0),
            "headroom_bytes": size.available_bytes - peak,
            "verdict": verdict,
        }
    )

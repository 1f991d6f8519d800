"""Peak memory of one training stage on one GPU, component by component.

A step is a few phases that do not add up, because each frees what it used: rollout, loss, the backward pass
of the first layer it reaches, that of the last, the optimizer's step. The peak is the largest phase; its
components sum to it exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

from estimators.activations import block_peak_bytes, dtypes, saved_bytes
from estimators.adapters import lora_params
from estimators.head import final_norm_bytes, loss_bytes
from estimators.optimizers import find_optimizer, state_bytes, step_bytes
from estimators.shapes import ModelShape
from estimators.units import BYTES_PER_ELEMENT
from estimators.workload import Dtype, Setup, Workload

NF4 = 0.5 + 4 / 64
"""Bytes per weight: 4 bits and one fp32 scale per block of 64. Source: QLoRA, arXiv:2305.14314, section 3."""
NF4_DOUBLE = 0.5 + 1 / 64 + 4 / (64 * 256)
"""The same with 8-bit scales, themselves scaled per 256 (double quantisation, ibid.)."""


SAMPLED_BYTES = 8 + 8 + 4 + 4
"""Per token of the sampled batch: ids and mask as int64, old and reference log-probabilities in fp32.

TRL 1.16 holds them on the GPU from generation until the last micro-batch (`_buffered_inputs`)."""


@dataclass(frozen=True, slots=True)
class Slack:
    """What a device needs on top of allocated tensors."""

    context_bytes: float
    """CUDA context and kernels; on a CPU the interpreter and its libraries."""
    workspace_bytes: float
    """cuBLAS workspaces: one per thread that multiplies, forward and autograd."""
    likely: float
    """Share of allocated bytes that the caching allocator reserves on top."""
    high: float
    scores: float = 0.0
    """Share of eager attention's score matrices that stays cached when other sizes are asked for."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Sizes in bytes on one GPU."""

    components: dict[str, int]
    """Of the largest phase; they sum to `peak`."""
    phase: str
    phases: dict[str, int]
    """Allocated bytes in each phase."""
    allocated: int
    """Most bytes in tensors at one time: `torch.cuda.max_memory_allocated`."""
    reserved: int
    """What the allocator holds: `torch.cuda.max_memory_reserved`."""
    peak: int
    """What the device shows as used by the process."""
    low: int
    high: int


def weight_bytes(shape: ModelShape, setup: Setup) -> dict[str, float]:
    """The base model's weights, unsharded: in one dtype, or 4-bit matrices and the wider remainder."""
    size = BYTES_PER_ELEMENT[setup.weights_dtype]
    if setup.tuning != "qlora":
        return {"weights": size * shape.params}
    per_weight = NF4_DOUBLE if setup.double_quantisation else NF4
    remainder = shape.params - shape.linear_weights
    experts = shape.groups["experts"] + shape.groups["router"]
    wide = 4 if setup.kbit_prepared else size
    return {
        "weights in 4 bits": per_weight * shape.linear_weights,
        "weights not in 4 bits": wide * (remainder - experts) + wide * experts,
    }


def trainable_params(shape: ModelShape, setup: Setup) -> int:
    """How many parameters are trained."""
    if setup.tuning == "full":
        return shape.params
    return lora_params(shape, setup.lora_rank, setup.lora_targets)


def trainable_dtype(setup: Setup) -> Dtype:
    return setup.weights_dtype if setup.tuning == "full" else setup.adapter_dtype


def kv_cache_bytes(shape: ModelShape, setup: Setup, sequences: int) -> float:
    """Keys and values of `sequences` at full length: 2 bytes per element, windows capped."""
    element = 2 if setup.autocast != "none" or setup.weights_dtype != "fp32" else 4
    per_sequence = sum(
        block.count * block.kv_bytes_per_element_width * min(setup.length, block.window or setup.length)
        for block in shape.blocks
    )
    return float(element * per_sequence * sequences)


def sharded(total: float, setup: Setup, stages: tuple[str, ...]) -> float:
    """`total` bytes, split over the GPUs where the sharding covers them."""
    return total / setup.num_gpus if setup.sharding in stages else total


def gathered_bytes(shape: ModelShape, setup: Setup) -> float:
    """Whole parameters that a sharded model holds for a moment: two layers, and what is outside the layers.

    Prefetch gathers the next layer while one computes. FSDP keeps its root unit (embedding, head) gathered
    from forward to backward. Not measured here.
    """
    if setup.sharding not in ("zero3", "fsdp"):
        return 0.0
    element = 2 if setup.autocast != "none" else BYTES_PER_ELEMENT[setup.weights_dtype]
    blocks = 2.0 * shape.largest_block_params * element
    root = (shape.embedding_params + shape.head_params) * element
    if setup.tuning == "qlora":
        blocks = 2 * shape.largest_block_params * NF4_DOUBLE
    return blocks + root


def estimate(shape: ModelShape, workload: Workload, setup: Setup, slack: Slack, total_bytes: int) -> Memory:
    """The peak of one training step. `total_bytes` is the card's memory, of which vLLM claims a share."""
    phases = _phases(shape, workload, setup, total_bytes)
    allocated = {name: sum(parts.values()) for name, parts in phases.items()}
    phase = max(allocated, key=lambda name: allocated[name])
    parts = phases[phase]
    claimed = parts.get("vLLM's share", 0.0)
    pooled = allocated[phase] - claimed
    components = {name: round(size) for name, size in parts.items() if size >= 1}
    components["workspaces"] = round(slack.workspace_bytes)
    scores = _score_bytes(shape, workload, setup)
    components["allocator slack"] = round(slack.likely * pooled + slack.scores * scores)
    components["context"] = round(slack.context_bytes)
    components = {name: size for name, size in components.items() if size}
    peak = sum(components.values())
    tensors = sum(size for name, size in components.items() if name not in ("allocator slack", "context"))
    spread = (slack.high - slack.likely) * pooled + 0.75 * slack.scores * scores + _ddp_buckets(shape, setup)
    return Memory(
        components=components,
        phase=phase,
        phases={name: round(size) for name, size in allocated.items()},
        allocated=tensors,
        reserved=peak - components.get("context", 0),
        peak=peak,
        low=min(peak, round(tensors + 0.5 * slack.context_bytes)),
        high=peak + round(spread + 0.25 * slack.context_bytes),
    )


def phase_bytes(shape: ModelShape, workload: Workload, setup: Setup, total_bytes: int = 0) -> dict[str, int]:
    """Allocated bytes of every phase of a step."""
    phases = _phases(shape, workload, setup, total_bytes)
    return {name: round(sum(parts.values())) for name, parts in phases.items()}


def _score_bytes(shape: ModelShape, workload: Workload, setup: Setup) -> float:
    """Eager attention's score matrices of one layer at their most: 12 bytes per head and pair of
    positions."""
    if setup.attention != "eager" or not workload.trains:
        return 0.0
    heads = max(block.heads for block in shape.blocks)
    return 12.0 * heads * setup.length**2 * setup.micro_batch * workload.sequences_per_example


def _ddp_buckets(shape: ModelShape, setup: Setup) -> float:
    """DistributedDataParallel's own copy of all gradients, where gradients are no views into its buckets."""
    if setup.num_gpus == 1 or setup.sharding != "none":
        return 0.0
    return trainable_params(shape, setup) * BYTES_PER_ELEMENT[trainable_dtype(setup)]


def _phases(
    shape: ModelShape, workload: Workload, setup: Setup, total_bytes: int
) -> dict[str, dict[str, float]]:
    """Allocated bytes by component in every phase of a step."""
    if not workload.trains:
        base = _resident(shape, workload, setup, total_bytes)
        return {"rollout": {**base, **_rollout(shape, workload, setup)}}
    tokens = setup.micro_batch * workload.sequences_per_example * setup.length
    scored = tokens if workload.scores_prompt else tokens // max(setup.length, 1) * setup.completion_length
    base = _resident(shape, workload, setup, total_bytes)
    gradients = sharded(_gradient_bytes(shape, setup), setup, ("zero2", "zero3", "fsdp"))
    kept = {"gradients": gradients} if setup.gradient_accumulation > 1 else {}
    outside = final_norm_bytes(shape, setup, tokens)
    saved = saved_bytes(shape, setup, tokens)
    last = block_peak_bytes(shape, setup, tokens, first=False)
    first = block_peak_bytes(shape, setup, tokens, first=True)
    loss = loss_bytes(shape, setup, scored)
    head_gradient = _head_gradient_bytes(shape, setup)
    embedding = 0.0
    if setup.tuning == "full" and setup.gradient_accumulation == 1 and not shape.tied:
        embedding = shape.embedding_params * BYTES_PER_ELEMENT[setup.weights_dtype]
    layers = gradients - sharded(embedding, setup, ("zero2", "zero3", "fsdp"))
    optimizer = find_optimizer(setup.optimizer)
    gathered = gathered_bytes(shape, setup)
    step = step_bytes(optimizer, trainable_params(shape, setup), trainable_dtype(setup))
    autocast = _autocast_cache_bytes(shape, setup)
    held = 0.0 if setup.gradient_checkpointing else autocast
    phases = {
        "loss, forward": {
            **base,
            **kept,
            "autocast copies": autocast,
            "activations": saved + outside,
            "loss": loss.forward,
        },
        "loss, backward": {
            **base,
            **kept,
            "autocast copies": held,
            "activations": saved + outside,
            "loss": loss.backward,
        },
        "backward, last layer": {
            **base,
            "gradients": kept.get("gradients", head_gradient),
            "autocast copies": held,
            "activations": saved + last,
        },
        "backward, first layer": {**base, "gradients": layers, "activations": first},
        "backward, embedding": {
            **base,
            "gradients": gradients,
            "embedding's gradient": _embedding_gradient_bytes(shape, setup),
        },
        "optimizer step": {
            **base,
            "gradients": gradients,
            "optimizer step": sharded(step, setup, ("zero1", "zero2", "zero3", "fsdp")),
        },
    }
    for name, parts in phases.items():
        if name != "optimizer step":
            parts["gathered layers"] = gathered
    if workload.rollouts == "hf":
        phases["rollout"] = {**base, **kept, **_rollout(shape, workload, setup), "gathered layers": gathered}
    elif workload.rollouts == "vllm-colocate" and setup.vllm_sleep:
        claim = setup.vllm_memory_utilization * total_bytes
        phases["rollout"] = {**base, **kept, "vLLM's share": claim}
    return phases


def _resident(shape: ModelShape, workload: Workload, setup: Setup, total_bytes: int) -> dict[str, float]:
    """What stays from step to step: weights, adapter, optimizer state, a reference copy, vLLM's claim."""
    stages = ("zero3", "fsdp")
    parts = {name: sharded(size, setup, stages) for name, size in weight_bytes(shape, setup).items()}
    params = trainable_params(shape, setup) if workload.trains else 0
    dtype = trainable_dtype(setup)
    if setup.tuning != "full" and workload.trains:
        parts["adapter"] = sharded(params * BYTES_PER_ELEMENT[dtype], setup, stages)
    states = state_bytes(find_optimizer(setup.optimizer), params, dtype)
    parts["optimizer states"] = sharded(states, setup, ("zero1", "zero2", "zero3", "fsdp"))
    if workload.reference == "copy":
        for name, size in weight_bytes(shape, setup).items():
            parts[name.replace("weights", "reference weights")] = sharded(size, setup, stages)
    if workload.rollouts != "none":
        parts["sampled batch"] = SAMPLED_BYTES * setup.length * setup.generation_batch
    if workload.rollouts == "vllm-colocate" and not setup.vllm_sleep:
        parts["vLLM's share"] = setup.vllm_memory_utilization * total_bytes
    return parts


def _gradient_bytes(shape: ModelShape, setup: Setup) -> float:
    return trainable_params(shape, setup) * BYTES_PER_ELEMENT[trainable_dtype(setup)]


def _head_gradient_bytes(shape: ModelShape, setup: Setup) -> float:
    """The output head's gradient, which is there before the first layer's."""
    if setup.tuning != "full":
        return 0.0
    return shape.vocab * shape.hidden * BYTES_PER_ELEMENT[setup.weights_dtype]


def _embedding_gradient_bytes(shape: ModelShape, setup: Setup) -> float:
    """The embedding's gradient while it is added to what is there already.

    A tied matrix gets a gradient from either end, and autograd adds them into a third tensor; with
    accumulation the sum exists besides the one of earlier micro-batches.
    """
    if setup.tuning != "full":
        return 0.0
    copies = (2 if shape.tied else 0) + (1 if setup.gradient_accumulation > 1 else 0)
    return copies * _head_gradient_bytes(shape, setup)


def _autocast_cache_bytes(shape: ModelShape, setup: Setup) -> float:
    """Narrow copies of fp32 weights under autocast, at the end of the forward pass.

    Autocast caches a copy of every trained fp32 weight until the forward pass ends. Without checkpointing the
    graph also keeps those of frozen weights, which the gradients of activations need.
    """
    if setup.autocast == "none":
        return 0.0
    total = 0.0
    keeps_all = setup.tuning == "full" or not setup.gradient_checkpointing
    if setup.weights_dtype == "fp32" and setup.tuning != "qlora" and keeps_all:
        total += 2.0 * sum(block.count * (block.params - block.norm_params) for block in shape.blocks)
    if setup.tuning != "full" and setup.adapter_dtype == "fp32":
        total += 2.0 * trainable_params(shape, setup)
    return total


def _rollout(shape: ModelShape, workload: Workload, setup: Setup) -> dict[str, float]:
    """Rollouts by `model.generate`: the cache, a layer of it copied as it grows, logits of the last
    position."""
    if workload.rollouts != "hf":
        return {}
    cache = kv_cache_bytes(shape, setup, setup.generation_batch)
    element = dtypes(shape, setup).compute
    logits = setup.generation_batch * shape.vocab * (element + 4 + 4)
    prefill = setup.generation_batch * setup.prompt_length * shape.hidden * element * 6
    return {
        "KV cache": cache,
        "KV cache growth": cache / max(shape.num_layers, 1) * 2,
        "rollout logits": logits,
        "prefill": prefill,
    }

"""Peak memory of one training stage on one GPU, component by component.

A step is a few phases that do not add up, because each frees what it used: rollout, loss, the backward pass
of the first layer it reaches, that of the last, the optimizer's step. The peak is the largest phase; its
components sum to it exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum

from estimators import sharding
from estimators.activations import block_peak_bytes, dtypes, saved_bytes
from estimators.adapters import trainable_params
from estimators.head import final_norm_bytes, loss_bytes
from estimators.optimizers import find_optimizer, state_bytes, step_bytes
from estimators.shapes import ModelShape
from estimators.slack import Slack, cached_bytes, shares_of
from estimators.terms import formula, term
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
class Memory:
    """Sizes in bytes on one GPU."""

    components: dict[str, int]
    """Of the largest phase; they sum to `peak`."""
    phase: str
    phases: dict[str, int]
    """Allocated bytes in each phase."""
    phase_components: dict[str, dict[str, int]]
    """Allocated bytes in each phase, component by component."""
    formulas: dict[str, str]
    """How each component was computed, and what only a rollout has; evaluates to its bytes."""
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
        return {"weights": size * term(shape.params)}
    per_weight = NF4_DOUBLE if setup.double_quantisation else NF4
    packed = shape.linear_weights
    if setup.experts_4bit:
        packed += shape.groups["experts"] + shape.groups["router"]
    wide = 4 if setup.kbit_prepared else size
    return {
        "weights in 4 bits": per_weight * term(packed),
        "weights not in 4 bits": wide * term(shape.params - packed),
    }


def trainable_dtype(setup: Setup) -> Dtype:
    return setup.weights_dtype if setup.tuning == "full" else setup.adapter_dtype


def kv_cache_bytes(shape: ModelShape, setup: Setup, sequences: int) -> float:
    """Keys and values of `sequences` at full length: 2 bytes per element, windows capped."""
    element = 2 if setup.autocast != "none" or setup.weights_dtype != "fp32" else 4
    per_sequence = sum(
        block.count * block.kv_bytes_per_element_width * min(setup.length, block.window or setup.length)
        for block in shape.blocks
    )
    return element * term(per_sequence) * sequences


def sharded(total: float, setup: Setup, stages: tuple[str, ...]) -> float:
    """`total` bytes, split over the GPUs where the sharding covers them."""
    return total / setup.num_gpus if setup.sharding in stages else total


def estimate(shape: ModelShape, workload: Workload, setup: Setup, slack: Slack, total_bytes: int) -> Memory:
    """The peak of one training step. `total_bytes` is the card's memory, of which vLLM claims a share."""
    phases = _phases(shape, workload, setup, total_bytes)
    allocated = {name: fsum(parts.values()) for name, parts in phases.items()}
    cached = _cached(shape, workload, setup, slack, phases, total_bytes)
    phase = max(allocated, key=lambda name: allocated[name] + cached[name])
    parts = phases[phase]
    sizes = {
        **parts,
        "workspaces": slack.workspace_bytes,
        "allocator slack": cached[phase],
        "context": slack.context_bytes,
    }
    components = {name: round(size) for name, size in sizes.items() if size >= 1}
    rollout = {} if phase == "rollout" else phases.get("rollout", {})
    formulas = {
        name: formula(size) for parts_of in (rollout, sizes) for name, size in parts_of.items() if size >= 1
    }
    peak = sum(components.values())
    most = max(allocated.values())
    outside = slack.workspace_bytes + slack.context_bytes
    highest = max(
        allocated[name] + cached[name] + _spread(name, slack, setup) * _pooled(sizes_of)
        for name, sizes_of in phases.items()
    )
    high = outside + highest + sharding.ddp_bucket_bytes(shape, setup) + 0.25 * slack.context_bytes
    least = most + slack.workspace_bytes + 0.5 * slack.context_bytes - _movable_bytes(parts, setup)
    return Memory(
        components=components,
        phase=phase,
        phases={name: round(size) for name, size in allocated.items()},
        phase_components={
            name: {part: round(size) for part, size in sizes.items() if size >= 1}
            for name, sizes in phases.items()
        },
        formulas=formulas,
        allocated=round(most + slack.workspace_bytes),
        reserved=peak - components.get("context", 0),
        peak=peak,
        low=min(peak, round(least)),
        high=max(peak, round(high)),
    )


def _spread(phase: str, slack: Slack, setup: Setup) -> float:
    """How far the high end lies above likely, as a share of what the allocator holds in a phase."""
    if slack.caching and phase != "rollout":
        return shares_of(setup).spread
    return slack.high - slack.likely


def _movable_bytes(parts: dict[str, float], setup: Setup) -> float:
    """Optimizer states that may lie in the host's memory: those of paged optimizers, when memory is short."""
    return parts.get("optimizer states", 0.0) if find_optimizer(setup.optimizer).paged else 0.0


def phase_bytes(shape: ModelShape, workload: Workload, setup: Setup, total_bytes: int = 0) -> dict[str, int]:
    """Allocated bytes of every phase of a step."""
    phases = _phases(shape, workload, setup, total_bytes)
    return {name: round(fsum(parts.values())) for name, parts in phases.items()}


def _pooled(parts: dict[str, float]) -> float:
    """Bytes of a phase that torch's allocator holds."""
    return fsum(parts.values()) - parts.get("vLLM's share", 0.0)


def resident_bytes(shape: ModelShape, workload: Workload, setup: Setup, total_bytes: int) -> float:
    """Weights, gradients, optimizer states and all else that a step does not free, without vLLM's share."""
    return _pooled(_resident(shape, workload, setup, total_bytes)) + _gradient_bytes(shape, setup)


def _cached(
    shape: ModelShape,
    workload: Workload,
    setup: Setup,
    slack: Slack,
    phases: dict[str, dict[str, float]],
    total_bytes: int,
) -> dict[str, float]:
    """What the allocator likely holds in every phase beyond its tensors."""
    if not slack.caching or not workload.trains:
        return {name: slack.likely * term(_pooled(parts)) for name, parts in phases.items()}
    layers = sharding.computed_setup(setup)
    tokens, scored = token_counts(workload, setup)
    loss = loss_bytes(shape, layers, scored)
    resident = resident_bytes(shape, workload, setup, total_bytes)
    training, stepping = cached_bytes(shape, layers, tokens, loss, resident)
    found = dict.fromkeys(phases, training)
    found["optimizer step"] = stepping
    if "rollout" in phases:
        found["rollout"] = slack.likely * term(_pooled(phases["rollout"]))
    return found


def token_counts(workload: Workload, setup: Setup) -> tuple[float, float]:
    """Tokens of a micro-batch, and those of them that reach the vocabulary."""
    sequences = term(setup.micro_batch) * workload.sequences_per_example
    return sequences * setup.length, sequences * (
        setup.length if workload.scores_prompt else setup.completion_length
    )


def _phases(
    shape: ModelShape, workload: Workload, setup: Setup, total_bytes: int
) -> dict[str, dict[str, float]]:
    """Allocated bytes by component in every phase of a step.

    Where an example has two sequences, what the second adds to the first is a component of its own.
    """
    phases = _joint_phases(shape, workload, setup, total_bytes)
    if not workload.trains or workload.sequences_per_example == 1:
        return phases
    single = _joint_phases(
        shape, workload.model_copy(update={"sequences_per_example": 1}), setup, total_bytes
    )
    return {name: _second_apart(parts, single[name]) for name, parts in phases.items()}


def _second_apart(parts: dict[str, float], single: dict[str, float]) -> dict[str, float]:
    """`parts` with what sequences need divided into that of the first, and what the others add."""
    divided: dict[str, float] = {}
    for name, size in parts.items():
        if name in ("activations", "loss"):
            divided[f"{name}, first sequence"] = single[name]
            divided[f"{name}, second sequence"] = size - single[name]
        else:
            divided[name] = size
    return divided


def _joint_phases(
    shape: ModelShape, workload: Workload, setup: Setup, total_bytes: int
) -> dict[str, dict[str, float]]:
    """Allocated bytes by component in every phase of a step, all sequences together."""
    if not workload.trains:
        base = _resident(shape, workload, setup, total_bytes)
        return {"rollout": {**base, **_rollout(shape, workload, setup)}}
    layers = sharding.computed_setup(setup)
    tokens, scored = token_counts(workload, setup)
    base = _resident(shape, workload, setup, total_bytes)
    gradients = _gradient_bytes(shape, setup)
    kept = _kept_gradients(shape, setup)
    outside = final_norm_bytes(shape, layers, tokens)
    saved = saved_bytes(shape, layers, tokens)
    last = block_peak_bytes(shape, layers, tokens, first=False)
    first = block_peak_bytes(shape, layers, tokens, first=True)
    loss = loss_bytes(shape, layers, scored)
    autocast = _autocast_cache_bytes(shape, layers)
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
            "gradients": kept.get("gradients", _first_gradients(shape, setup)),
            "autocast copies": held,
            "activations": saved + last,
        },
        "backward, first layer": {
            **base,
            "gradients": gradients - _late_gradients(shape, setup),
            "activations": first,
        },
        "backward, embedding": {
            **base,
            "gradients": gradients,
            "embedding's gradient": _embedding_gradient_bytes(shape, layers),
        },
        "optimizer step": {**base, "gradients": gradients, **_step(shape, setup)},
    }
    if workload.rollouts == "hf":
        phases["rollout"] = {**base, **kept, **_rollout(shape, workload, layers)}
    elif workload.rollouts == "vllm-colocate" and setup.vllm_sleep:
        claim = setup.vllm_memory_utilization * term(total_bytes)
        phases["rollout"] = {**base, **kept, "vLLM's share": claim}
    if setup.sharding == "fsdp":
        _add_fsdp(phases, shape, workload, setup, base, kept)
    elif setup.sharding in sharding.ZERO:
        _add_zero(phases, shape, setup)
    return phases


def _add_fsdp(
    phases: dict[str, dict[str, float]],
    shape: ModelShape,
    workload: Workload,
    setup: Setup,
    base: dict[str, float],
    kept: dict[str, float],
) -> None:
    """What FSDP2 gathers and reduces in each phase, and the moments at which that is most."""
    layers = sharding.computed_setup(setup)
    units = sharding.fsdp_units(shape, layers)
    saved = phases["loss, forward"]["activations"]
    gradients = phases["backward, first layer"]["gradients"]
    last_gradients = phases["backward, last layer"]["gradients"]
    behind = saved * (1 - 1 / max(shape.num_layers, 1))
    phases["gather, first layer"] = {**base, **kept}
    phases["gather, last layer"] = {**base, **kept, "activations": behind}
    phases["gather, head"] = {**base, **kept, "activations": saved}
    phases["reduce, last layer"] = {**base, "gradients": last_gradients, "activations": behind}
    phases["reduce, first layer"] = {**base, "gradients": gradients}
    moments = {
        "gather, first layer": sharding.fsdp_first_gather(units, shape.tied),
        "gather, last layer": sharding.fsdp_last_gather(units, shape.tied),
        "gather, head": sharding.fsdp_head_gather(units, shape, setup),
        "loss, forward": sharding.fsdp_loss(units, shape, setup, backward=False),
        "loss, backward": sharding.fsdp_loss(units, shape, setup, backward=True),
        "backward, last layer": sharding.fsdp_layer(units, shape, setup, last=True),
        "backward, first layer": sharding.fsdp_layer(units, shape, setup, last=False),
        "reduce, last layer": sharding.fsdp_reduction(units, shape, setup, last=True),
        "reduce, first layer": sharding.fsdp_reduction(units, shape, setup, last=False),
        "backward, embedding": sharding.fsdp_embedding(units, shape, setup),
    }
    if workload.rollouts == "hf":
        moments["rollout"] = sharding.Moment(units.root + units.head + 3 * units.layer)
    for name, moment in moments.items():
        phases[name]["gathered parameters"] = moment.gathered
        phases[name]["gradients being reduced"] = moment.reduced
    # the embedding's gradients are those of its moment
    phases["backward, embedding"]["gradients"] = gradients
    phases["backward, embedding"]["embedding's gradient"] = 0.0
    if kept:
        waiting = units.layer_trained + (units.embedding if setup.tuning == "full" else 0.0)
        phases["backward, first layer"]["gradients"] += waiting
        phases["reduce, first layer"]["gradients"] += waiting - units.layer_trained
        phases["reduce, last layer"]["gradients"] -= units.layer_trained
    if workload.reference == "copy":
        phases["reference, forward"] = {
            **base,
            **kept,
            "activations": saved if workload.rollouts == "none" else 0.0,
            "loss": phases["loss, forward"]["loss"],
            "gathered parameters": units.root + units.head,
            "gathered reference": sharding.fsdp_reference_bytes(shape, layers),
        }


def _add_zero(phases: dict[str, dict[str, float]], shape: ModelShape, setup: Setup) -> None:
    """DeepSpeed's buckets in each phase, and what ZeRO-3 gathers."""
    bucket = sharding.zero_bucket_bytes(setup)
    for name, parts in phases.items():
        if "backward" in name or setup.sharding == "zero3":
            parts["reduce bucket"] = bucket
        if "backward" in name:
            parts["gradients being reduced"] = sharding.zero_reduction_bytes(shape, setup)
        if setup.sharding == "zero3" and name != "optimizer step":
            at_head = name.startswith("loss") or name in ("backward, last layer", "backward, embedding")
            parts["gathered parameters"] = sharding.zero3_gathered_bytes(shape, setup, head=at_head)
    if setup.sharding == "zero3" and "KV cache" in phases.get("rollout", {}):
        # TRL gathers the whole model to generate (`ds3_gather_for_generation`)
        whole = weight_bytes(shape, sharding.stored_setup(setup))
        phases["rollout"]["gathered parameters"] = sum(whole.values())


def _resident(shape: ModelShape, workload: Workload, setup: Setup, total_bytes: int) -> dict[str, float]:
    """What stays from step to step: weights, adapter, optimizer state, a reference copy, vLLM's claim."""
    stages = ("zero3", "fsdp")
    stored = sharding.stored_setup(setup)
    parts = {name: sharded(size, setup, stages) for name, size in weight_bytes(shape, stored).items()}
    params = term(trainable_params(shape, setup) if workload.trains else 0)
    if setup.tuning != "full" and workload.trains:
        adapter = params * BYTES_PER_ELEMENT[trainable_dtype(stored)]
        parts["adapter"] = sharded(adapter, setup, stages)
    if setup.sharding in sharding.ZERO:
        parts["fp32 masters"] = sharding.master_bytes(params, setup)
    states = state_bytes(find_optimizer(setup.optimizer), params, _stepped_dtype(setup))
    parts["optimizer states"] = sharded(states, setup, ("zero1", "zero2", "zero3", "fsdp"))
    if workload.reference == "copy":
        copied = setup if setup.sharding == "fsdp" else stored
        for name, size in weight_bytes(shape, copied).items():
            parts[name.replace("weights", "reference weights")] = sharded(size, setup, stages)
    if workload.rollouts != "none":
        parts["sampled batch"] = SAMPLED_BYTES * term(setup.length) * setup.generation_batch
    if workload.rollouts == "vllm-colocate" and not setup.vllm_sleep:
        parts["vLLM's share"] = setup.vllm_memory_utilization * term(total_bytes)
    return parts


def _stepped_dtype(setup: Setup) -> Dtype:
    """The dtype of what the optimizer steps: DeepSpeed's masters, or the parameters."""
    return "fp32" if setup.sharding in sharding.ZERO else trainable_dtype(sharding.stored_setup(setup))


def _step(shape: ModelShape, setup: Setup) -> dict[str, float]:
    """What exists only while the optimizer steps."""
    stages = ("zero1", "zero2", "zero3", "fsdp")
    params = term(trainable_params(shape, setup))
    copies = step_bytes(find_optimizer(setup.optimizer), params, _stepped_dtype(setup))
    parts = {"optimizer step": sharded(copies, setup, stages) + sharding.zero_step_bytes(shape, setup)}
    if setup.sharding == "zero1":
        # `free_grad_in_param_list` drops what other GPUs update
        parts["gradients"] = _gradient_bytes(shape, setup) / setup.num_gpus
    return parts


def _gradient_bytes(shape: ModelShape, setup: Setup) -> float:
    """All gradients on this GPU when the backward pass is over."""
    stored = sharding.stored_setup(setup)
    size = term(trainable_params(shape, setup)) * BYTES_PER_ELEMENT[trainable_dtype(stored)]
    return sharded(size, setup, ("zero2", "zero3", "fsdp"))


def _kept_gradients(shape: ModelShape, setup: Setup) -> dict[str, float]:
    """Gradients that are there before the backward pass: those of earlier micro-batches, ZeRO-3's buffer."""
    if setup.sharding == "zero3":
        return {"gradients": _gradient_bytes(shape, setup)}
    if setup.gradient_accumulation == 1:
        return {}
    if setup.sharding == "fsdp":
        return {"gradients": sharding.unreduced_gradient_bytes(shape, sharding.computed_setup(setup))}
    return {"gradients": _gradient_bytes(shape, setup)}


def _first_gradients(shape: ModelShape, setup: Setup) -> float:
    """Gradients that are there when the backward pass reaches the last layer: the head's, or ZeRO-2's."""
    if setup.sharding in ("zero2", "zero3"):
        return _gradient_bytes(shape, setup)
    if setup.sharding == "fsdp" and shape.tied:
        return 0.0  # not reduced before the embedding's
    head = _head_gradient_bytes(shape, sharding.stored_setup(setup))
    return sharded(head, setup, ("fsdp",))


def _late_gradients(shape: ModelShape, setup: Setup) -> float:
    """Gradients that come after the first layer's: the embedding's."""
    if setup.tuning != "full" or setup.sharding in ("zero2", "zero3"):
        return 0.0
    if setup.sharding != "fsdp" and (setup.gradient_accumulation > 1 or shape.tied):
        return 0.0
    stored = sharding.stored_setup(setup)
    size = term(shape.embedding_params) * BYTES_PER_ELEMENT[stored.weights_dtype]
    return sharded(size, setup, ("fsdp",))


def _head_gradient_bytes(shape: ModelShape, setup: Setup) -> float:
    """The output head's gradient, which is there before the first layer's."""
    if setup.tuning != "full":
        return 0.0
    return term(shape.vocab) * shape.hidden * BYTES_PER_ELEMENT[setup.weights_dtype]


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
        wide = sum(block.count * (block.params - block.norm_params) for block in shape.blocks)
        total += 2.0 * term(wide)
    if setup.tuning != "full" and setup.adapter_dtype == "fp32":
        total += 2.0 * term(trainable_params(shape, setup))
    return total


def _rollout(shape: ModelShape, workload: Workload, setup: Setup) -> dict[str, float]:
    """Rollouts by `model.generate`: the cache, a layer of it copied as it grows, logits of the last
    position."""
    if workload.rollouts != "hf":
        return {}
    cache = kv_cache_bytes(shape, setup, setup.generation_batch)
    element = dtypes(shape, setup).compute
    logits = term(setup.generation_batch) * shape.vocab * (element + 4 + 4)
    prefill = term(setup.generation_batch) * setup.prompt_length * shape.hidden * element * 6
    return {
        "KV cache": cache,
        "KV cache growth": cache / max(shape.num_layers, 1) * 2,
        "rollout logits": logits,
        "prefill": prefill,
    }

"""What data parallelism puts on each GPU beside its share: gathered parameters, buckets, dtypes of its own.

Sources: FSDP2 as accelerate 1.15 wraps a model for transformers' Trainer (`fsdp2_prepare_model`) and torch
2.13 runs it (torch/distributed/fsdp/_fully_shard); checked against that code on fake tensors
(`pipelines.training.fsdp_worker`). DeepSpeed 0.19.8 (deepspeed/runtime/zero), read and not run. Parameters
are elements, everything returned is bytes on one GPU.
"""

from __future__ import annotations

from typing import NamedTuple

from estimators.adapters import trainable_params
from estimators.head import FUSED_VOCAB
from estimators.shapes import ModelShape
from estimators.units import BYTES_PER_ELEMENT
from estimators.workload import Setup

ZERO = ("zero1", "zero2", "zero3")
REDUCE_BUCKET = 500_000_000
"""Elements of one gradient bucket. Source: `reduce_bucket_size` of deepspeed/runtime/zero/config.py, which
accelerate's own DeepSpeed configs (and TRL's zero1 to zero3) leave alone; `"auto"` in a JSON file makes it
H²."""
PREFETCH_BUCKET = 50_000_000
"""Elements that ZeRO-3 gathers ahead: `stage3_prefetch_bucket_size`, ibid."""
REUSE_DISTANCE = 1_000_000_000
"""ZeRO-3 keeps a gathered parameter that is used again within so many elements: `stage3_max_reuse_distance`,
ibid."""
SUB_GROUP = 1_000_000_000
"""Elements that ZeRO-3 steps at once: `sub_group_size`, ibid."""
NF4_GATHERED = 0.53
"""Bytes per weight of a 4-bit matrix that is gathered with its scales (`estimators.memory.NF4_DOUBLE`)."""


def stored_setup(setup: Setup) -> Setup:
    """The setup with the dtypes in which parameters lie in memory.

    Under mixed precision accelerate widens what FSDP2 trains to fp32 (`fsdp2_prepare_model`) and leaves
    frozen weights alone; DeepSpeed casts the whole module (`engine._configure_distributed_model`) and keeps
    fp32 masters of its share (`master_bytes`).
    """
    if setup.autocast == "none" or setup.sharding == "none":
        return setup
    if setup.sharding == "fsdp":
        weights = "fp32" if setup.tuning == "full" else setup.weights_dtype
        return setup.model_copy(update={"weights_dtype": weights, "adapter_dtype": "fp32"})
    narrow = {"weights_dtype": setup.autocast, "adapter_dtype": setup.autocast, "kbit_prepared": False}
    return setup.model_copy(update=narrow)


def computed_setup(setup: Setup) -> Setup:
    """The setup with the dtypes in which layers compute.

    FSDP2 gathers into `MixedPrecisionPolicy.param_dtype`, DeepSpeed holds narrow weights: neither runs under
    autocast, so the residual stream is narrow too and no cast copies are kept.
    """
    if setup.autocast == "none" or setup.sharding == "none":
        return setup
    narrow = {"weights_dtype": setup.autocast, "adapter_dtype": setup.autocast, "kbit_prepared": False}
    return setup.model_copy(update={**narrow, "autocast": "none"})


def master_bytes(params: float, setup: Setup) -> float:
    """DeepSpeed's fp32 copy of the parameters that this GPU updates: `single_partition_of_fp32_groups` and
    `fp32_partitioned_groups_flat`, 4 bytes each over the GPUs."""
    return 4 * params / setup.num_gpus if setup.sharding in ZERO else 0.0


class Units(NamedTuple):
    """Bytes of what FSDP2 gathers at once, in the dtype that computes.

    accelerate makes a unit of every decoder layer, one of the embedding and one of final norm and head; where
    embedding and head are one matrix, those two are one unit. The last is gathered from forward to backward.
    """

    layer: float
    """The largest decoder layer, with its adapters."""
    layer_trained: float
    """Of that, what gets gradients."""
    feed_forward: float
    """Gradients of the feed-forward beside its largest matrix's, which a layer's own peak counts."""
    embedding: float
    """0 where it is tied to the head."""
    head: float
    """Head and final norm, or the tied matrix."""
    root: float
    """What is in none of these (positions, a vision tower): gathered from forward to backward."""


def fsdp_units(shape: ModelShape, setup: Setup) -> Units:
    """The units of `shape`, from the setup that computes."""
    element = BYTES_PER_ELEMENT[setup.weights_dtype]
    adapters = 0.0
    if setup.tuning != "full":
        adapters = trainable_params(shape, setup) / max(shape.num_layers, 1)
        adapters *= BYTES_PER_ELEMENT[setup.adapter_dtype]
    layer = shape.largest_block_params * (NF4_GATHERED if setup.tuning == "qlora" else element)
    trained = layer if setup.tuning == "full" else adapters
    embedding = element * shape.embedding_params
    root = element * (shape.position_params + shape.other_params)
    feed_forward = 0.0
    if setup.tuning == "full":
        block = max(shape.blocks, key=lambda block: block.params)
        inside = sum(linear.weights for linear in block.feed_forward) + block.expert_params
        largest = max((linear.weights for linear in block.linears), default=0)
        feed_forward = max(0.0, element * (inside - max(largest, block.expert_params // 2)))
    head = embedding if shape.tied else element * shape.head_params
    alone = 0.0 if shape.tied else embedding
    return Units(layer + adapters, trained, feed_forward, alone, head, root)


class Moment(NamedTuple):
    """Bytes that exist at one moment of a step beside shards and activations."""

    gathered: float
    """Whole parameters, and the buffers they are gathered in."""
    reduced: float = 0.0
    """Whole gradients that are not yet reduced, and the buffers that are."""


def fsdp_first_gather(units: Units, tied: bool) -> Moment:
    """The first layer is gathered at the start of the forward pass.

    Gathering takes the unit twice: `foreach_all_gather` fills one buffer, `foreach_all_gather_copy_out`
    copies it into parameters. The buffer of the unit before stays until that is done (`wait_for_unshard`
    still holds `prev_all_gather_state`).
    """
    if tied:
        return Moment(units.root + 2 * units.head + 2 * units.layer)
    return Moment(units.root + max(2 * units.embedding, units.embedding + 2 * units.layer))


def fsdp_last_gather(units: Units, tied: bool) -> Moment:
    """The last layer is gathered: buffer, parameters, and the buffer of the layer before."""
    return Moment(units.root + 3 * units.layer + (units.head if tied else 0.0))


def fsdp_head_gather(units: Units, shape: ModelShape, setup: Setup) -> Moment:
    """The head is gathered behind the last layer, when all activations are saved."""
    if shape.tied:
        return Moment(units.root + units.head + units.layer)
    head = lone_head_bytes(shape, setup) if gathers_head_alone(shape, setup) else 2 * units.head
    return Moment(units.root + units.layer + head)


def gathers_head_alone(shape: ModelShape, setup: Setup) -> bool:
    """Whether TRL's fused loss gathers the head itself (`weight.full_tensor()` in `add_fused_lm_head`).

    It does where no unit that ran holds the head: under PEFT accelerate does not find the final norm, an
    untied head is a unit alone, and the fused loss never calls it.
    """
    return setup.tuning != "full" and setup.loss == "fused" and not shape.tied


def lone_head_bytes(shape: ModelShape, setup: Setup) -> float:
    """The head as the fused loss gathers it: in the stored dtype, a chunk narrowed where that is fp32."""
    stored, computed = stored_setup(setup), computed_setup(setup)
    size = float(shape.head_params * BYTES_PER_ELEMENT[stored.weights_dtype])
    if stored.weights_dtype != computed.weights_dtype:
        size += BYTES_PER_ELEMENT[computed.weights_dtype] * min(shape.vocab, FUSED_VOCAB) * shape.hidden
    return size


def fsdp_loss(units: Units, shape: ModelShape, setup: Setup, backward: bool) -> Moment:
    """At the loss the head is whole; its gathering buffer lives until the forward pass returns, and the
    backward pass gathers a layer ahead (`_backward_prefetch`)."""
    if gathers_head_alone(shape, setup):
        return Moment(units.root + lone_head_bytes(shape, setup) + units.layer)
    if backward or shape.tied:
        return Moment(units.root + units.head + units.layer)
    return Moment(units.root + 2 * units.head)


def fsdp_layer(units: Units, shape: ModelShape, setup: Setup, last: bool) -> Moment:
    """While a layer's backward pass runs: the layer, the one that is gathered ahead, and the reduction
    before.

    The input of the reduction before is kept until the next starts (`reduce_scatter_max_input_buffers` is
    1): the head's for the last layer, a layer's for the others. The first layer's next unit is the
    embedding.
    """
    held = units.root + (units.head if shape.tied else 0.0)
    ahead = units.layer if last else units.embedding
    head = units.head if last and not shape.tied and setup.tuning == "full" else 0.0
    pending = units.head if shape.tied and setup.tuning == "full" else 0.0
    before = head if last else units.layer_trained
    return Moment(held + units.layer + ahead, pending + before + units.feed_forward)


def fsdp_reduction(units: Units, shape: ModelShape, setup: Setup, last: bool) -> Moment:
    """At the end of a layer's backward pass, when all its gradients are there.

    Before: layer, next layer, gradients and the last reduction's input. After: the layer is freed, and its
    own reduction has an input, an output of 1/N and that in the stored dtype (`foreach_reduce`).
    """
    running = fsdp_layer(units, shape, setup, last)
    pending = units.head if shape.tied and setup.tuning == "full" else 0.0
    before = running.gathered + running.reduced - units.feed_forward + units.layer_trained
    output = (1 + _widening(setup)) * units.layer_trained / setup.num_gpus
    after = running.gathered - units.layer + pending + 2 * units.layer_trained + output
    reduced = max(before, after) - running.gathered
    return Moment(running.gathered, reduced)


def _widening(setup: Setup) -> float:
    """Stored bytes of a trained parameter over computed ones."""
    computed, stored = computed_setup(setup), stored_setup(setup)
    if setup.tuning == "full":
        return BYTES_PER_ELEMENT[stored.weights_dtype] / BYTES_PER_ELEMENT[computed.weights_dtype]
    return BYTES_PER_ELEMENT[stored.adapter_dtype] / BYTES_PER_ELEMENT[computed.adapter_dtype]


def fsdp_embedding(units: Units, shape: ModelShape, setup: Setup) -> Moment:
    """At the end of the backward pass: the embedding with its gradient, or that with its reduction.

    A tied matrix holds three gradients (head, look-up, their sum) besides itself.
    """
    kept = 1.0 if setup.gradient_accumulation > 1 else 0.0
    if setup.tuning != "full":
        # without checkpointing nothing asks for the look-up's gradient, and it is only gathered ahead: once
        return Moment(units.root + (units.head if shape.tied else 2 * units.embedding))
    if shape.tied:
        return Moment(units.root + units.head, (3 + kept) * units.head + units.layer)
    output = (1 + _widening(setup)) * units.embedding / setup.num_gpus
    running = (2 + kept) * units.embedding + units.layer
    reducing = 2 * units.embedding + output
    return Moment(units.root, max(running, reducing))


def fsdp_reference_bytes(shape: ModelShape, setup: Setup) -> float:
    """A reference copy that is sharded: all of it at once, in the buffer and as parameters.

    TRL 1.16 makes the reference one unit (`prepare_fsdp` calls `fully_shard(model)` alone).
    """
    return 2.0 * BYTES_PER_ELEMENT[setup.weights_dtype] * shape.params


def unreduced_gradient_bytes(shape: ModelShape, setup: Setup) -> float:
    """Whole gradients that wait on every GPU for the last micro-batch of a step.

    accelerate's `no_sync` switches FSDP2's reduction off (`set_requires_gradient_sync(False)`), so
    gradients stay whole, in the dtype that computes. DeepSpeed reduces after every micro-batch.
    """
    if setup.sharding != "fsdp" or setup.gradient_accumulation == 1:
        return 0.0
    dtype = setup.weights_dtype if setup.tuning == "full" else setup.adapter_dtype
    return float(trainable_params(shape, setup) * BYTES_PER_ELEMENT[dtype])


def zero_bucket_bytes(setup: Setup) -> float:
    """DeepSpeed's gradient bucket, of fixed size: `setup_buckets` makes it for each backward pass in stages
    1 and 2, `_setup_for_real_optimizer` once in stage 3. One, because `overlap_comm` doubles it in stages 1
    and 2 only and is off there by default."""
    return float(REDUCE_BUCKET * _zero_element(setup)) if setup.sharding in ZERO else 0.0


def zero_reduction_bytes(shape: ModelShape, setup: Setup) -> float:
    """The copy of a full bucket that is reduced: `allreduce_bucket` flattens slices of it,
    `reduce_scatter_coalesced` concatenates partitions."""
    if setup.sharding not in ZERO:
        return 0.0
    return float(min(REDUCE_BUCKET, trainable_params(shape, setup)) * _zero_element(setup))


def zero_step_bytes(shape: ModelShape, setup: Setup) -> float:
    """fp32 gradients of this GPU's share, and in stage 3 the flat narrow copy they are cast from, for one sub
    group at a time.

    Source: `step` of stage_1_and_2.py (all of the share at once), `_prepare_fp32_grad_for_sub_group` of
    stage3.py.
    """
    if setup.sharding not in ZERO:
        return 0.0
    share = trainable_params(shape, setup) / setup.num_gpus
    if setup.sharding == "zero3":
        return min(share, SUB_GROUP) * (4 + _zero_element(setup))
    return share * 4


def zero3_gathered_bytes(shape: ModelShape, setup: Setup, head: bool) -> float:
    """Whole parameters under ZeRO-3: what is used again soon, what is gathered ahead, and one module's
    buffer.

    At the loss (`head`) the last half of the reuse distance is still there, because the backward pass needs
    it within the whole one (`__params_to_release`). A module's parameters are copied out of the buffer they
    were gathered in (`AllGatherCoalescedHandle.wait`).
    """
    if setup.sharding != "zero3":
        return 0.0
    element = NF4_GATHERED if setup.tuning == "qlora" else _zero_element(setup)
    matrix = max(shape.vocab * shape.hidden, 0) if head else shape.largest_block_params
    kept = min(shape.params, REUSE_DISTANCE / 2) if head else shape.largest_block_params
    ahead = min(shape.params, PREFETCH_BUCKET)
    return element * (kept + ahead) + matrix * (_zero_element(setup) if head else element)


def _zero_element(setup: Setup) -> int:
    """Bytes of a parameter and of its gradient under DeepSpeed."""
    return BYTES_PER_ELEMENT[stored_setup(setup).weights_dtype]


def ddp_bucket_bytes(shape: ModelShape, setup: Setup) -> float:
    """DistributedDataParallel's buckets: a second copy of all gradients, from the first step on.

    `gradient_as_bucket_view` is off in torch and in accelerate's `DistributedDataParallelKwargs`, and
    transformers does not set it.
    """
    if setup.num_gpus == 1 or setup.sharding != "none":
        return 0.0
    dtype = setup.weights_dtype if setup.tuning == "full" else setup.adapter_dtype
    return float(trainable_params(shape, setup) * BYTES_PER_ELEMENT[dtype])

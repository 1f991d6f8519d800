"""Activations that one decoder layer keeps for its backward pass, in bytes per token.

Every term below is one tensor that autograd saves in the Hugging Face implementation of Llama-like layers
(transformers 5.24, peft 0.21.2); `--trace` runs that implementation on fake tensors and a test holds both
within 5 %. A tensor is counted once however many operations read it. Letters as in `estimators.shapes`; `a`
is the number of heads, `r` the LoRA rank.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from estimators.adapters import is_target
from estimators.shapes import Block, Linear, ModelShape
from estimators.units import BYTES_PER_ELEMENT
from estimators.workload import Setup


class Dtypes(NamedTuple):
    """Bytes per element along one layer."""

    residual: int
    """The residual stream: the embedding's dtype."""
    normed: int
    """What a norm returns: weight × normalised input, in the wider of the two."""
    compute: int
    """What a matrix product returns."""
    attention: int
    """What the attention kernel reads and writes; autocast narrows it."""


def dtypes(setup: Setup) -> Dtypes:
    """Which dtypes flow through a layer.

    fp32 weights or a model prepared for k-bit training keep the residual stream in fp32. bitsandbytes returns
    a product in the dtype of its input (Linear4bit.forward), others in the autocast dtype, else in the
    weights'.
    """
    weights = BYTES_PER_ELEMENT[setup.weights_dtype]
    residual = 4 if setup.kbit_prepared else weights
    autocast = setup.autocast != "none"
    compute = 2 if autocast else residual
    if setup.tuning == "qlora":
        compute = residual
    return Dtypes(residual, residual, compute, 2 if autocast else compute)


def layer_bytes_per_token(shape: ModelShape, block: Block, setup: Setup) -> float:
    """Bytes per token that one layer of `block` saves for backward, without checkpointing."""
    kind = dtypes(setup)
    return (
        _norms(shape, block, setup, kind)
        + _qk_norm(block, setup, kind)
        + _attention(block, kind)
        + _inputs(shape, block, setup, kind)
        + _feed_forward(block, kind)
        + _experts(shape, block, setup, kind)
        + _ranks(block, setup, kind)
    )


def _trains(setup: Setup) -> bool:
    """Whether the base weights themselves are trained."""
    return setup.tuning == "full"


def _norms(shape: ModelShape, block: Block, setup: Setup, kind: Dtypes) -> float:
    """The norms over H: the fp32 input and its inverse root; the normalised input for the weight's gradient.

    RMSNorm in Python computes in fp32: an fp32 copy of a bf16 input, or the fp32 residual itself, 4H either
    way.
    """
    if shape.norm == "layer":
        fp32_input = 4 if setup.autocast != "none" else kind.residual
        return block.num_norms * (fp32_input * shape.hidden + 8)
    normalised = (4 if shape.model_type.startswith("gemma") else kind.residual) if _trains(setup) else 0
    return block.num_norms * ((4 + normalised) * shape.hidden + 4)


def _qk_norm(block: Block, setup: Setup, kind: Dtypes) -> float:
    """The norms of queries and keys: fp32 input, and the normalised one where its weight is trained."""
    if not block.qk_norm:
        return 0
    normalised = kind.compute if _trains(setup) else 0
    return (4 + normalised) * (block.q_width + block.k_width) + 4 * (block.heads + block.kv_heads)


def _attention(block: Block, kind: Dtypes) -> float:
    """Queries and keys after the rotation, values, output, and one fp32 log-sum-exp per head."""
    if block.mixer == "recurrent":
        return kind.attention * (block.q_width + block.k_width + block.v_width + 4 * block.out_width)
    widths = block.q_width + block.k_width + block.v_width + block.out_width
    return kind.attention * widths + 4 * block.heads


def _inputs(shape: ModelShape, block: Block, setup: Setup, kind: Dtypes) -> float:
    """Inputs of matrices that are saved for a weight's or an adapter's gradient.

    One shared tensor where the dtype already is what the product needs; otherwise every matrix makes its own
    cast copy: autocast for a trained weight, PEFT's `_cast_input_dtype` for an adapter.
    """
    total = 0.0
    for group in {linear.matches: None for linear in block.linears}:
        members = [linear for linear in block.linears if linear.matches == group]
        total += _group_inputs(members, block, setup, kind)
    return total


def _group_inputs(members: list[Linear], block: Block, setup: Setup, kind: Dtypes) -> float:
    """Saved inputs of matrices that read the same tensor."""
    width = members[0].inputs
    given = {"out": kind.attention, "down": kind.compute}.get(members[0].matches, kind.normed)
    already_saved = members[0].matches == "out"
    if _trains(setup):
        wanted, readers = (2 if setup.autocast != "none" else given), len(members)
    else:
        readers = sum(is_target(linear, block, setup.lora_targets) for linear in members)
        adapter = BYTES_PER_ELEMENT[setup.adapter_dtype]
        wanted = 2 if setup.autocast != "none" else adapter
        if setup.autocast != "none" and adapter == 4 and given == 2:
            # PEFT widens the input to the adapter's fp32, autocast narrows it again: a copy for each matrix
            return readers * 2 * width
    if not readers:
        return 0
    if wanted == given:
        return 0 if already_saved else given * width
    return readers * wanted * width


def _feed_forward(block: Block, kind: Dtypes) -> float:
    """Gate, up and the activated gate of a gated layer; the activation's input otherwise."""
    if not block.ffn_width:
        return 0
    return (3 if block.gated else 1) * kind.compute * block.ffn_width


def _experts(shape: ModelShape, block: Block, setup: Setup, kind: Dtypes) -> float:
    """Routed experts, for each of the experts that one token visits.

    The gathered input for the weight's gradient, gate, up, activated gate and product, and the output that
    the routing weight scales. Fused 3-D weights carry no adapter.
    """
    if not block.num_experts:
        return 0
    gathered = kind.compute * shape.hidden if _trains(setup) else 0
    product = kind.compute * block.expert_width if _trains(setup) else 0
    inner = 3 * kind.compute * block.expert_width + product
    routing = 2 * 4 * block.num_experts
    return block.experts_per_token * (gathered + inner + kind.compute * shape.hidden) + routing


def _ranks(block: Block, setup: Setup, kind: Dtypes) -> float:
    """What every adapter's A returns: r elements."""
    if _trains(setup):
        return 0
    per_element = 2 if setup.autocast != "none" else BYTES_PER_ELEMENT[setup.adapter_dtype]
    targets = sum(is_target(linear, block, setup.lora_targets) for linear in block.linears)
    return per_element * setup.lora_rank * targets


def eager_bytes(block: Block, setup: Setup, tokens: int) -> float:
    """Extra bytes of one layer with eager attention: scores before and after the softmax are kept.

    6 bytes per head and pair of positions: the fp32 softmax, and its narrow copy that multiplies the values.
    A sliding window does not shrink them.
    """
    if setup.attention != "eager" or block.mixer == "recurrent":
        return 0
    kind = dtypes(setup)
    return (4 + kind.attention) * block.heads * setup.length * tokens


@lru_cache(maxsize=1024)
def _cached(shape: ModelShape, setup: Setup) -> tuple[tuple[Block, float], ...]:
    return tuple((block, layer_bytes_per_token(shape, block, setup)) for block in shape.blocks)


def saved_bytes(shape: ModelShape, setup: Setup, tokens: int) -> float:
    """Bytes that all layers save between forward and backward.

    With checkpointing only each layer's input, once in the residual stream's dtype.
    """
    if setup.gradient_checkpointing:
        return dtypes(setup).residual * shape.num_layers * shape.hidden * tokens
    return sum(
        block.count
        * (layer_bytes_per_token(shape, block, setup) * tokens + eager_bytes(block, setup, tokens))
        for block in shape.blocks
    )


def block_peak_bytes(shape: ModelShape, setup: Setup, tokens: int) -> float:
    """Bytes that one layer needs at most while its backward pass runs, beyond what is saved.

    With checkpointing the layer's activations are made again; in both cases gradients of its inner tensors
    exist for a moment.
    """
    kind = dtypes(setup)
    largest = 0.0
    for block in shape.blocks:
        again = 0.0
        if setup.gradient_checkpointing:
            again = layer_bytes_per_token(shape, block, setup) * tokens + eager_bytes(block, setup, tokens)
        width = max(block.ffn_width, block.experts_per_token * block.expert_width)
        gradients = kind.compute * (3 * width + 2 * shape.hidden) * tokens
        if setup.attention == "eager" and block.mixer != "recurrent":
            gradients = max(gradients, 2 * 4 * block.heads * setup.length * tokens)
        largest = max(largest, again + gradients)
    return largest

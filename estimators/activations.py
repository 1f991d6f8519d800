"""Activations that one decoder layer keeps for its backward pass, in bytes per token.

Every term below is one tensor that autograd saves in the Hugging Face implementation of Llama-like layers
(transformers 5.24, peft 0.21.2); `--trace` runs that implementation on fake tensors and a test holds both
within 5 %. A tensor is counted once however many operations read it. Letters as in `estimators.shapes`; `a`
is the number of heads, `r` the LoRA rank.
"""

from __future__ import annotations

from typing import NamedTuple

from estimators.adapters import adapts_experts, expert_width, is_target
from estimators.shapes import Block, Linear, ModelShape
from estimators.terms import term
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


def dtypes(shape: ModelShape, setup: Setup) -> Dtypes:
    """Which dtypes flow through a layer.

    fp32 weights or a model prepared for k-bit training keep the residual stream in fp32. bitsandbytes returns
    a product in the dtype of its input (Linear4bit.forward), others in the autocast dtype, else in the
    weights'.
    """
    weights = BYTES_PER_ELEMENT[setup.weights_dtype]
    residual = 4 if setup.kbit_prepared else weights
    autocast = setup.autocast != "none"
    if autocast and setup.tuning == "qlora" and shape.norm == "layer":
        # the norm's fp32 result goes through Linear4bit, and so the sum with it is fp32 (traced)
        residual = 4
    compute = 2 if autocast else residual
    if setup.tuning == "qlora":
        compute = residual
    # CUDA's autocast runs nn.LayerNorm in fp32 and leaves its result so
    normed = 4 if autocast and shape.norm == "layer" else residual
    return Dtypes(residual, normed, compute, 2 if autocast else compute)


EAGER_COPIES = 1.4
"""Score matrices in the compute dtype that a GPU holds at softmax's backward beyond those that a trace sees.

Measured: T4, TinyLlama with eager attention, 2 × 2,048 tokens (14.8 against 12 bytes per pair; 17.9 in
fp32)."""


class LayerBytes(NamedTuple):
    """Bytes per token that one layer saves, by where they lie: backward frees the feed-forward's first."""

    attention: float
    feed_forward: float

    @property
    def total(self) -> float:
        return self.attention + self.feed_forward


def layer_bytes_per_token(shape: ModelShape, block: Block, setup: Setup) -> LayerBytes:
    """Bytes per token that one layer of `block` saves for backward, without checkpointing."""
    kind = dtypes(shape, setup)
    norms = _norms(shape, block, setup, kind)
    first = norms / 2 if block.num_norms > 1 else norms
    attention = first + _qk_norm(block, setup, kind) + _attention(block, kind)
    feed_forward = norms - first + _feed_forward(block, setup, kind) + _experts(shape, block, setup, kind)
    return LayerBytes(
        attention + _inputs(block.attention, block, setup, kind) + _ranks(block.attention, block, setup),
        feed_forward
        + _inputs(block.feed_forward, block, setup, kind)
        + _ranks(block.feed_forward, block, setup),
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
    whole = 0
    if sum(linear.matches == "qkv" for linear in block.attention) == 1 and kind.compute == kind.attention:
        # the saved values are a view that keeps the whole fused product, unless they were cast
        whole = kind.compute * (block.q_width + block.k_width)
    return kind.attention * widths + 4 * block.heads + whole


def _inputs(linears: tuple[Linear, ...], block: Block, setup: Setup, kind: Dtypes) -> float:
    """Inputs of matrices that are saved for a weight's or an adapter's gradient.

    One shared tensor where the dtype already is what the product needs; otherwise every matrix makes its own
    cast copy: autocast for a trained weight, PEFT's `_cast_input_dtype` for an adapter.
    """
    groups = {linear.matches: None for linear in linears}
    return sum(
        _group_inputs([linear for linear in linears if linear.matches == group], block, setup, kind)
        for group in groups
    )


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


def _feed_forward(block: Block, setup: Setup, kind: Dtypes) -> float:
    """Gate, up and the activated gate of a gated layer; the activation's input otherwise."""
    if not block.ffn_width:
        return 0
    if block.python_gelu:
        # gelu_new: its input, the fp32 copy for the power, tanh, 1 + tanh, and half the input
        wide = 4 if setup.autocast != "none" else kind.compute
        narrow_and_wide = (1, 3) if wide > kind.compute else (2, 2)
        return (narrow_and_wide[0] * kind.compute + narrow_and_wide[1] * wide) * block.ffn_width
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


def _ranks(linears: tuple[Linear, ...], block: Block, setup: Setup) -> float:
    """What every adapter's A returns: r elements."""
    if _trains(setup):
        return 0
    per_element = 2 if setup.autocast != "none" else BYTES_PER_ELEMENT[setup.adapter_dtype]
    targets = sum(is_target(linear, block, setup.lora_targets) for linear in linears)
    return per_element * setup.lora_rank * targets


def _expanded(block: Block, kind: Dtypes) -> float:
    """Keys and values repeated for every query head, where the kernel knows no groups of heads."""
    return kind.attention * 2 * (block.q_width - block.k_width)


def eager_bytes(shape: ModelShape, block: Block, setup: Setup, tokens: float) -> float:
    """Extra bytes of one layer with eager attention: the scores after the softmax.

    6 bytes per head and pair of positions: the fp32 softmax, and its narrow copy that multiplies the values.
    A sliding window does not shrink them.
    """
    if setup.attention != "eager" or block.mixer != "attention":
        return 0
    kind = dtypes(shape, setup)
    per_pair = 4.0 if kind.attention == 4 else 6.0
    if shape.narrow_softmax:
        per_pair = 1.35 * kind.attention
    scores = per_pair * block.heads * setup.length
    return scores * tokens


def saved_bytes(shape: ModelShape, setup: Setup, tokens: float) -> float:
    """Bytes that all layers save between forward and backward.

    With checkpointing only each layer's input, once in the residual stream's dtype.
    """
    if setup.gradient_checkpointing:
        return tokens * dtypes(shape, setup).residual * shape.num_layers * shape.hidden
    return sum(block.count * _saved_once(shape, block, setup, tokens) for block in shape.blocks)


def _saved_once(shape: ModelShape, block: Block, setup: Setup, tokens: float) -> float:
    merged = 0.0
    if _merges_experts(block, setup):
        # PEFT adds the adapters' product to whole expert matrices; the sum is needed for backward, and so are
        # copies of the adapters where they are wider than it (traced)
        merged = 2.0 * term(block.expert_params)
        if not _narrow_adapters(setup):
            merged += 6.0 * setup.lora_rank * expert_width(shape, block)
    own = layer_bytes_per_token(shape, block, setup).total * tokens
    return own + eager_bytes(shape, block, setup, tokens) + merged


def _merges_experts(block: Block, setup: Setup) -> bool:
    """Whether PEFT adds adapters to whole fused matrices of experts; unfused ones had adapters of their
    own."""
    return not _trains(setup) and adapts_experts(block, setup.lora_targets) and not setup.experts_4bit


def _narrow_adapters(setup: Setup) -> bool:
    """Whether LoRA's adapters have the base's narrow dtype, as sharded training under mixed precision gathers
    them."""
    return setup.tuning != "full" and setup.adapter_dtype != "fp32" and setup.sharding != "none"


def block_peak_bytes(shape: ModelShape, setup: Setup, tokens: float, first: bool) -> float:
    """Bytes that one layer needs at most while its backward pass runs, beyond what other layers have saved.

    Two moments can be the highest: the feed-forward's backward, when the whole layer is still saved, and
    attention's, when scores have gradients. With checkpointing the layer's activations are made again first;
    for the `first` layer, whose backward is the last, they are all that is left.
    """
    own = first or setup.gradient_checkpointing
    return max(_block_peak(shape, block, setup, tokens, own) for block in shape.blocks)


def _block_peak(shape: ModelShape, block: Block, setup: Setup, tokens: float, own: bool) -> float:
    saved = _saved_once(shape, block, setup, tokens) if own else 0.0
    feed_forward = saved + feed_forward_gradients(shape, block, setup) * tokens
    attention = 0.0
    if setup.attention == "eager" and block.mixer == "attention":
        kind = dtypes(shape, setup)
        kept = layer_bytes_per_token(shape, block, setup).attention if own else 0.0
        # softmax_backward: the saved softmax, its incoming gradient and its outgoing one, all fp32
        copies = (EAGER_COPIES if setup.on_gpu else 0.0) + (1.0 if shape.capped_scores else 0.0)
        wide = 3.25 * kind.attention if shape.narrow_softmax else 12.0
        scores = wide * (1 if own else 2 / 3) + copies * kind.attention
        pairs = scores * block.heads * setup.length
        attention = (kept + pairs + _expanded(block, kind) + 6 * shape.hidden) * tokens
    return max(feed_forward, attention) + _weight_temporaries(block, setup)


def feed_forward_gradients(shape: ModelShape, block: Block, setup: Setup) -> float:
    """Bytes per token of gradients inside the feed-forward, net of saved tensors they have freed.

    The gradients of gate, up and product minus the product that was saved for the down matrix. fp32 adapters
    on a narrow base add fp32 copies on their way. Traced on Llama-like layers with I = 3H to 5.4H.
    """
    kind = dtypes(shape, setup)
    width = max(block.ffn_width, block.experts_per_token * block.expert_width)
    hidden = shape.hidden
    return _inner_gradients(shape, block, setup, kind, width, hidden) + (
        8 * hidden if block.num_norms == 4 else 0
    )


def _inner_gradients(
    shape: ModelShape, block: Block, setup: Setup, kind: Dtypes, width: int, hidden: int
) -> float:
    if _trains(setup):
        return 2 * kind.compute * width + (2 * hidden if kind.residual == 2 else 0)
    adapted = any(is_target(linear, block, setup.lora_targets) for linear in block.feed_forward)
    if not adapted:
        return 3 * kind.compute * width + 2 * hidden
    if BYTES_PER_ELEMENT[setup.adapter_dtype] == 4 and kind.compute == 2:
        return 6 * width + 10 * hidden if setup.autocast != "none" else 4 * width + 12 * hidden
    return 2 * kind.compute * width + kind.compute * hidden


def _weight_temporaries(block: Block, setup: Setup) -> float:
    """Gradient of the largest matrix before it is accumulated, and autocast's copies of this layer's
    weights."""
    total = 0.0
    largest = max((linear.weights for linear in block.linears), default=0)
    if _trains(setup):
        total += term(max(largest, block.expert_params // 2)) * BYTES_PER_ELEMENT[setup.weights_dtype]
    if setup.autocast != "none" and setup.weights_dtype == "fp32" and setup.tuning != "qlora":
        total += 2.0 * term(sum(linear.weights for linear in block.linears) + block.expert_params)
    if _merges_experts(block, setup) and _narrow_adapters(setup):
        # both in the narrow dtype, one matrix at a time (traced under FSDP2)
        total += 1.0 * term(block.expert_params)
    elif _merges_experts(block, setup) and setup.gradient_checkpointing:
        # the adapters' product in fp32, and the gradient of the sum (traced)
        total += 5.0 * term(block.expert_params)
    return total

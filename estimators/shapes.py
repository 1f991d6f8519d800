"""The shape of a decoder model: its blocks, its matrices, and how many parameters each group holds.

A shape is what every size, FLOP and second is computed from. It is read from a `config.json` by
`estimators.families`; the counts equal `model.num_parameters()` of transformers, which tests check by
building the model on the meta device.

Letters: H hidden size, Q and K widths of all query and all key heads, I width of the feed-forward, V
vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Literal

from estimators.record import Record

Mixer = Literal["attention", "latent", "recurrent"]


class Linear(Record):
    """One `nn.Linear`: `y_O = x_I @ W_OI.T (+ b_O)`."""

    name: str
    """Last part of the module's name, as PEFT's `target_modules` matches it."""
    inputs: int
    outputs: int
    bias: bool = False
    matches: str = ""
    """Modules of one group read the same input tensor: q, k and v; gate and up."""

    @property
    def weights(self) -> int:
        return self.inputs * self.outputs

    @property
    def params(self) -> int:
        return self.weights + (self.outputs if self.bias else 0)


class Block(Record):
    """`count` identical decoder layers."""

    count: int
    mixer: Mixer = "attention"
    q_width: int = 0
    k_width: int = 0
    v_width: int = 0
    out_width: int = 0
    """Width of what attention returns, before the output projection: heads × value head size."""
    heads: int = 0
    kv_heads: int = 0
    window: int | None = None
    """Sliding window in tokens; None attends to all."""
    attention: tuple[Linear, ...] = ()
    feed_forward: tuple[Linear, ...] = ()
    """Dense feed-forward or the shared experts of a mixture."""
    ffn_width: int = 0
    gated: bool = True
    python_gelu: bool = False
    """`gelu_new`: an activation of several PyTorch operations, each of which saves tensors."""
    num_experts: int = 0
    experts_per_token: int = 0
    expert_width: int = 0
    expert_params: int = 0
    """All routed experts; transformers 5 keeps them as fused 3-D parameters, which are no `nn.Linear`."""
    adapted_experts: bool = False
    """Whether PEFT's `all-linear` puts adapters on the experts and the router (peft 0.21.2, ParamWrapper)."""
    router_params: int = 0
    norm_params: int = 0
    num_norms: int = 2
    """Norms over H; the query and key norms are counted apart."""
    qk_norm: bool = False
    other_params: int = 0

    @property
    def linears(self) -> tuple[Linear, ...]:
        return (*self.attention, *self.feed_forward)

    @cached_property
    def params(self) -> int:
        """Parameters of one layer."""
        return (
            sum(linear.params for linear in self.linears)
            + self.expert_params
            + self.router_params
            + self.norm_params
            + self.other_params
        )

    @cached_property
    def active_params(self) -> int:
        """Parameters of one layer that one token is multiplied with."""
        if not self.num_experts:
            return self.params
        return (
            self.params - self.expert_params + self.expert_params * self.experts_per_token // self.num_experts
        )

    @property
    def kv_bytes_per_element_width(self) -> int:
        """Cached elements per token: keys and values, or the latent vector."""
        return self.k_width + self.v_width if self.mixer != "recurrent" else 0


class ModelShape(Record):
    """A causal language model."""

    name: str
    model_type: str
    hidden: int
    vocab: int
    tied: bool
    """The output head is the embedding matrix."""
    blocks: tuple[Block, ...]
    position_params: int = 0
    head_bias: bool = False
    final_norm_params: int = 0
    other_params: int = 0
    """Parts beside the text decoder: a vision tower, per-layer embeddings."""
    embedding_width: int = 0
    """Width of the embedding where it is not H."""
    max_positions: int = 0
    norm: Literal["rms", "layer"] = "rms"
    sdpa: bool = True
    """False: transformers runs eager attention where flash attention is not asked for (soft caps, sinks)."""
    capped_scores: bool = False
    """Attention scores pass a soft cap, whose tanh is one more score matrix (gemma-2)."""
    narrow_softmax: bool = False
    """Eager attention computes its softmax in the compute dtype, not in fp32 (gpt-oss with its sinks)."""
    source: str = ""

    @cached_property
    def num_layers(self) -> int:
        return sum(block.count for block in self.blocks)

    @cached_property
    def embedding_params(self) -> int:
        return self.vocab * (self.embedding_width or self.hidden)

    @cached_property
    def head_params(self) -> int:
        """Parameters of the output head that the embedding does not already hold."""
        head = 0 if self.tied else self.vocab * (self.embedding_width or self.hidden)
        return head + (self.vocab if self.head_bias else 0)

    @cached_property
    def groups(self) -> dict[str, int]:
        """Parameters by group; the values sum to `params`."""
        totals = dict.fromkeys(
            ("embedding", "attention", "feed-forward", "experts", "router", "norms", "head", "other"), 0
        )
        totals["embedding"] = self.embedding_params + self.position_params
        totals["head"] = self.head_params
        totals["norms"] = self.final_norm_params
        totals["other"] = self.other_params
        for block in self.blocks:
            totals["attention"] += block.count * sum(linear.params for linear in block.attention)
            totals["feed-forward"] += block.count * sum(linear.params for linear in block.feed_forward)
            totals["experts"] += block.count * block.expert_params
            totals["router"] += block.count * block.router_params
            totals["norms"] += block.count * block.norm_params
            totals["other"] += block.count * block.other_params
        return totals

    @cached_property
    def params(self) -> int:
        """All parameters, a tied head counted once."""
        return sum(self.groups.values())

    @cached_property
    def linear_weights(self) -> int:
        """Weights of the `nn.Linear` modules inside the blocks: what bitsandbytes puts into 4 bits."""
        return sum(block.count * linear.weights for block, linear in self.linears())

    @cached_property
    def active_params(self) -> int:
        """Parameters that one token is multiplied with: no embedding look-up, only its own experts, the
        head."""
        blocks = sum(block.count * block.active_params for block in self.blocks)
        return blocks + self.vocab * (self.embedding_width or self.hidden)

    @cached_property
    def largest_block_params(self) -> int:
        return max(block.params for block in self.blocks)

    @cached_property
    def kv_elements_per_token(self) -> int:
        """Cached elements per token over all layers, without windows."""
        return sum(block.count * block.kv_bytes_per_element_width for block in self.blocks)

    def linears(self) -> Iterator[tuple[Block, Linear]]:
        """Every (block, linear) pair; multiply by `block.count`."""
        for block in self.blocks:
            for linear in block.linears:
                yield block, linear

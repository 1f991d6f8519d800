"""LoRA: which matrices carry an adapter, and how many parameters that is."""

from __future__ import annotations

from functools import lru_cache

from estimators.shapes import Block, Linear, ModelShape
from estimators.workload import LoraTargets, Setup

QUERY_VALUE = ("q_proj", "v_proj")


def is_target(linear: Linear, block: Block, targets: LoraTargets) -> bool:
    """Whether PEFT puts an adapter on `linear`.

    `all-linear` is every `nn.Linear` except the output head; the fused 3-D experts of transformers 5 are
    none. `attention` is q, k, v and o under whatever name; `qv` is PEFT's old default, or the fused matrix.
    """
    if targets == "all-linear":
        return True
    in_attention = linear in block.attention
    if targets == "attention":
        return in_attention
    return in_attention and (linear.name in QUERY_VALUE or (linear.matches == "qkv" and _is_fused(block)))


def target_names(shape: ModelShape, targets: LoraTargets) -> list[str]:
    """The `target_modules` that PEFT matches by the end of a module's name."""
    return sorted({linear.name for block, linear in shape.linears() if is_target(linear, block, targets)})


def _is_fused(block: Block) -> bool:
    return sum(linear.matches == "qkv" for linear in block.attention) == 1


@lru_cache(maxsize=4096)
def width_per_rank(shape: ModelShape, targets: LoraTargets) -> int:
    """Adapter parameters per unit of rank: inputs + outputs over all targets, A is (r, in) and B is (out, r).

    Source: LoRA, arXiv:2106.09685, section 4.1.
    """
    return sum(
        block.count * (linear.inputs + linear.outputs)
        for block, linear in shape.linears()
        if is_target(linear, block, targets)
    ) + sum(
        block.count * expert_width(shape, block) for block in shape.blocks if adapts_experts(block, targets)
    )


def adapts_experts(block: Block, targets: LoraTargets) -> bool:
    """Whether the routed experts of `block` carry adapters."""
    return targets == "all-linear" and block.num_experts > 0 and block.adapted_experts


def expert_width(shape: ModelShape, block: Block) -> int:
    """Inputs + outputs of all experts, the fused gate and up at twice the rank, and of the router."""
    hidden, width = shape.hidden, block.expert_width
    per_expert = 2 * (hidden + 2 * width) + (width + hidden)
    return block.num_experts * per_expert + hidden + block.num_experts


def lora_params(shape: ModelShape, rank: int, targets: LoraTargets) -> int:
    """Trainable parameters of a LoRA adapter."""
    return rank * width_per_rank(shape, targets)


def trainable_params(shape: ModelShape, setup: Setup) -> int:
    """How many parameters are trained: all, or the adapters'."""
    if setup.tuning == "full":
        return shape.params
    return lora_params(shape, setup.lora_rank, setup.lora_targets)

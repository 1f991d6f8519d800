"""What a device holds beyond allocated tensors: the allocator's cached blocks, workspaces, the context.

Freed blocks stay cached, and one that was split for something smaller cannot serve its old size again. How
much that comes to was fitted to replays of CUDA's allocator over traced steps
(`benchmarks/allocator_slack.py` repeats them), not to published measurements: those are left to test it.
"""

from __future__ import annotations

from dataclasses import dataclass

from estimators.activations import block_peak_bytes, saved_bytes
from estimators.head import LossBytes
from estimators.shapes import ModelShape
from estimators.terms import term
from estimators.workload import Setup


@dataclass(frozen=True, slots=True)
class Slack:
    """What a device needs on top of allocated tensors."""

    context_bytes: float
    """CUDA context and kernels; on a CPU the interpreter and its libraries."""
    workspace_bytes: float
    """cuBLAS workspaces: one per thread that multiplies, forward and autograd."""
    likely: float = 0.055
    """Share of what is allocated, where no training step was replayed: rollouts, and all on a CPU."""
    high: float = 0.13
    caching: bool = True
    """Whether CUDA's caching allocator is at work."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Slack of a training step as shares of what is allocated at its peak."""

    resident: float
    """Of what a step does not free."""
    block: float
    """Of what one layer's backward needs at most, its activations included: it is carved out of larger cached
    blocks."""
    loss: float
    saved: float
    """Of what all layers save between forward and backward."""
    spread: float
    """How far above likely 95 in 100 replays are, as a share of the peak."""


FUSED = Shares(resident=0.027, block=0.154, loss=0.270, saved=0.021, spread=0.063)
"""TRL 1.16's fused head, and losses in chunks. 221 replays: mean 9.1 %, rest 4.3 % (deviation)."""
FULL = Shares(resident=0.045, block=0.580, loss=0.153, saved=0.0, spread=0.054)
"""All logits at once: their blocks are split for what a layer needs, and then serve no logits. 67 replays:
mean 15.5 %, rest 3.9 %."""
KEPT = Shares(resident=0.066, block=0.464, loss=0.048, saved=0.0, spread=0.118)
"""The same where outputs are held through backward. 54 replays: mean 7.9 %, rest 5.7 %."""
EAGER = Shares(resident=0.049, block=0.200, loss=0.220, saved=0.0, spread=0.116)
"""Eager attention, whose scores are the largest blocks. 88 replays: mean 12.4 %, rest 5.8 %."""
STEP_LOSS = 0.5
"""Share of the loss where the optimizer's step is the peak: its temporaries, one for each parameter, do not
fill the blocks that the loss left. 18 replays: median 0.5, with a wide spread."""


def shares_of(setup: Setup) -> Shares:
    """The shares for a setup's attention and loss."""
    if setup.attention == "eager":
        return EAGER
    return {"full-logits": FULL, "full-logits-kept": KEPT}.get(setup.loss, FUSED)


def cached_bytes(
    shape: ModelShape, setup: Setup, tokens: float, loss: LossBytes, resident: float
) -> tuple[float, float]:
    """What the allocator likely holds beyond a step's tensors: where forward or backward is the peak, and
    where the optimizer's step is.

    Args:
        tokens: of the micro-batch.
        resident: bytes of weights, gradients, optimizer states and all else that a step does not free.
    """
    shares = shares_of(setup)
    again = setup.model_copy(update={"gradient_checkpointing": True})
    block = block_peak_bytes(shape, again, tokens, first=False)
    if setup.experts_4bit:
        # experts that are matrices of their own run one after the other, each on its share of the tokens
        block *= max(b.experts_per_token / b.num_experts if b.num_experts else 1.0 for b in shape.blocks)
    others = (
        shares.resident * term(resident)
        + shares.block * term(block)
        + shares.saved * term(saved_bytes(shape, setup, tokens))
    )
    of_loss = term(max(loss))
    return others + shares.loss * of_loss, others + max(shares.loss, STEP_LOSS) * of_loss

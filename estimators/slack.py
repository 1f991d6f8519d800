"""What a device holds beyond allocated tensors: the allocator's cached blocks, workspaces, the context.

Freed blocks stay cached, and one that was split for something smaller cannot serve its old size again. How
much that comes to was fitted to replays of CUDA's allocator over traced steps
(`benchmarks/allocator_slack.py` repeats the fit), not to published measurements: those are left to test it.
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
    """Of all but activations and the loss."""
    block: float
    """Of what one layer's backward needs at most: it is carved out of larger cached blocks."""
    loss: float
    saved: float
    """Of what all layers save between forward and backward."""
    spread: float
    """How far above likely 95 in 100 replays are, as a share of the peak."""


FUSED = Shares(resident=0.022, block=0.168, loss=0.264, saved=0.036, spread=0.06)
"""TRL 1.16's fused head, and losses in chunks. 154 replays: mean 8.7 %, standard deviation of the rest
4 %."""
FULL = Shares(resident=0.066, block=0.573, loss=0.144, saved=0.025, spread=0.06)
"""All logits at once: their blocks are split for what a layer needs, and then serve no logits. 44 replays:
mean 15.4 %, rest 4.1 %."""
KEPT = Shares(resident=0.05, block=0.369, loss=0.05, saved=0.066, spread=0.12)
"""The same where outputs are held through backward. 33 replays: mean 6.7 %, rest 5.7 %."""
EAGER = Shares(resident=0.049, block=0.194, loss=0.244, saved=0.006, spread=0.09)
"""Eager attention, whose scores are the largest blocks. 48 replays: mean 12.7 %, rest 6.3 %."""


STEP_LOSS = 0.6
"""Share of the loss where the optimizer's step is the peak: its temporaries, one for each parameter, do not
fill the blocks that the loss left. 7 replays: 0.6 to 0.9."""


def shares_of(setup: Setup) -> Shares:
    """The shares for a setup's attention and loss."""
    if setup.attention == "eager":
        return EAGER
    return {"full-logits": FULL, "full-logits-kept": KEPT}.get(setup.loss, FUSED)


def cached_bytes(
    shape: ModelShape, setup: Setup, tokens: float, loss: LossBytes, resident: float, stepping: bool
) -> tuple[float, float]:
    """What the allocator holds beyond a training step's peak: likely, and what the high end adds.

    Args:
        tokens: of the micro-batch.
        resident: bytes at the peak besides activations and the loss.
        stepping: whether the optimizer's step is the peak.
    """
    shares = shares_of(setup)
    block = block_peak_bytes(shape, setup, tokens, first=False)
    if setup.experts_4bit:
        # experts that are matrices of their own run one after the other, each on its share of the tokens
        block *= max(b.experts_per_token / b.num_experts if b.num_experts else 1.0 for b in shape.blocks)
    saved = saved_bytes(shape, setup, tokens)
    of_loss = max(shares.loss, STEP_LOSS) if stepping else shares.loss
    likely = (
        shares.resident * term(resident)
        + shares.block * term(block)
        + of_loss * term(max(loss))
        + shares.saved * term(saved)
    )
    return likely, shares.spread

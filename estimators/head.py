"""The output head and the loss: what exists at the vocabulary's width, by implementation."""

from __future__ import annotations

from typing import NamedTuple

from estimators.activations import dtypes
from estimators.shapes import ModelShape
from estimators.terms import term
from estimators.workload import Setup

FUSED_TOKENS = 4096
"""`TOKEN_CHUNK_SIZE` of trl/kernels/chunked_logprob.py, TRL 1.16."""
FUSED_VOCAB = 32768
"""`_CHUNKED_LOGPROB_CHUNK_SIZE` of trl/trainer/utils.py, TRL 1.16."""
CHUNKED_TOKENS = 256
"""Tokens per chunk of the `chunked_nll` loss of TRL 1.5 to 1.15."""


class LossBytes(NamedTuple):
    """Bytes at the loss beyond the hidden states."""

    forward: float
    backward: float


def loss_bytes(shape: ModelShape, setup: Setup, scored: float) -> LossBytes:
    """Bytes that exist at the loss, when `scored` tokens reach the vocabulary: most in either direction."""
    if setup.loss == "fused":
        return _fused(shape, setup, scored)
    if setup.loss == "chunked":
        return _chunked(shape, setup, scored)
    return _full(shape, setup, scored)


def _head_gradient(shape: ModelShape, setup: Setup) -> tuple[float, float]:
    """The trained head's gradient: in fp32 as the fused loss sums it, and the narrow copy of that."""
    if setup.tuning != "full":
        return 0.0, 0.0
    size = term(shape.vocab) * shape.hidden
    return 4.0 * size, 2.0 * size if setup.weights_dtype != "fp32" else 0.0


def _fused(shape: ModelShape, setup: Setup, scored: float) -> LossBytes:
    """TRL 1.16's fused head: one tile of logits, and the hidden states' gradient in fp32 and in their own
    dtype.

    A trained head adds its gradient in fp32; where weights are narrower, the cast copy too. Source:
    trl/kernels/chunked_logprob.py, ChunkedLogProbFunction.backward.
    """
    kind = dtypes(shape, setup)
    tokens = min(scored, term(FUSED_TOKENS))
    tile = tokens * FUSED_VOCAB * kind.attention
    if kind.attention == 2 and setup.weights_dtype == "fp32":
        tile += 2 * term(FUSED_VOCAB) * shape.hidden
    if not setup.on_gpu:
        # without Triton a tile is folded by torch operations, with several fp32 copies of it
        tile += tokens * min(FUSED_VOCAB, shape.vocab) * 20
    gathered = scored * kind.normed * shape.hidden
    gradient = (4 + (kind.normed if kind.normed < 4 else 0)) * shape.hidden * scored
    wide, narrow = _head_gradient(shape, setup)
    return LossBytes(tile + gathered, tile + gathered + gradient + wide + narrow)


def _chunked(shape: ModelShape, setup: Setup, scored: float) -> LossBytes:
    """`chunked_nll` of TRL 1.5 to 1.15: 256 tokens of fp32 logits, an fp32 copy of the head in each chunk."""
    logits = min(scored, term(CHUNKED_TOKENS)) * shape.vocab
    head = 4.0 * term(shape.vocab) * shape.hidden
    wide, _ = _head_gradient(shape, setup)
    hidden = 4 * shape.hidden * scored
    return LossBytes(8 * logits + head, 12 * logits + head + hidden + wide)


def _full(shape: ModelShape, setup: Setup, scored: float) -> LossBytes:
    """All logits at once: Hugging Face's `ForCausalLMLoss`, per token and entry of the vocabulary.

    Narrow logits (2) + fp32 copy (4) + log-softmax (4) forward; backward frees the narrow ones and adds the
    fp32 gradient: 12. fp32 logits need no copy: 8 forward, 12 backward. Both are traced. A hand-written loop
    that holds the model's outputs through backward (`full-logits-kept`) keeps the logits too: 14 or 16, as
    measured. Later the trained head's gradient meets narrow logits.
    """
    entries = scored * shape.vocab
    kind = dtypes(shape, setup)
    head = term(shape.vocab) * shape.hidden
    wide_head = setup.weights_dtype == "fp32" or setup.kbit_prepared
    copied = 2.0 * head if wide_head and kind.attention == 2 else 0.0
    wide, _ = _head_gradient(shape, setup)
    forward = (10 if kind.attention == 2 else 8) * entries
    kept = kind.attention * entries if setup.loss == "full-logits-kept" else 0.0
    return LossBytes(forward + copied, max(12 * entries + kept, 6 * entries + wide) + copied)


def final_norm_bytes(shape: ModelShape, setup: Setup, tokens: float) -> float:
    """The last norm, saved from forward to backward: fp32 input, normalised input, and its output."""
    kind = dtypes(shape, setup)
    normalised = kind.residual if setup.tuning == "full" else 0
    return (4 + normalised + kind.normed) * shape.hidden * tokens

"""The output head and the loss: what exists at the vocabulary's width, by implementation."""

from __future__ import annotations

from estimators.activations import dtypes
from estimators.shapes import ModelShape
from estimators.units import BYTES_PER_ELEMENT
from estimators.workload import Setup

FUSED_TOKENS = 4096
"""`TOKEN_CHUNK_SIZE` of trl/kernels/chunked_logprob.py, TRL 1.16."""
FUSED_VOCAB = 32768
"""`_CHUNKED_LOGPROB_CHUNK_SIZE` of trl/trainer/utils.py, TRL 1.16."""
CHUNKED_TOKENS = 256
"""Tokens per chunk of the `chunked_nll` loss of TRL 1.5 to 1.15."""


def loss_bytes(shape: ModelShape, setup: Setup, tokens: int, scored: int) -> float:
    """Bytes at the loss beyond the hidden states, when its backward pass is under way.

    `tokens` went through the model, `scored` of them reach the vocabulary.
    """
    if setup.loss == "fused":
        return _fused(shape, setup, scored)
    if setup.loss == "chunked":
        return _chunked(shape, setup, scored)
    return _full(shape, setup, scored)


def _fused(shape: ModelShape, setup: Setup, scored: int) -> float:
    """TRL 1.16's fused head: one tile of logits, and the hidden states' gradient in fp32 and in their own
    dtype.

    A trained head adds its gradient in fp32; where weights are narrower, the cast copy too. Source:
    trl/kernels/chunked_logprob.py, ChunkedLogProbFunction.backward.
    """
    kind = dtypes(setup)
    tile = min(scored, FUSED_TOKENS) * FUSED_VOCAB * kind.attention
    if not setup.on_gpu:
        # without Triton a tile is folded by torch operations, with several fp32 copies of it
        tile += min(scored, FUSED_TOKENS) * min(FUSED_VOCAB, shape.vocab) * 20
    gathered = kind.normed * shape.hidden * scored
    gradient = (4 + (kind.normed if kind.normed < 4 else 0)) * shape.hidden * scored
    weight = 0.0
    if setup.tuning == "full":
        weight = 4 * shape.vocab * shape.hidden
        if setup.weights_dtype != "fp32":
            weight += BYTES_PER_ELEMENT[setup.weights_dtype] * shape.vocab * shape.hidden
    return tile + gathered + gradient + weight


def _chunked(shape: ModelShape, setup: Setup, scored: int) -> float:
    """`chunked_nll` of TRL 1.5 to 1.15: 256 tokens of fp32 logits, and an fp32 copy of the head in each
    chunk."""
    logits = min(scored, CHUNKED_TOKENS) * shape.vocab * 12
    return logits + 4 * shape.vocab * shape.hidden + 4 * shape.hidden * scored


def _full(shape: ModelShape, setup: Setup, scored: int) -> float:
    """All logits at once: Hugging Face's `ForCausalLMLoss`.

    Narrow logits (2) + fp32 copy (4) + log-softmax (4) forward; backward frees the narrow ones and adds the
    fp32 gradient: 12 bytes per token and entry. An fp32 head saves no copy but its own logits stay: 16.
    """
    narrow = dtypes(setup).attention == 2 and not (setup.tuning == "qlora" and setup.kbit_prepared)
    per_entry = 12 if narrow else 16
    weight = 0.0
    if setup.tuning == "full":
        weight = BYTES_PER_ELEMENT[setup.weights_dtype] * shape.vocab * shape.hidden
    return per_entry * shape.vocab * scored + weight


def final_norm_bytes(shape: ModelShape, setup: Setup, tokens: int) -> float:
    """The last norm, saved from forward to backward: fp32 input, normalised input, and its output."""
    kind = dtypes(setup)
    normalised = kind.residual if setup.tuning == "full" else 0
    return (4 + normalised + kind.normed) * shape.hidden * tokens

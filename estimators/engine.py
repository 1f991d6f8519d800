"""What a vLLM engine must hold before it can sample one completion: weights, its profile run, one cache."""

from __future__ import annotations

from estimators.memory import kv_cache_bytes, weight_bytes
from estimators.shapes import ModelShape
from estimators.units import GIB
from estimators.workload import Setup

PROFILE_TOKENS = 4096
"""Tokens of vLLM's profile run: `max_num_batched_tokens` of trl/generation/vllm_generation.py, TRL 1.16."""
OUTSIDE_BYTES = 0.2 * GIB
"""NCCL and kernels, which vLLM counts into its share ("non_torch_memory").

Logs of vLLM: 0.10 GiB (A100 40GB, vllm#12330), 0.20 GiB (24 GB card, vllm#14447)."""


def engine_bytes(shape: ModelShape, setup: Setup) -> dict[str, float]:
    """Least bytes of vLLM's share, by part: less, and it does not start (tensor parallel size 1).

    Weights are in 2 bytes, whatever the policy has; where the policy is in 4 bits, TRL 1.16 starts vLLM with
    `quantization="bitsandbytes"`, and the engine's linear layers are in 4 bits too. The cache must hold one
    sequence of prompt and completion: `vllm_max_model_length` has to be set to that, since vLLM otherwise
    asks for room for the model's whole context.
    """
    narrow = setup.model_copy(update={"weights_dtype": "bf16", "autocast": "bf16", "kbit_prepared": False})
    return {
        "weights": sum(weight_bytes(shape, narrow).values()),
        "profile run": _profile_bytes(shape, setup),
        "cache of one sequence": kv_cache_bytes(shape, narrow, 1),
        "outside of torch": OUTSIDE_BYTES,
    }


def _profile_bytes(shape: ModelShape, setup: Setup) -> float:
    """Most bytes of the profile run: one layer's feed-forward at 4,096 tokens, or the sampler's logits.

    Per token 2 × 2 B of H for the residual and its norm, 3 × 2 B of I for gate, up and their product. The
    sampler holds one row of logits per sequence, in 2 and twice in 4 bytes (TRL asks for processed
    log-probabilities). Not measured; Llama-3-8B's 9.37 GiB at 131,072 tokens (vllm#12330) are 0.75 of this.
    """
    width = max(max(block.ffn_width, block.experts_per_token * block.expert_width) for block in shape.blocks)
    layer = PROFILE_TOKENS * (4 * shape.hidden + 6 * width)
    logits = setup.generation_batch * shape.vocab * (2 + 4 + 4)
    return float(max(layer, logits))

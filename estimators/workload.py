"""What is to be sized: a Workload says what a method does with sequences, a Setup how it is run.

The estimators never learn a method's name: DPO is "two sequences per example, only the completion is scored,
one reference", whatever it is called.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from estimators.record import Record

Tuning = Literal["full", "lora", "qlora"]
Dtype = Literal["fp32", "bf16", "fp16"]
Loss = Literal["full-logits", "full-logits-kept", "chunked", "fused"]
Reference = Literal["none", "adapter-off", "copy", "precomputed"]
Sharding = Literal["none", "zero1", "zero2", "zero3", "fsdp"]
Attention = Literal["flash", "sdpa", "eager"]
Rollouts = Literal["none", "hf", "vllm-colocate", "vllm-server"]
LoraTargets = Literal["attention", "qv", "all-linear"]


class Workload(Record):
    """What one training example makes the model do."""

    trains: bool = True
    """False: the policy only generates."""
    sequences_per_example: int = Field(default=1, ge=1)
    """Sequences that one example sends through the policy together: 2 for a preference pair."""
    scores_prompt: bool = True
    """Whether prompt tokens reach the vocabulary too, or completion tokens only."""
    reference: Reference = "none"
    rollouts: Rollouts = "none"
    rescores_rollouts: bool = False
    """Whether the policy scores its own completions once more before training on them, without gradient."""


class Setup(Record):
    """One training configuration with nothing left to decide. Lengths in tokens, per GPU where that
    differs."""

    tuning: Tuning = "full"
    lora_rank: int = Field(default=16, ge=1)
    lora_targets: LoraTargets = "all-linear"
    weights_dtype: Dtype = "bf16"
    adapter_dtype: Dtype = "fp32"
    autocast: Literal["none", "bf16", "fp16"] = "bf16"
    kbit_prepared: bool = False
    """PEFT's `prepare_model_for_kbit_training` was called: whatever is not in 4 bits became fp32."""
    double_quantisation: bool = True
    experts_4bit: bool = False
    """QLoRA: whether routed experts are packed too. bitsandbytes packs `nn.Linear`, as experts were before
    transformers 5 fused them into 3-D parameters."""
    micro_batch: int = Field(default=1, ge=1)
    prompt_length: int = Field(default=0, ge=0)
    completion_length: int = Field(default=1, ge=0)
    gradient_checkpointing: bool = True
    gradient_accumulation: int = Field(default=1, ge=1)
    optimizer: str = "adamw_torch_fused"
    loss: Loss = "fused"
    attention: Attention = "sdpa"
    sharding: Sharding = "none"
    num_gpus: int = Field(default=1, ge=1)
    on_gpu: bool = True
    generation_batch: int = Field(default=1, ge=1)
    """Completions that one GPU generates at once, and keeps until they are trained on."""
    vllm_memory_utilization: float = Field(default=0.3, gt=0, le=1)
    vllm_sleep: bool = False

    @property
    def length(self) -> int:
        """Tokens of one sequence."""
        return self.prompt_length + self.completion_length

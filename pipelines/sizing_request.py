"""What is to be sized, in the words of TRL's arguments, and what each method does with sequences."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from estimators.errors import BadInput
from estimators.gpus import find_gpu
from estimators.optimizers import find_optimizer
from estimators.record import Record, unknown
from estimators.workload import Workload

WORKLOADS: dict[str, Workload] = {
    "sft": Workload(),
    "dpo": Workload(sequences_per_example=2, scores_prompt=False, reference="copy"),
    "kto": Workload(sequences_per_example=1, scores_prompt=False, reference="copy"),
    "grpo": Workload(scores_prompt=False, rollouts="hf"),
    "dapo": Workload(scores_prompt=False, rollouts="hf"),
    "rloo": Workload(scores_prompt=False, rollouts="hf", reference="copy"),
    "probe": Workload(trains=False, scores_prompt=False, rollouts="hf"),
}
"""What each method does with sequences. TRL 1.16: GRPO loads no reference at its default beta of 0."""

GROUP_METHODS = ("grpo", "dapo", "rloo")
"""Methods that sample `num_generations` completions of each prompt and compare them."""

REFERENCE_BETA = {"grpo": 0.0, "dapo": 0.0, "rloo": 0.05, "dpo": 0.1, "kto": 0.1, "sft": 0.0, "probe": 0.0}
"""TRL's default beta: whether a method compares with a reference."""

SIGNAL_SHARE = 1 / 3
"""Share of sampled groups that carry a signal under dynamic sampling, over a run.

DAPO's own recipe (verl, `gen_prompt_bsz = 3 x train_prompt_bsz`) samples three prompts for each that it
trains on; early in a run the share is higher, and near its end lower."""

CHOICES: dict[str, tuple[str, ...]] = {
    "tuning": ("full", "lora", "qlora"),
    "lora_targets": ("all-linear", "attention", "qv"),
    "weights_dtype": ("auto", "fp32", "bf16", "fp16"),
    "loss": ("auto", "full-logits", "full-logits-kept", "chunked", "fused"),
    "precision": ("auto", "bf16", "fp16", "fp32", "none"),
    "sharding": ("none", "zero1", "zero2", "zero3", "fsdp"),
    "attention": ("auto", "flash", "sdpa", "eager"),
    "rollouts": ("auto", "hf", "vllm-colocate", "vllm-server"),
    "reference": ("auto", "none", "adapter-off", "copy", "precomputed"),
}

SPELLINGS: dict[str, dict[str, str]] = {
    "weights_dtype": {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"},
    "precision": {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "no": "none"},
    "attention": {
        "flash_attention_2": "flash", "flash_attention_3": "flash", "flash-attention-2": "flash",
        "fa2": "flash", "fa3": "flash",
    },
    "lora_targets": {"all_linear": "all-linear", "all": "all-linear"},
    "sharding": {
        "ddp": "none", "zero-1": "zero1", "zero-2": "zero2", "zero-3": "zero3", "fsdp2": "fsdp",
        "deepspeed": "zero3",
    },
    "loss": {"full": "full-logits", "full_logits": "full-logits", "chunked_nll": "chunked", "nll": "auto"},
    "rollouts": {"vllm": "vllm-colocate", "colocate": "vllm-colocate", "server": "vllm-server",
                 "generate": "hf"},
}  # fmt: skip


MIN_GENERATIONS = 2
"""TRL 1.16 refuses smaller groups (grpo_config.py, rloo_config.py): one completion has no advantage."""


def whole_groups(request: StageRequest, num_gpus: int) -> tuple[int, int]:
    """Micro-batches per generation and per optimizer step: those given, or the least that hold whole groups.

    TRL requires per-device batch × processes × steps per generation to be divisible by `num_generations`.
    Where it is not, accumulation grows to the least that can be; no more is then sampled at once than was
    asked for, unless one group needs it. A step holds whole generations then.
    """
    generation = request.steps_per_generation or request.gradient_accumulation
    accumulation = request.gradient_accumulation
    group = request.num_generations
    unit = group // math.gcd(group, request.micro_batch * num_gpus)
    if generation % unit == 0:
        return generation, accumulation
    if generation > accumulation:  # several optimizer steps train on one generation
        return _multiple(generation, unit), accumulation
    accumulation = _multiple(accumulation, unit)
    if request.steps_per_generation is None:
        return accumulation, accumulation
    parts = accumulation // unit
    most = max(n for n in range(1, parts + 1) if parts % n == 0 and n * unit <= max(generation, unit))
    return most * unit, accumulation


def _multiple(value: int, unit: int) -> int:
    """The least multiple of `unit` that is not below `value`."""
    return -(-value // unit) * unit


class StageRequest(Record):
    """What is to be sized, in the words of TRL's arguments. `auto` and None are decided in `resolve`."""

    model: str
    method: str = "sft"
    tuning: Literal["full", "lora", "qlora"] = "full"
    lora_rank: int = Field(default=16, ge=1)
    lora_targets: Literal["all-linear", "attention", "qv"] = "all-linear"
    weights_dtype: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    loss: Literal["auto", "full-logits", "full-logits-kept", "chunked", "fused"] = "auto"
    """`full-logits` is Hugging Face's own loss, `full-logits-kept` the same in a loop that holds the
    outputs."""
    max_length: int | None = Field(default=None, ge=1)
    """Tokens of prompt and completion together."""
    max_prompt_length: int | None = Field(default=None, ge=0)
    max_completion_length: int | None = Field(default=None, ge=1)
    mean_length: int | None = Field(default=None, ge=1)
    """Mean tokens of a training row with its padding: time follows the mean, memory the longest.

    A batch is padded to its longest row, so this is more than the mean of the rows."""
    mean_completion_length: int | None = Field(default=None, ge=1)
    """Mean tokens of a sampled completion with its padding: Hugging Face's generate samples until the longest
    of the batch has ended."""
    micro_batch: int = Field(default=1, ge=1)
    """`per_device_train_batch_size`: examples, pairs, or completions."""
    num_generations: int = Field(default=8, ge=1)
    gradient_checkpointing: bool = True
    precision: Literal["auto", "bf16", "fp16", "fp32", "none"] = "auto"
    """Autocast; fp32 and none switch it off."""
    optimizer: str = "adamw_torch_fused"
    sharding: Literal["none", "zero1", "zero2", "zero3", "fsdp"] = "none"
    num_gpus: int | None = Field(default=None, ge=1)
    """None: every GPU of the hardware."""
    attention: Literal["auto", "flash", "sdpa", "eager"] = "auto"
    rollouts: Literal["auto", "hf", "vllm-colocate", "vllm-server"] = "auto"
    vllm_memory_utilization: float = Field(default=0.3, gt=0, le=1)
    vllm_enable_sleep_mode: bool = False
    kbit_prepared: bool | None = None
    """QLoRA: whether PEFT's `prepare_model_for_kbit_training` made everything that is not in 4 bits fp32."""
    double_quantisation: bool = True
    """QLoRA: `bnb_4bit_use_double_quant`."""
    experts_4bit: bool | None = None
    """QLoRA of a mixture of experts: whether the experts are in 4 bits too. None: as the loss says, since
    before transformers 5 they were and now they are not."""
    gpu: str | None = None
    steps: int | None = Field(default=None, ge=1)
    gradient_accumulation: int = Field(default=1, ge=1)
    steps_per_generation: int | None = Field(default=None, ge=1)
    reference: Literal["auto", "none", "adapter-off", "copy", "precomputed"] = "auto"
    beta: float | None = Field(default=None, ge=0)
    eval_completions: int = Field(default=0, ge=0)
    eval_tokens: int = Field(default=0, ge=0)
    eval_batch: int = Field(default=64, ge=1)
    """Completions that an evaluation samples at once."""
    dynamic_sampling_rate: float | None = Field(default=None, gt=0, le=1)
    """Share of sampled groups that carry a signal; None is SIGNAL_SHARE for DAPO, and 1 for the others."""

    @model_validator(mode="before")
    @classmethod
    def _true_and_mixed(cls, data: Any) -> Any:
        """Lightning's names: `bf16-true` is weights in bf16 without autocast, `bf16-mixed` fp32 weights with
        it."""
        precision = data.get("precision") if isinstance(data, dict) else None
        if isinstance(precision, str) and precision.lower() in (
            "bf16-true",
            "fp16-true",
            "16-true",
            "32-true",
        ):
            narrow = {"16-true": "fp16", "32-true": "fp32"}.get(precision.lower(), precision[:4].lower())
            return {"weights_dtype": narrow, **data, "precision": "none"}
        if isinstance(precision, str) and precision.lower() in ("bf16-mixed", "fp16-mixed", "16-mixed"):
            narrow = {"16-mixed": "fp16"}.get(precision.lower(), precision[:4].lower())
            return {"weights_dtype": "fp32", **data, "precision": narrow}
        return data

    @field_validator("method")
    @classmethod
    def _known_method(cls, value: str) -> str:
        if value.lower() not in WORKLOADS:
            raise ValueError(str(unknown("method", value, WORKLOADS)))
        return value.lower()

    @field_validator("num_generations")
    @classmethod
    def _more_than_one(cls, value: int, info: Any) -> int:
        method = info.data.get("method")
        if method in GROUP_METHODS and value < MIN_GENERATIONS:
            raise ValueError(
                f"{method} compares the completions of one prompt, so it needs at least {MIN_GENERATIONS}; "
                "TRL refuses fewer"
            )
        return value

    @field_validator("optimizer")
    @classmethod
    def _known_optimizer(cls, value: str) -> str:
        try:
            find_optimizer(value)
        except BadInput as error:
            raise ValueError(str(error)) from None
        return value

    @field_validator("gpu")
    @classmethod
    def _known_gpu(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                find_gpu(value)
            except BadInput as error:
                raise ValueError(str(error)) from None
        return value

    @field_validator(*CHOICES, mode="before")
    @classmethod
    def _other_spellings(cls, value: Any, info: Any) -> Any:
        if not isinstance(value, str):
            return value
        plain = value.strip().lower()
        plain = SPELLINGS.get(info.field_name, {}).get(plain, plain)
        if plain not in CHOICES[info.field_name]:
            raise ValueError(str(unknown(info.field_name.replace("_", " "), value, CHOICES[info.field_name])))
        return plain

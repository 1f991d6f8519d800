"""What is to be sized, in the words of TRL's arguments, and what each method does with sequences."""

from __future__ import annotations

import math
import shlex
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from estimators.errors import BadInput
from estimators.gpus import find_gpu, split_count
from estimators.optimizers import find_optimizer
from estimators.record import Record
from estimators.workload import LoraTargets, Workload
from pipelines.sizing_names import key_hint, read_choice, read_targets

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

MAX_ROUNDS = 10
"""Rounds of dynamic sampling that fill one batch at most, as in DAPO's own recipe (verl,
`max_num_gen_batches`)."""


def signal_share(max_rounds: int) -> float:
    """Share of sampled groups that carry a signal under dynamic sampling, over a run that learns its task.

    The share falls from 1 to 0 as groups become all right; a batch takes its inverse in rounds, and
    `max_rounds` at most: 1 + ln(max_rounds) on average. That is 3.3 for 10 rounds; DAPO's own recipe samples
    3 prompts for each that it trains on (verl, `gen_prompt_bsz`).
    """
    return 1 / (1 + math.log(max_rounds))


CHOICES: dict[str, tuple[str, ...]] = {
    "tuning": ("full", "lora", "qlora"),
    "weights_dtype": ("auto", "fp32", "bf16", "fp16"),
    "adapter_dtype": ("auto", "fp32", "bf16", "fp16"),
    "loss": ("auto", "full-logits", "full-logits-kept", "chunked", "fused", "liger", "cce"),
    "precision": ("auto", "bf16", "fp16", "fp32", "none"),
    "sharding": ("none", "zero1", "zero2", "zero3", "fsdp"),
    "attention": ("auto", "flash", "sdpa", "eager"),
    "rollouts": ("auto", "hf", "vllm-colocate", "vllm-server"),
    "reference": ("auto", "none", "adapter-off", "copy", "precomputed"),
}

TOKENS = 100_000_000
"""More tokens in one row than anything is made for: a typing error."""


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

    model_config = ConfigDict(strict=True)

    model: str
    method: str = "sft"
    tuning: Literal["full", "lora", "qlora"] = "full"
    lora_rank: int = Field(default=16, ge=1, le=100_000)
    lora_targets: LoraTargets = "all-linear"
    """A group of modules, or the modules' own names."""
    weights_dtype: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    adapter_dtype: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """LoRA: PEFT makes adapters fp32; with `autocast_adapter_dtype=False` they have the weights' dtype."""
    loss: Literal["auto", "full-logits", "full-logits-kept", "chunked", "fused", "liger", "cce"] = "auto"
    """`full-logits` is Hugging Face's own loss, `full-logits-kept` the same in a loop that holds the
    outputs."""
    max_length: int | None = Field(default=None, ge=1, le=TOKENS)
    """Tokens of prompt and completion together."""
    max_prompt_length: int | None = Field(default=None, ge=0, le=TOKENS)
    max_completion_length: int | None = Field(default=None, ge=1, le=TOKENS)
    mean_length: int | None = Field(default=None, ge=1, le=TOKENS)
    """Mean tokens of a training row with its padding: time follows the mean, memory the longest.

    A batch is padded to its longest row, so this is more than the mean of the rows."""
    mean_completion_length: int | None = Field(default=None, ge=1, le=TOKENS)
    """Mean tokens of a sampled completion with its padding: Hugging Face's generate samples until the longest
    of the batch has ended."""
    micro_batch: int = Field(default=1, ge=1, le=1_000_000)
    """`per_device_train_batch_size`: examples, pairs, or completions."""
    num_generations: int = Field(default=8, ge=1, le=1_000_000)
    gradient_checkpointing: bool = True
    precision: Literal["auto", "bf16", "fp16", "fp32", "none"] = "auto"
    """Autocast; fp32 and none switch it off."""
    optimizer: str = "adamw_torch_fused"
    sharding: Literal["none", "zero1", "zero2", "zero3", "fsdp"] = "none"
    num_gpus: int | None = Field(default=None, ge=1, le=16_384)
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
    gpu_memory_gib: float | None = Field(default=None, gt=0, le=100_000)
    """Free memory of each GPU, for a card that is not in the table or not empty."""
    gpu: str | None = None
    steps: int | None = Field(default=None, ge=1, le=1_000_000_000)
    gradient_accumulation: int = Field(default=1, ge=1, le=1_000_000)
    steps_per_generation: int | None = Field(default=None, ge=1, le=1_000_000)
    reference: Literal["auto", "none", "adapter-off", "copy", "precomputed"] = "auto"
    beta: float | None = Field(default=None, ge=0)
    eval_completions: int = Field(default=0, ge=0, le=1_000_000_000)
    eval_tokens: int = Field(default=0, ge=0, le=TOKENS)
    eval_batch: int = Field(default=64, ge=1)
    """Completions that an evaluation samples at once."""
    dynamic_sampling_rate: float | None = Field(default=None, gt=0, le=1)
    """Share of sampled groups that carry a signal; None: DAPO's as `signal_share` says, 1 for the others."""

    @classmethod
    def other_name(cls, key: str) -> str | None:
        return key_hint(key, cls.model_fields)

    @model_validator(mode="before")
    @classmethod
    def _one_key_for_two(cls, data: Any) -> Any:
        """Keys that say two things: Lightning's `bf16-true` (weights in bf16, no autocast) and `bf16-mixed`
        (fp32 weights under it), and a GPU with its number. Whole numbers may be written as 2048.0."""
        if not isinstance(data, dict):
            return data
        data = {key: _whole(value) for key, value in data.items()}
        precision = data.get("precision")
        plain = precision.lower() if isinstance(precision, str) else ""
        dtype = {"16": "fp16", "32": "fp32", "bf16": "bf16", "fp16": "fp16"}.get(plain.rpartition("-")[0])
        if dtype and plain.endswith("-true"):
            data = {"weights_dtype": dtype, **data, "precision": "none"}
        elif dtype and plain.endswith("-mixed"):
            data = {"weights_dtype": "fp32", **data, "precision": dtype}
        if isinstance(data.get("gpu"), str):
            count, _ = split_count(data["gpu"])
            if count and data.get("num_gpus") is None:
                data["num_gpus"] = count
        return data

    @field_validator("method")
    @classmethod
    def _known_method(cls, value: str) -> str:
        return read_choice("method", value, WORKLOADS)

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
    def _known_gpu(cls, value: str | None, info: ValidationInfo) -> str | None:
        """A card of the table; any name where its memory is stated."""
        if value is None:
            return None
        count, name = split_count(value)
        if count == 0:
            raise ValueError("names no GPU: its number is 0")
        if count and info.data.get("num_gpus") not in (None, count):
            raise ValueError(f"says {count} GPUs, but num_gpus says {info.data['num_gpus']}")
        if info.data.get("gpu_memory_gib") is None:
            try:
                find_gpu(name)
            except BadInput as error:
                raise ValueError(str(error)) from None
        return name

    @field_validator("lora_targets", mode="before")
    @classmethod
    def _modules(cls, value: Any) -> Any:
        return read_targets(value)

    @field_validator(*CHOICES, mode="before")
    @classmethod
    def _other_spellings(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, str) and not (type(value) is int and info.field_name == "sharding"):
            return value
        return read_choice(str(info.field_name), str(value), CHOICES[str(info.field_name)])


def command(request: StageRequest, gpu: str | None = None) -> str:
    """The `advisor estimate` that answers `request` again, on `gpu` where the request names none."""
    words = ["advisor", "estimate"]
    values = request.model_copy(update={"gpu": request.gpu or gpu}).model_dump(exclude_defaults=True)
    for name, value in values.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            words += [f"--{flag}", shlex.quote(text)]
    return " ".join(words)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value

"""What other tools call things: spellings that are taken, and hints for keys that are not."""

from __future__ import annotations

from typing import Any

import pytest

from estimators.errors import BadInput
from estimators.hardware import hardware_from_name
from estimators.record import validate
from pipelines.sizing import StageRequest, StageSize, size_stage
from pipelines.sizing_names import read_targets

A100 = hardware_from_name("A100 80GB", 1)
QWEN = "Qwen/Qwen2.5-7B"


def request(**values: Any) -> StageRequest:
    return validate(StageRequest, {"model": QWEN, **values}, "row")


def size(**values: Any) -> StageSize:
    return size_stage(request(**values), A100)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("all", "all-linear"),
        ("all-linear", "all-linear"),
        ("mlp+attention", "all-linear"),
        ("q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj", "all-linear"),
        ("attention", "attention"),
        ("q,k,v,o", "attention"),
        ('["q_proj", "k_proj", "v_proj", "o_proj"]', "attention"),
        (["q_proj", "v_proj"], "qv"),
        ("q_proj v_proj", "qv"),
        ("['q_proj', 'v_proj']", "qv"),
        ("mlp", "mlp"),
        (["gate_proj", "up_proj", "down_proj"], "mlp"),
        ("q_proj", ("q_proj",)),
        (["model.layers.0.self_attn.q_proj", "o_proj"], ("o_proj", "q_proj")),
        ("qv,down_proj", ("down_proj", "q_proj", "v_proj")),
    ],
)
def test_lora_targets(given: object, meant: object) -> None:
    assert read_targets(given) == meant
    assert request(tuning="lora", lora_targets=given).lora_targets == meant


def test_any_subset_of_modules_is_counted() -> None:
    """Qwen2.5-7B: q is 3584 -> 3584, down 18944 -> 3584, 28 layers, rank 16."""
    parts = size(tuning="lora", lora_targets="q_proj,down_proj")
    assert parts.trainable_params == 28 * 16 * (3584 + 3584 + 18944 + 3584)
    groups = [size(tuning="lora", lora_targets=name).trainable_params for name in ("attention", "mlp")]
    assert sum(groups) == size(tuning="lora").trainable_params


def test_a_module_that_the_model_lacks() -> None:
    with pytest.raises(BadInput, match=r"no module c_attn; it has down_proj, .*q_proj"):
        size(tuning="lora", lora_targets=["c_attn"])
    notes = [item.source for item in size(tuning="lora", lora_targets="q_proj,c_attn").assumptions]
    assert "no module is called c_attn" in notes


@pytest.mark.parametrize(
    ("key", "given", "meant"),
    [
        ("weights_dtype", "torch.bfloat16", "bf16"),
        ("weights_dtype", "bf16-true", "bf16"),
        ("weights_dtype", "half", "fp16"),
        ("precision", "half", "fp16"),
        ("precision", "no", "none"),
        ("sharding", "deepspeed_zero3", "zero3"),
        ("sharding", "full_shard", "fsdp"),
        ("sharding", "stage3", "zero3"),
        ("sharding", 2, "zero2"),
        ("attention", "flash_attention_3", "flash"),
        ("attention", "kernels-community/flash-attn", "flash"),
        ("attention", "flex_attention", "sdpa"),
        ("loss", "liger", "liger"),
        ("loss", "hf", "full-logits"),
        ("loss", "cce", "cce"),
        ("tuning", "full-finetune", "full"),
        ("rollouts", "colocate", "vllm-colocate"),
        ("method", "GSPO", "grpo"),
        ("method", "dpotrainer", "dpo"),
    ],
)
def test_values(key: str, given: object, meant: str) -> None:
    assert getattr(request(**{key: given}), key) == meant


@pytest.mark.parametrize(
    ("key", "given", "says"),
    [
        ("method", "orpo", '"dpo" with reference "none"'),
        ("method", "ppo", "value and a reward model"),
        ("method", "gpro", 'did you mean "grpo"'),
        ("tuning", "dora", '"lora" is the nearest'),
        ("weights_dtype", "nf4", 'tuning "qlora"'),
        ("loss", "ligr", 'did you mean "liger"'),
        ("lora_targets", ".*proj", "is no module's name"),
        ("num_gpus", True, "valid integer"),
        ("max_length", "2048", "valid integer"),
        ("max_length", 10**25, "less than or equal"),
        ("gradient_checkpointing", "yes", "valid boolean"),
    ],
)
def test_values_that_are_refused(key: str, given: object, says: str) -> None:
    with pytest.raises(BadInput) as error:
        request(**{key: given})
    assert says in str(error.value)
    assert key in str(error.value)


HINTS = {
    "per_device_train_batch_size": "micro_batch",
    "batch_size": "micro_batch",
    "r": "lora_rank",
    "lora_r": "lora_rank",
    "target_modules": "lora_targets",
    "lora_target": "lora_targets",
    "max_seq_length": "max_length",
    "seq_len": "max_length",
    "cutoff_len": "max_length",
    "sequence_len": "max_length",
    "max_new_tokens": "max_completion_length",
    "load_in_4bit": "tuning: qlora",
    "bf16": "precision: bf16",
    "torch_dtype": "weights_dtype",
    "dtype": "weights_dtype",
    "use_vllm": "rollouts: vllm-colocate",
    "vllm_mode": "rollouts",
    "vllm_gpu_memory_utilization": "vllm_memory_utilization",
    "use_liger_kernel": "loss: liger",
    "optim": "optimizer",
    "gradient_accumulation_steps": "gradient_accumulation",
    "grad_ckpt": "gradient_checkpointing",
    "bnb_4bit_use_double_quant": "double_quantisation",
    "attn_implementation": "attention",
    "deepspeed": "sharding",
    "model_name_or_path": "model",
    "base_model": "model",
    "finetuning_type": "tuning",
    "group_size": "num_generations",
    "vram_gb": "gpu_memory_gib",
    "micro_bach": "micro_batch",
    "gradient_acumulation_steps": "gradient_accumulation",
    "max-length": "max_length",
}


@pytest.mark.parametrize(("key", "name"), HINTS.items())
def test_keys_of_other_tools(key: str, name: str) -> None:
    with pytest.raises(BadInput) as error:
        request(**{key: 1})
    assert f'unknown key "{key}"; did you mean "{name}"?' in str(error.value)


def test_keys_without_effect() -> None:
    with pytest.raises(BadInput, match="changes neither memory nor time"):
        request(learning_rate=1e-4)
    with pytest.raises(BadInput, match="8 bits are not sized"):
        request(load_in_8bit=True)


def test_whole_numbers_may_have_a_point() -> None:
    assert request(max_length=2048.0).max_length == 2048


def test_a_gpu_with_its_number() -> None:
    assert request(gpu="2x A100 80GB").num_gpus == 2
    assert size(gpu="2x A100 80GB").num_gpus == 2
    with pytest.raises(BadInput, match="says 2 GPUs, but num_gpus says 4"):
        request(gpu="2x A100 80GB", num_gpus=4)


def test_an_unknown_gpu_with_its_memory() -> None:
    """The row is sized all the same; only its speed is a guess, and said to be one."""
    answer = size(gpu="Gaudi 9", gpu_memory_gib=96, tuning="lora")
    assert answer.available_bytes == 96 << 30
    assert answer.device == "Gaudi 9"
    assert ("speed", "as A100") in [(item.name, item.value) for item in answer.assumptions]
    with pytest.raises(BadInput, match="gpu_memory_gib"):
        request(gpu="Gaudi 9")


def test_what_a_precision_of_fp32_means() -> None:
    """Weights in fp32 where no other dtype is given: 7,615,616,512 parameters at 4 bytes."""
    assert size(tuning="lora", precision="fp32").components["weights"] == 4 * 7_615_616_512
    narrow = size(tuning="lora", precision="fp32", weights_dtype="bf16")
    assert narrow.components["weights"] == 2 * 7_615_616_512


def test_narrow_adapters_need_less() -> None:
    """bf16 adapters need no cast copies: PEFT's `autocast_adapter_dtype=False`."""
    values = {"tuning": "lora", "gradient_checkpointing": False}
    wide, narrow = size(**values), size(**values, adapter_dtype="bf16")
    assert narrow.components["adapter"] * 2 == wide.components["adapter"]
    assert narrow.peak_bytes < wide.peak_bytes


def test_liger_is_sized_as_a_fused_loss_and_said() -> None:
    assert size(loss="liger").peak_bytes == size(loss="fused").peak_bytes
    assert any("Liger" in item.source for item in size(loss="liger").assumptions)

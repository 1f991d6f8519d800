"""Sizing one stage: arithmetic by hand, verdicts, time and cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from estimators.errors import BadInput
from estimators.hardware import Device, Hardware, hardware_from_name
from estimators.record import validate
from estimators.throughput import Speed
from pipelines.sizing import StageRequest, StageSize, size_stage

GIB = 1 << 30
A100 = hardware_from_name("A100 80GB", 1)
CPU = Hardware(devices=(), cpu_cores=2, ram_bytes=16 * GIB, ram_free_bytes=12 * GIB, message="no GPU")


def size(hardware: Hardware = A100, **values: Any) -> StageSize:
    return size_stage(StageRequest(**{"model": "Qwen/Qwen2.5-7B", **values}), hardware)


def test_full_tuning_in_bf16_by_hand() -> None:
    """7,615,616,512 parameters × (2 weights + 2 gradients + 4 AdamW + 2 foreach) B at the optimizer's
    step."""
    answer = size(weights_dtype="bf16", optimizer="adamw_torch", max_length=512)
    assert answer.params == 7_615_616_512
    assert answer.phase == "optimizer step"
    assert answer.phases["optimizer step"] == 10 * 7_615_616_512
    assert answer.components["optimizer states"] == 4 * 7_615_616_512


def test_qlora_weights_by_hand() -> None:
    """6,525,288,448 weights in 4 bits at 0.5 + 1/64 + 4/16,384 B; the other 1,090,328,064 in 2 B."""
    answer = size(tuning="qlora", max_length=512)
    assert answer.components["weights in 4 bits"] == round(6_525_288_448 * (0.5 + 1 / 64 + 4 / 16_384))
    assert answer.components["weights not in 4 bits"] == 2 * 1_090_328_064


def test_kbit_preparation_costs_four_bytes() -> None:
    """The fp32 remainder of Qwen2.5-7B is larger than its 4-bit body: the named exception."""
    prepared = size(tuning="qlora", kbit_prepared=True, max_length=512, loss="full-logits")
    assert prepared.components["weights not in 4 bits"] == 4 * 1_090_328_064
    assert any(a.name == "prepare_model_for_kbit_training" for a in size(tuning="qlora").assumptions)


def test_adapter_and_its_optimizer_by_hand() -> None:
    """Rank 16 on all linears of Qwen2.5-7B: 40,370,176 parameters; 4 B each, 8 B of AdamW."""
    answer = size(tuning="lora", lora_rank=16)
    assert answer.trainable_params == 40_370_176
    assert answer.components["adapter"] == 4 * 40_370_176
    assert answer.components["optimizer states"] == 8 * 40_370_176


def test_vllm_claims_its_share_of_the_card() -> None:
    answer = size(method="grpo", tuning="lora", rollouts="vllm-colocate", vllm_memory_utilization=0.4)
    assert answer.components["vLLM's share"] == round(0.4 * A100.devices[0].total_bytes)
    asleep = size(
        method="grpo", tuning="lora", rollouts="vllm-colocate", vllm_memory_utilization=0.4,
        vllm_enable_sleep_mode=True,
    )  # fmt: skip
    assert asleep.peak_bytes < answer.peak_bytes
    server = size(method="grpo", tuning="lora", rollouts="vllm-server")
    assert "vLLM's share" not in server.components


def test_reference_follows_tuning_and_beta() -> None:
    def reference(**values: Any) -> list[str]:
        return [name for name in size(**values).components if "reference" in name]

    assert reference(method="dpo") == ["reference weights"]
    assert reference(method="dpo", tuning="lora") == []
    assert reference(method="grpo") == []
    assert reference(method="grpo", beta=0.04) == ["reference weights"]
    assert reference(method="dpo", reference="precomputed") == []


def test_free_memory_decides_not_total() -> None:
    card = Device(index=0, name="A100 80GB", uuid="x", total_bytes=80 * GIB, free_bytes=10 * GIB)
    busy = Hardware(
        devices=(card,),
        cpu_cores=8, ram_bytes=64 * GIB, ram_free_bytes=60 * GIB, message="busy",
    )  # fmt: skip
    assert size(busy, tuning="lora").verdict == "does-not-fit"
    assert size(busy, tuning="lora").available_bytes == 10 * GIB
    assert size(tuning="lora").verdict == "fits"


def test_tight_lies_between() -> None:
    base = size(tuning="lora", max_length=2048)
    middle = (base.peak_bytes + base.high_bytes) // 2
    card = Device(index=0, name="A100 80GB", uuid="x", total_bytes=80 * GIB, free_bytes=middle)
    hardware = A100.model_copy(update={"devices": (card,)})
    assert size(hardware, tuning="lora", max_length=2048).verdict == "tight"


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    config = {
        "model_type": "llama", "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 4, "intermediate_size": 384, "vocab_size": 20, "tie_word_embeddings": True,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    return str(tmp_path)


def test_a_tiny_model_on_a_cpu(tiny: str) -> None:
    """0.9 M parameters in fp32: about the process itself, and time that is mostly the trainer's own."""
    answer = size(CPU, model=tiny, max_length=48, micro_batch=8, steps=100)
    assert answer.verdict == "fits"
    assert 0.7 * GIB < answer.peak_bytes < 1.5 * GIB
    assert answer.usd is None
    assert 1 <= answer.time_components["trainer overhead"] <= 10


def test_what_a_cpu_cannot_do_is_said(tiny: str) -> None:
    with pytest.raises(BadInput, match="bitsandbytes"):
        size(CPU, model=tiny, tuning="qlora")
    with pytest.raises(BadInput, match="needs a GPU"):
        size(CPU, model=tiny, method="grpo", rollouts="vllm-colocate")


def test_the_probe_only_generates() -> None:
    answer = size(method="probe", micro_batch=32, eval_completions=400, eval_tokens=256, weights_dtype="bf16")
    assert answer.phase == "rollout"
    assert answer.trainable_params == 0
    assert "optimizer states" not in answer.components
    assert answer.components["KV cache"] > 0
    assert "training" not in answer.time_components


def test_time_follows_the_mean_and_memory_the_longest() -> None:
    long = size(max_length=4096, steps=100, tuning="lora")
    short = size(max_length=4096, mean_length=512, steps=100, tuning="lora")
    assert short.peak_bytes == long.peak_bytes
    assert short.seconds["low"] < 0.5 * long.seconds["low"]


def test_dynamic_sampling_costs_its_extra_rounds() -> None:
    """Half of the groups without signal: twice GRPO's rollouts; not said: 1 + ln 10 times, about what DAPO's
    recipe samples."""
    values = {"tuning": "lora", "steps": 100, "micro_batch": 8}
    plain = size(**values, method="grpo").time_components["rollouts"]
    half = size(**values, method="dapo", dynamic_sampling_rate=0.5).time_components["rollouts"]
    assert half / plain == pytest.approx(2, rel=0.01)
    assert size(**values, method="dapo").time_components["rollouts"] / plain == pytest.approx(3.3, rel=0.01)


def test_a_measured_speed_replaces_the_assumed_one() -> None:
    speed = Speed(
        flops=1e14, bandwidth=1e12, layer_seconds=0, decode_layer_seconds=1e-4, decode_flops=1e13,
        step_seconds=0.1, start_seconds=5, low=0.9, high=1.1, source="measured here",
    )  # fmt: skip
    answer = size_stage(StageRequest(model="Qwen/Qwen2.5-7B", tuning="lora", steps=10), A100, speed)
    assert answer.seconds["high"] / answer.seconds["low"] == pytest.approx(1.1 / 0.9, rel=0.01)
    assert answer.time_components["trainer overhead"] == 1.0
    assert any(a.source == "measured here" for a in answer.assumptions)


def test_dollars_are_hours_times_dated_prices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    prices = tmp_path / "mine.csv"
    prices.write_text(
        "gpu,usd_per_gpu_hour,kind,provider,date,source\nA100 80GB,3.6,on-demand,us,2026-10-01,mail\n"
    )
    monkeypatch.setenv("ADVISOR_PRICES", str(prices))
    answer = size(tuning="lora", steps=1000, num_gpus=2)
    assert answer.usd is not None
    assert answer.usd["high"] == pytest.approx(answer.seconds["high"] / 3600 * 2 * 3.6, abs=0.02)
    assert any("2026-10-01" in assumption.source for assumption in answer.assumptions)


def test_a_damaged_price_table_names_its_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    prices = tmp_path / "bad.csv"
    prices.write_text("gpu,usd_per_gpu_hour\nA100 80GB,cheap\n")
    monkeypatch.setenv("ADVISOR_PRICES", str(prices))
    with pytest.raises(BadInput, match=r"bad\.csv:2"):
        size(tuning="lora")


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("method", "gpro", '"grpo"'),
        ("tuning", "qlor", '"qlora"'),
        ("optimizer", "paged_adam_8bit", '"paged_adamw_8bit"'),
        ("sharding", "zero4", '"zero'),
        ("gpu", "RTX 4099", '"RTX 4090"'),
        ("weights_dtype", "bf17", '"bf16"'),
        ("micro_batch", 0, "greater than or equal to 1"),
        ("max_lenght", 5, '"max_length"'),
    ],
)
def test_what_is_not_known_names_the_nearest(key: str, value: object, hint: str) -> None:
    with pytest.raises(BadInput) as error:
        validate(StageRequest, {"model": "Qwen/Qwen2.5-7B", key: value}, "row")
    assert hint in str(error.value)


def test_other_spellings_of_the_field() -> None:
    request = StageRequest(
        model="m",
        weights_dtype="bfloat16",
        attention="flash_attention_2",
        sharding="ZeRO-3",
        precision="bf16",
    )  # type: ignore[arg-type]
    assert (request.weights_dtype, request.attention, request.sharding) == ("bf16", "flash", "zero3")
    lightning = StageRequest(model="m", precision="bf16-true")  # type: ignore[arg-type]
    assert (lightning.weights_dtype, lightning.precision) == ("bf16", "none")


def test_preference_memory_lists_the_second_sequence_and_the_reference() -> None:
    """DPO reads two sequences per pair: at one length its activations are those of twice the batch."""
    pairs = size(method="dpo", tuning="lora", max_length=2048, micro_batch=1, gradient_checkpointing=False)
    twice = size(method="sft", tuning="lora", max_length=2048, micro_batch=2, gradient_checkpointing=False)
    both = [pairs.components[f"activations, {which} sequence"] for which in ("first", "second")]
    assert sum(both) == pytest.approx(twice.components["activations"], abs=2)
    assert both[1] == pytest.approx(both[0], rel=0.05)
    full = size(method="dpo", tuning="full")
    assert "reference weights" in full.components
    loss = full.phase_components["loss, backward"]
    assert loss["loss, second sequence"] > 0


def test_rollouts_are_listed_where_training_is_the_peak() -> None:
    """Qwen2.5-7B: keys and values of 28 layers, 4 heads of 128, 2 bytes each, 4 × 1,024 tokens."""
    answer = size(method="grpo", tuning="lora", micro_batch=4, num_generations=4)
    assert answer.phase != "rollout"
    rollout = answer.phase_components["rollout"]
    assert rollout["KV cache"] == 2 * 2 * 28 * 4 * 128 * 1024 * 4
    assert rollout["rollout logits"] > 0
    assert eval(answer.formulas["KV cache"]) == rollout["KV cache"]


def test_a_prompt_is_cut_with_its_completion() -> None:
    """TRL cuts both together to max_length: a sequence never has more tokens than that."""
    limit = size(method="dpo", tuning="lora", max_length=1024, max_prompt_length=1023)
    for values in (
        {"max_prompt_length": 2048},
        {"max_length": 1024, "max_prompt_length": 2000},
        {"max_length": 1024, "max_prompt_length": 2000, "max_completion_length": 2000},
    ):
        answer = size(method="dpo", tuning="lora", **values)
        assert answer.peak_bytes == limit.peak_bytes
        assert ("max_prompt_length", "1023") in [(item.name, item.value) for item in answer.assumptions]
    assert size(method="grpo", max_prompt_length=2048, max_completion_length=64).peak_bytes > 0


def test_fp16_weights_are_not_trained_under_a_scaler() -> None:
    with pytest.raises(BadInput, match="GradScaler"):
        size(weights_dtype="fp16", precision="fp16")
    with pytest.raises(BadInput, match="GradScaler"):
        size(hardware_from_name("V100 32GB", 1), weights_dtype="fp16")
    assert size(weights_dtype="fp16", precision="fp16", tuning="lora").peak_bytes > 0
    bare = size(weights_dtype="fp16", precision="none")
    assert "fp16 weights" in [item.name for item in bare.assumptions]


def test_flash_attention_on_a_card_without_its_kernel_is_said() -> None:
    def notes(gpu: str) -> str:
        answer = size(hardware_from_name(gpu, 1), tuning="lora", attention="flash")
        return " ".join(item.source for item in answer.assumptions)

    assert "no kernel for T4" in notes("T4")
    assert "no kernel" not in notes("A100 80GB")


def test_paged_states_may_leave_the_gpu() -> None:
    """8 bytes per parameter in the likely peak, none of them in the low end."""
    paged, resident = (
        size(weights_dtype="bf16", optimizer=name) for name in ("paged_adamw_32bit", "adamw_torch_fused")
    )
    states = paged.components["optimizer states"]
    assert states == 8 * 7_615_616_512
    assert paged.low_bytes < paged.peak_bytes - states
    assert resident.low_bytes > resident.peak_bytes - resident.components["optimizer states"]


def test_a_mig_slice_has_its_share_of_the_speed() -> None:
    whole = size(tuning="lora", steps=1000)
    name = "NVIDIA A100-SXM4-80GB MIG 20GB"
    device = Device(index=0, name=name, uuid="MIG-1", total_bytes=20 * GIB, free_bytes=20 * GIB)
    part = size(CPU.model_copy(update={"devices": (device,)}), tuning="lora", steps=1000)
    assert 3 < part.time_components["training"] / whole.time_components["training"] < 4.5
    assert "MIG slice" in [item.name for item in part.assumptions]


LLAMA = {
    "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
    "intermediate_size": 1024, "vocab_size": 1000,
}  # fmt: skip


def folder(tmp_path: Path, **changes: Any) -> str:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, **changes}))
    return str(tmp_path)


def test_a_model_with_weights_in_four_bits_is_qlora(tmp_path: Path) -> None:
    stored = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    model = folder(tmp_path, quantization_config=stored)
    for values in ({}, {"tuning": "lora"}, {"tuning": "qlora"}):
        assert "weights in 4 bits" in size(model=model, **values).components
    with pytest.raises(BadInput, match="cannot be trained"):
        size(model=model, tuning="full")


def test_other_quantisations_are_said(tmp_path: Path) -> None:
    model = folder(tmp_path, quantization_config={"quant_method": "gptq", "bits": 4})
    answer = size(model=model, tuning="lora")
    assert ("quantization_config", "gptq, 4 bits") in [(i.name, i.value) for i in answer.assumptions]

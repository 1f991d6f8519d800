"""Laws that every estimate obeys, whatever the configuration."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from estimators.hardware import Hardware, hardware_from_name
from pipelines.sizing import StageRequest, StageSize, size_stage

MODELS = (
    "Qwen2.5-0.5B",
    "Llama-3.1-8B",
    "Qwen3-30B-A3B",
    "gemma-2-2b",
    "pythia-410m",
    "SmolLM2-135M",
    "phi-2",
)
ONE = hardware_from_name("A100 80GB", 1)


def hardware(count: int) -> Hardware:
    return hardware_from_name("A100 80GB", count)


def size(**values: Any) -> StageSize:
    return size_stage(StageRequest(**values), hardware(values.get("num_gpus") or 1))


requests = st.fixed_dictionaries(
    {
        "model": st.sampled_from(MODELS),
        "method": st.sampled_from(("sft", "dpo", "kto", "grpo", "dapo", "rloo")),
        "tuning": st.sampled_from(("full", "lora", "qlora")),
        "lora_rank": st.sampled_from((1, 8, 64)),
        "lora_targets": st.sampled_from(("all-linear", "attention")),
        "loss": st.sampled_from(("auto", "full-logits", "chunked", "fused")),
        "max_prompt_length": st.integers(0, 4096),
        "max_completion_length": st.integers(16, 8192),
        "micro_batch": st.integers(1, 16),
        "num_generations": st.sampled_from((2, 4, 8, 16)),
        "gradient_checkpointing": st.booleans(),
        "optimizer": st.sampled_from(("adamw_torch_fused", "adamw_torch", "adamw_8bit", "paged_adamw_8bit")),
        "attention": st.sampled_from(("sdpa", "eager")),
        "rollouts": st.sampled_from(("hf", "vllm-colocate", "vllm-server")),
        "gradient_accumulation": st.sampled_from((1, 4)),
        "num_gpus": st.sampled_from((1, 2, 4)),
        "sharding": st.sampled_from(("none", "zero1", "zero2", "zero3", "fsdp")),
    }
)
law = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@law
@given(requests)
def test_components_sum_to_the_peak(values: dict[str, Any]) -> None:
    answer = size(**values)
    assert sum(answer.components.values()) == answer.peak_bytes
    assert all(part >= 0 for part in answer.components.values())
    assert 0 < answer.low_bytes <= answer.peak_bytes <= answer.high_bytes
    assert answer.allocated_bytes <= answer.reserved_bytes <= answer.peak_bytes
    assert answer.seconds["low"] <= answer.seconds["high"]
    assert answer.headroom_bytes == answer.available_bytes - answer.peak_bytes


@law
@given(requests)
def test_every_formula_evaluates_to_its_component(values: dict[str, Any]) -> None:
    answer = size(**values)
    assert set(answer.components) <= set(answer.formulas)
    parts = {**answer.phase_components.get("rollout", {}), **answer.components}
    assert set(answer.formulas) == set(parts)
    for name, text in answer.formulas.items():
        assert set(text) <= set("0123456789.e+-*/() "), text
        assert abs(eval(text) - parts[name]) <= max(1, 1e-3 * parts[name]), (name, text)


@law
@given(requests)
def test_the_components_of_every_phase_sum_to_it(values: dict[str, Any]) -> None:
    answer = size(**values)
    assert set(answer.phase_components) == set(answer.phases)
    for name, parts in answer.phase_components.items():
        assert abs(sum(parts.values()) - answer.phases[name]) <= len(parts) + 1


@law
@given(requests)
def test_the_verdict_says_what_the_numbers_say(values: dict[str, Any]) -> None:
    answer = size(**values)
    starts = answer.problem is None
    assert (answer.verdict == "fits") == (starts and answer.high_bytes <= answer.available_bytes)
    assert (answer.verdict == "does-not-fit") == (not starts or answer.peak_bytes > answer.available_bytes)


@law
@given(requests)
def test_more_gpus_never_need_more_memory_each(values: dict[str, Any]) -> None:
    more = size(**{**values, "num_gpus": 2 * values["num_gpus"]})
    assert more.peak_bytes <= size(**values).peak_bytes


@law
@given(requests)
def test_lora_never_needs_more_than_full(values: dict[str, Any]) -> None:
    """Named exception: PEFT's sums of whole expert matrices are kept whole on every GPU, and can outgrow a
    sharded full tuning (FSDP2 itself shows it: test_sizing_sharded.py)."""
    adapts_experts = values["model"] == "Qwen3-30B-A3B" and values["lora_targets"] == "all-linear"
    assume(not adapts_experts or values["sharding"] == "none" or values["gradient_checkpointing"])
    lora = size(**{**values, "tuning": "lora"})
    assert lora.peak_bytes <= size(**{**values, "tuning": "full"}).peak_bytes


@law
@given(requests)
def test_qlora_needs_more_than_lora_only_for_the_named_fp32_remainder(values: dict[str, Any]) -> None:
    """`prepare_model_for_kbit_training` makes embedding, head and activations fp32; without it QLoRA is never
    more. Named exception: under autocast a LayerNorm's fp32 result passes through bitsandbytes' matrices
    unnarrowed, so such models' activations are fp32 too."""
    assume(not values["model"].startswith(("pythia", "phi-")))
    qlora = size(**{**values, "tuning": "qlora", "kbit_prepared": False})
    assert qlora.peak_bytes <= size(**{**values, "tuning": "lora"}).peak_bytes


@law
@given(requests, st.integers(1, 2048))
def test_longer_is_never_cheaper(values: dict[str, Any], more: int) -> None:
    longer = {**values, "max_completion_length": values["max_completion_length"] + more}
    short, long = size(**values), size(**longer)
    assert long.peak_bytes >= short.peak_bytes
    assert long.low_bytes >= short.low_bytes
    assert long.high_bytes >= short.high_bytes
    assert long.seconds["low"] >= short.seconds["low"]


@law
@given(requests)
def test_checkpointing_never_raises_the_peak(values: dict[str, Any]) -> None:
    on = size(**{**values, "gradient_checkpointing": True})
    off = size(**{**values, "gradient_checkpointing": False})
    assert on.peak_bytes <= off.peak_bytes
    assert on.high_bytes <= off.high_bytes


@law
@given(requests)
def test_a_larger_micro_batch_is_never_cheaper(values: dict[str, Any]) -> None:
    assume(values["micro_batch"] <= 8)
    larger = size(**{**values, "micro_batch": 2 * values["micro_batch"], "method": "dpo"})
    assert larger.peak_bytes >= size(**{**values, "method": "dpo"}).peak_bytes


@law
@given(requests)
def test_a_larger_batch_of_rollouts_is_never_cheaper_where_it_holds_whole_groups(
    values: dict[str, Any],
) -> None:
    """Where it does not, accumulation is repaired, and a full tuning that accumulates keeps its gradients."""
    values = {**values, "method": "grpo", "micro_batch": values["num_generations"]}
    larger = size(**{**values, "micro_batch": 2 * values["micro_batch"]})
    assert larger.peak_bytes >= size(**values).peak_bytes


@law
@given(requests)
def test_preference_pairs_need_at_least_supervised_tuning_and_a_reference(values: dict[str, Any]) -> None:
    """DPO full ≥ SFT full + reference weights; a precomputed reference lowers it.

    To a hundredth: SFT also scores the prompt, which makes the allocator's slack a little larger."""
    values = {**values, "tuning": "full", "sharding": "none", "max_length": 2048, "loss": "fused"}
    pairs, single = size(**{**values, "method": "dpo"}), size(**{**values, "method": "sft"})
    reference = next(part for name, part in pairs.components.items() if "reference weights" in name)
    assert pairs.peak_bytes >= 0.99 * (single.peak_bytes + reference)
    assert size(**{**values, "method": "dpo", "reference": "precomputed"}).peak_bytes < pairs.peak_bytes


@law
@given(requests, st.sampled_from((0.1, 0.2, 0.4)))
def test_rollouts_need_more_with_larger_groups_and_shares(values: dict[str, Any], share: float) -> None:
    """Strictly more with G (a whole group is sampled at once), completion length and vLLM's share."""
    values = {
        **values,
        "method": "grpo",
        "tuning": "lora",
        "num_gpus": 1,
        "sharding": "none",
        "micro_batch": 1,
    }
    values |= {"gradient_accumulation": 1, "rollouts": "vllm-colocate", "vllm_memory_utilization": share}
    base = size(**values)
    assert size(**{**values, "num_generations": 2 * values["num_generations"]}).peak_bytes > base.peak_bytes
    assert size(**{**values, "vllm_memory_utilization": share + 0.1}).peak_bytes > base.peak_bytes
    longer = {**values, "max_completion_length": values["max_completion_length"] + 64}
    assert size(**longer).peak_bytes > base.peak_bytes

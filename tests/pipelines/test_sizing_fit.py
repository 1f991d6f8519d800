"""The search for the cheapest changes that make a stage fit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from estimators.errors import BadInput, DoesNotFit
from estimators.hardware import Hardware, hardware_from_name
from estimators.record import validate
from pipelines.sizing import (
    FitResult,
    StageRequest,
    fit_stage,
    savings,
    shortfall,
    size_stage,
    smallest_hardware,
    valid_groups,
)
from pipelines.sizing_request import whole_groups

GIB = 1 << 30


def request(**values: Any) -> StageRequest:
    return StageRequest(**{"model": "Qwen/Qwen2.5-7B", **values})


def changes(hardware: Hardware, keep: tuple[str, ...] = (), **values: Any) -> list[str]:
    return [change.what for change in fit_stage(request(**values), hardware, keep).changes]


A100 = hardware_from_name("A100 80GB", 1)
CPU = Hardware(devices=(), cpu_cores=2, ram_bytes=16 * GIB, ram_free_bytes=12 * GIB, message="no GPU")


def test_what_fits_is_not_changed() -> None:
    found = fit_stage(request(tuning="lora"), A100)
    assert found.changes == ()
    assert found.request == request(tuning="lora")


def test_time_is_given_up_before_anything_else() -> None:
    """A micro-batch of 64 is split; the effective batch stays 64."""
    found = fit_stage(request(tuning="lora", micro_batch=64, max_length=4096), A100)
    assert [change.what for change in found.changes] == ["micro_batch"]
    assert found.request.micro_batch * found.request.gradient_accumulation == 64
    assert found.size.verdict == "fits"


def test_the_largest_micro_batch_that_fits_is_kept() -> None:
    found = fit_stage(request(tuning="lora", micro_batch=64, max_length=4096), A100)
    larger = found.request.model_copy(update={"micro_batch": 2 * found.request.micro_batch})
    assert size_stage(larger, A100).verdict != "fits"


def test_checkpointing_and_loss_come_before_the_adapter() -> None:
    one = changes(A100, tuning="lora", gradient_checkpointing=False, max_length=16384)
    assert one == ["gradient_checkpointing"]
    assert changes(A100, tuning="lora", loss="full-logits", max_length=32768) == ["loss"]


def test_full_tuning_becomes_an_adapter_and_says_so() -> None:
    """Full tuning of 7B needs 6 B per parameter at the very least: 43 GiB."""
    found = fit_stage(request(), hardware_from_name("A100 40GB", 1))
    (change,) = found.changes
    assert (change.what, change.from_value, change.to_value) == ("tuning", "full", "lora")
    assert change.saves_bytes > 0
    assert "adapter" in change.gives_up


def test_full_tuning_is_kept_where_narrower_numbers_do() -> None:
    """SFT of 7B: 16 B per parameter fit neither 94 GB nor 80; 8-bit moments (10 B) fit the larger, bf16
    weights (8 B) both."""
    assert changes(hardware_from_name("H100 NVL 94GB", 1)) == ["optimizer"]
    assert changes(A100) == ["weights_dtype"]
    large: dict[str, Any] = {"micro_batch": 8, "max_length": 4096}
    assert changes(A100, **large) == ["weights_dtype"]
    assert changes(A100, **large, keep=("weights_dtype",)) == ["tuning"]
    assert changes(A100, **large, weights_dtype="fp32") == ["tuning"]
    dpo = fit_stage(
        request(model="Qwen/Qwen2.5-1.5B", method="dpo", micro_batch=4), hardware_from_name("RTX 4090", 1)
    )
    assert [change.what for change in dpo.changes] == ["reference", "optimizer"]
    assert dpo.request.tuning == "full"


def test_bf16_weights_are_no_way_out_for_small_learning_rates() -> None:
    """RL and DPO train at 1e-6: bf16 rounds such updates away, so LoRA comes first where it may."""
    big: dict[str, Any] = {"method": "dpo", "max_length": 512, "micro_batch": 4}
    assert "weights_dtype" not in changes(A100, **big)
    assert "weights_dtype" in changes(A100, **big, keep=("tuning",))


def test_four_bits_are_not_offered_to_a_gpu_without_bf16_under_full_tuning() -> None:
    """bf16 weights on a T4 would be computed in software."""
    with pytest.raises(DoesNotFit):
        fit_stage(request(model="Qwen/Qwen2.5-1.5B"), hardware_from_name("T4", 1), keep=("tuning",))


def test_a_dtype_that_was_asked_for_is_not_dropped_in_silence() -> None:
    found = fit_stage(request(tuning="lora", weights_dtype="fp32"), hardware_from_name("RTX 4090", 1))
    (change,) = found.changes
    assert (change.what, change.from_value, change.to_value) == ("weights_dtype", "fp32", "bf16")
    kept = fit_stage(
        request(tuning="lora", weights_dtype="fp32"),
        hardware_from_name("A100 40GB", 1),
        keep=("weights_dtype",),
    )
    assert kept.request.weights_dtype == "fp32"


def test_a_gpu_that_is_named_is_planned_for_without_one_here() -> None:
    for card, tuning in (("RTX 3060", "qlora"), ("A100 40GB", "lora")):
        found = fit_stage(request(tuning="lora", gpu=card), CPU)
        assert found.request.tuning == tuning
        assert found.size.verdict == "fits"
    assert [change.what for change in savings(request(tuning="lora", gpu="RTX 3060"), CPU)][:2] == [
        "optimizer",
        "tuning",
    ]
    llama = request(model="meta-llama/Llama-3.1-70B", tuning="lora", gpu="A100 80GB")
    assert fit_stage(llama, CPU).request.tuning == "qlora"


def test_rollouts_are_sampled_in_parts_before_anything_is_cut() -> None:
    """64 long completions at once do not fit a T4; one group of 16 does."""
    found = fit_stage(
        request(
            method="grpo",
            tuning="qlora",
            micro_batch=8,
            gradient_accumulation=8,
            num_generations=16,
            max_prompt_length=512,
            max_completion_length=4096,
        ),
        hardware_from_name("T4", 1),
    )
    assert {change.what for change in found.changes} <= {"micro_batch", "steps_per_generation"}
    assert found.request.micro_batch * found.request.gradient_accumulation == 64
    at_once = found.request.micro_batch * (found.request.steps_per_generation or 0)
    assert at_once % 16 == 0
    assert at_once < 64


def test_smaller_groups_keep_the_effective_batch_and_say_how_many_prompts() -> None:
    found = fit_stage(
        request(
            method="rloo",
            tuning="qlora",
            micro_batch=4,
            gradient_accumulation=8,
            num_generations=16,
            max_completion_length=8192,
        ),
        hardware_from_name("RTX 3060", 1),
        keep=("max_completion_length",),
    )
    assert found.request.num_generations < 16
    assert found.request.micro_batch * found.request.gradient_accumulation == 32
    change = next(change for change in found.changes if change.what == "num_generations")
    prompts = 32 // found.request.num_generations
    assert f"the 32 completions of a step come from {prompts} prompts, not 2" in change.gives_up


def test_vllm_that_cannot_start_does_not_fit() -> None:
    """0.3 of 40 GiB is 12 GiB; bf16 weights of 7,615,616,512 parameters alone are 14.2 GiB."""
    asked = request(method="grpo", tuning="lora", rollouts="vllm-colocate", num_generations=8)
    card = hardware_from_name("A100 40GB", 1)
    size = size_stage(asked, card)
    assert size.verdict == "does-not-fit"
    assert size.problem is not None
    least = float(size.problem.rsplit(" ", 1)[1])
    assert least * 40 * GIB > 2 * 7_615_616_512
    assert (least - 0.05) * 40 * GIB < 2 * 7_615_616_512 + GIB
    enough = asked.model_copy(update={"vllm_memory_utilization": least})
    assert size_stage(enough, card).problem is None
    less = asked.model_copy(update={"vllm_memory_utilization": round(least - 0.01, 2)})
    assert size_stage(less, card).problem is not None
    found = fit_stage(asked, card)
    assert [change.what for change in found.changes] == ["gradient_accumulation", "vllm_memory_utilization"]
    assert found.request.vllm_memory_utilization == least
    assert all(change.saves_bytes == 0 for change in found.changes)
    assert shortfall(asked, card)[0].startswith("vLLM's share of the card, 11.8 GiB")


def test_vllm_holds_what_the_policy_holds() -> None:
    """TRL starts vLLM in 4 bits under QLoRA; a 32B LoRA's engine is larger than any 24 GB card."""
    colocate = {"method": "grpo", "rollouts": "vllm-colocate", "num_generations": 8}
    card = hardware_from_name("RTX 4090", 1)
    assert size_stage(request(tuning="qlora", **colocate), card).problem is None
    text = size_stage(request(model="Qwen/Qwen2.5-32B", tuning="lora", **colocate), card).problem
    assert text is not None
    assert "so is the whole card" in text


def test_a_share_that_is_larger_than_vllm_needs_is_lowered() -> None:
    values = {"method": "grpo", "tuning": "lora", "rollouts": "vllm-colocate"}
    found = fit_stage(request(**values, vllm_memory_utilization=0.9), A100)
    assert found.request.rollouts == "vllm-colocate"
    assert not found.request.vllm_enable_sleep_mode
    assert 0.15 < found.request.vllm_memory_utilization < 0.3


def test_gpus_at_hand_are_used_before_full_tuning_is_given_up() -> None:
    found = fit_stage(request(), hardware_from_name("H100 80GB", 8))
    assert [change.what for change in found.changes] == ["sharding"]
    assert found.request.tuning == "full"


def test_a_small_card_ends_with_four_bits() -> None:
    found = fit_stage(
        request(method="grpo", max_completion_length=1024), hardware_from_name("RTX 3080 10GB", 1)
    )
    assert found.request.tuning == "qlora"
    assert found.size.verdict in ("fits", "tight")


def test_kept_keys_are_not_touched() -> None:
    with pytest.raises(DoesNotFit) as error:
        fit_stage(request(), A100, keep=("tuning", "optimizer", "weights_dtype"))
    assert "as given: tuning, optimizer, weights_dtype" in str(error.value)


def test_what_fits_nowhere_names_the_smallest_hardware() -> None:
    with pytest.raises(DoesNotFit) as error:
        fit_stage(request(model="Qwen/Qwen2.5-72B", method="dpo"), hardware_from_name("T4", 1))
    needs, lean, where, *short = str(error.value).splitlines()
    assert needs.startswith("on T4, dpo of Qwen/Qwen2.5-72B (full) needs ")
    assert needs.endswith("14.6 GiB is free")
    assert "tuning qlora" in lean
    assert "as asked it fits" in where
    assert "with every saving it fits one" in where
    assert short[0].startswith("Short by")
    assert len(short) == 4


def test_numbers_of_a_sentence_are_of_the_hardware_beside_them() -> None:
    """Each "up to X of Y" is the size on the hardware that it names, not on the one at hand."""
    asked = request()
    with pytest.raises(DoesNotFit) as error:
        fit_stage(asked, CPU)
    message = str(error.value)
    there = size_stage(asked, hardware_from_name("H200", 1))
    assert f"one H200 (up to {there.high_bytes / GIB:.1f} GiB of 139.7 GiB)" in message
    here = size_stage(asked, CPU)
    assert f"{here.peak_bytes / GIB:.1f} GiB (up to {here.high_bytes / GIB:.1f} GiB)" in message
    assert "with every saving it fits one " in message
    assert f"Short by {(here.peak_bytes - here.available_bytes) / GIB:.1f} GiB." in message


def test_the_smallest_hardware_fits_and_the_next_smaller_does_not() -> None:
    assert (smallest_hardware(request(tuning="lora")) or "").startswith("one RTX A4500 ")
    assert (smallest_hardware(request(tuning="lora"), savings=True) or "").startswith("one ")
    assert "× " in (smallest_hardware(request(model="Qwen/Qwen2.5-72B")) or "")


def test_the_price_of_each_change() -> None:
    """Each saving is the difference of two estimates, cheapest concession first."""
    asked = request(tuning="lora", micro_batch=8, gradient_checkpointing=False)
    found = savings(asked, A100)
    assert [change.what for change in found][:2] == ["micro_batch", "gradient_checkpointing"]
    checkpointed = asked.model_copy(update={"gradient_checkpointing": True})
    difference = size_stage(asked, A100).high_bytes - size_stage(checkpointed, A100).high_bytes
    assert found[1].saves_bytes == difference


def test_groups_are_made_whole() -> None:
    """4 completions a step and groups of 8: two micro-batches make one group."""
    found = fit_stage(request(method="grpo", tuning="lora", micro_batch=4, num_generations=8), A100)
    assert found.request.gradient_accumulation == 2
    assert found.changes[0].what == "gradient_accumulation"


@pytest.mark.parametrize(
    ("given_", "becomes"),
    [
        ({"micro_batch": 3, "gradient_accumulation": 5}, (8, None)),  # 3 × 8 = 3 groups; 5 × 8 are not needed
        ({"micro_batch": 1, "gradient_accumulation": 9}, (16, None)),
        ({"micro_batch": 8, "gradient_accumulation": 3}, (3, None)),
        ({"micro_batch": 1, "gradient_accumulation": 32, "steps_per_generation": 3}, (32, 8)),
        ({"micro_batch": 1, "gradient_accumulation": 20, "steps_per_generation": 20}, (24, 8)),
        ({"micro_batch": 4, "gradient_accumulation": 9, "steps_per_generation": 3}, (10, 2)),
        ({"micro_batch": 4, "gradient_accumulation": 1, "steps_per_generation": 4}, (1, 4)),
    ],
)
def test_whole_groups_by_hand(given_: dict[str, int], becomes: tuple[int, int | None]) -> None:
    found, _ = valid_groups(request(method="grpo", num_generations=8, **given_), A100)
    assert (found.gradient_accumulation, found.steps_per_generation) == becomes


@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 12),
    st.integers(1, 40),
    st.one_of(st.none(), st.integers(1, 40)),
    st.integers(2, 24),
    st.integers(1, 8),
)
def test_accumulation_is_the_least_with_whole_groups(
    micro: int, accumulation: int, generation: int | None, group: int, gpus: int
) -> None:
    asked = StageRequest(
        model="m",
        method="grpo",
        micro_batch=micro,
        gradient_accumulation=accumulation,
        steps_per_generation=generation,
        num_generations=group,
    )
    steps, found = whole_groups(asked, gpus)
    assert micro * gpus * steps % group == 0
    given_ = generation or accumulation
    if micro * gpus * given_ % group == 0:
        assert (steps, found) == (given_, accumulation)
    elif given_ <= accumulation:
        assert found % steps == 0
        least = next(n for n in range(accumulation, accumulation + group) if micro * gpus * n % group == 0)
        assert found == least
        one_group = next(n for n in range(1, group + 1) if micro * gpus * n % group == 0)
        assert steps <= max(given_ if generation else found, one_group)
    assert whole_groups(asked.model_copy(update={"gradient_accumulation": found}), gpus)[1] == found


def test_a_group_has_at_least_two() -> None:
    for method in ("grpo", "dapo", "rloo"):
        with pytest.raises(BadInput, match="at least 2"):
            validate(StageRequest, {"model": "m", "method": method, "num_generations": 1}, "here")
    assert StageRequest(model="m", method="sft", num_generations=1).num_generations == 1


wide = st.fixed_dictionaries(
    {
        "model": st.sampled_from(("Qwen2.5-0.5B", "Llama-3.1-8B", "Qwen3-30B-A3B", "pythia-1b")),
        "method": st.sampled_from(("sft", "dpo", "grpo", "dapo", "rloo")),
        "tuning": st.sampled_from(("full", "lora")),
        "weights_dtype": st.sampled_from(("auto", "auto", "fp32", "bf16")),
        "optimizer": st.sampled_from(("adamw_torch_fused", "adamw_torch", "paged_adamw_32bit", "sgd")),
        "loss": st.sampled_from(("auto", "full-logits")),
        "gradient_checkpointing": st.booleans(),
        "rollouts": st.sampled_from(("auto", "hf", "vllm-colocate", "vllm-server")),
        "vllm_memory_utilization": st.sampled_from((0.1, 0.3, 0.7)),
        "micro_batch": st.integers(1, 32),
        "gradient_accumulation": st.integers(1, 8),
        "steps_per_generation": st.sampled_from((None, None, 1, 4)),
        "num_generations": st.sampled_from((2, 4, 6, 8, 16)),
        "max_completion_length": st.sampled_from((256, 1024, 4096)),
        "max_prompt_length": st.sampled_from((128, 1024)),
    }
)
cards = st.sampled_from((("T4", 1), ("A100 80GB", 1), ("RTX 4090", 4), ("H100 80GB", 3)))
search = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def try_fit(values: dict[str, Any], hardware: Hardware) -> FitResult | str:
    try:
        return fit_stage(StageRequest(**values), hardware)
    except DoesNotFit as error:
        return str(error)


TOGETHER = {
    "micro_batch": {"gradient_accumulation", "steps_per_generation"},
    "num_generations": {"steps_per_generation"},
    "max_completion_length": {"max_length"},
}
"""Keys that a change moves along, and names in what it gives up."""


@search
@given(wide, cards)
def test_batches_stay_whole_and_what_is_found_fits(values: dict[str, Any], gpus: tuple[str, int]) -> None:
    hardware = hardware_from_name(*gpus)
    found = try_fit(values, hardware)
    if isinstance(found, str):
        return
    assert found.size.verdict in ("fits", "tight")
    assert found.size.problem is None
    assert found.size == size_stage(found.request, hardware)
    start, _ = valid_groups(StageRequest(**values), hardware)
    now = found.request
    assert now.micro_batch * now.gradient_accumulation == start.micro_batch * start.gradient_accumulation
    if values["method"] in ("grpo", "dapo", "rloo"):
        steps = now.steps_per_generation or now.gradient_accumulation
        assert now.micro_batch * gpus[1] * steps % now.num_generations == 0
        assert now.num_generations >= 2
    touched = {change.what for change in found.changes}
    allowed = touched.union(*(TOGETHER.get(what, set()) for what in touched))
    before = StageRequest(**values).model_dump()
    changed = {key for key, value in now.model_dump().items() if before[key] != value}
    # smaller micro-batches raise it and a later change may lower it to what it was
    assert touched <= changed | {"steps_per_generation"}
    assert changed <= allowed
    for change in found.changes:
        assert change.gives_up
        assert "{" not in change.gives_up
        assert change.saves_bytes >= 0
        assert change.from_value != change.to_value
        assert "None" not in (change.from_value, change.to_value)


@search
@given(wide, cards)
def test_a_named_gpu_is_as_good_as_one_that_is_here(values: dict[str, Any], gpus: tuple[str, int]) -> None:
    values = {**values, "num_gpus": gpus[1]}
    here, named = hardware_from_name(*gpus), {**values, "gpu": gpus[0]}
    there, elsewhere = try_fit(values, here), try_fit(named, CPU)
    if isinstance(there, str) or isinstance(elsewhere, str):
        assert there == elsewhere
    else:
        assert there.changes == elsewhere.changes
        assert there.request == elsewhere.request.model_copy(update={"gpu": None})
    assert savings(StageRequest(**values), here) == savings(StageRequest(**named), CPU)


def test_what_was_set_is_named_where_nothing_else_would_help() -> None:
    """Full tuning of 32B on a small card, with everything but the tuning at its least already."""
    asked = request(model="Qwen/Qwen2.5-32B", max_length=64, optimizer="adamw_8bit", weights_dtype="bf16")
    lines = shortfall(asked, hardware_from_name("T4", 1), keep=("tuning", "max_length", "weights_dtype"))
    assert "if they were not as given" in lines[0]
    assert any("tuning: full" in line for line in lines[1:])

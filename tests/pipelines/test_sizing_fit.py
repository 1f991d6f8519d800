"""The search for the cheapest changes that make a stage fit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from estimators.errors import DoesNotFit
from estimators.hardware import Hardware, hardware_from_name
from pipelines.sizing import StageRequest, fit_stage, savings, size_stage


def request(**values: Any) -> StageRequest:
    return StageRequest(**{"model": "Qwen/Qwen2.5-7B", **values})


def changes(hardware: Hardware, **values: Any) -> list[str]:
    return [change.what for change in fit_stage(request(**values), hardware).changes]


A100 = hardware_from_name("A100 80GB", 1)


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
    found = fit_stage(request(), A100)
    (change,) = found.changes
    assert (change.what, change.from_value, change.to_value) == ("tuning", "full", "lora")
    assert change.saves_bytes > 0
    assert "adapter" in change.gives_up


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
    with pytest.raises(DoesNotFit):
        fit_stage(request(), A100, keep=("tuning", "optimizer", "max_length"))


def test_what_fits_nowhere_names_the_smallest_hardware() -> None:
    with pytest.raises(DoesNotFit) as error:
        fit_stage(request(model="Qwen/Qwen2.5-72B", method="dpo"), hardware_from_name("T4", 1))
    message = str(error.value)
    assert "T4 has 14.6 GiB free" in message
    assert "with every saving it fits one" in message
    assert "as asked it fits" in message


def test_the_price_of_each_change() -> None:
    """Each saving is the difference of two estimates, cheapest concession first."""
    asked = request(micro_batch=8, gradient_checkpointing=False)
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


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.fixed_dictionaries(
        {
            "model": st.sampled_from(("Qwen2.5-0.5B", "Llama-3.1-8B", "Qwen3-30B-A3B")),
            "method": st.sampled_from(("sft", "dpo", "grpo", "dapo")),
            "tuning": st.sampled_from(("full", "lora")),
            "micro_batch": st.integers(1, 32),
            "gradient_accumulation": st.integers(1, 8),
            "num_generations": st.sampled_from((2, 4, 8, 16)),
            "max_completion_length": st.sampled_from((256, 1024, 4096)),
            "max_prompt_length": st.sampled_from((128, 1024)),
        }
    ),
    st.sampled_from((("T4", 1), ("A100 80GB", 1), ("RTX 4090", 4))),
)
def test_batches_stay_whole_and_what_is_found_fits(values: dict[str, Any], gpus: tuple[str, int]) -> None:
    hardware = hardware_from_name(*gpus)
    try:
        found = fit_stage(StageRequest(**values), hardware)
    except DoesNotFit:
        return
    assert found.size.verdict in ("fits", "tight")
    assert found.size == size_stage(found.request, hardware)
    asked = values["micro_batch"] * values["gradient_accumulation"]
    given_ = found.request.micro_batch * found.request.gradient_accumulation
    if values["method"] in ("grpo", "dapo"):
        sampled = given_ * gpus[1]
        assert sampled % found.request.num_generations == 0
    touched = {change.what for change in found.changes}
    if not touched & {"gradient_accumulation", "num_generations"}:
        assert given_ == asked
    assert all(change.gives_up for change in found.changes)

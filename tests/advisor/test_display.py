"""The plan as a table: 80 columns, one unit, every number of the plan once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.display import show_plan
from pipelines.plan import Plan, PlannedStage

GIB = st.floats(0.001, 5000)
HOURS = st.floats(0.0001, 5000)


@st.composite
def stages(draw: st.DrawFn) -> PlannedStage:
    memory = sorted(draw(st.tuples(GIB, GIB, GIB)))
    hours = sorted(draw(st.tuples(HOURS, HOURS)))
    method = draw(st.sampled_from(["probe", "sft", "dpo", "grpo", "dapo"]))
    return PlannedStage(
        folder=f"0{draw(st.integers(0, 9))}-{method}",
        method=method,
        tuning=draw(st.sampled_from(["none", "full", "lora", "qlora"])),
        steps=draw(st.integers(0, 99_999)),
        memory_low_gib=memory[0],
        memory_gib=memory[1],
        memory_high_gib=memory[2],
        free_gib=draw(GIB),
        verdict=draw(st.sampled_from(["fits", "tight", "does-not-fit"])),
        hours_low=hours[0],
        hours_high=hours[1],
        usd_low=draw(st.none() | st.floats(0, 1e6)),
        usd_high=None,
        changes=tuple(
            draw(st.lists(st.just("per_device_train_batch_size 8 → 2, saves 3.1 GiB"), max_size=2))
        ),
    )


def plan_of(*planned: PlannedStage) -> Plan:
    return Plan(
        name="sft-dapo",
        pipeline=("sft", "dapo"),
        model="Qwen/Qwen3-0.6B",
        tuning="lora",
        hardware="no NVIDIA driver was found, so training would run on the CPU",
        seed=0,
        stages=planned,
        notes=("a note " * 20,),
    )


@given(st.lists(stages(), min_size=1, max_size=5))
def test_any_plan_keeps_to_80_columns(planned: list[PlannedStage]) -> None:
    shown = show_plan(plan_of(*planned))
    assert max(map(len, shown.splitlines())) <= 80
    for stage in planned:
        assert stage.folder in shown


def test_a_plan() -> None:
    """1.1 GiB of 22.12, at most 1.31; 0.03 h to 0.06 h is 108 s to 216 s, so 2 to 4 minutes."""
    stage = PlannedStage(
        folder="01-sft", method="sft", tuning="lora", steps=1200, memory_low_gib=0.95, memory_gib=1.1,
        memory_high_gib=1.31, free_gib=22.12, verdict="tight", hours_low=0.03, hours_high=0.06, usd_low=1.0,
        usd_high=2.5, changes=("gradient_checkpointing on",),
    )  # fmt: skip
    shown = show_plan(plan_of(stage))
    row = next(line for line in shown.splitlines() if "01-sft" in line).split()
    assert row == ["01-sft", "lora", "1200", "1.10", "(at", "most", "1.31)", "22.12", "2–4", "min", "tight"]
    assert "in all 2–4 min, 1.00 to 2.50 US dollars (estimated)" in shown
    assert "01-sft: gradient_checkpointing on" in shown


@pytest.mark.parametrize(
    ("hours", "text"),
    [
        ((0.5, 50), "30 min – 2.1 days"),
        ((0.001, 0.004), "3.6–14 s"),
        ((2, 2), "2.0 h"),
        ((30, 40), "30.0–40.0 h"),
    ],
)
def test_two_durations_as_one(hours: tuple[float, float], text: str) -> None:
    stage = PlannedStage(
        folder="01-sft", method="sft", tuning="lora", steps=1, memory_low_gib=1, memory_gib=1,
        memory_high_gib=1, free_gib=1, verdict="fits", hours_low=hours[0], hours_high=hours[1],
    )  # fmt: skip
    assert f"in all {text} (estimated)" in show_plan(plan_of(stage))

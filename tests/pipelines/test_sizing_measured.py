"""Estimates against published measurements. Which rows count is written down in `benchmarks/rows.py`."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from estimators.hardware import hardware_from_name
from pipelines.sizing import StageRequest, StageSize, size_stage


@pytest.fixture(scope="module")
def rows() -> ModuleType:
    """`benchmarks/rows.py`, which is not installed."""
    import sys

    path = Path(__file__).parents[2] / "benchmarks" / "rows.py"
    spec = importlib.util.spec_from_file_location("benchmark_rows", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def sized(measured: object) -> StageSize:
    request = StageRequest.model_validate(measured.request)  # type: ignore[attr-defined]
    return size_stage(request, hardware_from_name("T4", 1))


def test_complete_rows_within_six_percent(rows: ModuleType) -> None:
    """Mean absolute error of the reserved peak ≤ 6 %, of the allocated one ≤ 2 %; never 12 % under at
    "high"."""
    complete = rows.complete_rows()
    assert len(complete) >= 26
    allocated, reserved = [], []
    for measured in complete:
        size = sized(measured)
        allocated.append(abs(size.allocated_bytes / measured.allocated_bytes - 1))
        reserved.append(abs(size.peak_bytes / measured.reserved_bytes - 1))
        assert size.high_bytes >= 0.88 * measured.reserved_bytes, measured.id
    assert sum(allocated) / len(allocated) <= 0.02
    assert sum(reserved) / len(reserved) <= 0.06


def test_held_out_rows_within_eight_percent(rows: ModuleType) -> None:
    """An A100's processes, from a source that nothing was fitted to: likely within 8 % on average and within
    10 % on three rows of four; at "high" never 12 % under, but for GPT-BigCode, whose loss transformers 4.45
    computed in its own way."""
    likely = []
    held_out = rows.held_out_rows()
    assert len(held_out) == 30
    for measured in held_out:
        request = StageRequest.model_validate(measured.request)
        size = size_stage(request, hardware_from_name("A100 80GB", 1))
        likely.append(abs(size.peak_bytes / measured.reserved_bytes - 1))
        if "gpt_bigcode" not in measured.request["model"]:
            assert size.high_bytes >= 0.88 * measured.reserved_bytes, measured.id
            assert size.allocated_bytes >= 0.96 * measured.allocated_bytes, measured.id
    assert sum(likely) / len(likely) <= 0.08
    assert sum(error <= 0.10 for error in likely) >= 0.75 * len(likely)


def test_every_row_counts_or_has_a_reason(rows: ModuleType) -> None:
    measured = rows.measured_rows()
    left_out = [row for row in measured if rows.why_left_out(row)]
    assert len(measured) == 279
    assert len(left_out) + len(rows.complete_rows()) == 279


def test_steps_measured_with_our_own_script(tmp_path: Path) -> None:
    """Rows of `benchmarks/gpu_memory.py`, where a GPU has written some: within 10 %, never under at
    "high"."""
    data = Path(__file__).parents[2] / "benchmarks" / "data" / "gpu_memory.jsonl"
    if not data.exists():
        pytest.skip("no GPU has run benchmarks/gpu_memory.py yet")
    for line in data.read_text().splitlines():
        row = json.loads(line)
        (tmp_path / "config.json").write_text(json.dumps(row["config"]))
        values = {key: value for key, value in row["case"].items() if key != "size"}
        request = StageRequest(model=str(tmp_path), gpu=row["peaks"]["device"], **values)
        size = size_stage(request, hardware_from_name(row["peaks"]["device"], 1))
        ratio = size.reserved_bytes / row["peaks"]["reserved_bytes"]
        assert ratio == pytest.approx(1, abs=0.10), row["case"]
        assert size.high_bytes >= row["peaks"]["reserved_bytes"], row["case"]


HELD_OUT = {
    # huggingface/peft, method_comparison/MetaMathQA/results, June 2025, L40S, torch 2.7.1: cuda_memory_max.
    # A hand-written loop without autocast or checkpointing; micro-batch 4, texts cut at 768 tokens.
    "lora--llama-3.2-3B-rank32": ({"tuning": "lora", "lora_rank": 32, "lora_targets": "qv"}, 22_273_851_392),
    "full-finetuning--llama-3.2-3B": ({"tuning": "full", "optimizer": "adamw_torch"}, 37_241_225_216),
}


@pytest.mark.parametrize("name", HELD_OUT)
def test_a_source_that_nothing_was_fitted_to(name: str) -> None:
    """Reserved peak within 10 %, never under at "high"."""
    values, measured = HELD_OUT[name]
    request = StageRequest(
        model="Llama-3.2-3B", max_length=768, micro_batch=4, precision="bf16-true", loss="full-logits-kept",
        gradient_checkpointing=False, **values,
    )  # fmt: skip
    size = size_stage(request, hardware_from_name("L40S", 1))
    assert size.reserved_bytes == pytest.approx(measured, rel=0.10)
    assert size.high_bytes >= measured

"""The closed form of sharded training against FSDP2 itself, and DDP's buckets against DDP itself.

FSDP2 runs on fake tensors, wrapped by accelerate as transformers' Trainer has it, on one rank of a fake
process group (`pipelines.training.fsdp_worker`). Where they differ, the closed form is to be mended, not the
tolerance.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from estimators.hardware import hardware_from_name
from estimators.memory import phase_bytes
from estimators.models import find_config
from pipelines.sizing import StageRequest, StageSize, size_stage, trace_stage
from pipelines.sizing_resolve import Resolved
from pipelines.sizing_trace import FSDP_WORKER, run_worker, worker_request

LLAMA = {
    "model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8,
    "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 4096,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "untied": {**LLAMA, "tie_word_embeddings": False},
    "tied": {**LLAMA, "num_hidden_layers": 4, "tie_word_embeddings": True},
    "small vocabulary": {**LLAMA, "num_hidden_layers": 4, "vocab_size": 2000, "tie_word_embeddings": False},
    "experts": {
        "model_type": "qwen3_moe",
        "hidden_size": 512,
        "intermediate_size": 1024,
        "moe_intermediate_size": 512,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "vocab_size": 8000,
        "num_experts": 64,
        "num_experts_per_tok": 4,
        "tie_word_embeddings": False,
    },
    "Qwen2.5-0.5B": {},
    "Llama-3.2-1B": {},
    "Qwen2.5-7B": {},
    "gemma-2-2b": {},
    "Qwen3-0.6B": {},
}
NO_CHECKPOINTING = {"gradient_checkpointing": False}
EVERYDAY: list[tuple[str, int, dict[str, Any]]] = [
    ("untied", 4, {"max_length": 512}),
    ("untied", 4, {"max_length": 512, **NO_CHECKPOINTING}),
    ("untied", 4, {"max_length": 512, "tuning": "lora"}),
    ("untied", 4, {"max_length": 512, "tuning": "lora", **NO_CHECKPOINTING}),
    ("untied", 2, {"max_length": 512, "gradient_accumulation": 2}),
    ("tied", 8, {"max_length": 512}),
    ("tied", 8, {"max_length": 512, "tuning": "lora"}),
    ("small vocabulary", 8, {"max_length": 1024}),
    ("small vocabulary", 8, {"max_length": 1024, "tuning": "lora", **NO_CHECKPOINTING}),
    ("untied", 4, {"method": "dpo", "max_length": 256, "max_prompt_length": 0}),
    ("experts", 8, {"max_length": 32, **NO_CHECKPOINTING}),
    ("experts", 8, {"max_length": 32, "tuning": "lora", **NO_CHECKPOINTING}),
]
WIDER = [
    (model, gpus, {"max_length": 1024, "tuning": tuning, "gradient_checkpointing": checkpointing})
    for model in ("Qwen2.5-0.5B", "Llama-3.2-1B", "Qwen2.5-7B", "gemma-2-2b", "Qwen3-0.6B")
    for gpus in (2, 4, 8)
    for tuning in ("full", "lora")
    for checkpointing in (True, False)
]


@pytest.fixture
def compare(tmp_path: Path) -> Callable[[list[tuple[str, int, dict[str, Any]]]], dict[str, float]]:
    """Closed form ÷ FSDP2's peak for every case, catalogue models cut to four layers."""

    def folder(model: str) -> tuple[dict[str, Any], str]:
        config = CONFIGS[model] or {**find_config(model)[0], "num_hidden_layers": 4, "layer_types": None}
        path = tmp_path / model.replace(" ", "-")
        path.mkdir(exist_ok=True)
        (path / "config.json").write_text(json.dumps(config))
        return config, str(path)

    def ratios(cases: list[tuple[str, int, dict[str, Any]]]) -> dict[str, float]:
        requests, closed = [], []
        for model, gpus, values in cases:
            config, path = folder(model)
            request = StageRequest(model=path, num_gpus=gpus, sharding="fsdp", **values)
            resolved = Resolved(request, hardware_from_name("A100 80GB", gpus))
            shape, workload, setup = resolved.shape, resolved.workload, resolved.setup
            requests.append({**worker_request(config, shape, workload, setup), "num_gpus": gpus})
            closed.append(max(phase_bytes(shape, workload, setup).values()))
        found = {}
        for (model, gpus, values), answer, size in zip(
            cases, run_worker(requests, FSDP_WORKER), closed, strict=True
        ):
            assert "error" not in answer, (model, values, answer)
            found[f"{model}, {gpus} GPUs, {values}"] = round(size / answer["peak_bytes"], 3)
        return found

    return ratios


def test_closed_form_within_five_percent_of_fsdp2(compare: Callable[..., dict[str, float]]) -> None:
    assert {name: ratio for name, ratio in compare(EVERYDAY).items() if abs(ratio - 1) > 0.05} == {}


@pytest.mark.slow
def test_closed_form_within_five_percent_of_fsdp2_over_models(
    compare: Callable[..., dict[str, float]],
) -> None:
    assert {name: ratio for name, ratio in compare(WIDER).items() if abs(ratio - 1) > 0.05} == {}


def test_trace_runs_fsdp2_where_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["tied"]))
    request = StageRequest(model=str(tmp_path), num_gpus=4, sharding="fsdp", max_length=256)
    answer, trace = trace_stage(request, hardware_from_name("A100 80GB", 4))
    assert trace.composed == ()
    assert trace.allocated_bytes == pytest.approx(trace.closed_form_bytes, rel=0.05)
    assert sum(answer.components.values()) == answer.peak_bytes


def size(sharding: str, gpus: int, **values: Any) -> StageSize:
    request = StageRequest(model="Llama-3.1-8B", sharding=sharding, num_gpus=gpus, max_length=1024, **values)
    return size_stage(request, hardware_from_name("A100 80GB", gpus))


def test_fsdp_shards_sixteen_bytes_per_parameter() -> None:
    """fp32 weights, gradients and two moments: 16 B × 8.03e9 ÷ 8 = 16.1e9 B at the optimizer's step."""
    answer = size("fsdp", 8)
    assert answer.phases["optimizer step"] == pytest.approx(16 * 8_030_261_248 / 8, rel=1e-6)


def test_fsdp_gathers_a_layer_and_the_next() -> None:
    """Backward of a middle layer in bf16: 2 layers × 218,112,000 × 2 B, the embedding ahead of the first."""
    parts = size("fsdp", 8)
    layer, embedding = 218_112_000 * 2, 128_256 * 4096 * 2
    assert parts.phases["reduce, first layer"] - 12 * parts.params // 8 > layer + embedding


def test_accumulation_keeps_whole_gradients_under_fsdp_and_not_under_zero() -> None:
    """accelerate's no_sync leaves 2 B per parameter on every GPU; DeepSpeed keeps 2 B of a share."""
    once, twice = size("fsdp", 8), size("fsdp", 8, gradient_accumulation=2)
    assert twice.phases["loss, backward"] - once.phases["loss, backward"] == pytest.approx(2 * once.params)
    once, twice = size("zero2", 8), size("zero2", 8, gradient_accumulation=2)
    assert twice.phases["loss, backward"] - once.phases["loss, backward"] == pytest.approx(
        2 * once.params / 8
    )


def test_the_reference_of_dpo_is_gathered_whole_under_fsdp() -> None:
    """TRL makes it one unit: buffer and parameters, 2 × 2 B × 8.03e9, whatever the number of GPUs."""
    answer = size("fsdp", 8, method="dpo")
    assert answer.phase == "reference, forward"
    assert answer.components["gathered reference"] == 4 * answer.params


@pytest.mark.parametrize(
    ("sharding", "weights", "gradients"), [("zero1", 2, 2), ("zero2", 2, 0.25), ("zero3", 0.25, 0.25)]
)
def test_zero_holds_what_its_stage_says(sharding: str, weights: float, gradients: float) -> None:
    """8 GPUs, per parameter: bf16 weights and gradients, whole or a share, and 12/8 B of masters and moments;
    one bucket of 5e8 × 2 B and its copy while it is reduced."""
    answer = size(sharding, 8, optimizer="adamw_torch_fused")
    held = answer.params * (weights + gradients + 12 / 8) + 2 * 5e8 * 2
    embedding = 2 * 128_256 * 4096 if sharding == "zero1" else 0  # its gradient comes last
    rest = answer.phases["backward, first layer"] - held + embedding
    assert 0 < rest < 6e9  # activations, the largest matrix's gradient, and ZeRO-3's gathered layer


def test_ddp_itself_allocates_a_second_copy_of_the_gradients(tmp_path: Path) -> None:
    """Two processes over gloo: 4 matrices of 512 × 512 in fp32 are 4 MiB, and so are the buckets."""
    script = Path(__file__).parents[1] / "cases" / "ddp_buckets.py"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(script.parents[2])}
    started = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(tmp_path / "store")],
            stdout=subprocess.PIPE, text=True, env=environment,
        )
        for rank in range(2)
    ]  # fmt: skip
    answers = [json.loads(process.communicate(timeout=120)[0].splitlines()[-1]) for process in started]
    for answer in answers:
        assert answer["weights"] == answer["gradients"] == 4 * 2**20
        assert answer["buckets"] == pytest.approx(4 * 2**20, rel=0.001)


def test_ddp_buckets_hold_a_second_copy_of_the_gradients() -> None:
    """fp32 gradients of 8.03e9 parameters: 32.1e9 B more in the high estimate, none in the likely one."""
    one, two = size("none", 1), size("none", 2)
    assert two.peak_bytes == one.peak_bytes
    assert two.high_bytes - one.high_bytes == pytest.approx(4 * one.params, rel=1e-6)

"""Calibration: two measured steps give seconds per step and per token."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from estimators.errors import BadInput
from estimators.hardware import Hardware
from pipelines import sizing_calibration
from pipelines.sizing import Calibration, StageRequest, calibrate, calibrated_speed, size_stage

GIB = 1 << 30
CPU = Hardware(devices=(), cpu_cores=2, ram_bytes=16 * GIB, ram_free_bytes=12 * GIB, message="no GPU")
TINY = {
    "model_type": "llama", "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 4, "intermediate_size": 384, "vocab_size": 20, "tie_word_embeddings": True,
}  # fmt: skip


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    return str(tmp_path)


def request(model: str, **values: Any) -> StageRequest:
    return StageRequest(model=model, max_length=32, micro_batch=32, gradient_checkpointing=False, **values)


ANSWER = {
    "import_seconds": 4.0, "ready_seconds": 1.0, "first_token_seconds": 0.5,
    "small": {"tokens": 256, "length": 32, "seconds": 0.030},
    "large": {"tokens": 1024, "length": 32, "seconds": 0.060},
    "one": {"sequences": 1, "token_seconds": 0.0030}, "many": {"sequences": 31, "token_seconds": 0.0060},
}  # fmt: skip


@pytest.fixture
def measured(model: str, monkeypatch: pytest.MonkeyPatch) -> Calibration:
    monkeypatch.setattr(sizing_calibration, "_run_worker", lambda request: ANSWER)
    return calibrate(request(model), CPU)


def test_two_steps_give_a_line(model: str, measured: Calibration) -> None:
    """30 ms for 256 tokens and 60 ms for 1,024: 39 µs a token, and 20 ms whatever the tokens."""
    assert measured.step_seconds == pytest.approx(0.020)
    speed = calibrated_speed(request(model), CPU)
    assert speed is not None
    size = size_stage(request(model, steps=1000), CPU, speed)
    parts = size.time_components
    assert parts["training"] + parts["trainer overhead"] == pytest.approx(60, rel=0.01)
    assert size.seconds["high"] / size.seconds["low"] < 1.35


def test_two_generations_give_launches_and_arithmetic(model: str, measured: Calibration) -> None:
    """3 ms for one sequence and 6 ms for 31: 0.1 ms a sequence, 2.9 ms whatever their number."""
    assert measured.decode_layer_seconds == pytest.approx(0.0029 / 4)
    probe = StageRequest(
        model=model, method="probe", max_prompt_length=1, max_completion_length=20, micro_batch=31,
        eval_completions=31, eval_tokens=20,
    )  # fmt: skip
    size = size_stage(probe, CPU, calibrated_speed(probe, CPU))
    assert size.time_components["evaluation"] == pytest.approx(20 * 0.006, rel=0.1)


def test_a_calibration_speaks_for_its_device_and_size(model: str, measured: Calibration) -> None:
    assert calibrated_speed(request(model), CPU.model_copy(update={"cpu_cores": 64})) is None
    assert calibrated_speed(request("Qwen2.5-7B"), CPU) is None
    assert calibrated_speed(request(model, gpu="T4"), CPU) is None


def test_a_second_calibration_replaces_the_first(model: str, measured: Calibration) -> None:
    calibrate(request(model), CPU)
    assert len(sizing_calibration.read_calibrations()) == 1


def test_a_damaged_file_says_what_to_do(model: str) -> None:
    path = sizing_calibration.calibration_file()
    path.parent.mkdir(parents=True)
    path.write_text("{")
    with pytest.raises(BadInput, match="remove it and calibrate again"):
        calibrated_speed(request(model), CPU)


@pytest.mark.train
def test_a_real_calibration(model: str) -> None:
    """A few steps of a real trainer on this machine, and a prediction from them that is not absurd."""
    found = calibrate(request(model), CPU)
    assert 0 <= found.step_seconds < 5
    assert found.flops > 1e8
    assert found.start_seconds > 0.5


STEP = """
import json, sys
from pipelines.training.calibrate_worker import train_times
times, _ = train_times(json.loads(sys.argv[1]), 32, 32)
print("seconds", times.gap())
"""


def real_step_seconds(model: str) -> float:
    """Seconds of a step on 32 sequences of 32 tokens, in a process of its own."""
    settings = {
        "config": json.loads((Path(model) / "config.json").read_text()), "tuning": "full",
        "weights_dtype": "fp32", "autocast": "none", "gradient_checkpointing": False,
        "optimizer": "adamw_torch_fused", "budget": 2.0,
    }  # fmt: skip
    command = [sys.executable, "-c", STEP, json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.rsplit("seconds", 1)[1])


@pytest.mark.train
def test_a_real_calibration_predicts_a_real_step(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of another size than the two that were calibrated, within a factor of two.

    On one thread, and in one of three tries: other tests may want the cores just then.
    """
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    ratios = []
    for _ in range(3):
        calibrate(request(model), CPU)
        speed = calibrated_speed(request(model, steps=1), CPU)
        assert speed is not None
        parts = size_stage(request(model, steps=1), CPU, speed).time_components
        ratios.append((parts["training"] + parts["trainer overhead"]) / real_step_seconds(model))
        if 0.5 < ratios[-1] < 2:
            return
    raise AssertionError(f"predicted ÷ spent: {ratios}")

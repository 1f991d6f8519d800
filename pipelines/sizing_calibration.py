"""How fast this machine really is: measured once by `advisor estimate --calibrate`, then read by every
estimate.

Two trainings of a few steps with different numbers of tokens separate what every step costs from what every
token costs; two generations separate a token's launches from its arithmetic. The result is kept in the user's
cache and used for models of a similar size on the same device.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from estimators.adapters import target_names
from estimators.errors import BadInput
from estimators.hardware import Hardware
from estimators.models import cache_folder, find_config, find_shape
from estimators.record import Record, validate, write_atomic
from estimators.throughput import Speed, train_flops_per_token, width_factor
from pipelines.sizing_request import StageRequest
from pipelines.sizing_resolve import Resolved
from pipelines.sizing_worker import ask_worker
from pipelines.stages import STAGE_THREADS

TIMEOUT_SECONDS = 900
SIMILAR = 4.0
"""A calibration speaks for models up to this factor larger or smaller."""
BUDGET_SECONDS = 3.0
"""How long each of the four measurements goes on, where a few steps do not take longer."""
STEP_FLOPS_PER_CORE = 15e9
LEAST_TOKENS, MOST_TOKENS = 256, 8192
"""Tokens of the larger training step on a CPU: enough that matrices are large, and no more than that."""
SEQUENCES = 128
"""Sequences that are sampled at once in the second generation."""
LOW, HIGH = 0.87, 1.15
"""The range that is left after a calibration: what repeated runs of the quickstart differed by."""


class Calibration(Record):
    """What one calibration measured."""

    device: str
    params: int
    tuning: str
    date: str
    step_seconds: float
    """Seconds per optimizer step, whatever its tokens."""
    flops: float
    """FLOP/s of training, at this model's width."""
    decode_layer_seconds: float
    """Seconds per layer and generated token, whatever the number of sequences."""
    decode_flops: float
    start_seconds: float
    """From the start of a process to its first step, and what a first step and token take more."""


def calibration_file() -> Path:
    return cache_folder() / "calibration.json"


def device_name(hardware: Hardware) -> str:
    """What a calibration is filed under."""
    if hardware.kind == "gpu":
        return hardware.devices[0].name
    return f"CPU, {hardware.cpu_cores} cores"


def read_calibrations(path: Path | None = None) -> list[Calibration]:
    """The kept calibrations; none where the file is missing. BadInput where it is damaged."""
    path = path or calibration_file()
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: not readable ({error}); remove it and calibrate again") from None
    if not isinstance(rows, list):
        raise BadInput(f"{path}: a list of calibrations is expected; remove it and calibrate again")
    return [validate(Calibration, row, str(path)) for row in rows]


def calibrated_speed(
    request: StageRequest, hardware: Hardware, calibrations: Sequence[Calibration] | None = None
) -> Speed | None:
    """The measured speed for this request on this hardware, or None where nothing similar was measured.

    Pass it to `size_stage` as `speed`.
    """
    known = read_calibrations() if calibrations is None else calibrations
    if not known or request.gpu:
        return None
    shape = find_shape(request.model)
    device = device_name(hardware)
    similar = [
        one
        for one in known
        if one.device == device and 1 / SIMILAR <= one.params / max(shape.params, 1) <= SIMILAR
    ]
    if not similar:
        return None
    best = min(similar, key=lambda one: (one.tuning != request.tuning, abs(one.params - shape.params)))
    on_gpu = hardware.kind == "gpu"
    wide = best.flops / width_factor(shape, on_gpu)
    return Speed(
        flops=wide,
        bandwidth=1e13,
        layer_seconds=0.0,
        decode_layer_seconds=best.decode_layer_seconds,
        decode_flops=best.decode_flops,
        step_seconds=best.step_seconds,
        start_seconds=best.start_seconds,
        low=LOW,
        high=HIGH,
        source=f"measured on this machine on {best.date}, {best.params / 1e6:.3g} M parameters",
    )


def calibrate(request: StageRequest, hardware: Hardware) -> Calibration:
    """Trains and generates for some seconds on this machine, and keeps what was measured.

    One calibration speaks for every method: the tokens that are trained on are chosen here, and only on a
    GPU, where they must fit its memory, are they the request's own.
    """
    if request.gpu:
        raise BadInput("--calibrate measures this machine; leave --gpu out")
    resolved = Resolved(request, hardware)
    setup, shape = resolved.mean_setup(), resolved.shape
    if setup.tuning == "qlora":
        raise BadInput("--calibrate trains without bitsandbytes; use --tuning lora")
    config, _ = find_config(request.model)
    positions = int(config.get("text_config", config).get("max_position_embeddings") or 1 << 20)
    large = _large_batch(resolved, positions)
    new_tokens = min(64, max(2, positions // 2))
    answer = _run_worker(
        {
            "config": config,
            "tuning": setup.tuning,
            "lora_rank": setup.lora_rank,
            "lora_modules": target_names(shape, setup.lora_targets),
            "weights_dtype": setup.weights_dtype,
            "autocast": setup.autocast,
            "gradient_checkpointing": setup.gradient_checkpointing,
            "optimizer": setup.optimizer,
            "large": large,
            "small": _quarter(large),
            "prompt": max(1, min(setup.prompt_length or 16, positions - new_tokens)),
            "new_tokens": new_tokens,
            "sequences": max(8, min(SEQUENCES, setup.generation_batch)) if resolved.on_gpu else SEQUENCES,
            "budget": BUDGET_SECONDS,
        }
    )
    found = _fit(answer, resolved, hardware)
    others = [
        one
        for one in read_calibrations()
        if (one.device, one.params, one.tuning) != (found.device, found.params, found.tuning)
    ]
    kept = [one.model_dump() for one in [*others, found]]
    write_atomic(calibration_file(), json.dumps(kept, indent=1) + "\n")
    return found


def _large_batch(resolved: Resolved, positions: int) -> tuple[int, int]:
    """Sequences and tokens of each for the larger of the two trainings.

    On a CPU a step of about half a second: more would only take longer. On a GPU the request's own, which is
    known to fit.
    """
    setup = resolved.mean_setup()
    length = max(8, min(setup.length, positions))
    if resolved.on_gpu:
        return setup.micro_batch, length
    per_token = train_flops_per_token(resolved.shape, setup)
    wanted = resolved.hardware.cpu_cores * STEP_FLOPS_PER_CORE / per_token
    tokens = round(min(max(wanted, LEAST_TOKENS), MOST_TOKENS))
    length = min(length, tokens)
    return max(1, tokens // length), length


def _quarter(batch: tuple[int, int]) -> tuple[int, int]:
    """A batch of about a quarter of the tokens: fewer sequences, or a shorter one where there are few."""
    rows, length = batch
    return (rows // 4, length) if rows >= 4 else (1, max(2, rows * length // 4))


def _fit(answer: dict[str, Any], resolved: Resolved, hardware: Hardware) -> Calibration:
    """Seconds per step and FLOP/s from two measured steps: seconds = step + FLOPs / (FLOP/s)."""
    setup, shape = resolved.mean_setup(), resolved.shape
    small, large = answer["small"], answer["large"]

    def flops_of(step: dict[str, Any]) -> float:
        completion = max(1, step["length"] - setup.prompt_length)
        prompt = step["length"] - completion
        shaped = setup.model_copy(update={"prompt_length": prompt, "completion_length": completion})
        return float(step["tokens"] * train_flops_per_token(shape, shaped))

    more = flops_of(large) - flops_of(small)
    seconds = max(large["seconds"] - small["seconds"], 0.05 * large["seconds"])
    flops = more / seconds
    step_seconds = max(0.0, small["seconds"] - flops_of(small) / flops)
    one, many = answer["one"], answer["many"]
    slope = (many["token_seconds"] - one["token_seconds"]) / max(1, many["sequences"] - one["sequences"])
    slope = max(slope, 1e-3 * one["token_seconds"])
    return Calibration(
        device=device_name(hardware),
        params=shape.params,
        tuning=setup.tuning,
        date=datetime.now(UTC).date().isoformat(),
        step_seconds=step_seconds,
        flops=flops,
        decode_layer_seconds=max(0.0, one["token_seconds"] - slope) / max(1, shape.num_layers),
        decode_flops=2.0 * shape.active_params / slope,
        start_seconds=answer["import_seconds"] + answer["ready_seconds"] + answer["first_token_seconds"],
    )


def _run_worker(request: dict[str, Any]) -> dict[str, Any]:
    """What the worker measured, with the threads that a stage has where the user's environment sets none."""
    threads = {name: os.environ.get(name, value) for name, value in STAGE_THREADS.items()}
    answer: dict[str, Any] = ask_worker(
        "pipelines.training.calibrate_worker",
        request,
        {"TOKENIZERS_PARALLELISM": "false", **threads},
        TIMEOUT_SECONDS,
        "the calibration",
        "try a smaller micro-batch",
    )
    return answer

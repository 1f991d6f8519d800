"""`advisor estimate`: memory, time and cost of one training stage before it runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from advisor.commands import new_app
from estimators.errors import AdvisorError, BadInput
from estimators.record import validate
from estimators.units import gib

if TYPE_CHECKING:
    from estimators.hardware import Hardware
    from estimators.throughput import Speed
    from pipelines.sizing import StageRequest, StageSize, Trace

app = new_app()


@app.command()
def estimate(
    model: str | None = typer.Option(None, help="Hub id, folder, or config.json."),
    method: str | None = typer.Option(None, help="sft, dpo, kto, grpo, dapo, rloo."),
    tuning: str | None = typer.Option(None, help="full, lora, qlora."),
    lora_rank: int | None = typer.Option(None),
    lora_targets: str | None = typer.Option(None, help="all-linear, attention, mlp, qv, q_proj,..."),
    adapter_dtype: str | None = typer.Option(None, help="fp32 (PEFT's), bf16, fp16."),
    weights_dtype: str | None = typer.Option(None, help="fp32, bf16, fp16; auto: fp32 if trained."),
    kbit_prepared: bool | None = typer.Option(
        None, "--kbit-prepared/--no-kbit-prepared", help="QLoRA: the rest in fp32, as PEFT prepares it."
    ),
    double_quantisation: bool | None = typer.Option(
        None, "--double-quantisation/--no-double-quantisation", help="QLoRA: scales in 8 bits."
    ),
    experts_4bit: bool | None = typer.Option(
        None, "--experts-4bit/--no-experts-4bit", help="QLoRA of mixtures: the experts too."
    ),
    loss: str | None = typer.Option(None, help="auto (TRL's), full-logits, chunked, fused, liger."),
    max_length: int | None = typer.Option(None, help="Tokens of prompt and completion."),
    max_prompt_length: int | None = typer.Option(None),
    max_completion_length: int | None = typer.Option(None),
    mean_length: int | None = typer.Option(None, help="Mean tokens of a row, for time."),
    mean_completion_length: int | None = typer.Option(None),
    micro_batch: int | None = typer.Option(None, help="per_device_train_batch_size."),
    num_generations: int | None = typer.Option(None),
    gradient_checkpointing: bool | None = typer.Option(
        None, "--gradient-checkpointing/--no-gradient-checkpointing"
    ),
    precision: str | None = typer.Option(None, help="Autocast: bf16, fp16; fp32 for none."),
    optimizer: str | None = typer.Option(None),
    sharding: str | None = typer.Option(None, help="none, zero1, zero2, zero3, fsdp."),
    num_gpus: int | None = typer.Option(None),
    attention: str | None = typer.Option(None, help="sdpa, flash, eager."),
    rollouts: str | None = typer.Option(None, help="hf, vllm-colocate, vllm-server."),
    vllm_memory_utilization: float | None = typer.Option(None),
    gpu: str | None = typer.Option(None, help="Plan for this GPU, or 2x this GPU, not this machine's."),
    gpu_memory_gib: float | None = typer.Option(None, help="Free memory of a GPU, for any card."),
    steps: int | None = typer.Option(None, help="Optimizer steps, for time and cost."),
    gradient_accumulation: int | None = typer.Option(None),
    steps_per_generation: int | None = typer.Option(None),
    reference: str | None = typer.Option(None, help="none, adapter-off, copy, precomputed."),
    beta: float | None = typer.Option(None, help="GRPO and DAPO: 0 needs no reference."),
    eval_completions: int | None = typer.Option(None),
    eval_tokens: int | None = typer.Option(None),
    eval_batch: int | None = typer.Option(None),
    dynamic_sampling_rate: float | None = typer.Option(None, help="Share of groups with signal."),
    vllm_enable_sleep_mode: bool | None = typer.Option(None, "--vllm-enable-sleep-mode"),
    rows: str | None = typer.Option(None, "--from", help="JSON lines of these keys; one answer a line."),
    fit: bool = typer.Option(False, "--fit", help="Find the cheapest changes that make it fit."),
    trace: bool = typer.Option(False, "--trace", help="Run the real step on fake tensors (10 to 20 s)."),
    measure: bool = typer.Option(
        False, "--calibrate", help="Train some seconds to learn this machine's speed."
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON document on stdout."),
) -> None:
    """Memory per GPU, time and cost of one training stage. Exit code 1 where it does not fit."""
    given = {
        key: value
        for key, value in locals().items()
        if value is not None and key not in ("rows", "fit", "trace", "measure", "as_json")
    }
    if rows is not None:
        alone = [flag for flag, on in (("--fit", fit), ("--trace", trace), ("--calibrate", measure)) if on]
        if alone:
            raise BadInput(f"{alone[0]} is for one stage; leave it out, or leave --from out")
        raise typer.Exit(_many(Path(rows), given))
    if "model" not in given:
        raise BadInput("--model is missing: a hub id, a folder with config.json, or the file itself")
    from estimators.hardware import read_hardware

    request = _request(given, "estimate")
    hardware = read_hardware()
    if measure:
        _calibrate(request, hardware)
    if fit and trace:
        raise BadInput("--fit and --trace are two questions; fit first, then trace what it found")
    if fit:
        raise typer.Exit(_fit(request, hardware, as_json))
    from pipelines.sizing_stage import size_stage

    traced = None
    if trace:
        from pipelines.sizing_trace import trace_stage

        size, traced = trace_stage(request, hardware)
    else:
        size = size_stage(request, hardware, _measured_speed(request, hardware))
    _say_prices()
    if as_json:
        answer = size.model_dump() | ({"trace": traced.model_dump()} if traced else {})
        typer.echo(json.dumps(answer))
    else:
        _show(request, size, _remedies(request, hardware) if size.verdict == "does-not-fit" else [])
        if traced:
            _show_trace(traced)
    raise typer.Exit(1 if size.verdict == "does-not-fit" else 0)


def _measured_speed(request: StageRequest, hardware: Hardware) -> Speed | None:
    """The speed that a calibration measured; its module is only loaded where there is one."""
    from estimators.models import cache_folder

    if not (cache_folder() / "calibration.json").exists():
        return None
    from pipelines.sizing_calibration import calibrated_speed

    return calibrated_speed(request, hardware)


def _request(given: dict[str, Any], source: str) -> StageRequest:
    from pipelines.sizing_request import StageRequest

    return validate(StageRequest, given, source)


def _many(path: Path, defaults: dict[str, Any]) -> int:
    """One answer per row of a JSON lines file ("-" reads stdin), with the number of its line.

    A row that cannot be sized says why. Exit code 1 where any row has an error or does not fit.
    """
    from estimators.hardware import read_hardware
    from estimators.record import read_text
    from pipelines.sizing_stage import size_stage

    text = sys.stdin.read() if str(path) == "-" else read_text(path)
    hardware = read_hardware()
    failed, answered = False, 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            row = _parse(line, place)
            size = size_stage(_request({**defaults, **row}, place), hardware)
            answer: dict[str, Any] = size.model_dump()
            failed = failed or size.verdict == "does-not-fit"
        except AdvisorError as error:
            failed = True
            text_of_error = str(error)
            answer = {
                "error": text_of_error if text_of_error.startswith(place) else f"{place}: {text_of_error}"
            }
        answered += 1
        typer.echo(json.dumps({"line": number, **answer}))
    if not answered:
        raise BadInput(f'{path}: no rows; one JSON object a line, such as {{"model": "Qwen/Qwen2.5-7B"}}')
    _say_prices()
    return 1 if failed else 0


def _say_prices() -> None:
    """Which names of the user's own price file mean no GPU, on stderr."""
    from estimators.gpus import price_notes

    for note in price_notes():
        typer.echo(f"note: {note}", err=True)


def _parse(line: str, place: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise BadInput(f"{place}:{error.colno}: not valid JSON: {error.msg}") from None
    if not isinstance(row, dict):
        raise BadInput(f"{place}: a row is an object with keys such as model and method")
    return {key: value for key, value in row.items() if value is not None}


def _fit(request: StageRequest, hardware: Hardware, as_json: bool) -> int:
    from pipelines.sizing import fit_stage

    result = fit_stage(request, hardware)
    if as_json:
        typer.echo(json.dumps(result.model_dump()))
        return 0
    if not result.changes:
        typer.echo("It fits as asked.")
    from advisor.estimates import wrapped

    for change in result.changes:
        saves = f", saves {gib(change.saves_bytes)}" if change.saves_bytes else ""
        for line in wrapped(f"{change.what}: {change.from_value} → {change.to_value}{saves}", ""):
            typer.echo(line)
        for line in wrapped(f"gives up {change.gives_up}", "    "):
            typer.echo(line)
    _show(result.request, result.size)
    return 0


def _calibrate(request: StageRequest, hardware: Hardware) -> None:
    """Measures this machine and says what was found, on stderr."""
    from pipelines.sizing import calibrate

    typer.echo("calibrating: two short trainings on this machine …", err=True)
    found = calibrate(request, hardware)
    typer.echo(
        f"{found.device}: {found.flops / 1e9:.3g} GFLOP/s in training, {found.step_seconds * 1e3:.0f} ms per "
        f"step beside the model, {found.start_seconds:.0f} s to start",
        err=True,
    )


def _show_trace(traced: Trace) -> None:
    from advisor.estimates import wrapped

    ratio = traced.closed_form_bytes / traced.allocated_bytes
    typer.echo(f"Traced in {traced.seconds:.0f} s: {gib(traced.allocated_bytes)} allocated at the peak")
    if traced.reserved_bytes is not None:
        typer.echo(f"  CUDA's allocator, replayed, holds {gib(traced.reserved_bytes)} of it and around it")
    typer.echo(f"  closed form of the same step: {gib(traced.closed_form_bytes)} ({ratio:.3f} of it)")
    for part in traced.composed:
        for line in wrapped(f"not traced: {part}", "  "):
            typer.echo(line)


def _remedies(request: StageRequest, hardware: Hardware) -> list[str]:
    """By how much it does not fit, and the three cheapest changes."""
    from pipelines.sizing import shortfall

    return [*shortfall(request, hardware), "--fit combines changes until it fits."]


def _show(request: StageRequest, size: StageSize, remedies: list[str] | None = None) -> None:
    from advisor.estimates import lines

    for line in lines(request, size, remedies or []):
        typer.echo(line)

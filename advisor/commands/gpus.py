"""`advisor gpus`: what this machine has, what is free, and who holds the rest."""

from __future__ import annotations

import json

import typer

from advisor.commands import new_app
from estimators.hardware import read_hardware
from estimators.units import gib

app = new_app()


@app.command()
def gpus(
    as_json: bool = typer.Option(False, "--json", help="One JSON document on stdout."),
    known: bool = typer.Option(False, "--known", help="List the GPUs that --gpu accepts, with their prices."),
) -> None:
    """The GPUs of this machine: free memory, and which processes hold the rest."""
    if known:
        _list_known(as_json)
        return
    hardware = read_hardware()
    if as_json:
        typer.echo(json.dumps({"kind": hardware.kind, **hardware.model_dump()}))
        return
    typer.echo(hardware.message)
    for device in hardware.devices:
        typer.echo(
            f"  {device.index}  {device.name}  {gib(device.free_bytes)} free of {gib(device.total_bytes)}"
            f"  {device.uuid}"
        )
    for note in hardware.notes:
        typer.echo(f"note: {note}")
    typer.echo(
        f"CPU: {hardware.cpu_cores} cores, {gib(hardware.ram_free_bytes)} of {gib(hardware.ram_bytes)} free"
    )


def _list_known(as_json: bool) -> None:
    from estimators.gpus import known_gpus, price_notes, price_of

    rows = []
    for gpu in known_gpus().values():
        price = price_of(gpu.name)
        rows.append({**gpu.model_dump(), "price": price.model_dump() if price else None})
        if not as_json:
            cost = f"{price.low:.2f}–{price.high:.2f} USD/h ({price.newest})" if price else "no price"
            kind = "bf16" if gpu.bf16_flops else "fp16"
            peak = max(gpu.bf16_flops, gpu.fp16_flops) / 1e12
            typer.echo(f"{gpu.name:<17}{gib(gpu.memory_bytes):>10}{peak:>6.0f} TFLOP/s {kind}  {cost}")
    for note in price_notes():
        typer.echo(f"note: {note}", err=True)
    if as_json:
        typer.echo(json.dumps(rows))

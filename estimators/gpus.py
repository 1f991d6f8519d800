"""GPUs by name: memory, speed, and what renting one costs. Data files lie in `estimators/data`.

Prices can be replaced: a file named by the environment variable ADVISOR_PRICES, of the same columns, is read
instead of the one that is shipped.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import statistics
from functools import cache
from importlib import resources
from pathlib import Path

from estimators.errors import BadInput
from estimators.record import Record, read_text, unknown


class GPU(Record):
    """One kind of GPU."""

    name: str
    aliases: tuple[str, ...] = ()
    """Other names, among them the one NVML reports."""
    memory_bytes: int
    """Total, as the driver shows it."""
    bf16_flops: float
    """Dense tensor-core peak; datasheets print twice this, with sparsity. 0: bf16 is not supported."""
    fp16_flops: float
    fp32_flops: float
    """Peak outside the tensor cores."""
    bandwidth: float
    """Memory, bytes per second."""
    context_bytes: int
    """Device memory of a CUDA context with PyTorch's kernels loaded; measured for T4, assumed elsewhere."""
    architecture: str
    source: str


class Price(Record):
    """USD per GPU-hour: the cheapest, the median and the dearest of the listed offers."""

    low: float
    median: float
    high: float
    offers: int
    newest: str
    """Date of the newest offer."""
    source: str


@cache
def known_gpus() -> dict[str, GPU]:
    """Every GPU of the table by its name."""
    text = resources.files("estimators").joinpath("data/gpus.json").read_text(encoding="utf-8")
    return {row["name"]: GPU.model_validate(row) for row in json.loads(text)}


def _plain(name: str) -> str:
    """A name without what vendors and people vary: case, brand, blanks and dashes."""
    name = re.sub(r"\b(nvidia|geforce|tesla|amd|instinct|gpu|hbm\d?e?)\b", " ", name.lower())
    return re.sub(r"[^a-z0-9]+", "", name)


@cache
def _by_plain_name() -> dict[str, GPU]:
    table: dict[str, GPU] = {}
    for gpu in known_gpus().values():
        for name in (gpu.name, *gpu.aliases):
            table.setdefault(_plain(name), gpu)
    return table


def find_gpu(name: str) -> GPU:
    """The GPU that a person or NVML calls `name`; BadInput lists the nearest one and all others."""
    found = _by_plain_name().get(_plain(name))
    if found is None:
        known = known_gpus()
        spellings = {alias: gpu.name for gpu in known.values() for alias in gpu.aliases}
        error = unknown("GPU", name, [*known])
        if "did you mean" not in str(error):
            from estimators.record import nearest

            guess = nearest(name, spellings)
            if guess:
                raise BadInput(
                    f'unknown GPU "{name}"; did you mean "{spellings[guess]}"? {str(error).split("? ")[-1]}'
                )
        raise error
    return found


def guess_gpu(name: str) -> GPU | None:
    """The GPU called `name`, or None; for names that a driver reports."""
    return _by_plain_name().get(_plain(name))


@cache
def _offers(path: str) -> dict[str, list[dict[str, str]]]:
    if path:
        text = read_text(Path(path))
    else:
        text = resources.files("estimators").joinpath("data/prices.csv").read_text(encoding="utf-8")
    offers: dict[str, list[dict[str, str]]] = {}
    for number, row in enumerate(csv.DictReader(io.StringIO(text)), start=2):
        try:
            float(row["usd_per_gpu_hour"])
            offers.setdefault(row["gpu"], []).append(row)
        except (KeyError, TypeError, ValueError):
            raise BadInput(
                f"{path or 'prices.csv'}:{number}: needs the columns gpu and usd_per_gpu_hour (a number)"
            ) from None
    return offers


def price_of(gpu: str) -> Price | None:
    """What an hour of `gpu` costs, or None where no offer is listed."""
    path = os.environ.get("ADVISOR_PRICES", "")
    rows = _offers(path).get(gpu)
    if not rows:
        return None
    newest = max(row.get("date") or "" for row in rows)
    recent = [row for row in rows if (row.get("date") or "")[:4] == newest[:4]] or rows
    amounts = sorted(float(row["usd_per_gpu_hour"]) for row in recent)
    return Price(
        low=amounts[0],
        median=statistics.median(amounts),
        high=amounts[-1],
        offers=len(amounts),
        newest=newest,
        source=path or "estimators/data/prices.csv (third-party pages)",
    )

"""GPUs by name: memory, speed, and what renting one costs. Data files lie in `estimators/data`.

Prices can be replaced: a file named by the environment variable ADVISOR_PRICES, of the same columns, is read
instead of the one that is shipped.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import math
import os
import re
import statistics
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from estimators.errors import BadInput
from estimators.record import Record, read_text
from estimators.units import GIB, gib


class GPU(Record):
    """One kind of GPU."""

    name: str
    aliases: tuple[str, ...] = ()
    """Other names, among them the one NVML reports."""
    memory_bytes: int
    """Total, as the driver shows it."""
    usable_bytes: int | None = None
    """Total, as torch shows it: the lowest of public out-of-memory messages. None: not known."""
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


class _Name(NamedTuple):
    """What a GPU's name says, without what vendors and people vary."""

    key: str
    """Model alone, in lower case without blanks: "a100", "rtx4090", "rtx3090ti"."""
    gigabytes: int | None
    form: str
    """ "pcie", "sxm", "nvl", or nothing."""


_NOISE = re.compile(
    r"\b(nvidia|geforce|tesla|quadro|amd|radeon|instinct|gpus?|hbm\d?e?|gddr\d?x?|generation|graphics|card|"
    r"blackwell|hopper|ampere|ada lovelace|lovelace|turing|volta|pascal|oam|hgx|dgx|server|workstation|"
    r"edition|max-q workstation|tensor core|vram)\b"
)
_SERIES = ("", "rtx", "gtx", "geforcertx", "titan", "tesla")


def _read_name(name: str) -> _Name:
    text = re.sub(r"[_/()\[\],]+", " ", name.lower())
    text = _NOISE.sub(" ", text)
    memory = re.search(r"(?<![\d.])(\d{1,3})\s*-?(?:gib|gb|g)\b", text)
    if memory:
        text = text[: memory.start()] + " " + text[memory.end() :]
    form = re.search(r"\b(sxm|pcie|pci-e|nvl)\s*-?\d?\b", text)
    if form:
        text = text[: form.start()] + " " + text[form.end() :]
    key = re.sub(r"[^a-z0-9]+", "", text)
    kind = form.group(1).replace("-", "") if form else ""
    return _Name(key, int(memory.group(1)) if memory else None, kind)


@cache
def _exact() -> dict[str, GPU]:
    """Every listed name and alias, letters and digits only."""
    table: dict[str, GPU] = {}
    for gpu in known_gpus().values():
        for name in (gpu.name, *gpu.aliases):
            table.setdefault(re.sub(r"[^a-z0-9]+", "", name.lower()), gpu)
    return table


@cache
def _by_key() -> dict[str, list[tuple[_Name, GPU]]]:
    """Every listed name by the model that it says; the first of a model is meant where nothing else is
    said."""
    table: dict[str, list[tuple[_Name, GPU]]] = {}
    for gpu in known_gpus().values():
        for name in (gpu.name, *gpu.aliases):
            read = _read_name(name)
            rows = table.setdefault(read.key, [])
            rows.insert(0, (read, gpu)) if name.lower() == read.key else rows.append((read, gpu))
    return table


def _same_memory(gpu: GPU, gigabytes: int) -> bool:
    return abs(gpu.memory_bytes / GIB - gigabytes) <= 0.1 * gigabytes + 1


@lru_cache(maxsize=512)
def guess_gpu(name: str) -> GPU | None:
    """The GPU called `name`, or None: "A100-80G", "NVIDIA H100 SXM5 80GB", "4090", as a driver or a person
    says it."""
    found = _exact().get(re.sub(r"[^a-z0-9]+", "", name.lower()))
    if found is not None:
        return found
    wanted = _read_name(name)
    if not wanted.key:
        return None
    rows = next((table for s in _SERIES if (table := _by_key().get(s + wanted.key))), [])
    if wanted.gigabytes is not None:
        size = wanted.gigabytes
        rows = [row for row in rows if _same_memory(row[1], size)]
        rows.sort(key=lambda row: abs(row[1].memory_bytes / GIB - size))
    formed = [gpu for read, gpu in rows if read.form == wanted.form] or [gpu for _, gpu in rows]
    if not formed:
        return None
    return rows[0][1] if rows[0][1] in formed else formed[0]


def nearest_gpu(name: str) -> GPU | None:
    """The known GPU whose model reads most like `name`: first of the same series, then by likeness."""
    wanted = _read_name(name)
    series, number = re.findall(r"^[a-z]*", wanted.key), re.findall(r"\d+", wanted.key)[:1]

    def likeness(key: str) -> float:
        ratio = max(difflib.SequenceMatcher(None, s + wanted.key, key).ratio() for s in ("", "rtx"))
        same_series = re.findall(r"^[a-z]*", key) == series
        same_number = bool(number) and re.findall(r"\d+", key)[:1] == number
        return ratio + 0.3 * same_series + 0.25 * same_number

    if not wanted.key:
        return None
    best = max(_by_key(), key=likeness)
    if likeness(best) < 0.9:
        return None
    rows = _by_key()[best]
    fitting = [gpu for _, gpu in rows if wanted.gigabytes and _same_memory(gpu, wanted.gigabytes)]
    return fitting[0] if fitting else rows[0][1]


def find_gpu(name: str) -> GPU:
    """The GPU that a person or NVML calls `name`; BadInput names the nearest one and where all are listed."""
    found = guess_gpu(name)
    if name.strip().lower() in ("cpu", "none", "mps", ""):
        raise BadInput(f'"{name}" is no GPU; leave gpu out to plan for this machine')
    if found is None:
        near = nearest_gpu(name)
        hint = f'; did you mean "{near.name}" ({gib(near.memory_bytes)})?' if near else ";"
        raise BadInput(
            f'unknown GPU "{name}"{hint} `advisor gpus --known` lists all; gpu_memory_gib takes any card'
        )
    return found


def split_count(name: str) -> tuple[int | None, str]:
    """How many GPUs a name speaks of, and the name alone: "2x A100 80GB", "H100 x8", "L4:4"."""
    before = re.match(r"\s*(\d{1,4})\s*(?:x|×|\*)\s*(?=\S)(.+)$", name, re.IGNORECASE)
    if before:
        return int(before.group(1)), before.group(2).strip()
    after = re.match(r"(.+?)(?:\s+(?:x|×|\*)\s*|\s*:\s*)(\d{1,3})\s*$", name, re.IGNORECASE)
    if after:
        return int(after.group(2)), after.group(1).strip()
    return None, name


def usable_bytes(gpu: GPU) -> int:
    """What CUDA can give out on an idle card: what torch reports as its total, or else all but a reserve.

    The driver keeps 0.3 to 0.8 GiB of the cards of the table; where nothing is known, 0.4 GiB and 0.3 %.
    """
    return gpu.usable_bytes or round(gpu.memory_bytes * 0.997 - 0.4 * GIB)


@cache
def _offers(path: str) -> dict[str, list[dict[str, str]]]:
    if path:
        text = read_text(Path(path))
    else:
        text = resources.files("estimators").joinpath("data/prices.csv").read_text(encoding="utf-8")
    offers: dict[str, list[dict[str, str]]] = {}
    for number, row in enumerate(csv.DictReader(io.StringIO(text)), start=2):
        amount = row.get("usd_per_gpu_hour")
        try:
            price = float(amount or "")
        except ValueError:
            price = math.nan
        if not row.get("gpu") or not 0 <= price < math.inf:
            raise BadInput(
                f"{path or 'prices.csv'}:{number}: needs the columns gpu and usd_per_gpu_hour (0 or "
                f'more); found "{row.get("gpu") or ""}" and "{amount or ""}"'
            )
        gpu = guess_gpu(row["gpu"])
        offers.setdefault(gpu.name if gpu else row["gpu"], []).append(row)
    return offers


def price_notes() -> list[str]:
    """One sentence on the names of the user's price file that are no GPU of the table, if there are any."""
    path = os.environ.get("ADVISOR_PRICES", "")
    strange = [name for name in _offers(path) if guess_gpu(name) is None] if path else []
    if not strange:
        return []
    near = nearest_gpu(strange[0])
    hint = f'; did you mean "{near.name}"?' if near else ""
    return [f"{path}: no known GPU is called {', '.join(strange[:5])}{hint} Their prices are not used."]


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

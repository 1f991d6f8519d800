"""Which published measurements count, by rules, and what they ask of an estimator.

A row of `tests/cases/measured/memory.csv` has a complete configuration when all of this holds:

1. It was measured: rows marked secondary, unverified, estimated, computed or summed are out.
2. One GPU, nothing offloaded.
3. Model, tuning, tokens per sequence, micro-batch, checkpointing and precision are stated, the LoRA rank and
targets too, and for full tuning the optimizer.
4. Every sequence has the stated length: padded, packed or synthetic. Peaks over real texts that are only cut
at that length depend on which texts came.
5. Modules and loss are those of transformers and PEFT: no other kernels (Unsloth, Liger), no other model code
   (LitGPT, torchtune, prime-rl, Qwen's own first version), no compilation, no GaLore.
6. What was read is stated: allocated, reserved or the process. Rounded to whole GB is out: half a GB is up to
10 %.

Sources are held out whole: `source` is what a row is grouped by.

`tests/cases/measured/held_out.jsonl` has rows of another source that pass the same rules: runs of Hugging
Face's trainer on an A100, with the bytes of `max_memory_allocated` and what nvidia-smi showed of the
process. Nothing was fitted to them.
"""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CASES = Path(__file__).parent.parent / "tests" / "cases" / "measured"
GIB = 1 << 30


@dataclass(frozen=True)
class Measured:
    """One published peak and the configuration that made it."""

    id: str
    source: str
    request: dict[str, Any]
    """Keys of an `advisor estimate` row."""
    allocated_bytes: float | None
    reserved_bytes: float | None
    row: dict[str, str]


FOREIGN = ("unsloth", "liger", "galore", "offload", "compile")
UNTRUE = ("SECONDARY", "UNVERIFIED", "COMPUTED", "SUM OVER", "estimate")
FIXED_LENGTH_SOURCES = {"fitcheck": "each batch is synthetic and full"}
"""Sources whose sequences are known to have the stated length."""


def source_of(row: dict[str, str]) -> str:
    return row["id"].rsplit("-", 1)[0]


def why_left_out(row: dict[str, str]) -> str | None:
    """The rule that a row breaks, or None where it counts."""
    text = " ".join(row.values())
    if any(mark in row["notes"] for mark in UNTRUE):
        return "1: not measured"
    if row["n_gpus"] != "1" or row["sharding"] not in ("", "none"):
        return "2: several GPUs, sharded or offloaded"
    needed = ["model", "tuning", "seq_len", "micro_batch", "grad_ckpt", "precision"]
    needed += ["lora_rank"] if row["tuning"] in ("lora", "qlora") else ["optimizer"]
    missing = [key for key in needed if not row[key]]
    if missing:
        return f"3: not stated: {', '.join(missing)}"
    if any(word in text.lower() for word in FOREIGN):
        return "5: other kernels or optimizers"
    if source_of(row) in ("litgpt", "torchtune", "prime-rl"):
        return f"5: model code of {source_of(row)}"
    if source_of(row) not in FIXED_LENGTH_SOURCES:
        return "4: texts of varying length"
    if "ALLOCATED" not in row["notes"] and "reserved" not in row["notes"].lower():
        return "6: what was read is not stated"
    return None


def request_of(row: dict[str, str]) -> dict[str, Any]:
    """The `advisor estimate` row that describes a measured row."""
    allocated = "targets q,k,v,o" in row["notes"]
    precision = row["precision"]
    request: dict[str, Any] = {
        "model": row["model"],
        "method": row["method"],
        "tuning": row["tuning"],
        "lora_targets": "attention" if allocated else "all-linear",
        "weights_dtype": precision,
        "precision": "none",
        "max_length": int(row["seq_len"]),
        "micro_batch": int(row["micro_batch"]),
        "gradient_checkpointing": row["grad_ckpt"].startswith("yes"),
        "optimizer": "adamw_torch",
        "attention": row["attention"],
        "loss": "full-logits-kept" if "HF labels" in row["notes"] else "full-logits",
        "num_gpus": 1,
        "gpu": "T4" if "T4" in row["gpu"] else row["gpu"],
    }
    if row["lora_rank"]:
        request["lora_rank"] = int(row["lora_rank"])
    if row["tuning"] == "qlora":
        request["kbit_prepared"] = True
        request["double_quantisation"] = "without double" not in row["notes"]
    return request


def measured_rows() -> list[dict[str, str]]:
    with (CASES / "memory.csv").open(encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def held_out_rows() -> list[Measured]:
    """Rows of the source that nothing was fitted to; their `reserved_bytes` is what the process held."""
    lines = (CASES / "held_out.jsonl").read_text(encoding="utf-8").splitlines()
    found = []
    for line in lines:
        row = json.loads(line)
        found.append(
            Measured(
                id=row["id"],
                source=source_of(row),
                request=row["request"],
                allocated_bytes=row["allocated_gib"] * GIB,
                reserved_bytes=row["process_mib"] * GIB / 1024,
                row=row,
            )
        )
    return found


def complete_rows() -> list[Measured]:
    """The rows that pass every rule."""
    found = []
    for row in measured_rows():
        if why_left_out(row) is not None:
            continue
        allocated = re.search(r"ALLOCATED ([\d.]+) GiB", row["notes"])
        reserved = "reserved" in row["notes"]
        found.append(
            Measured(
                id=row["id"],
                source=source_of(row),
                request=request_of(row),
                allocated_bytes=float(allocated.group(1)) * GIB if allocated else None,
                reserved_bytes=float(row["peak_gb"]) * GIB if reserved else None,
                row=row,
            )
        )
    return found

"""Compares estimators on published measurements, and prints the table of the README.

    python benchmarks/compare.py --tools tools/bin/python

`--tools` is the Python of an environment that holds the other tools (see `other_tools.py`); without it only
ours is scored. Rows are those of `rows.py`; what is compared is the reserved peak, as published.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.rows import (  # noqa: E402
    GIB,
    Measured,
    complete_rows,
    held_out_rows,
    measured_rows,
    why_left_out,
)
from estimators.adapters import is_target  # noqa: E402
from estimators.gpus import find_gpu  # noqa: E402
from estimators.hardware import hardware_from_name  # noqa: E402
from estimators.models import find_config, find_shape  # noqa: E402
from pipelines.sizing import StageRequest, StageSize, size_stage  # noqa: E402
from pipelines.sizing_resolve import Resolved  # noqa: E402
from pipelines.sizing_trace import (  # noqa: E402
    allocator_capacity,
    run_worker,
    traceable,
    worker_request,
)


def ours(measured: Measured) -> StageSize:
    request = StageRequest.model_validate(measured.request)
    return size_stage(request, hardware_from_name(measured.request["gpu"], 1))


def described(measured: Measured) -> dict[str, Any]:
    """A row as `other_tools.py` reads it."""
    shape = find_shape(measured.request["model"])
    block = shape.blocks[0]
    return {
        "request": measured.request,
        "config": find_config(measured.request["model"])[0],
        "target_dims": [
            linear.inputs + linear.outputs
            for block, linear in shape.linears()
            if is_target(linear, block, measured.request.get("lora_targets", "all-linear"))
            for _ in range(block.count)
        ],
        "vram_gib": find_gpu(measured.request["gpu"]).memory_bytes / GIB,
        "shape": {
            "params": shape.params,
            "hidden": shape.hidden,
            "layers": shape.num_layers,
            "vocab": shape.vocab,
            "tied": shape.tied,
            "heads": block.heads,
            "kv_heads": block.kv_heads,
            "ffn": block.ffn_width,
            "head_dim": block.q_width // block.heads,
        },
    }


def others(rows: Sequence[Measured], python: str) -> dict[str, list[float | None]]:
    """What each other tool says of each row, GiB."""
    done = subprocess.run(
        [python, str(ROOT / "benchmarks" / "other_tools.py")],
        input=json.dumps([described(row) for row in rows]),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"the other tools did not run: {done.stderr.strip()[-400:]}")
    if done.stderr:
        print(done.stderr.strip(), file=sys.stderr)
    answers: dict[str, list[float | None]] = json.loads(done.stdout)
    return answers


def scores(ratios: Sequence[float]) -> dict[str, float]:
    """Estimate ÷ measured, summed up; shares in percent."""
    return {
        "MAPE": 100 * statistics.mean(abs(ratio - 1) for ratio in ratios),
        "median ratio": statistics.median(ratios),
        "within 10 %": 100 * sum(abs(ratio - 1) <= 0.10 for ratio in ratios) / len(ratios),
        "under by > 5 %": 100 * sum(ratio < 0.95 for ratio in ratios) / len(ratios),
        "worst under": max(0.0, 100 * (1 - min(ratios))),
    }


def line(name: str, ratios: Sequence[float]) -> str:
    found = scores(ratios)
    return (
        f"| {name} | {len(ratios)} | {found['MAPE']:.1f} % | {found['median ratio']:.3f} | "
        f"{found['within 10 %']:.0f} % | {found['under by > 5 %']:.0f} % | {found['worst under']:.0f} % |"
    )


def allocated_ratios(rows: Sequence[Measured], sizes: Sequence[StageSize]) -> list[float]:
    return [s.allocated_bytes / (row.allocated_bytes or 1) for s, row in zip(sizes, rows, strict=True)]


def held_out(python: str | None) -> None:
    """Rows of a source that nothing was fitted to: allocated, and the process as nvidia-smi shows it."""
    for title, skipped in (("all", ""), ("without GPT-BigCode", "gpt_bigcode")):
        rows = [r for r in held_out_rows() if not skipped or skipped not in r.request["model"]]
        sizes = [ours(row) for row in rows]
        process = [float(row.reserved_bytes or 1) for row in rows]
        print(f"\nheld out, {title}\n")
        print("| estimate | rows | MAPE | median ratio | within 10 % | under by > 5 % | worst under |")
        print("|---|---|---|---|---|---|---|")
        print(line("allocated", allocated_ratios(rows, sizes)))
        print(line("likely, process", [s.peak_bytes / p for s, p in zip(sizes, process, strict=True)]))
        print(line("high, process", [s.high_bytes / p for s, p in zip(sizes, process, strict=True)]))
        if python:
            show_others(rows, process, python)


def show_others(rows: Sequence[Measured], measured: Sequence[float], python: str) -> None:
    """A line for each of the other tools."""
    for name, answers in others(rows, python).items():
        found = [a * GIB / m for a, m in zip(answers, measured, strict=True) if a is not None]
        print(line(name, found) if found else f"| {name} | 0 | | | | | |")


def replayed(rows: Sequence[Measured], sizes: Sequence[StageSize]) -> list[float | None]:
    """Replayed ÷ published for rows that can be traced: what CUDA's allocator would hold, and for held out
    rows the context too, since they say what the process held."""
    ratios: list[float | None] = []
    for row, size in zip(rows, sizes, strict=True):
        request = StageRequest.model_validate(row.request)
        resolved = Resolved(request, hardware_from_name(request.gpu or "T4", 1))
        workload, setup, _ = traceable(resolved.workload, resolved.setup)
        config, capacity = find_config(request.model)[0], allocator_capacity(resolved)
        answer = run_worker([worker_request(config, resolved.shape, workload, setup, capacity)])[0]
        if "error" in answer:
            ratios.append(None)
            continue
        outside = size.components.get("workspaces", 0)
        outside += size.components["context"] if "process_mib" in row.row else 0
        ratios.append((answer["reserved_bytes"] + outside) / float(row.reserved_bytes or 1))
    return ratios


def show_replays() -> None:
    """Every row's replay; a mixture whose experts were packed has no trace, since none are packed now."""
    for title, rows in (("shared", complete_rows()), ("held out", held_out_rows())):
        rows = [row for row in rows if not row.request.get("experts_4bit")]
        sizes = [ours(row) for row in rows]
        ratios = replayed(rows, sizes)
        for row, ratio in zip(rows, ratios, strict=True):
            words = (row.request["model"], row.request["tuning"], row.request["attention"])
            print(f"{row.id}: {' '.join(words)} {'not traced' if ratio is None else f'{ratio:.3f}'}")
        print(f"replayed, {title}: {line('', [ratio for ratio in ratios if ratio])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tools", help="Python of an environment with the other tools")
    parser.add_argument("--left-out", action="store_true", help="also list why rows were left out")
    parser.add_argument("--replay", action="store_true", help="trace every row and replay the allocator")
    options = parser.parse_args()
    if options.replay:
        show_replays()
        return
    rows = complete_rows()
    sizes = [ours(row) for row in rows]
    reserved = [float(row.reserved_bytes or 0) for row in rows]
    print(
        f"{datetime.date.today()}: {len(rows)} of {len(measured_rows())} rows have a complete configuration\n"
    )
    print("| estimator | rows | MAPE | median ratio | within 10 % | under by > 5 % | worst under |")
    print("|---|---|---|---|---|---|---|")
    print(line("advisor, likely", [s.reserved_bytes / r for s, r in zip(sizes, reserved, strict=True)]))
    print(line("advisor, high", [s.high_bytes / r for s, r in zip(sizes, reserved, strict=True)]))
    if options.tools:
        show_others(rows, reserved, options.tools)
    print(line("advisor, allocated against allocated", allocated_ratios(rows, sizes)))
    held_out(options.tools)
    if options.left_out:
        print()
        for row in measured_rows():
            reason = why_left_out(row)
            if reason:
                print(f"{row['id']}: {reason}")


if __name__ == "__main__":
    main()

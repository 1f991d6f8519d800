"""How much CUDA's caching allocator holds beyond what is allocated: replays over traced steps, and the fit.

    python benchmarks/allocator_slack.py slack.jsonl --batches 20     trace and replay (about 40 s a batch)
    python benchmarks/allocator_slack.py slack.jsonl                  fit what is there

Random training steps of catalogue models, cut to a few layers so that a trace takes seconds, are traced on
fake tensors while the allocator is replayed (`pipelines/training/allocator.py`). Slack is then fitted,
without negative shares, to the parts that `estimators/slack.py` names; its constants are what this prints.
No published measurement is read.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from estimators.activations import block_peak_bytes, saved_bytes  # noqa: E402
from estimators.errors import BadInput  # noqa: E402
from estimators.hardware import hardware_from_name  # noqa: E402
from estimators.head import loss_bytes  # noqa: E402
from estimators.memory import phase_bytes, resident_bytes, token_counts  # noqa: E402
from estimators.models import find_config  # noqa: E402
from estimators.slack import FUSED  # noqa: E402
from pipelines.sizing import StageRequest  # noqa: E402
from pipelines.sizing_resolve import Resolved  # noqa: E402
from pipelines.sizing_trace import run_worker, traceable, worker_request  # noqa: E402

MODELS = (
    "HuggingFaceTB/SmolLM2-135M", "Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-1.5B", "meta-llama/Llama-3.2-3B",
    "Qwen/Qwen2.5-7B", "mistralai/Mistral-7B-v0.1", "meta-llama/Meta-Llama-3-8B", "Qwen/Qwen3-4B",
    "microsoft/Phi-3-mini-4k-instruct", "HuggingFaceTB/SmolLM2-1.7B", "Qwen/Qwen3-0.6B",
)  # fmt: skip
BATCH = 12
GPU = hardware_from_name("H200", 1)
PARTS = ("resident", "block", "loss", "saved")


def cut(model: str, layers: int, folder: Path) -> str:
    """A folder with the config of `model`, that many layers deep."""
    config = {**find_config(model)[0], "num_hidden_layers": layers}
    config.pop("layer_types", None)
    target = folder / f"{model.split('/')[-1]}-{layers}"
    target.mkdir(exist_ok=True)
    (target / "config.json").write_text(json.dumps(config))
    return str(target)


def draw(rng: random.Random, folder: Path) -> dict[str, Any]:
    """A training step at random."""
    method, length = rng.choice(("sft", "sft", "dpo", "grpo")), rng.choice((512, 1024, 2048, 4096))
    tuning = rng.choice(("full", "lora", "lora", "qlora"))
    values: dict[str, Any] = {
        "model": cut(rng.choice(MODELS), rng.choice((4, 8, 12)), folder),
        "method": method,
        "tuning": tuning,
        "lora_rank": rng.choice((8, 16, 64)),
        "lora_targets": rng.choice(("attention", "all-linear")),
        "loss": rng.choice(("fused", "full-logits", "full-logits-kept")) if method == "sft" else "fused",
        "micro_batch": rng.choice((1, 2, 4, 8)),
        "gradient_accumulation": 8 if method == "grpo" else rng.choice((1, 4)),
        "gradient_checkpointing": rng.random() < 0.7,
        "attention": "eager" if rng.random() < 0.25 and length <= 2048 else "sdpa",
        "optimizer": rng.choice(("adamw_torch", "adamw_torch_fused")),
        "gpu": "H200",
    }
    if method == "grpo":
        values |= {"max_prompt_length": length // 4, "max_completion_length": length - length // 4}
    else:
        values |= {"max_length": length, "max_prompt_length": length // 2 if method == "dpo" else None}
    if tuning == "full" and rng.random() < 0.5:
        values |= {"weights_dtype": "bf16", "precision": rng.choice(("bf16", "none"))}
    if tuning == "qlora":
        values["kbit_prepared"] = rng.random() < 0.4
    return values


def replay(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was allocated and reserved at the peak of each step, and the parts that slack may follow."""
    asked, rows = [], []
    for values in requests:
        resolved = Resolved(StageRequest.model_validate(values), GPU)
        workload, setup, _ = traceable(resolved.workload, resolved.setup)
        config, shape = find_config(values["model"])[0], resolved.shape
        asked.append(worker_request(config, shape, workload, setup))
        tokens, scored = token_counts(workload, setup)
        phases = phase_bytes(shape, workload, setup)
        again = setup.model_copy(update={"gradient_checkpointing": True})
        rows.append(
            {
                "request": values,
                "stepping": max(phases, key=lambda name: phases[name]) == "optimizer step",
                "resident": resident_bytes(shape, workload, setup, 0),
                "block": block_peak_bytes(shape, again, tokens, first=False),
                "loss": max(loss_bytes(shape, setup, scored)),
                "saved": saved_bytes(shape, setup, tokens),
            }
        )
    answers = run_worker(asked)
    return [
        {**row, "allocated": answer["peak_bytes"], "reserved": answer["reserved_bytes"]}
        for row, answer in zip(rows, answers, strict=True)
        if "error" not in answer
    ]


def kind_of(row: dict[str, Any]) -> str:
    if row["request"]["attention"] == "eager":
        return "EAGER"
    return {"full-logits": "FULL", "full-logits-kept": "KEPT"}.get(row["request"]["loss"], "FUSED")


def fit(rows: list[dict[str, Any]]) -> str:
    """The shares that describe the slack of `rows` best, relative to what is allocated."""
    import numpy
    from scipy.optimize import nnls

    matrix = numpy.array([[row[part] / row["allocated"] for part in PARTS] for row in rows])
    slack = numpy.array([row["reserved"] / row["allocated"] - 1 for row in rows])
    shares, _ = nnls(matrix, slack)
    rest = slack - matrix @ shares
    named = ", ".join(f"{part}={share:.3f}" for part, share in zip(PARTS, shares, strict=True))
    return (
        f"{len(rows)} replays: Shares({named}, spread={numpy.quantile(rest, 0.95):.3f}); mean slack "
        f"{100 * slack.mean():.1f} %, rest {100 * statistics.pstdev(rest.tolist()):.1f} %"
    )


def step_loss(row: dict[str, Any]) -> float:
    """Slack as a share of the loss where the optimizer's step is the peak, less that of the other parts."""
    others = FUSED.resident * row["resident"] + FUSED.block * row["block"]
    return float((row["reserved"] - row["allocated"] - others) / row["loss"])


def main() -> None:
    """Trace, and fit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path)
    parser.add_argument("--batches", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder, options.file.open("a") as out:
        for _ in range(options.batches):
            requests: list[dict[str, Any]] = []
            while len(requests) < BATCH:
                values = draw(rng, Path(folder))
                try:
                    Resolved(StageRequest.model_validate(values), GPU)
                except BadInput:
                    continue
                requests.append(values)
            for row in replay(requests):
                out.write(json.dumps(row) + "\n")
            out.flush()
    rows = [json.loads(line) for line in options.file.read_text().splitlines()]
    for kind in ("FUSED", "FULL", "KEPT", "EAGER"):
        found = [row for row in rows if kind_of(row) == kind and not row["stepping"]]
        few = f"{len(found)} replays, too few"
        print(f"{kind}: {fit(found) if len(found) > len(PARTS) else few}")
    stepping = [step_loss(row) for row in rows if row["stepping"]]
    if stepping:
        print(f"STEP_LOSS: {len(stepping)} replays, median {statistics.median(stepping):.2f}")


if __name__ == "__main__":
    main()

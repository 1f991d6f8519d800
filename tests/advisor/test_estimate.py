"""`advisor estimate` and `advisor gpus` from the command line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from advisor.cli import run_app

A100 = ["--gpu", "A100 80GB"]
LORA = ["estimate", "--model", "Qwen2.5-7B", "--tuning", "lora"]


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    capsys.readouterr()
    assert run_app([*arguments, "--json"]) in (0, 1)
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return document


def test_exit_codes_follow_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app([*LORA, *A100]) == 0
    assert "It fits" in capsys.readouterr().out
    assert run_app(["estimate", "--model", "Qwen2.5-7B", "--gpu", "T4"]) == 1
    shown = capsys.readouterr().out
    assert "It does not fit." in shown
    assert "Short by" in shown


def test_json_has_the_documented_keys(capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys, *LORA, *A100)
    documented = {
        "peak_bytes",
        "low_bytes",
        "high_bytes",
        "components",
        "verdict",
        "headroom_bytes",
        "seconds",
    }
    assert documented | {"usd", "assumptions"} <= set(document)
    assert document["verdict"] == "fits"
    components = document["components"]
    assert isinstance(components, dict)
    assert sum(components.values()) == document["peak_bytes"]
    assumptions = document["assumptions"]
    assert isinstance(assumptions, list)
    assert set(assumptions[0]) == {"name", "value", "source"}


def test_the_screen_has_one_unit_and_its_lines_sum_up(capsys: pytest.CaptureFixture[str]) -> None:
    run_app([*LORA, *A100])
    shown = capsys.readouterr().out
    rows = re.findall(r"^  (\S.*?) +(\d+\.\d{3}) GiB(?: = (.*) B)?$", shown, re.MULTILINE)
    sizes = {name: float(value) for name, value, _ in rows}
    assert sum(sizes.values()) - sizes["peak"] == pytest.approx(sizes["peak"], abs=0.01)
    formulas = {name: text for name, _, text in rows if text}
    assert formulas["weights"] == "2 × 7,615,616,512"
    for name, text in formulas.items():
        value = eval(text.replace("×", "*").replace(",", "")) / 2**30
        assert value == pytest.approx(sizes[name], rel=1e-3, abs=6e-4)
    assert " GB" not in shown.replace("A100 80GB", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--method", "dpo", "--tuning", "full", "--sharding", "fsdp", "--gpu", "8x A100"],
        ["--method", "dapo", "--tuning", "qlora", "--micro-batch", "4", "--gpu", "RTX 4090"],
        ["--method", "grpo", "--rollouts", "vllm-colocate", "--gpu", "H100"],
        ["--method", "rloo", "--tuning", "lora"],
    ],
)
def test_the_screen_is_eighty_columns_wide(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run_app(["estimate", "--model", "Qwen2.5-7B", *arguments])
    shown = capsys.readouterr().out
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert "0.000 GiB" not in shown


def test_the_screen_shows_what_rollouts_cost(capsys: pytest.CaptureFixture[str]) -> None:
    run_app([*LORA, *A100, "--method", "grpo", "--micro-batch", "4"])
    shown = capsys.readouterr().out
    assert "peak in phase: backward, last layer" in " ".join(shown.split())
    assert "KV cache " in shown
    assert "rollout logits" in shown


def test_every_default_that_moves_the_number_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys, "estimate", "--model", "Qwen2.5-7B", *A100)
    named = {item["name"]: item["value"] for item in document["assumptions"]}  # type: ignore[attr-defined]
    expected = {
        "method": "sft", "tuning": "full", "micro_batch": "1", "optimizer": "adamw_torch_fused",
        "gradient_checkpointing": "on", "attention": "sdpa", "max_length": "1024", "weights_dtype": "fp32",
        "precision": "bf16", "loss": "fused", "gradient_accumulation": "1",
    }  # fmt: skip
    assert expected.items() <= named.items()
    group = answer(capsys, *LORA, *A100, "--method", "grpo")
    names = {item["name"] for item in group["assumptions"]}  # type: ignore[attr-defined]
    assert {"lora_rank", "lora_targets", "adapter_dtype", "num_generations", "rollouts"} <= names
    given = answer(capsys, *LORA, *A100, "--micro-batch", "2", "--lora-rank", "8")
    names = {item["name"] for item in given["assumptions"]}  # type: ignore[attr-defined]
    assert not {"tuning", "micro_batch", "lora_rank"} & names


def test_rows_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        '{"model": "Qwen2.5-7B", "tuning": "lora", "gpu": "A100 80GB"}\n'
        "\n"
        '{"model": "Qwen2.5-7B", "methd": "sft"}\n'
        "{broken\n"
        '{"model": "Qwen2.5-0.5B", "method": "dpo", "gpu": "T4", "lora_rank": null}\n'
    )
    assert run_app(["estimate", "--from", str(rows), "--json"]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["line"] for line in lines] == [1, 3, 4, 5]
    assert lines[0]["verdict"] == "fits"
    assert f"{rows}:3" in lines[1]["error"]
    assert '"method"' in lines[1]["error"]
    assert f"{rows}:4" in lines[2]["error"]
    assert "peak_bytes" in lines[3]


def test_many_rows_are_quick(tmp_path: Path) -> None:
    """10,000 rows in under 10 s of processor time."""
    rows = tmp_path / "rows.jsonl"
    with rows.open("w") as handle:
        for number in range(10_000):
            row = {"model": "Qwen2.5-7B", "method": ("sft", "dpo", "grpo")[number % 3], "gpu": "A100 80GB"}
            handle.write(json.dumps({**row, "max_length": 128 + number, "tuning": "lora"}) + "\n")
    began = time.process_time()
    assert run_app(["estimate", "--from", str(rows), "--json"]) in (0, 1)
    assert time.process_time() - began < 10


def test_a_row_that_does_not_fit_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"model": "Qwen2.5-7B", "gpu": "T4"}\n')
    assert run_app(["estimate", "--from", str(rows), "--json"]) == 1
    rows.write_text('{"model": "Qwen2.5-0.5B", "gpu": "T4", "tuning": "lora"}\n')
    assert run_app(["estimate", "--from", str(rows), "--json"]) == 0
    rows.write_text("\n")
    assert run_app(["estimate", "--from", str(rows), "--json"]) == 1
    assert "no rows" in capsys.readouterr().err
    assert run_app(["estimate", "--from", str(rows), "--fit"]) == 1
    assert "--fit is for one stage" in capsys.readouterr().err


def test_own_prices_that_match_nothing_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text("gpu,usd_per_gpu_hour\nH1000,2\n")
    monkeypatch.setenv("ADVISOR_PRICES", str(prices))
    assert run_app([*LORA, "--gpu", "H100"]) == 0
    shown = capsys.readouterr()
    assert 'no known GPU is called H1000; did you mean "H100 80GB"?' in shown.err
    prices = tmp_path / "broken.csv"
    prices.write_text("gpu,usd_per_gpu_hour\nH100,nan\n")
    monkeypatch.setenv("ADVISOR_PRICES", str(prices))
    assert run_app([*LORA, "--gpu", "H100"]) == 1
    assert f"{prices}:2" in capsys.readouterr().err


def test_a_hub_address_that_is_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "notaurl")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert run_app(["estimate", "--model", "some/unknown"]) == 1
    error = capsys.readouterr().err
    assert "HF_ENDPOINT is notaurl" in error
    assert len(error.splitlines()) == 1


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys\nfrom advisor.cli import run_app\n"
        f"run_app({[*LORA, *A100, '--json']!r})\n"
        "heavy = {'torch', 'transformers', 'trl', 'datasets', 'mlflow', 'numpy'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_fit_says_what_is_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(["estimate", "--model", "Qwen2.5-7B", "--gpu", "RTX 4090", "--fit"]) == 0
    shown = capsys.readouterr().out
    assert "gives up" in shown
    assert "saves" in shown
    assert run_app(["estimate", "--model", "Qwen2.5-72B", "--gpu", "T4", "--fit"]) == 1
    assert "as asked it fits" in capsys.readouterr().err


def test_fit_plans_for_a_gpu_that_is_not_here(capsys: pytest.CaptureFixture[str]) -> None:
    """LoRA of 7B needs 16 GiB and more; in 4 bits it fits 12."""
    assert run_app([*LORA, "--gpu", "RTX 3060", "--fit"]) == 0
    assert "tuning: lora → qlora, saves" in capsys.readouterr().out


def test_what_does_not_fit_has_its_deficit_and_three_changes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(["estimate", "--model", "Qwen2.5-7B", "--micro-batch", "4", "--gpu", "T4"]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("It does not fit.")
    assert lines[at + 1].startswith("Short by ")
    assert all(" GiB  " in line and " → " in line for line in lines[at + 2 : at + 5])
    assert not any(line.strip().startswith("-") for line in lines[at + 2 : at + 5]), "no negative saving"


def test_vllm_that_cannot_start_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    colocate = [*LORA, "--method", "grpo", "--rollouts", "vllm-colocate", "--gpu", "A100 40GB"]
    assert run_app(colocate) == 1
    assert "the least vllm_memory_utilization is 0.3" in " ".join(capsys.readouterr().out.split())
    assert run_app([*colocate, "--fit"]) == 0
    assert "vllm_memory_utilization: 0.3 → 0.3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        (["estimate"], 1, "--model is missing"),
        (["estimate", "--model", "Qwen2.5-7B", "--method", "gpro"], 1, '"grpo"'),
        (["estimate", "--model", "Qwen2.5-7B", "--gpu", "H1000"], 1, "unknown GPU"),
        (["estimate", "--model", "/no/such/folder"], 1, "/no/such/folder"),
        (["estimate", "--from", "/no/such/rows.jsonl"], 1, "no such file"),
        (["estimate", "--model", "Qwen2.5-7B", "--micro-batch", "0"], 1, "micro_batch"),
        ([*LORA, "--method", "grpo", "--num-generations", "1"], 1, "at least 2"),
        (["estimate", "--model", "Qwen2.5-7B", "--calibrate", "--gpu", "T4"], 1, "leave --gpu out"),
    ],
)
def test_mistakes_are_one_message(
    arguments: list[str], code: int, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_app(arguments) == code
    error = capsys.readouterr().err
    assert hint in error
    assert "Traceback" not in error
    assert len(error.splitlines()) <= 6


def test_gpus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    document = answer(capsys, "gpus")
    assert document["kind"] == "cpu"
    assert run_app(["gpus"]) == 0
    assert "CPU" in capsys.readouterr().out
    assert run_app(["gpus", "--known"]) == 0
    shown = capsys.readouterr().out
    assert "USD/h" in shown
    assert "65 TFLOP/s fp16" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80


@pytest.mark.slow
def test_trace_of_a_seven_billion_model(capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys, *LORA, *A100, "--max-length", "2048", "--trace")
    trace = document["trace"]
    assert isinstance(trace, dict)
    assert trace["allocated_bytes"] == pytest.approx(trace["closed_form_bytes"], rel=0.05)

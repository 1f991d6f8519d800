"""Token counts for a report, by a process of its own: `transformers` is never imported here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from estimators.errors import BadInput
from pipelines.datasets.report import DataReport, Finding, TokenLint


def lint_tokens(
    report: DataReport,
    model: str,
    *,
    max_length: int | None = None,
    assistant_only_loss: bool = False,
    sample: int | None = None,
) -> DataReport:
    """`report` with what the tokenizer and the chat template of `model` make of its rows.

    `model` is a folder, a GGUF file or a hub id. Raises BadInput where its tokenizer cannot be loaded.
    """
    if not Path(model).exists() and (model.startswith((".", "/", "~")) or model.count("/") > 1):
        raise BadInput(f"{model}: no such folder; give a folder with tokenizer files or a hub id")
    request = {
        "report": report.model_dump(mode="json"),
        "model": str(Path(model).expanduser()) if Path(model).expanduser().exists() else model,
        "max_length": max_length,
        "assistant_only_loss": assistant_only_loss,
        "sample": sample,
    }
    done = subprocess.run(
        [sys.executable, "-m", "pipelines.training.lint_tokens"],
        input=json.dumps(request),
        capture_output=True,
        check=False,
        text=True,
        env={"OMP_WAIT_POLICY": "PASSIVE", **os.environ},
    )
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise BadInput(f"tokens of {report.file} cannot be counted with {model}: {last[:200]}") from None
    if "error" in answer:
        raise BadInput(f"{answer['error']}; {answer['remedy']}")
    return report.model_copy(
        update={
            "tokens": TokenLint.model_validate(answer["tokens"]),
            "findings": [*report.findings, *(Finding.model_validate(item) for item in answer["findings"])],
        }
    )

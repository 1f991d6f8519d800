"""Token counts for reports, by a process of its own: `transformers` is never imported here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from estimators.errors import BadInput
from estimators.record import Record
from pipelines.datasets.report import DataReport, Finding, TokenLint


class LintRequest(Record):
    """What to count: a source, with a model's tokenizer and the limits of its training."""

    report: DataReport
    model: str
    """A folder, a GGUF file or a hub id."""
    max_length: int | None = None
    assistant_only_loss: bool = False
    sample: int | None = None


def lint_tokens(requests: Sequence[LintRequest]) -> list[DataReport]:
    """Each request's report with what the tokenizer and the chat template make of its rows, in order.

    One process counts for all of them. Raises BadInput where a tokenizer cannot be loaded.
    """
    for request in requests:
        model = request.model
        if not Path(model).exists() and (model.startswith((".", "/", "~")) or model.count("/") > 1):
            raise BadInput(f"{model}: no such folder; give a folder with tokenizer files or a hub id")
    done = subprocess.run(
        [sys.executable, "-m", "pipelines.training.lint_tokens"],
        input=json.dumps([request.model_dump(mode="json") for request in requests]),
        capture_output=True,
        check=False,
        text=True,
        env={"OMP_WAIT_POLICY": "PASSIVE", **os.environ},
    )
    try:
        answers = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise BadInput(f"tokens cannot be counted with {requests[0].model}: {last[:200]}") from None
    reports = []
    for request, answer in zip(requests, answers, strict=True):
        if "error" in answer:
            raise BadInput(f"{answer['error']}; {answer['remedy']}")
        found = [Finding.model_validate(item) for item in answer["findings"]]
        changes = {
            "tokens": TokenLint.model_validate(answer["tokens"]),
            "findings": [*request.report.findings, *found],
        }
        reports.append(request.report.model_copy(update=changes))
    return reports

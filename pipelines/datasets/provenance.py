"""A source as MLflow describes data; nothing of MLflow is imported here."""

from __future__ import annotations

import json
from pathlib import Path

from pipelines.datasets.report import DataReport

_MLFLOW_TYPES = {"text": "string", "a number": "double", "a boolean": "boolean"}
MAX_DIGEST_CHARS = 36  # MLflow refuses longer ones


def dataset_fields(report: DataReport, digest: str) -> dict[str, str]:
    """The fields of `mlflow.entities.Dataset` for a source whose `content_digest` is `digest`.

    `mlflow.entities.Dataset(**fields)` in a `DatasetInput` goes to `MlflowClient.log_inputs`. Columns that
    hold lists or objects have the type "string" in the schema, as they are stored as JSON.
    """
    columns = [
        {"type": _MLFLOW_TYPES.get(report.kinds.get(name, ""), "string"), "name": name, "required": True}
        for name in report.columns
    ]
    profile = {
        "num_rows": report.rows,
        "format": report.format,
        "conversational": report.conversational,
        "lengths": {
            part: lengths.model_dump(exclude={"histogram"}) for part, lengths in report.lengths.items()
        },
    }
    return {
        "name": Path(report.file).name,
        "digest": digest[:MAX_DIGEST_CHARS],
        "source_type": "local",
        "source": json.dumps({"uri": report.file, "sha256": digest}),
        "schema": json.dumps({"mlflow_colspec": columns}),
        "profile": json.dumps(profile),
    }

"""A source as MLflow describes data."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from pipelines.datasets import content_digest, inspect_source
from pipelines.datasets.provenance import dataset_fields


@pytest.mark.slow
def test_mlflow_takes_the_fields(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"prompt": "a", "answer": "1", "level": 3}, {"prompt": "bc", "answer": "2", "level": 1}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fields = dataset_fields(inspect_source(path), content_digest(path))
    assert json.loads(fields["profile"])["num_rows"] == 2
    columns = json.loads(fields["schema"])["mlflow_colspec"]
    types = {column["name"]: column["type"] for column in columns}
    assert types == {"prompt": "string", "answer": "string", "level": "double"}
    code = (
        "import json, sys\nfrom mlflow import MlflowClient\n"
        "from mlflow.entities import Dataset, DatasetInput\n"
        "client = MlflowClient(tracking_uri=sys.argv[1])\n"
        "run = client.create_run(client.create_experiment('x'))\n"
        "client.log_inputs(run.info.run_id, [DatasetInput(Dataset(**json.loads(sys.argv[2])), [])])\n"
        "print(client.get_run(run.info.run_id).inputs.dataset_inputs[0].dataset.digest)\n"
    )
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    done = subprocess.run(
        [sys.executable, "-c", code, uri, json.dumps(fields)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split()[-1] == fields["digest"]

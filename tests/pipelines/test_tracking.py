"""The tracker against a real MLflow store: faults, kills and a store that is gone make no second run."""

import shutil

import pytest

mlflow = pytest.importorskip("mlflow")

from pipelines.runs import read_tracking
from pipelines.tracking import Sync, _attempt

pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def run(finished_run, tmp_path):
    """A copy of a finished run that was sent nowhere yet."""
    folder = tmp_path / "run"
    shutil.copytree(finished_run, folder, ignore=shutil.ignore_patterns("checkpoint-*"))
    (folder / "tracking.json").unlink()
    return folder


def runs_in(uri):
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiments = [e.experiment_id for e in client.search_experiments()]
    return client, client.search_runs(experiments)


@pytest.mark.parametrize("faulty", [1, 6])
def test_a_server_that_hiccups_gets_each_run_and_each_step_once(run, tmp_path, faulty):
    uri = f"sqlite:///{tmp_path / 'other.db'}"
    sync = Sync(run, uri)
    real, calls = sync.client.log_batch, {"n": 0}

    def hiccup(*args, **kwargs):
        calls["n"] += 1
        if calls["n"] == faulty:
            raise ConnectionError("hiccup")
        return real(*args, **kwargs)

    sync.client.log_batch = hiccup
    _attempt(run, uri, sync, last=False)
    assert "hiccup" in read_tracking(run).error
    fresh = Sync(run, uri)  # as after a kill: all it knows is in tracking.json
    fresh.last()
    assert read_tracking(run).complete
    client, runs = runs_in(uri)
    names = sorted(r.info.run_name for r in runs)
    assert names == ["00-probe", "01-sft", "02-dapo", "SFT → DAPO on base-model"]
    assert {r.info.status for r in runs} == {"FINISHED"}
    (dapo,) = [r for r in runs if r.info.run_name == "02-dapo"]
    assert [m.step for m in client.get_metric_history(dapo.info.run_id, "reward")] == [1, 2, 3, 4, 5, 6]


def test_a_kill_between_making_a_run_and_noting_it_makes_no_second_one(run, tmp_path):
    uri = f"sqlite:///{tmp_path / 'other.db'}"
    Sync(run, uri).last()
    (run / "tracking.json").unlink()
    Sync(run, uri).last()
    assert len(runs_in(uri)[1]) == 4


def test_a_store_that_was_removed_is_filled_again(run, tmp_path):
    uri = f"sqlite:///{tmp_path / 'other.db'}"
    Sync(run, uri).last()
    before = read_tracking(run)
    empty = f"sqlite:///{tmp_path / 'empty.db'}"
    (run / "tracking.json").write_text(before.model_copy(update={"uri": empty}).model_dump_json())
    Sync(run, empty).last()
    assert read_tracking(run).parent_run_id != before.parent_run_id
    assert len(runs_in(empty)[1]) == 4


def test_the_parent_shows_the_report_as_its_description(run, tmp_path):
    uri = f"sqlite:///{tmp_path / 'other.db'}"
    Sync(run, uri).last()
    (parent,) = [r for r in runs_in(uri)[1] if "mlflow.parentRunId" not in r.data.tags]
    assert parent.data.tags["mlflow.note.content"].startswith("# SFT → DAPO")
    assert parent.data.metrics["eval/pass_at_1"] >= 0


def test_a_stage_names_its_data_with_digest_source_and_schema(run, tmp_path):
    uri = f"sqlite:///{tmp_path / 'other.db'}"
    Sync(run, uri).last()
    inputs = {r.info.run_name: r.inputs.dataset_inputs for r in runs_in(uri)[1]}
    (sft,) = inputs["01-sft"]
    assert sft.dataset.name == "demonstrations.jsonl"
    assert "completion" in sft.dataset.schema
    assert len(sft.dataset.digest) == 36
    assert inputs["00-probe"] == []

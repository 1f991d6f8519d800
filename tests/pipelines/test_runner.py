"""Running, resuming and tracking a small pipeline for real: stage processes, kills, MLflow's own store."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines import stages
from pipelines.events import metric_series, read_events
from pipelines.runs import read_run, read_tracking

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.train


def start(folder: Path, *arguments: str) -> subprocess.Popen:
    """`advisor run` in the background."""
    return subprocess.Popen(
        [sys.executable, "-m", "advisor", "run", folder.name, *arguments],
        cwd=folder.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a job in the background of a shell ignores SIGINT, and so would what it starts
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_for_step(folder: Path, stage: str, step: int, seconds: float = 120) -> None:
    """Until a stage has logged `step`."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        events = read_events(folder / stage / stages.EVENTS)
        if any(e["kind"] == "metrics" and e["step"] >= step for e in events):
            return
        time.sleep(0.05)
    raise AssertionError(
        f"{stage} did not reach step {step}: {(folder / stage / stages.LOG).read_text()[-2000:]}"
    )


def worker_pids(folder: Path, stage: str) -> list[int]:
    """Processes that run a stage's script."""
    script = str(folder.name + "/" + stage + "/" + stages.SCRIPT)
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if script in command.replace("\0", " "):
            found.append(int(path.parent.name))
    return found


def mlflow_runs(folder: Path):
    """Every run in the store beside the folder, by MLflow's own client."""
    code = (
        "import json, mlflow\n"
        f"c = mlflow.MlflowClient('sqlite:///{folder.parent / 'mlflow.db'}')\n"
        "ids = [e.experiment_id for e in c.search_experiments()]\n"
        "print(json.dumps([{'name': r.info.run_name, 'status': r.info.status, 'tags': dict(r.data.tags),"
        " 'params': dict(r.data.params), 'metrics': dict(r.data.metrics), 'id': r.info.run_id,"
        " 'artifacts': [a.path for a in c.list_artifacts(r.info.run_id)],"
        " 'tables': [a.path for a in c.list_artifacts(r.info.run_id, 'completions')],"
        " 'reward_steps': [m.step for m in c.get_metric_history(r.info.run_id, 'reward')]}"
        " for r in c.search_runs(ids)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_the_whole_pipeline_and_what_mlflow_knows_of_it(small_run, advisor):
    done = advisor("run", "run", "--json")
    assert json.loads(done.stdout)["status"] == "finished"
    assert "pass@1" in done.stderr

    sft, dapo = (stages.read_stage(small_run / s) for s in ("01-sft", "02-dapo"))
    assert (sft.start_from, dapo.start_from) == (None, "01-sft/model")
    assert (dapo.trainer["loss_type"], dapo.trainer["epsilon_high"]) == ("dapo", 0.28)
    before = (small_run / "01-sft/model/model.safetensors").read_bytes()
    assert before != (small_run / "02-dapo/model/model.safetensors").read_bytes()
    for folder in ("00-probe", "01-sft", "02-dapo"):
        result = stages.read_result(small_run / folder)
        assert result is not None
        assert result.pass_rates is not None
        assert (result.pass_rates.prompts, result.pass_rates.samples) == (8, 2)

    runs = mlflow_runs(small_run)
    parents = [r for r in runs if "mlflow.parentRunId" not in r["tags"]]
    assert [p["name"] for p in parents] == ["SFT → DAPO on base-model"]
    children = {r["name"]: r for r in runs if r["tags"].get("mlflow.parentRunId") == parents[0]["id"]}
    assert set(children) == {"00-probe", "01-sft", "02-dapo"}
    assert {r["status"] for r in runs} == {"FINISHED"}
    assert {"answers.yaml", "recommendation.json", "plan.yaml", "report.html"} <= set(parents[0]["artifacts"])
    assert {r["tags"]["advisor.run"] for r in runs} == {read_run(small_run).id}
    child = children["02-dapo"]
    assert (child["tags"]["advisor.stage"], child["tags"]["advisor.method"]) == ("02-dapo", "dapo")
    assert len(child["tags"]["advisor.config_sha256"]) == len(child["tags"]["advisor.data_sha256"]) == 64
    assert child["params"]["trainer.epsilon_high"] == "0.28"
    assert child["reward_steps"] == [1, 2, 3, 4, 5, 6]
    assert {"config.yaml", "log.txt", "train.py", "done.json"} <= set(child["artifacts"])
    assert "completions/held-out.json" in child["tables"]
    assert "completions/step_00001.json" in child["tables"]
    assert {"eval/pass_at_1", "peak_memory_gib", "estimated/memory_gib"} <= set(child["metrics"])

    began = time.monotonic()
    again = advisor("run", "run")
    assert "is finished" in again.stderr
    assert time.monotonic() - began < 2
    assert len(mlflow_runs(small_run)) == 4

    # a change to the last stage runs that stage again, and no other
    config = small_run / "02-dapo" / stages.CONFIG
    config.write_text(config.read_text().replace("max_steps: 6", "max_steps: 2"))
    changed = advisor("run", "run")
    assert changed.stderr.count("already finished") == 2
    assert stages.read_result(small_run / "02-dapo").steps == 2
    (kept,) = (small_run / "02-dapo" / "previous").iterdir()
    assert "max_steps: 6" in (kept / stages.CONFIG).read_text()
    assert (kept / "model").is_dir(), "the earlier result is kept"

    # killed after the last step and before done.json: nothing is trained again, nor one step more
    weights = (small_run / "02-dapo/model/model.safetensors").read_bytes()
    shutil.rmtree(small_run / "02-dapo/model")
    advisor("run", "run")
    assert stages.read_result(small_run / "02-dapo").steps == 2
    assert (small_run / "02-dapo/model/model.safetensors").read_bytes() == weights


@pytest.mark.parametrize("victim", ["worker", "supervisor"])
def test_kill_9_in_the_dapo_stage_then_run_again(small_run, advisor, victim):
    process = start(small_run)
    wait_for_step(small_run, "02-dapo", 3)
    (worker,) = worker_pids(small_run, "02-dapo")
    os.kill(worker if victim == "worker" else process.pid, signal.SIGKILL)
    _, stderr = process.communicate(timeout=60)
    if victim == "worker":
        assert process.returncode == 3
        assert "killed (SIGKILL" in stderr
        assert "advisor run run" in stderr
        assert read_run(small_run).status == "failed"
    until = time.monotonic() + 10
    while worker_pids(small_run, "02-dapo") and time.monotonic() < until:
        time.sleep(0.1)
    assert not worker_pids(small_run, "02-dapo"), "no worker outlives its supervisor"

    done = advisor("run", "run")
    assert "resumed from checkpoint-" in done.stderr
    assert done.stderr.count("already finished") == 2
    runs = mlflow_runs(small_run)
    assert sum("mlflow.parentRunId" not in r["tags"] for r in runs) == 1
    assert {r["status"] for r in runs} == {"FINISHED"}
    (child,) = [r for r in runs if r["name"] == "02-dapo"]
    assert child["reward_steps"] == [1, 2, 3, 4, 5, 6], "each step once, the redone ones too"
    rewards = metric_series(read_events(small_run / "02-dapo" / stages.EVENTS))["reward"]
    assert [step for step, _ in rewards] == [1, 2, 3, 4, 5, 6]


def test_ctrl_c_says_how_to_go_on_and_leaves_no_process(small_run, advisor):
    process = start(small_run)
    wait_for_step(small_run, "01-sft", 1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "advisor run run" in stderr.splitlines()[-1]
    assert not worker_pids(small_run, "01-sft")
    assert read_run(small_run).status == "interrupted"
    advisor("run", "run")
    assert read_run(small_run).status == "finished"


def test_two_runs_of_one_folder_do_not_mix(small_run, advisor):
    process = start(small_run)
    wait_for_step(small_run, "01-sft", 1)
    second = advisor("run", "run", check=1)
    assert "another process" in second.stderr
    process.kill()
    process.communicate()


def test_a_fault_of_mlflow_does_not_stop_a_training(small_run, advisor):
    """Nothing listens on that port. The run ends well, says what is missing, and the next call sends it."""
    done = advisor("run", "run", MLFLOW_TRACKING_URI="http://127.0.0.1:9", check=0)
    assert "MLflow did not take everything" in done.stderr
    assert read_run(small_run).status == "finished"
    advisor("run", "run", MLFLOW_TRACKING_URI=f"sqlite:///{small_run.parent / 'mlflow.db'}")
    assert read_tracking(small_run).complete
    assert len(mlflow_runs(small_run)) == 4


def test_a_broken_setting_is_one_message_with_its_place_before_anything_starts(small_run, advisor):
    config = small_run / "01-sft" / stages.CONFIG
    good = config.read_text()
    for old, new, says in (
        ("learning_rate:", "learning_rat:", 'did you mean "learning_rate"'),
        ("method: sft", "method: sfft", 'did you mean "sft"'),
        ("tuning: ", "tunning: ", ""),
    ):
        config.write_text(good.replace(old, new) if old in good else good + "tunning: full\n")
        done = advisor("run", "run", check=1)
        assert says in done.stderr
        assert "config.yaml" in done.stderr
        assert len(done.stderr.splitlines()) <= 6
        assert read_run(small_run) is None


def test_a_reward_that_raises_is_found_before_any_model_is_loaded(small_run, advisor):
    (small_run.parent / "reward.py").write_text(
        "def any_digit(completions, answer, **kwargs):\n    return [1 / 0]\n"
    )
    done = advisor("run", "run", check=1)
    assert "ZeroDivisionError" in done.stderr
    assert "reward.py:2" in done.stderr
    assert not (small_run / "00-probe" / stages.LOG).exists()


def test_a_reward_that_raises_in_training_stops_the_stage_and_names_the_completion(small_run, advisor):
    """It is well behaved on golds and probes, and fails on what the model writes."""
    (small_run.parent / "reward.py").write_text(
        "def any_digit(completions, answer, trainer_state=None, **kwargs):\n"
        "    return [1 / 0 if trainer_state else 0.0 for _ in completions]\n"
    )
    done = advisor("run", "run", check=3)
    assert "ZeroDivisionError" in done.stderr
    assert "reward.py:2" in done.stderr
    assert "on the completion" in done.stderr
    assert "advisor run run" in done.stderr


def test_too_few_prompts_for_a_batch_are_an_error_and_no_finished_stage(small_run, advisor):
    data = small_run / "data/prompts.jsonl"
    data.write_text("\n".join(data.read_text().splitlines()[:3]) + "\n")
    done = advisor("run", "run", check=3)
    assert "only 0 of 6 steps were trained" in done.stderr


def test_a_training_without_any_signal_fails_each_time_with_its_cause(small_run, advisor):
    (small_run.parent / "reward.py").write_text(
        "def any_digit(completions, answer, **kwargs):\n    return [0.0 for _ in completions]\n"
    )
    for _ in range(2):
        done = advisor("run", "run", check=3)
        assert "every completion was wrong" in done.stderr
        assert (small_run / "report.html").exists()
        assert not (small_run / "02-dapo" / "model").exists()

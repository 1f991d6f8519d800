"""Planning: what is written to a run folder, what is refused, and what a stage's identity depends on."""

import json
import shlex

import pytest
import yaml

from pipelines import stages
from pipelines.plan import read_plan, render
from pipelines.prepare import as_chat, has_chat_template
from pipelines.stages import stage_identity
from tests.small import plan_small, run_advisor, small_settings, write_answers


def answers(folder, **changes):
    """answers.yaml for the tiny task, with changes; a value of None leaves the key out."""
    return write_answers(folder, "H100 80GB", **{"model": "Qwen/Qwen3-8B", **changes})


def test_a_plan_for_a_named_gpu_is_sized_written_and_read_back(tmp_path):
    answers(tmp_path)
    done = run_advisor(tmp_path, "plan", "answers.yaml", "-o", "run", "--json")
    run = tmp_path / "run"
    plan = read_plan(run)
    assert json.loads(done.stdout)["pipeline"] == ["sft", "dapo"] == list(plan.pipeline)
    assert [stage.folder for stage in plan.stages] == ["00-probe", "01-sft", "02-dapo"]
    assert plan.verdict in ("fits", "tight")
    for stage in plan.stages:
        assert stage.memory_low_gib <= stage.memory_gib <= stage.memory_high_gib
        assert stage.hours_low < stage.hours_high
        assert stage.usd_low is not None
        assert stage.usd_low <= stage.usd_high
    for stage in plan.stages:  # the command in the plan gives the plan's number
        words = shlex.split(stage.estimate)
        assert words[:2] == ["advisor", "estimate"]
        size = json.loads(run_advisor(tmp_path, *words[1:], "--json").stdout)
        assert round(size["peak_bytes"] / 2**30, 2) == stage.memory_gib
        assert round(size["high_bytes"] / 2**30, 2) == stage.memory_high_gib
    sft, dapo = (stages.read_stage(run / name) for name in ("01-sft", "02-dapo"))
    assert sft.tuning == dapo.tuning, "one adapter goes through the pipeline, or none"
    assert dapo.reward == "math"
    assert dapo.overlong is not None
    assert dapo.dynamic_sampling is not None
    rows = dapo.trainer["per_device_train_batch_size"] * dapo.trainer.get("gradient_accumulation_steps", 1)
    assert rows == 256
    assert rows % dapo.trainer["num_generations"] == 0


def test_long_chains_of_8b_fit_one_h100_rollouts_and_evaluation_included(tmp_path):
    answers(tmp_path, long_cot="yes")
    run_advisor(tmp_path, "plan", "answers.yaml", "-o", "run")
    run = tmp_path / "run"
    assert read_plan(run).verdict == "fits"
    dapo, probe = stages.read_stage(run / "02-dapo"), stages.read_stage(run / "00-probe")
    accumulation = dapo.trainer["gradient_accumulation_steps"]
    at_once = dapo.trainer.get("steps_per_generation", accumulation)
    assert accumulation % at_once == 0
    assert dapo.trainer["per_device_train_batch_size"] * at_once % dapo.trainer["num_generations"] == 0
    length = dapo.trainer["max_completion_length"]
    assert {c.evaluation.max_new_tokens for c in (dapo, probe)} == {length}
    assert length == 4096, "rollouts in parts, not shorter chains"


def test_a_verifier_evaluates_a_pipeline_that_does_not_train_on_prompts(tmp_path):
    """Verifiable, pairs, limited: DPO alone, and the prompts still show what it did."""
    (tmp_path / "pairs.jsonl").write_text(
        "".join(f'{{"prompt": "{i}+3?", "chosen": "{i + 3}", "rejected": "{i}"}}\n' for i in range(40))
    )
    data = {"prompts": "prompts.jsonl", "preferences": "pairs.jsonl"}
    answers(tmp_path, preference_pairs="yes", limited_compute="yes", base_capable="yes", data=data)
    run_advisor(tmp_path, "plan", "answers.yaml", "-o", "run")
    assert [s.folder for s in read_plan(tmp_path / "run").stages] == ["00-probe", "01-dpo"]
    dpo = stages.read_stage(tmp_path / "run/01-dpo")
    assert (dpo.reward, dpo.data.prompts) == ("math", "data/eval.jsonl")


def test_a_batch_has_no_more_groups_than_there_are_prompts(tmp_path):
    """Of 12 prompts one is held out: 11 groups of 8, where the default is 32."""
    answers(tmp_path)
    text = (tmp_path / "prompts.jsonl").read_text().splitlines()[:12]
    (tmp_path / "prompts.jsonl").write_text("\n".join(text) + "\n")
    run_advisor(tmp_path, "plan", "answers.yaml", "-o", "run")
    trainer = stages.read_stage(tmp_path / "run/02-dapo").trainer
    rows = trainer["per_device_train_batch_size"] * trainer.get("gradient_accumulation_steps", 1)
    assert rows == 11 * 8


def test_lengths_stay_within_the_models_context(tmp_path, task):
    """The tiny model has 64 positions and prompts of 6 tokens."""
    run = plan_small(tmp_path, task, ())
    assert stages.read_stage(run / "02-dapo").trainer["max_completion_length"] == 64 - 6


def test_config_files_are_short_and_say_why(tmp_path):
    answers(tmp_path)
    run_advisor(tmp_path, "plan", "answers.yaml", "-o", "run")
    for folder in ("01-sft", "02-dapo"):
        lines = (tmp_path / "run" / folder / stages.CONFIG).read_text().splitlines()
        assert len(lines) <= 60
        at = lines.index("trainer:")
        assert all("  # " in line for line in lines[at + 1 :] if line.startswith("  "))


def test_the_economy_form_is_lora_with_groups_of_four(tmp_path):
    answers(tmp_path, limited_compute="yes")
    run_advisor(tmp_path, "plan", "answers.yaml", "-o", "run")
    dapo = stages.read_stage(tmp_path / "run/02-dapo")
    assert dapo.tuning == "lora"
    assert dapo.trainer["num_generations"] == 4
    assert stages.read_stage(tmp_path / "run/01-sft").tuning == "lora"


def test_what_does_not_fit_is_refused_with_a_way_out_and_written_by_force(tmp_path):
    answers(tmp_path, hardware={"gpu": "RTX 3060", "count": 1}, tuning="full")
    done = run_advisor(tmp_path, "plan", "answers.yaml", "-o", "run", check=1)
    assert "GiB" in done.stderr
    assert len(done.stderr.splitlines()) <= 8
    assert not (tmp_path / "run").exists(), "nothing is left behind"
    forced = run_advisor(tmp_path, "plan", "answers.yaml", "-o", "run", "--force", check=1)
    assert read_plan(tmp_path / "run").verdict == "does-not-fit"
    assert "NO" in forced.stdout


def test_a_budget_shortens_the_last_stage_and_says_so(tmp_path):
    options = ["--set", "sft.max_steps=10"]
    steps = {}
    for name, budget in (("free", {}), ("tight", {"gpu_hours": 0.2})):
        folder = tmp_path / name
        folder.mkdir()
        answers(folder, budget=budget)
        run_advisor(folder, "plan", "answers.yaml", "-o", "run", *options)
        steps[name] = read_plan(folder / "run").stages[-1].steps
    assert steps["tight"] < steps["free"]
    notes = " ".join(read_plan(tmp_path / "tight" / "run").notes)
    assert f"{steps['tight']} steps instead of {steps['free']}" in notes
    assert stages.read_stage(tmp_path / "tight/run/02-dapo").trainer["max_steps"] == steps["tight"]


@pytest.mark.parametrize(
    ("changes", "options", "says"),
    [
        ({"model": None}, [], "model"),
        ({"model": "./nowhere"}, [], "neither a folder here nor a hub id"),
        ({"data": {"prompts": "prompts.jsonl"}}, [], "data.demonstrations"),
        ({"data": {"demonstrations": "demos.jsonl", "prompts": "nope.jsonl"}}, [], "nope.jsonl"),
        ({"data": {"demonstrations": "prompts.jsonl", "prompts": "prompts.jsonl"}}, [], "prompts.jsonl"),
        ({"reward": "code"}, [], "tests"),
        ({"reward": "mth"}, [], "math"),
        ({"reward": "nofile.py:f"}, [], "nofile.py"),
        ({"hardware": {"gpu": "H1000"}}, [], "H100"),
        ({}, ["--set", "dapo.learning_rat=1"], "learning_rate"),
        ({}, ["--set", "dapo.lr=1"], "learning_rate"),
        ({}, ["--set", "dpo.beta=1"], "no dpo stage"),
        ({}, ["--set", "beta=1"], "METHOD.FIELD=VALUE"),
        ({}, ["--set", "sft.max_steps=-5"], "-5"),
        ({}, ["--set", "sft.max_steps=abc"], "abc"),
        ({}, ["--set", "sft.learning_rate=1e-3x"], "1e-3x"),
        ({}, ["--set", "dapo.eval_samples=0"], "samples"),
        ({}, ["--set", "dapo.lora_r=0"], "0"),
    ],
)
def test_what_cannot_be_planned_is_said_in_one_message_and_leaves_nothing(tmp_path, changes, options, says):
    answers(tmp_path, **changes)
    done = run_advisor(tmp_path, "plan", "answers.yaml", "-o", "run", *options, check=1)
    assert says in done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) <= 6
    assert not (tmp_path / "run").exists()


def test_a_folder_with_a_plan_is_not_written_over(tmp_path):
    answers(tmp_path)
    run_advisor(tmp_path, "plan", "answers.yaml", "-o", "run")
    before = (tmp_path / "run/plan.yaml").read_text()
    done = run_advisor(tmp_path, "plan", "answers.yaml", "-o", "run", check=1)
    assert "already holds a plan" in done.stderr
    assert (tmp_path / "run/plan.yaml").read_text() == before


def test_held_out_prompts_are_in_no_training_file(tmp_path):
    answers(tmp_path)
    (tmp_path / "demos.jsonl").write_text(
        "".join(f'{{"prompt": "What is {i}+2?", "completion": "{i + 2}"}}\n' for i in range(60))
    )
    run_advisor(tmp_path, "plan", "answers.yaml", "-o", "run")
    data = tmp_path / "run" / "data"
    prompts = {
        name: {json.dumps(json.loads(line)["prompt"]) for line in (data / name).read_text().splitlines()}
        for name in ("eval.jsonl", "prompts.jsonl", "demonstrations.jsonl", "demonstrations.eval.jsonl")
    }
    assert prompts["eval.jsonl"]
    for name in ("prompts.jsonl", "demonstrations.jsonl", "demonstrations.eval.jsonl"):
        assert not prompts["eval.jsonl"] & prompts[name]
    assert any("held-out prompt" in note for note in read_plan(tmp_path / "run").notes)


def test_plain_rows_become_turns_where_the_model_has_a_template(tmp_path):
    assert as_chat({"prompt": "a", "completion": "b", "answer": "c"}) == {
        "prompt": [{"role": "user", "content": "a"}],
        "completion": [{"role": "assistant", "content": "b"}],
        "answer": "c",
    }
    assert has_chat_template("org/Model-7B-Instruct")
    assert not has_chat_template("org/Model-7B")
    (tmp_path / "tokenizer_config.json").write_text("{}")
    assert not has_chat_template(str(tmp_path))
    (tmp_path / "chat_template.jinja").write_text("x")
    assert has_chat_template(str(tmp_path))


def test_an_identity_changes_with_config_script_data_and_parent(tmp_path, task):
    run = plan_small(tmp_path, task, ("sft", "dapo"))

    def identities():
        return tuple(stage_identity(run, folder) for folder in ("00-probe", "01-sft", "02-dapo"))

    def changed(path, old, new):
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        after = identities()
        path.write_text(text)
        return [a != b for a, b in zip(identities(), after, strict=True)]

    assert identities() == identities()
    assert changed(run / "02-dapo/config.yaml", "max_steps: 6", "max_steps: 7") == [False, False, True]
    assert changed(run / "01-sft/config.yaml", "max_steps: 4", "max_steps: 5") == [False, True, True]
    assert changed(run / "01-sft/train.py", "def build", "def  build") == [False, True, True]
    assert changed(run / "data/prompts.jsonl", '"answer"', '"answer" ') == [False, False, True]
    assert changed(tmp_path / "reward.py", "text[:2]", "text[:3]") == [True, True, True]
    # a comment is not a change
    assert changed(run / "01-sft/config.yaml", "  # ", "  #  ") == [False, False, False]


def test_settings_of_the_small_task_are_those_that_were_asked_for(tmp_path, task):
    run = plan_small(tmp_path, task, ("sft", "dapo"))
    assert small_settings(("sft",))[1] == "sft.max_steps=4"
    sft = stages.read_stage(run / "01-sft")
    assert (sft.trainer["max_steps"], sft.trainer["per_device_train_batch_size"]) == (4, 8)
    assert sft.base_model == str(task / "base-model")


@pytest.mark.parametrize(
    "value", [1e-5, 1e-6, 2.0, 0.28, 1e20, "yes", "1e-5", "a: b", None, True, [1, 2], "é → x"]
)
def test_rendered_values_are_read_back_as_they_were(value):
    assert yaml.safe_load(render({"key": value}, {"key": "why"})) == {"key": value}

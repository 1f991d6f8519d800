"""What a stage hands to the next: weights, adapters, and the right reference policy. All in real processes."""

import json
import warnings

import pytest

torch = pytest.importorskip("torch")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

from conftest import plan_small
from pipelines import stages
from pipelines.events import metric_series, read_events
from pipelines.stages import StageConfig
from pipelines.training.models import load_policy

pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore")]
LN_2 = 0.6931


def first(folder, metric):
    return metric_series(read_events(folder / stages.EVENTS))[metric][0][1]


@pytest.mark.parametrize("tuning", ["full", "lora"])
def test_sft_dpo_dapo_each_from_the_one_before(tmp_path, task, advisor, tuning):
    run = plan_small(tmp_path, task, advisor, ("sft", "dpo", "dapo"), pairs=True, tuning=tuning)
    configs = [stages.read_stage(run / name) for name in ("01-sft", "02-dpo", "03-dapo")]
    assert [config.start_from for config in configs] == [None, "01-sft/model", "02-dpo/model"]
    assert {config.tuning for config in configs} == {tuning}
    advisor("run", "run")

    # At its first step the policy is the reference, so the loss is ln 2 and no margin is there: with the bare
    # base as reference the SFT adapter alone would make a margin.
    assert first(run / "02-dpo", "loss") == pytest.approx(LN_2, abs=2e-3)
    assert first(run / "02-dpo", "rewards/margins") == pytest.approx(0.0, abs=1e-3)
    files = {path.name for path in (run / "03-dapo/model").iterdir()}
    if tuning == "lora":
        assert "adapter_model.safetensors" in files
        assert "model.safetensors" not in files
        assert not [p for p in (run / "02-dpo/model").rglob("*") if "ref" in p.name], (
            "the frozen copy stays out"
        )
    else:
        assert "model.safetensors" in files
    for name in ("01-sft", "02-dpo", "03-dapo"):
        assert stages.read_result(run / name).pass_rates.prompts == 8


def test_an_adapter_goes_on_and_a_full_stage_merges_it(tmp_path, task, advisor):
    run = plan_small(tmp_path, task, advisor, ("sft", "dapo"), pairs=False, tuning="lora")
    advisor("run", "run")
    sft = stages.read_stage(run / "01-sft")
    base = AutoModelForCausalLM.from_pretrained(task / "base-model")
    trained = PeftModel.from_pretrained(base, run / "01-sft/model")
    ids = torch.arange(2, 12).unsqueeze(0)
    with torch.no_grad():
        expected = trained.eval()(input_ids=ids).logits

    def logits(config: StageConfig):
        model, adapter = load_policy(config, run)
        assert adapter is None, "a model that carries an adapter must not be wrapped again"
        with torch.no_grad():
            return model.eval()(input_ids=ids).logits, model

    goes_on, model = logits(sft.model_copy(update={"start_from": "01-sft/model"}))
    assert torch.allclose(goes_on, expected, atol=1e-5)
    assert any(p.requires_grad and "lora_B" in n for n, p in model.named_parameters())
    merged, model = logits(
        sft.model_copy(update={"start_from": "01-sft/model", "tuning": "full", "lora": None})
    )
    assert torch.allclose(merged, expected, atol=1e-4)
    assert not isinstance(model, PeftModel)


def test_grpo_with_a_kl_term_starts_at_no_distance_from_the_sft_policy(tmp_path, task, advisor):
    """beta > 0 on an SFT adapter: the reference is that adapter, so the first KL is 0."""
    answers = {"tuning": "lora", "long_cot": "no", "task": "instruction"}
    run = plan_small(tmp_path, task, advisor, ("sft",), pairs=False, **answers)
    config = run / "02-grpo" / stages.CONFIG
    text = config.read_text()
    for old, new in (
        ("beta: 0.0", "beta: 0.04"),
        ("max_completion_length: 512", "max_completion_length: 8"),
        ("max_new_tokens: 512", "max_new_tokens: 8"),
    ):
        text = text.replace(old, new)
    lines = [line for line in text.splitlines() if "max_steps" not in line and "per_device" not in line]
    at = lines.index(next(line for line in lines if line.startswith("trainer:")))
    lines[at + 1 : at + 1] = ["  max_steps: 2", "  per_device_train_batch_size: 16"]
    config.write_text("\n".join(lines) + "\n")
    assert json.loads(json.dumps(stages.read_stage(run / "02-grpo").trainer))["loss_type"] == "grpo"
    advisor("run", "run")
    assert first(run / "02-grpo", "kl") == pytest.approx(0.0, abs=1e-5)

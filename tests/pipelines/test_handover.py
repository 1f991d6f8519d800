"""What a stage hands to the next: weights, adapters, and the right reference policy."""

import warnings

import pytest

torch = pytest.importorskip("torch")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from peft import PeftModel
    from transformers import AutoModelForCausalLM


from pipelines import stages
from pipelines.events import metric_series, read_events
from pipelines.stages import StageConfig
from pipelines.training.models import load_policy
from tests.small import plan_small

pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore")]
LN_2 = 0.6931


def first(folder, metric):
    return metric_series(read_events(folder / stages.EVENTS))[metric][0][1]


@pytest.mark.parametrize("tuning", ["full", "lora"])
def test_sft_dpo_dapo_each_from_the_one_before(tmp_path, task, advisor, tuning):
    run = plan_small(tmp_path, task, ("sft", "dpo", "dapo"), pairs=True, answers={"tuning": tuning})
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
    run = plan_small(tmp_path, task, ("sft", "dapo"), answers={"tuning": "lora"})
    advisor("run", "run")
    sft = stages.read_stage(run / "01-sft")
    base = AutoModelForCausalLM.from_pretrained(task / "base-model")
    trained = PeftModel.from_pretrained(base, run / "01-sft/model")
    ids = torch.arange(2, 12).unsqueeze(0)
    with torch.no_grad():
        expected = trained.eval()(input_ids=ids).logits

    def logits(config: StageConfig):
        model, adapter = load_policy(config, run, run / "02-dapo")
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
    reference = AutoModelForCausalLM.from_pretrained(model.config._name_or_path)
    with torch.no_grad():
        assert torch.allclose(reference.eval()(input_ids=ids).logits, expected, atol=1e-4), (
            "where the trainer loads its reference from is the policy that the stage starts from"
        )


def test_grpo_with_a_kl_term_starts_at_no_distance_from_the_sft_policy(tmp_path, task, advisor):
    """beta > 0 on an SFT adapter: the reference is that adapter, so the first KL is 0."""
    answers = {"tuning": "lora", "long_cot": "no", "task": "instruction"}
    run = plan_small(tmp_path, task, ("sft", "grpo"), answers=answers)
    config = run / "02-grpo" / stages.CONFIG
    config.write_text(config.read_text().replace("beta: 0.0", "beta: 0.04"))
    grpo = stages.read_stage(run / "02-grpo")
    assert (grpo.trainer["loss_type"], grpo.trainer["beta"]) == ("grpo", 0.04)
    assert "epsilon_high" not in grpo.trainer
    assert (grpo.dynamic_sampling, grpo.overlong) == (None, None)
    advisor("run", "run")
    assert first(run / "02-grpo", "kl") == pytest.approx(0.0, abs=1e-5)

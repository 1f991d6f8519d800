"""Shapes against transformers itself: the model is built on the meta device and counted."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from estimators.adapters import lora_params
from estimators.errors import BadInput
from estimators.families import FAMILIES, UnknownFamily, read_shape
from estimators.models import catalogue, find_config, find_shape, shape_of_config

TINY = {
    "model_type": "llama", "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 4, "intermediate_size": 384, "vocab_size": 20, "tie_word_embeddings": True,
}  # fmt: skip


def smallest_of_each_family() -> list[str]:
    """One catalogue model of every family, the one with the fewest parameters."""
    best: dict[str, str] = {}
    for model, config in catalogue().items():
        kind = config["model_type"]
        if kind not in best or find_shape(model).params < find_shape(best[kind]).params:
            best[kind] = model
    return sorted(best.values())


def every_shape() -> list[str]:
    seen: dict[str, str] = {}
    for model, config in catalogue().items():
        seen.setdefault(json.dumps(config, sort_keys=True), model)
    return sorted(seen.values())


def build(config: dict[str, Any]) -> Any:
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    values = dict(config)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(CONFIG_MAPPING[values.pop("model_type")](**values))


def check(model: str) -> None:
    import torch

    shape, built = find_shape(model), build(find_config(model)[0])
    assert shape.params == built.num_parameters()
    assert shape.params == sum(shape.groups.values())
    head = built.get_output_embeddings()
    linear = sum(
        module.weight.numel()
        for module in built.modules()
        if (isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D") and module is not head
    )
    assert shape.linear_weights == linear


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", smallest_of_each_family())
def test_parameters_of_each_family_are_the_models_own(model: str) -> None:
    check(model)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", every_shape())
def test_parameters_of_every_model_are_its_own(model: str) -> None:
    check(model)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model_type", ["llama", "qwen3_moe", "gpt_oss", "phi3", "olmoe"])
@pytest.mark.parametrize("targets", ["all-linear", "attention"])
def test_adapters_are_those_that_peft_makes(model_type: str, targets: str) -> None:
    from peft import LoraConfig, get_peft_model

    from estimators.adapters import target_names

    model = next(name for name in smallest_of_each_family() if catalogue()[name]["model_type"] == model_type)
    config = {**catalogue()[model], "num_hidden_layers": 2}
    shape = read_shape(config, model_type)
    modules = "all-linear" if targets == "all-linear" else target_names(shape, "attention")
    adapted = get_peft_model(build(config), LoraConfig(r=8, target_modules=modules, task_type="CAUSAL_LM"))
    trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    assert lora_params(shape, 8, targets) == trained  # type: ignore[arg-type]


def test_the_catalogue_is_large_and_every_family_is_known() -> None:
    assert len(every_shape()) >= 60
    assert {config["model_type"] for config in catalogue().values()} <= set(FAMILIES)


@pytest.mark.parametrize(
    ("model", "billions"),
    [
        ("Qwen/Qwen2.5-7B", 7.616), ("meta-llama/Llama-3.1-8B", 8.030), ("Qwen/Qwen3-30B-A3B", 30.53),
        ("mistralai/Mixtral-8x7B-v0.1", 46.70), ("google/gemma-2-9b", 9.242), ("microsoft/phi-4", 14.66),
        ("openai/gpt-oss-20b", 20.91), ("allenai/OLMo-2-1124-7B", 7.299), ("Qwen/Qwen2.5-0.5B", 0.494),
    ],
)  # fmt: skip
def test_published_sizes(model: str, billions: float) -> None:
    """Sizes as the model cards print them, within half a percent."""
    assert find_shape(model).params / 1e9 == pytest.approx(billions, rel=0.005)


def test_hand_count_of_a_tiny_llama() -> None:
    """4 × (4×128² + 3×128×384 + 2×128) + 20×128 (tied) + 128 = 855,680."""
    assert read_shape(TINY, "tiny").params == 855_680


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    return tmp_path


def test_a_folder_a_file_and_a_short_name(folder: Path) -> None:
    assert find_shape(str(folder)).params == find_shape(str(folder / "config.json")).params == 855_680
    assert find_shape("qwen2.5-7b") == find_shape("Qwen/Qwen2.5-7B")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", ":1:2: not valid JSON"),
        ("[]", "expected an object"),
        ("{}", '"model_type" is missing'),
        ('{"model_type": "llama"}', '"hidden_size" is missing'),
        ('{"model_type": "llama", "hidden_size": 0, "num_hidden_layers": 2}', '"hidden_size" is 0'),
        (
            '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 0}',
            "is 0",
        ),
    ],
)
def test_broken_configs_say_where(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(BadInput, match="config") as error:
        find_shape(str(path))
    assert sentence in str(error.value)


def test_an_unknown_model_is_never_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(BadInput, match=r'Did you mean "Qwen/Qwen2.5-7B'):
        find_shape("Qwen/Qwen2.5-7")
    with pytest.raises(BadInput, match="is not in the catalogue"):
        find_shape("nobody/some-7b-model")


def test_an_unreachable_hub_answers_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that never answers: 10.255.255.1 drops packets."""
    import time

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://10.255.255.1")
    began = time.monotonic()
    with pytest.raises(BadInput, match="the hub"):
        find_shape("nobody/another-7b-model")
    assert time.monotonic() - began < 1.5


def test_families_without_a_row_are_counted() -> None:
    with pytest.raises(UnknownFamily):
        read_shape({"model_type": "mamba"}, "m")


@pytest.mark.filterwarnings("ignore")
def test_modules_are_counted_where_no_closed_form_is_known(tmp_path: Path, monkeypatch: Any) -> None:
    """A hybrid of linear and full attention (qwen3_next), counted by a process of its own, then kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = {
        "model_type": "qwen3_next", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100, "num_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
        "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16,
        "linear_value_head_dim": 16, "head_dim": 16,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    shape = find_shape(str(tmp_path))
    assert shape.params == build(config).num_parameters()
    assert sum(shape.groups.values()) == shape.params
    assert sum(block.count for block in shape.blocks) == 4
    assert list((tmp_path / "cache" / "advisor" / "shapes").glob("*.json"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hidden_size": "4096"}, '"hidden_size" is "4096"; a whole number is needed'),
        ({"hidden_size": 4096.5}, '"hidden_size" is 4096.5; a whole number is needed'),
        ({"vocab_size": True}, '"vocab_size" is true; a whole number is needed'),
        ({"num_hidden_layers": 10**9}, "no model has more than 10,000"),
        ({"num_hidden_layers": 0}, "a positive number is needed"),
        ({"hidden_size": None}, '"hidden_size" is missing'),
        ({"head_dim": "128"}, '"head_dim" is "128"; a whole number is needed'),
        ({"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": [2]}, "a whole number"),
        ({"model_type": "t5"}, "is no causal language model"),
        ({"model_type": "no_such_type"}, "is no causal language model"),
        ({"model_type": "opt", "num_hidden_layers": 10**9}, "no model has more than 10,000"),
    ],
)
def test_configs_that_cannot_be_sized_are_one_quick_sentence(changes: dict[str, Any], says: str) -> None:
    config = {
        "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
        "intermediate_size": 1024, "vocab_size": 1000, **changes,
    }  # fmt: skip
    began = time.monotonic()
    with pytest.raises(BadInput) as error:
        shape_of_config(config, "m")
    assert time.monotonic() - began < 1.5
    assert says in str(error.value)
    assert "class '" not in str(error.value)


def test_the_text_decoder_of_a_multimodal_model() -> None:
    """Qwen2.5-VL-7B's decoder is that of Qwen2.5-7B."""
    text = catalogue()["Qwen/Qwen2.5-7B"]
    whole = {"model_type": "qwen2_5_vl", "text_config": {**text, "model_type": "qwen2_5_vl_text"}}
    assert shape_of_config(whole, "m").params == find_shape("Qwen/Qwen2.5-7B").params


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("targets", ["mlp", ("down_proj", "q_proj")])
def test_adapters_by_module_name_are_those_that_peft_makes(targets: Any) -> None:
    from peft import LoraConfig, get_peft_model

    from estimators.adapters import target_names

    config = {**catalogue()["Qwen/Qwen2.5-0.5B"], "num_hidden_layers": 2}
    shape = read_shape(config, "m")
    modules = target_names(shape, targets)
    adapted = get_peft_model(build(config), LoraConfig(r=8, target_modules=modules, task_type="CAUSAL_LM"))
    assert lora_params(shape, 8, targets) == sum(p.numel() for p in adapted.parameters() if p.requires_grad)

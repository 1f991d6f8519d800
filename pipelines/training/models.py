"""Loading the policy of a stage: the base model, the previous stage's model or adapter, the right reference.

Three ways to start:
  from the base model                          a new adapter where the stage tunes one
  from a full model of the previous stage      likewise
  from an adapter of the previous stage        the adapter goes on; where the stage tunes all weights, it is
                                               merged first
A stage that goes on with an adapter has the previous stage's policy as its reference: TRL keeps a frozen
copy of the adapter under the name "ref" (trl#4723), so the model must not be wrapped again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from estimators.errors import BadInput
from pipelines.stages import Lora, StageConfig

MERGED = "start"
"""Below a stage's folder: the model that it starts from, where an adapter was merged into it."""

ATTENTION_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj"]


def is_adapter(path: Path) -> bool:
    """Whether a folder holds an adapter and not a whole model."""
    return (path / "adapter_config.json").exists()


def resolve_model(name: str, run_dir: Path) -> str:
    """A folder below the run folder as its path, anything else (a hub id, an absolute path) as it is."""
    path = run_dir / name
    return str(path) if path.is_dir() else name


def load_tokenizer(config: StageConfig, run_dir: Path) -> PreTrainedTokenizerBase:
    """The tokenizer that the previous stage saved, or the base model's; it always has a pad token."""
    source = resolve_model(config.start_from or config.base_model, run_dir)
    tokenizer = AutoTokenizer.from_pretrained(source)
    if tokenizer.eos_token_id is None:
        raise BadInput(f"{source}: the tokenizer has no end token, so completions could never end")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_policy(config: StageConfig, run_dir: Path, folder: Path) -> tuple[Any, LoraConfig | None]:
    """The model to train, and the adapter that the trainer must add to it (None where it needs none)."""
    adapter = run_dir / config.start_from if config.start_from else None
    if adapter is not None and not adapter.is_dir():
        raise BadInput(f"{adapter}: the previous stage's model is not there; run that stage first")
    if adapter is not None and is_adapter(adapter):
        base = _load(resolve_model(config.base_model, run_dir), config)
        model = PeftModel.from_pretrained(base, adapter, is_trainable=config.tuning != "full")
        if config.tuning == "full":
            # written down, since a trainer loads its reference from where its model came from
            merged = folder / MERGED
            model.merge_and_unload().save_pretrained(merged)
            return _load(str(merged), config), None
        return model, None
    model = _load(resolve_model(config.start_from or config.base_model, run_dir), config)
    return model, None if config.tuning == "full" else lora_config(config.lora or Lora())


def load_finished(config: StageConfig, run_dir: Path) -> Any:
    """The model of `start_from` (or the base), for evaluation only."""
    source = run_dir / config.start_from if config.start_from else None
    if source is not None and is_adapter(source):
        base = _load(resolve_model(config.base_model, run_dir), config)
        return PeftModel.from_pretrained(base, source)
    return _load(resolve_model(config.start_from or config.base_model, run_dir), config)


def _load(source: str, config: StageConfig) -> Any:
    """A causal language model in the stage's dtype, quantised to NF4 for QLoRA."""
    options: dict[str, Any] = {"dtype": getattr(torch, config.dtype)}
    if config.tuning == "qlora":
        from transformers import BitsAndBytesConfig

        try:
            import bitsandbytes  # noqa: F401
        except ImportError:
            raise BadInput(
                'tuning "qlora" needs bitsandbytes and a GPU: pip install bitsandbytes, or set tuning: lora'
            ) from None
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=getattr(torch, config.dtype),
        )
    try:
        model = AutoModelForCausalLM.from_pretrained(source, **options)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise BadInput(f"the model {source} cannot be loaded: {reason}") from None
    if torch.cuda.is_available():
        model = model.to("cuda") if config.tuning != "qlora" else model
    return model


def lora_config(lora: Lora) -> LoraConfig:
    """PEFT's record for an adapter on attention, on all linear layers, or on named modules."""
    targets: Any = lora.targets
    if targets == "attention":
        targets = ATTENTION_TARGETS
    elif not isinstance(targets, str):
        targets = list(targets)
    return LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=targets,
        task_type="CAUSAL_LM",
    )


def save_policy(model: Any, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write the trained model (an adapter alone where there is one) with its tokenizer.

    The frozen "ref" copy of an adapter is left out: the next stage makes its own.
    """
    options = {"selected_adapters": ["default"]} if isinstance(model, PeftModel) else {}
    model.save_pretrained(folder, **options)
    tokenizer.save_pretrained(folder)

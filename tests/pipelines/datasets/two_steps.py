"""Trains two real TRL steps on each file of the command line; prints FORMAT STEPS LOSS for each.

    python two_steps.py TOKENIZER FORMAT=FILE...

One process for all formats, since importing TRL takes longer than training.
"""

from __future__ import annotations

import math
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")

import torch
from datasets import load_dataset
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

torch.set_num_threads(1)
COMMON: dict[str, Any] = {
    "max_steps": 2,
    "per_device_train_batch_size": 2,
    "use_cpu": True,
    "report_to": [],
    "save_strategy": "no",
    "logging_steps": 1,
    "disable_tqdm": True,
    "bf16": False,
    "seed": 0,
}


def reward(completions: list[Any], **columns: Any) -> list[float]:
    """Needs the gold column that the data carries."""
    gold = next(columns[name] for name in ("answer", "tests", "schema", "tool_calls") if name in columns)
    assert len(gold) == len(completions)
    assert all(value is not None for value in gold)
    return [float(len(str(completion)) % 3) for completion in completions]


def trainer_for(kind: str, model: Any, tokenizer: Any, data: Any, folder: str) -> Any:
    common = {**COMMON, "output_dir": folder}
    if kind.startswith("preference"):
        return DPOTrainer(model, args=DPOConfig(**common), train_dataset=data, processing_class=tokenizer)
    if kind.startswith("prompt_only"):
        sizes = {"num_generations": 2, "max_completion_length": 4, "generation_batch_size": 2}
        args = GRPOConfig(**common, **sizes)
        return GRPOTrainer(
            model, reward_funcs=reward, args=args, train_dataset=data, processing_class=tokenizer
        )
    return SFTTrainer(model, args=SFTConfig(**common), train_dataset=data, processing_class=tokenizer)


def main() -> None:
    tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
    shape = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=2048,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
    )  # fmt: skip
    base = tempfile.mkdtemp()  # DPO loads its reference from where the policy came from
    LlamaForCausalLM(shape).save_pretrained(base)
    for pair in sys.argv[2:]:
        kind, _, file = pair.partition("=")
        with tempfile.TemporaryDirectory() as folder:
            data = load_dataset("json", data_files=file, split="train", cache_dir=str(Path(folder) / "cache"))
            torch.manual_seed(0)
            trainer = trainer_for(kind, LlamaForCausalLM.from_pretrained(base), tokenizer, data, folder)
            trainer.train()
            losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
            assert len(losses) == 2, trainer.state.log_history
            assert all(map(math.isfinite, losses)), losses
            print(kind, trainer.state.global_step, losses[-1], file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    main()

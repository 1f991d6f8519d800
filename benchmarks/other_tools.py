"""Asks other estimators about the rows on stdin. Runs in the environment that holds them:

    python -m venv tools
    tools/bin/pip install fitcheck-llm==0.3.1 canifinetune==0.4.1 tinyforge==0.1.2 ftuneai==0.4.1

Input: a JSON list of {"config": config.json, "shape": {...}, "request": an `advisor estimate` row}. Output: a
JSON object from tool to a list of GiB, null where the tool cannot take the row. Each tool gets what it has a
knob for.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from typing import Any

Row = dict[str, Any]


def fitcheck(row: Row) -> float:
    """fitcheck-llm 0.3.1: the total it prints, MiB."""
    from fitcheck.config_parser import ModelConfig
    from fitcheck.estimator import TrainingConfig, estimate
    from fitcheck.gpu_db import get_gpu

    shape, request = row["shape"], row["request"]
    model = ModelConfig(
        name=request["model"],
        num_params=shape["params"],
        hidden_size=shape["hidden"],
        num_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        num_kv_heads=shape["kv_heads"],
        intermediate_size=shape["ffn"],
        vocab_size=shape["vocab"],
        head_dim=shape["head_dim"],
        tie_word_embeddings=shape["tied"],
    )
    training = TrainingConfig(
        precision=request["weights_dtype"],
        quantization="nf4" if request["tuning"] == "qlora" else "none",
        double_quant=bool(request.get("double_quantisation", False)) and request["tuning"] == "qlora",
        batch_size=request["micro_batch"],
        seq_len=request["max_length"],
        lora_rank=request.get("lora_rank"),
        grad_checkpoint=request["gradient_checkpointing"],
        flash_attn=request["attention"] != "eager",
    )
    return (
        float(
            estimate(
                model, training, get_gpu({"A100 80GB": "a100-80"}.get(request["gpu"], request["gpu"].lower()))
            ).total_mib
        )
        / 1024
    )


def canifinetune(row: Row) -> float:
    """canifinetune 0.4.1: the reserved peak, which is its total without the safety margin it adds."""
    from canifinetune.estimator.memory import EstimateRequest, estimate

    shape, request = row["shape"], row["request"]
    answer = estimate(
        EstimateRequest(
            model_id=request["model"],
            method=request["tuning"],
            seq_len=request["max_length"],
            micro_batch_size=request["micro_batch"],
            base_dtype=request["weights_dtype"],
            quantization="nf4_double_quant" if request.get("double_quantisation", True) else "nf4",
            lora_rank=request.get("lora_rank", 16),
            lora_target_scope="attention" if request.get("lora_targets") == "attention" else "all_linear",
            optimizer="adamw_torch",
            gradient_checkpointing=request["gradient_checkpointing"],
            attention_implementation="flash_attention_2"
            if request["attention"] == "flash"
            else request["attention"],
            gpu_vram_gb=row["vram_gib"],
            use_network=False,
            override={
                "hidden_size": shape["hidden"],
                "num_hidden_layers": shape["layers"],
                "num_attention_heads": shape["heads"],
                "num_key_value_heads": shape["kv_heads"],
                "intermediate_size": shape["ffn"],
                "vocab_size": shape["vocab"],
                "tie_word_embeddings": shape["tied"],
                "total_params": shape["params"],
                "family": row["config"]["model_type"],
            },
        )
    )
    return float(answer.memory.total_estimated_gb - answer.memory.safety_margin_gb)


class Stub(types.ModuleType):
    """Stands for torch, which tinyforge imports and its arithmetic does not use."""

    __path__: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub(name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return lambda function: function

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (object,)


def tinyforge(row: Row) -> float:
    """tinyforge 0.1.2: `estimate_vram_gb` of its fine-tuning module, with the loss that the row used."""
    for name in ("torch", "torch.nn", "torch.nn.functional", "torch.utils", "torch.utils.checkpoint"):
        sys.modules.setdefault(name, Stub(name))
    from tinyforge.finetune import FTConfig, estimate_vram_gb

    shape, request = row["shape"], row["request"]
    config = FTConfig.model_construct(
        lora_r=request.get("lora_rank", 16), max_len=request["max_length"], ce_chunk=2048, chunked_ce=False
    )
    if request["tuning"] == "full":
        raise ValueError("it knows LoRA only")
    described = {**shape, "linear_dims": row["target_dims"]}
    quant = "4bit" if request["tuning"] == "qlora" else "none"
    checkpointing = request["gradient_checkpointing"]
    return float(estimate_vram_gb(described, config, quant, checkpointing, request["micro_batch"]))


def ftuneai(row: Row) -> float:
    """ftuneai 0.4.1: total of its memory estimator, on the given shape."""
    import ftuneai.estimator as module
    from ftuneai.core.models import ModelSpec

    shape, request = row["shape"], row["request"]
    spec = ModelSpec(
        name=request["model"],
        parameters=shape["params"],
        hidden_size=shape["hidden"],
        num_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        num_kv_heads=shape["kv_heads"],
        intermediate_size=shape["ffn"],
        vocab_size=shape["vocab"],
        max_seq_length=131072,
    )
    known = module.get_model
    module.get_model = lambda name: spec
    try:
        estimator = module.Estimator(
            model=request["model"],
            method=request["tuning"],
            quantization="4bit" if request["tuning"] == "qlora" else "none",
            batch_size=request["micro_batch"],
            seq_length=request["max_length"],
            gradient_checkpointing=request["gradient_checkpointing"],
            lora_rank=request.get("lora_rank", 16),
            lora_target="attention_all" if request.get("lora_targets") == "attention" else "all_linear",
            flash_attention=request["attention"] != "eager",
        )
        return float(estimator.estimate_memory().total_gb)
    finally:
        module.get_model = known


TOOLS: dict[str, Callable[[Row], float]] = {
    "fitcheck-llm": fitcheck,
    "canifinetune": canifinetune,
    "tinyforge": tinyforge,
    "ftuneai": ftuneai,
}


def main() -> None:
    rows = json.load(sys.stdin)
    answers: dict[str, list[float | None]] = {}
    for name, ask in TOOLS.items():
        answers[name] = []
        for row in rows:
            try:
                answers[name].append(ask(row))
            except Exception as error:
                print(f"{name}: {row['request']['model']}: {type(error).__name__}: {error}", file=sys.stderr)
                answers[name].append(None)
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()

"""Counting a model's real modules on the meta device, for architectures without a closed form.

`python -m estimators.counting` reads a config on stdin and prints a shape: it builds the model with
transformers, without weights, in a process of its own, so that nobody else imports torch. The answer is kept
in the user's cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from estimators.errors import BadInput
from estimators.families import FAMILIES
from estimators.models import cache_folder
from estimators.record import nearest, validate, write_atomic
from estimators.shapes import Block, Linear, ModelShape

TIMEOUT_SECONDS = 180


def count_modules(config: Mapping[str, Any], name: str) -> ModelShape:
    """The shape of any causal model that the installed transformers can build; about 10 s the first time."""
    text = json.dumps(config, sort_keys=True)
    kept = cache_folder() / "shapes" / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
    try:
        shape = ModelShape.model_validate_json(kept.read_text(encoding="utf-8"))
        return shape.model_copy(update={"name": name})
    except (OSError, ValueError):
        pass
    _refuse_absurd(config, name)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "estimators.counting"],
            input=text, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, env=environment, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise BadInput(f"{name}: building the model took more than {TIMEOUT_SECONDS} s") from None
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no reason given"
        raise BadInput(
            f'{name}: model type "{config.get("model_type")}" has no closed form here, and transformers '
            f"cannot build it from this config ({_plain(reason)}); compare it with the model's own"
        )
    shape = validate(ModelShape, json.loads(done.stdout.splitlines()[-1]), name)
    with contextlib.suppress(BadInput):  # a cache that cannot be written costs the same seconds again
        write_atomic(kept, shape.model_dump_json())
    return shape.model_copy(update={"name": name})


def _refuse_absurd(config: Mapping[str, Any], name: str) -> None:
    """Sizes that would take minutes to build, and model types that transformers has no causal model for: said
    at once, without importing transformers."""
    for keys, most in (("num_hidden_layers n_layer num_layers", 10_000), ("num_experts", 100_000)):
        for key in keys.split():
            value = config.get(key)
            if isinstance(value, int) and value > most:
                raise BadInput(f'{name}: "{key}" is {value}; no model has more than {most:,}')
    known = causal_types()
    model_type = str(config.get("model_type"))
    if known and model_type not in known:
        near = nearest(model_type, [*known, *FAMILIES])
        hint = f'; the nearest that is known is "{near}"' if near else ""
        raise BadInput(
            f'{name}: "{model_type}" is no causal language model of the installed transformers{hint}. Text '
            "decoders are sized: of a multimodal model give its text_config; for a newer one upgrade "
            "transformers"
        )


@cache
def causal_types() -> frozenset[str]:
    """The model types that transformers' AutoModelForCausalLM builds, read from its source; empty where that
    cannot be read."""
    found = importlib.util.find_spec("transformers")
    if found is None or not found.origin:
        return frozenset()
    path = Path(found.origin).parent / "models" / "auto" / "modeling_auto.py"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return frozenset()
    part = text.partition("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES")[2].partition("\n)")[0]
    return frozenset(re.findall(r'^\s+\("([^"]+)",', part, re.MULTILINE))


def _plain(reason: str) -> str:
    """The last line of a Python error without class names and addresses."""
    text = re.sub(r"<class '([\w.]+)'>", lambda match: match.group(1).rpartition(".")[2], reason)
    text = re.sub(r"^\w*(?:Error|Exception):\s*", "", text)
    return text if len(text) <= 160 else f"{text[:157]}..."


def count(config: dict[str, Any]) -> ModelShape:
    """Builds the model on the meta device and reads its modules. Imports torch and transformers."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    values = dict(config)
    model_type = str(values.pop("model_type"))
    if model_type not in CONFIG_MAPPING:
        raise ValueError(f"transformers knows no model type {model_type}")
    built = CONFIG_MAPPING[model_type](**values)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(built)
    text = built.get_text_config()
    hidden, num_layers = int(text.hidden_size), int(text.num_hidden_layers)
    layers = _decoder_layers(model, num_layers)
    counted: dict[Block, int] = {}
    for layer in layers:
        block = _read_block(layer, text)
        counted[block] = counted.get(block, 0) + 1
    blocks = tuple(block.model_copy(update={"count": number}) for block, number in counted.items())
    embedding = model.get_input_embeddings().weight
    head = model.get_output_embeddings()
    tied = head is None or head.weight is embedding
    shape = ModelShape(
        name=model_type,
        model_type=model_type,
        hidden=hidden,
        vocab=int(embedding.shape[0]),
        tied=tied,
        blocks=blocks,
        embedding_width=int(embedding.shape[1]) if embedding.shape[1] != hidden else 0,
        head_bias=head is not None and getattr(head, "bias", None) is not None,
        final_norm_params=hidden,
        max_positions=int(getattr(text, "max_position_embeddings", 0) or 0),
        source="modules counted on the meta device",
    )
    rest = int(model.num_parameters()) - shape.params
    if rest < 0:
        shape = shape.model_copy(update={"final_norm_params": 0})
        rest = int(model.num_parameters()) - shape.params
    return ModelShape.model_validate({**shape.model_dump(), "other_params": rest})


def _decoder_layers(model: Any, num_layers: int) -> list[Any]:
    """The list of decoder layers: of that length, and with the most parameters."""
    import torch

    lists: list[Any] = [
        m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == num_layers
    ]
    if not lists:
        raise ValueError(f"no list of {num_layers} decoder layers was found")
    largest: Any = max(lists, key=lambda m: sum(p.numel() for p in m.parameters()))
    return list(largest)


MATCHES = {"q": "qkv", "k": "qkv", "v": "qkv", "qkv": "qkv", "o": "out", "out": "out", "dense": "out",
           "down": "down", "w2": "down", "fc2": "down", "c": "down"}  # fmt: skip


def _read_block(layer: Any, text: Any) -> Block:
    """One layer's matrices by where they lie, its experts, and everything else as `other_params`."""
    import torch

    attention: list[Linear] = []
    feed_forward: list[Linear] = []
    experts = norms = num_norms = router = num_experts = expert_width = 0
    for path, module in layer.named_modules():
        in_attention = any(word in path.lower() for word in ("attn", "attention", "mixer", "conv", "ssm"))
        if isinstance(module, torch.nn.Linear):
            leaf = path.rsplit(".", 1)[-1]
            group = MATCHES.get(leaf.split("_")[0], leaf if in_attention else "gate-up")
            outputs, inputs = module.weight.shape
            linear = Linear(
                name=leaf,
                inputs=int(inputs),
                outputs=int(outputs),
                bias=module.bias is not None,
                matches=group,
            )
            (attention if in_attention else feed_forward).append(linear)
        elif "norm" in type(module).__name__.lower():
            own = sum(p.numel() for p in module.parameters(recurse=False))
            norms += own
            num_norms += own >= int(text.hidden_size)
        for parameter in module.parameters(recurse=False):
            if parameter.dim() == 3 and not isinstance(module, torch.nn.Conv1d):
                experts += parameter.numel()
                num_experts = int(parameter.shape[0])
                expert_width = max(expert_width, min(int(parameter.shape[1]), int(parameter.shape[2])))
    heads = int(getattr(text, "num_attention_heads", 0) or 0)
    kv_heads = int(getattr(text, "num_key_value_heads", 0) or heads)
    head_dim = int(getattr(text, "head_dim", 0) or (int(text.hidden_size) // heads if heads else 0))
    known = sum(linear.params for linear in (*attention, *feed_forward)) + experts + norms
    ffn = max((linear.outputs for linear in feed_forward if linear.matches == "gate-up"), default=0)
    names = {linear.name for linear in attention}
    recurrent = not any(name.startswith(("q_", "k_", "qkv", "kv_", "query")) for name in names)
    active = int(getattr(text, "num_experts_per_tok", 0) or 0) if num_experts else 0
    return Block(
        count=1,
        mixer="recurrent" if recurrent else "attention",
        q_width=heads * head_dim,
        k_width=kv_heads * head_dim,
        v_width=kv_heads * head_dim,
        out_width=heads * head_dim,
        heads=heads,
        kv_heads=kv_heads,
        attention=tuple(attention),
        feed_forward=tuple(feed_forward),
        ffn_width=ffn,
        gated=sum(linear.matches == "gate-up" for linear in feed_forward) > 1,
        num_experts=num_experts,
        experts_per_token=active,
        expert_width=expert_width,
        expert_params=experts,
        router_params=router,
        norm_params=norms,
        num_norms=max(1, num_norms),
        other_params=sum(p.numel() for p in layer.parameters()) - known,
    )


def main() -> None:
    import logging
    import warnings

    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    try:
        shape = count(json.loads(sys.stdin.read()))
    except Exception as error:
        sys.stderr.write(f"{type(error).__name__}: {str(error).splitlines()[0]}\n")
        raise SystemExit(1) from None
    sys.stdout.write(shape.model_dump_json() + "\n")


if __name__ == "__main__":
    main()

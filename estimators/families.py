"""From a `config.json` to a ModelShape, for the decoder families whose layers are written down here.

A family is a row of differences from Llama. A `model_type` that has no row is not guessed: `read_shape`
raises UnknownFamily, and `estimators.models` then counts the real modules on the meta device in a subprocess.
Source of every row: the modeling file of that name in transformers 5.24.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from estimators.errors import BadInput
from estimators.record import Record
from estimators.shapes import Block, Linear, ModelShape


class UnknownFamily(BadInput):
    """No row for this `model_type`; the modules themselves have to be counted."""


class Family(Record):
    """How a family's decoder layer differs from Llama's."""

    norms: int = 2
    """Norms over the hidden size in one layer."""
    norm: Literal["rms", "layer", "layer-no-bias", "none"] = "rms"
    qk_norm: Literal["none", "head", "width", "use_qk_norm"] = "none"
    qkv_bias: bool | str = "attention_bias"
    """True, False, or the key of the config that says so."""
    out_bias: bool | str = "attention_bias"
    mlp_bias: bool | str = "mlp_bias"
    gated: bool = True
    fused_qkv: str = ""
    fused_gate_up: str = ""
    out_name: str = "o_proj"
    up_name: str = "up_proj"
    down_name: str = "down_proj"
    moe: bool = False
    adapted_experts: bool = False
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    sinks: bool = False
    positions: bool = False
    head_bias: bool = False
    head_dim_default: int = 0
    tied_default: bool = False
    sdpa: bool = True
    narrow_softmax: bool = False
    capped_scores: bool = False
    parallel: bool = False
    """Attention and feed-forward read one norm's output."""


LLAMA = Family()
GEMMA2 = Family(
    sdpa=False, capped_scores=True, norms=4, tied_default=True, mlp_bias=False, head_dim_default=256
)
LAYER_NORM = {"norm": "layer", "qkv_bias": True, "out_bias": True, "mlp_bias": True}
GPT2 = Family(
    **LAYER_NORM, gated=False, fused_qkv="c_attn", out_name="c_proj", up_name="c_fc", down_name="c_proj",
    positions=True, tied_default=True,
)  # fmt: skip

FAMILIES: dict[str, Family] = {
    "llama": LLAMA,
    "mistral": Family(qkv_bias=False, out_bias=False, mlp_bias=False),
    "ministral": Family(qkv_bias=False, out_bias=False, mlp_bias=False),
    "qwen2": Family(qkv_bias=True, out_bias=False, mlp_bias=False),
    "qwen3": Family(qk_norm="head", mlp_bias=False, head_dim_default=128),
    "qwen2_moe": Family(qkv_bias="qkv_bias", out_bias=False, mlp_bias=False, moe=True, shared_gate=True),
    "qwen3_moe": Family(qk_norm="head", mlp_bias=False, moe=True, adapted_experts=True),
    "mixtral": Family(qkv_bias=False, out_bias=False, mlp_bias=False, moe=True, adapted_experts=True),
    "olmoe": Family(qk_norm="width", mlp_bias=False, moe=True, adapted_experts=True),
    "gpt_oss": Family(
        qkv_bias=True, out_bias=True, mlp_bias=False, moe=True, router_bias=True, expert_bias=True,
        sinks=True, sdpa=False, narrow_softmax=True,
    ),
    "glm4_moe": Family(qk_norm="use_qk_norm", out_bias=False, mlp_bias=False, moe=True, adapted_experts=True),
    "granitemoe": Family(mlp_bias=False, moe=True, tied_default=False),
    "gemma": Family(tied_default=True, mlp_bias=False, head_dim_default=256),
    "gemma2": GEMMA2,
    "gemma3_text": Family(norms=4, qk_norm="head", tied_default=True, mlp_bias=False, head_dim_default=256),
    "smollm3": LLAMA,
    "granite": LLAMA,
    "arcee": Family(gated=False),
    "seed_oss": Family(out_bias="attention_out_bias", qkv_bias="attention_bias"),
    "exaone4": Family(qk_norm="head", qkv_bias=False, out_bias=False, mlp_bias=False),
    "ernie4_5": Family(qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias"),
    "hunyuan_v1_dense": Family(qk_norm="head"),
    "olmo": Family(norm="none", mlp_bias=False),
    "olmo2": Family(qk_norm="width", mlp_bias=False),
    "olmo3": Family(qk_norm="width", mlp_bias=False),
    "cohere": Family(norms=1, norm="layer-no-bias", mlp_bias=False, tied_default=True, parallel=True),
    "cohere2": Family(norms=1, norm="layer-no-bias", mlp_bias=False, tied_default=True, parallel=True),
    "phi3": Family(
        qkv_bias=False, out_bias=False, mlp_bias=False, fused_qkv="qkv_proj", fused_gate_up="gate_up_proj"
    ),
    "glm4": Family(norms=4, out_bias=False, mlp_bias=False, fused_gate_up="gate_up_proj"),
    "glm": Family(out_bias=False, mlp_bias=False, fused_gate_up="gate_up_proj"),
    "stablelm": Family(norm="layer", qkv_bias="use_qkv_bias", out_bias=False, mlp_bias=False),
    "starcoder2": Family(
        norm="layer", qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias", gated=False,
        up_name="c_fc", down_name="c_proj", tied_default=True,
    ),
    "phi": Family(
        **LAYER_NORM, norms=1, gated=False, out_name="dense", up_name="fc1", down_name="fc2", head_bias=True,
        parallel=True,
    ),
    "gpt_neox": Family(
        norm="layer", qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias=True, gated=False,
        fused_qkv="query_key_value", out_name="dense", up_name="dense_h_to_4h", down_name="dense_4h_to_h",
        parallel=True,
    ),
    "gpt2": GPT2,
    "gpt_bigcode": GPT2,
}  # fmt: skip

DEFAULT_TRUE = {("gpt_neox", "attention_bias"), ("starcoder2", "use_bias"), ("qwen2_moe", "qkv_bias"),
                ("seed_oss", "attention_bias")}  # fmt: skip
"""Switches that transformers turns on where the config does not name them."""

KEYS: dict[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads",),
    "ffn": ("intermediate_size", "n_inner", "ffn_dim"),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts"),
    "positions": ("max_position_embeddings", "n_positions"),
    "vocab": ("vocab_size",),
}

MOST = {
    "hidden": 1_000_000, "layers": 10_000, "heads": 100_000, "kv_heads": 100_000, "ffn": 100_000_000,
    "experts": 100_000, "positions": 1_000_000_000, "vocab": 100_000_000,
}  # fmt: skip
"""Beyond this a number of a config is a mistake, and not worth the minutes that its layers would take."""


def read_shape(config: Mapping[str, Any], name: str) -> ModelShape:
    """The shape that a transformers config describes.

    A multimodal config is read as its text decoder, which is what text post-training runs through; its vision
    tower is counted only by `estimators.models`. Raises BadInput for a missing key, UnknownFamily for a
    `model_type` without a row.
    """
    model_type = str(config.get("model_type") or "")
    if not model_type:
        raise BadInput(f'{name}: "model_type" is missing; this is no config.json of transformers')
    if model_type not in FAMILIES:
        raise UnknownFamily(f'{name}: model type "{model_type}" has no closed form here')
    family = FAMILIES[model_type]
    reader = _Reader(config, name, model_type)
    hidden, layers = reader.number("hidden"), reader.number("layers")
    blocks = _blocks(family, reader, hidden, layers)
    norm_width = {"rms": hidden, "layer": 2 * hidden, "layer-no-bias": hidden, "none": 0}[family.norm]
    positions = reader.number("positions", 0)
    return ModelShape(
        name=name,
        model_type=model_type,
        hidden=hidden,
        vocab=reader.number("vocab"),
        tied=bool(config.get("tie_word_embeddings", family.tied_default)),
        blocks=blocks,
        position_params=positions * hidden if family.positions else 0,
        head_bias=family.head_bias,
        final_norm_params=norm_width,
        max_positions=positions,
        norm="rms" if family.norm == "rms" else "layer",
        sdpa=family.sdpa,
        narrow_softmax=family.narrow_softmax,
        capped_scores=family.capped_scores,
        source=f"closed form of the {model_type} family",
    )


def _blocks(family: Family, reader: _Reader, hidden: int, layers: int) -> tuple[Block, ...]:
    """The distinct decoder layers with their counts, in the order of their first appearance."""
    counted: dict[Block, int] = {}
    for index in range(layers):
        block = _block(family, reader, hidden, index, layers)
        counted[block] = counted.get(block, 0) + 1
    return tuple(block.model_copy(update={"count": count}) for block, count in counted.items())


def _block(family: Family, reader: _Reader, hidden: int, index: int, layers: int) -> Block:
    """Decoder layer number `index`; layers of a model differ in window and in dense against experts."""
    cache = reader.cache
    key = (reader.window(index, layers), reader.is_sparse(family, index))
    if key not in cache:
        cache[key] = _build_block(family, reader, hidden, *key)
    return cache[key]


def _build_block(family: Family, reader: _Reader, hidden: int, window: int | None, sparse: bool) -> Block:
    heads = reader.number("heads")
    kv_heads = reader.number("kv_heads", 1 if reader.shares_keys() else heads)
    head_dim = reader.count("head_dim") or family.head_dim_default or hidden // heads
    q, k = heads * head_dim, kv_heads * head_dim
    qkv_bias, out_bias = reader.switch(family.qkv_bias), reader.switch(family.out_bias)
    if family.fused_qkv:
        attention = [
            Linear(name=family.fused_qkv, inputs=hidden, outputs=q + 2 * k, bias=qkv_bias, matches="qkv")
        ]
    else:
        attention = [
            Linear(name=name, inputs=hidden, outputs=width, bias=qkv_bias, matches="qkv")
            for name, width in (("q_proj", q), ("k_proj", k), ("v_proj", k))
        ]
    attention.append(Linear(name=family.out_name, inputs=q, outputs=hidden, bias=out_bias, matches="out"))

    experts = reader.number("experts", 0) if sparse else 0
    if sparse:
        ffn = reader.shared_width()
        expert_width = reader.count("moe_intermediate_size") or reader.count("intermediate_size")
    else:
        ffn, expert_width = reader.number("ffn", 4 * hidden), 0
    feed_forward = _feed_forward(family, hidden, ffn, reader.switch(family.mlp_bias)) if ffn else []
    if sparse and ffn and family.shared_gate:
        feed_forward.append(Linear(name="shared_expert_gate", inputs=hidden, outputs=1, matches="gate-up"))

    per_norm = {"rms": hidden, "layer": 2 * hidden, "layer-no-bias": hidden, "none": 0}[family.norm]
    qk_norm = family.qk_norm
    if qk_norm == "use_qk_norm":
        qk_norm = "head" if reader.config.get("use_qk_norm") else "none"
    qk_params = {"none": 0, "head": 2 * head_dim, "width": q + k}[qk_norm]
    expert_params = experts * (3 * hidden * expert_width)
    if family.expert_bias:
        expert_params += experts * (2 * expert_width + hidden)
    return Block(
        count=1,
        q_width=q,
        k_width=k,
        v_width=k,
        out_width=q,
        heads=heads,
        kv_heads=kv_heads,
        window=window,
        attention=tuple(attention),
        feed_forward=tuple(feed_forward),
        ffn_width=ffn,
        gated=family.gated,
        python_gelu=reader.activation() in ("gelu_new", "gelu_fast"),
        adapted_experts=family.adapted_experts,
        num_experts=experts,
        experts_per_token=(
            reader.count("num_experts_per_tok") or reader.count("experts_per_token")
        ) if sparse else 0,
        expert_width=expert_width,
        expert_params=expert_params,
        router_params=experts * (hidden + (1 if family.router_bias else 0)),
        norm_params=family.norms * per_norm + qk_params,
        num_norms=family.norms,
        qk_norm=qk_norm != "none",
        other_params=heads if family.sinks else 0,
    )  # fmt: skip


def _feed_forward(family: Family, hidden: int, width: int, bias: bool) -> list[Linear]:
    down = Linear(name=family.down_name, inputs=width, outputs=hidden, bias=bias, matches="down")
    if family.fused_gate_up:
        fused = Linear(
            name=family.fused_gate_up, inputs=hidden, outputs=2 * width, bias=bias, matches="gate-up"
        )
        return [fused, down]
    up = Linear(name=family.up_name, inputs=hidden, outputs=width, bias=bias, matches="gate-up")
    if not family.gated:
        return [up, down]
    return [Linear(name="gate_proj", inputs=hidden, outputs=width, bias=bias, matches="gate-up"), up, down]


class _Reader:
    """Reads one config under the several names that families give to the same number."""

    def __init__(self, config: Mapping[str, Any], name: str, model_type: str) -> None:
        self.config = config
        self.name = name
        self.model_type = model_type
        self.cache: dict[tuple[int | None, bool], Block] = {}

    def missing(self, key: str) -> int:
        raise BadInput(f'{self.name}: "{key}" is missing from the config of a {self.model_type} model')

    def number(self, what: str, default: int | None = None) -> int:
        for key in KEYS[what]:
            value = self.config.get(key)
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool):
                raise BadInput(f'{self.name}: "{key}" is {json.dumps(value)}; a whole number is needed')
            if value <= 0 and what != "experts":
                raise BadInput(f'{self.name}: "{key}" is {value}; a positive number is needed')
            if value > MOST[what]:
                raise BadInput(f'{self.name}: "{key}" is {value}; no model has more than {MOST[what]:,}')
            return value
        if default is not None:
            return default
        return self.missing(KEYS[what][0])

    def count(self, key: str, default: int = 0) -> int:
        """A whole number that may be left out; BadInput for anything else."""
        value = self.config.get(key)
        if value is None or value is False:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST["ffn"]:
            raise BadInput(f'{self.name}: "{key}" is {json.dumps(value)}; a whole number is needed')
        return value

    def activation(self) -> str:
        default = {"phi": "gelu_new", "gpt2": "gelu_new"}.get(self.model_type, "")
        return str(self.config.get("hidden_act") or self.config.get("activation_function") or default)

    def switch(self, rule: bool | str) -> bool:
        if isinstance(rule, bool):
            return rule
        return bool(self.config.get(rule, (self.model_type, rule) in DEFAULT_TRUE))

    def window(self, index: int, layers: int) -> int | None:
        """The sliding window of layer `index`; None where the layer attends to everything."""
        window = self.config.get("sliding_window")
        if not isinstance(window, int) or window <= 0:
            return None
        kinds = self.config.get("layer_types")
        if isinstance(kinds, list) and len(kinds) == layers:
            return window if "sliding" in str(kinds[index]) else None
        if self.model_type in ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"):
            used = self.config.get("use_sliding_window") and index >= self.count("max_window_layers", 28)
            return window if used else None
        if self.model_type == "gemma2":
            return window if index % 2 == 0 else None
        if self.model_type == "gemma3_text":
            return window if (index + 1) % (self.count("sliding_window_pattern") or 6) else None
        if self.model_type in ("cohere2", "olmo3"):
            return window if (index + 1) % (self.count("sliding_window_pattern") or 4) else None
        if self.model_type == "gpt_oss":
            return window if index % 2 == 0 else None
        return window if self.model_type in ("mistral", "mixtral", "phi3", "starcoder2") else None

    def shares_keys(self) -> bool:
        """Whether all query heads share one key and value head (multi-query attention)."""
        return self.model_type == "gpt_bigcode" and bool(self.config.get("multi_query", True))

    def is_sparse(self, family: Family, index: int) -> bool:
        """Whether layer `index` is a mixture of experts."""
        if not family.moe or not self.number("experts", 0):
            return False
        dense = self.config.get("mlp_only_layers")
        if isinstance(dense, list) and index in dense:
            return False
        if index < self.count("first_k_dense_replace"):
            return False
        return (index + 1) % (self.count("decoder_sparse_step") or 1) == 0

    def shared_width(self) -> int:
        """Width of the experts that every token passes through."""
        shared = self.count("shared_expert_intermediate_size")
        return shared or self.count("n_shared_experts") * self.count("moe_intermediate_size")

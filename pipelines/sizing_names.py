"""What other tools call the things that are sized: spellings that are taken, and hints for the others.

Source: the keys and values of TRL, PEFT, Axolotl, LLaMA-Factory, DeepSpeed, FSDP and Lightning.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable

from estimators.record import nearest

Names = dict[str, str]


def _rows(**rows: str) -> Names:
    """name elsewhere -> name here, from one line of names per name here (`_` stands for `-`)."""
    return {alias: name for name, aliases in rows.items() for alias in aliases.split()}


_DTYPES = _rows(
    fp32="float32 float fp32-true 32-true 32 torch.float32 torch.float full f32",
    bf16="bfloat16 bf16-true torch.bfloat16",
    fp16="float16 half fp16-true 16-true 16 torch.float16 torch.half f16",
)

VALUES: dict[str, Names] = {
    "tuning": {
        **_rows(
            full="full-finetune full_finetune full_finetuning full-finetuning fft fullft full-parameter all",
            qlora="4bit qlora-4bit lora-4bit nf4 q-lora bnb-4bit",
            lora="peft low-rank",
        ),
    },
    "weights_dtype": _DTYPES,
    "adapter_dtype": _DTYPES,
    "precision": {**_DTYPES, "no": "none", "tf32": "fp32", "off": "none", "amp": "fp16"},
    "attention": _rows(
        flash="flash_attention_2 flash_attention_3 flash-attention-2 flash_attention flash-attention "
        "flash-attn flash_attn flash2 fa2 fa3 fa flash_attention_4 "
        "kernels-community/flash-attn kernels-community/flash-attn2 kernels-community/flash-attn3 "
        "kernels-community/vllm-flash-attn3",
        sdpa="flex_attention flex mem_efficient memory_efficient xformers torch torch_sdpa",
        eager="math naive none",
    ),
    "sharding": {
        **_rows(
            none="ddp no no_shard off false single",
            zero1="zero-1 zero_1 stage1 stage_1 stage-1 deepspeed_zero1 ds_zero1 deepspeed-zero1 1",
            zero2="zero-2 zero_2 stage2 stage_2 stage-2 deepspeed_zero2 ds_zero2 deepspeed-zero2 2 "
            "shard_grad_op",
            zero3="zero-3 zero_3 stage3 stage_3 stage-3 deepspeed_zero3 ds_zero3 deepspeed-zero3 3 deepspeed",
            fsdp="fsdp2 fsdp1 full_shard full-shard fully_shard",
        ),
    },
    "loss": {
        "full": "full-logits", "full_logits": "full-logits", "hf": "full-logits", "default": "auto",
        "chunked_nll": "chunked", "nll": "auto", "liger_kernel": "liger", "liger-kernel": "liger",
        "fused_linear_cross_entropy": "liger", "cut_cross_entropy": "cce", "cut-cross-entropy": "cce",
    },
    "rollouts": {
        "vllm": "vllm-colocate", "colocate": "vllm-colocate", "vllm_colocate": "vllm-colocate",
        "server": "vllm-server", "vllm_server": "vllm-server", "generate": "hf", "transformers": "hf",
    },
    "reference": {"adapter_off": "adapter-off", "precompute": "precomputed", "off": "none", "no": "none"},
    "method": _rows(
        sft="sfttrainer supervised finetune finetuning fine-tuning supervised-fine-tuning",
        dpo="dpotrainer ipo",
        kto="ktotrainer",
        grpo="grpotrainer gspo cispo dr_grpo dr-grpo drgrpo bnpo",
        rloo="rlootrainer",
    ),
}  # fmt: skip
"""Field -> spelling in lower case -> what it is here."""

SAYS: dict[tuple[str, str], str] = {
    ("method", "ppo"): 'PPO also holds a value and a reward model and is not sized; "rloo" is the nearest',
    ("method", "orpo"): 'ORPO has DPO\'s two sequences and no reference: "dpo" with reference "none"',
    ("method", "simpo"): 'SimPO has DPO\'s two sequences and no reference: "dpo" with reference "none"',
    ("method", "cpo"): 'CPO has DPO\'s two sequences and no reference: "dpo" with reference "none"',
    ("tuning", "8bit"): 'weights in 8 bits are not sized; "qlora" has them in 4, "lora" in 16',
    ("tuning", "dora"): 'DoRA is not sized; "lora" is the nearest, and smaller',
    ("tuning", "freeze"): 'freezing layers is not sized; "full" is the upper bound',
}
"""What to say of a value that has no equal here. The same sentence answers for ORPO's kin."""
for _narrow in ("4bit", "nf4", "int4", "8bit", "int8", "fp8"):
    SAYS["weights_dtype", _narrow] = 'only 4 bits are sized, as tuning "qlora"; else fp32, bf16 or fp16'

_KEYS: Names = _rows(
    model="model_name model_name_or_path base_model model_id model_path pretrained_model_name_or_path "
    "base_model_name hf_model checkpoint model_id_or_path",
    method="stage trainer trainer_type algorithm algo rl train_type training_type task method_name",
    tuning="finetuning_type adapter use_peft peft peft_type finetune_type quantization_bit quantization "
    "lora use_lora qlora use_qlora full_finetune",
    lora_rank="r lora_r rank peft_r adapter_rank",
    lora_targets="target_modules lora_target lora_target_modules targets lora_modules lora_target_linear",
    weights_dtype="torch_dtype dtype model_dtype param_dtype weight_dtype weights_precision",
    adapter_dtype="lora_dtype autocast_adapter_dtype pure_bf16",
    loss="loss_implementation cross_entropy loss_impl ce_loss",
    max_length="max_seq_length max_seq_len seq_len seq_length sequence_length sequence_len cutoff_len "
    "context_length block_size model_max_length seqlen tokens max_tokens",
    max_prompt_length="prompt_length max_prompt_len prompt_len max_prompt_tokens",
    max_completion_length="completion_length max_new_tokens max_completion_len max_response_length "
    "response_length max_target_length max_completion_tokens",
    micro_batch="per_device_train_batch_size batch_size micro_batch_size train_batch_size "
    "per_device_batch_size per_gpu_train_batch_size micro_batch_size_per_gpu mbs bs device_batch_size",
    gradient_accumulation="gradient_accumulation_steps grad_accum grad_accum_steps accumulate_grad_batches "
    "accumulation_steps gas grad_accumulation",
    num_generations="group_size n_samples num_samples num_rollouts rollout_n n_rollouts "
    "num_return_sequences generations g",
    steps="max_steps num_steps train_steps total_steps training_steps",
    gradient_checkpointing="grad_ckpt grad_checkpointing activation_checkpointing checkpointing "
    "use_gradient_checkpointing gradient_checkpointing_kwargs recompute activation_recompute",
    precision="bf16 fp16 mixed_precision amp autocast compute_dtype bnb_4bit_compute_dtype",
    optimizer="optim optimizer_name optim_type optimizer_type optimiser",
    sharding="deepspeed fsdp zero_stage zero ds_stage deepspeed_stage fsdp_config parallelism strategy "
    "sharding_strategy distributed",
    num_gpus="n_gpus gpus gpu_count world_size num_processes nproc_per_node n_gpu ngpus devices num_devices "
    "data_parallel_size dp",
    attention="attn_implementation flash_attention flash_attn use_flash_attention_2 attn attention_impl "
    "flash_attention_2 use_flash_attn attn_impl",
    rollouts="use_vllm vllm_mode rollout generation_backend rollout_engine",
    vllm_memory_utilization="vllm_gpu_memory_utilization gpu_memory_utilization vllm_utilization",
    vllm_enable_sleep_mode="vllm_sleep sleep_mode enable_sleep_mode",
    gpu="gpu_name gpu_type device hardware accelerator card gpu_model",
    gpu_memory_gib="gpu_memory gpu_memory_gb vram vram_gb memory_gb gpu_mem vram_gib memory_gib gpu_vram_gb",
    kbit_prepared="prepare_model_for_kbit_training prepare_kbit",
    double_quantisation="bnb_4bit_use_double_quant double_quant use_double_quant double_quantization "
    "use_nested_quant bnb_double_quant",
    reference="precompute_ref_log_probs ref_model reference_model reference_free",
    beta="kl_coef kl_beta pref_beta dpo_beta rl_beta",
    eval_batch="per_device_eval_batch_size eval_batch_size",
    steps_per_generation="generation_batch_size num_iterations",
    dynamic_sampling_rate="dynamic_sampling",
    mean_length="avg_length average_length mean_tokens",
)
"""Key elsewhere -> key here."""

_WITH_VALUE: Names = {
    "load_in_4bit": "tuning: qlora",
    "use_liger_kernel": "loss: liger",
    "liger_kernel": "loss: liger",
    "use_vllm": "rollouts: vllm-colocate",
    "fp16": "precision: fp16",
    "bf16": "precision: bf16",
    "precompute_ref_log_probs": "reference: precomputed",
    "use_lora": "tuning: lora",
    "use_peft": "tuning: lora",
    "use_qlora": "tuning: qlora",
    "reference_free": "reference: none",
}

_NO_EFFECT = _rows(
    none="learning_rate lr lr_scheduler_type lr_scheduler warmup_steps warmup_ratio weight_decay seed "
    "lora_alpha alpha lora_dropout dropout logging_steps save_steps eval_steps output_dir temperature "
    "top_p top_k report_to run_name max_grad_norm dataset dataset_name adam_beta1 adam_beta2 adam_epsilon "
    "bias save_strategy eval_strategy epsilon epsilon_high scale_rewards loss_type push_to_hub"
)

_SAYS_KEY: Names = {
    "load_in_8bit": "weights in 8 bits are not sized",
    "packing": "packing fills every row: give max_length and leave it out",
    "sample_packing": "packing fills every row: give max_length and leave it out",
    "num_train_epochs": "time is for a number of steps: give steps",
    "num_epochs": "time is for a number of steps: give steps",
    "epochs": "time is for a number of steps: give steps",
    "bnb_4bit_quant_type": "4 bits are NF4: leave it out",
    "tensor_parallel_size": "tensor parallelism is not sized; sharding is",
    "tp": "tensor parallelism is not sized; sharding is",
}


def key_hint(key: str, known: Iterable[str]) -> str | None:
    """A clause on a key that is not known here: what it is called, or why it is not needed. None: no idea."""
    name = key.strip().lstrip("-").lower().replace("-", "_").replace(" ", "_")
    known = list(known)
    if name in known:
        return f'did you mean "{name}"?'
    if name in _WITH_VALUE:
        return f'did you mean "{_WITH_VALUE[name]}"?'
    if name in _KEYS:
        return f'did you mean "{_KEYS[name]}"?'
    if name in _SAYS_KEY:
        return _SAYS_KEY[name]
    if name in _NO_EFFECT:
        return "it changes neither memory nor time: leave it out"
    near = difflib.get_close_matches(name, [*known, *_KEYS, *_WITH_VALUE], n=1, cutoff=0.75)
    if near:
        return f'did you mean "{_WITH_VALUE.get(near[0]) or _KEYS.get(near[0], near[0])}"?'
    if difflib.get_close_matches(name, [*_NO_EFFECT], n=1, cutoff=0.85):
        return "it changes neither memory nor time: leave it out"
    return None


def read_choice(field: str, value: str, choices: Iterable[str]) -> str:
    """The choice that `value` means; ValueError with the nearest one, or with what has no equal here."""
    plain = value.strip().lower()
    plain = VALUES.get(field, {}).get(plain, plain)
    choices = list(choices)
    if plain in choices:
        return plain
    says = SAYS.get((field, plain))
    if says:
        raise ValueError(says)
    near = nearest(plain, [*choices, *VALUES.get(field, {})])
    near = VALUES.get(field, {}).get(near, near) if near else None
    hint = f'; did you mean "{near}"?' if near else ";"
    raise ValueError(f'unknown {field.replace("_", " ")} "{value}"{hint} Known: {", ".join(choices)}')


_SHORT = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj", "gate": "gate_proj", "up": "up_proj",
          "down": "down_proj"}  # fmt: skip
_QKVO = frozenset(("q_proj", "k_proj", "v_proj", "o_proj"))
_MLP = frozenset(("gate_proj", "up_proj", "down_proj"))
_GROUPS = {
    "all-linear": "all-linear", "all_linear": "all-linear", "all": "all-linear", "linear": "all-linear",
    "attention": "attention", "attn": "attention", "self_attn": "attention", "qkvo": "attention",
    "mlp": "mlp", "ffn": "mlp", "feed-forward": "mlp", "feed_forward": "mlp",
    "qv": "qv",
}  # fmt: skip


def read_targets(value: object) -> str | tuple[str, ...]:
    """LoRA targets: a group by its name, or the names of modules as a list, a JSON list, or with commas.

    The usual lists become their group: q and v, the four of attention, the three of the feed-forward, all
    seven.
    """
    if isinstance(value, (list, tuple)):
        names = [str(item) for item in value]
    else:
        text = str(value).strip()
        if text.startswith("[") and text.endswith("]"):
            try:
                names = [str(item) for item in json.loads(text.replace("'", '"'))]
            except json.JSONDecodeError:
                raise ValueError("is no list of names such as q_proj,v_proj") from None
        else:
            names = [part for part in re.split(r"[\s,;+|]+", text) if part]
    names = [name.strip().lower() if name.strip().lower() in _GROUPS else name.strip() for name in names]
    names = [_SHORT.get(name, name).split(".")[-1] for name in names if name]
    groups = {_GROUPS[name] for name in names if name in _GROUPS}
    modules = {name for name in names if name not in _GROUPS}
    if not names:
        raise ValueError("names no module; all-linear, attention, mlp, qv, or names such as q_proj,v_proj")
    strange = [name for name in modules if not re.fullmatch(r"\w+", name)]
    if strange:
        raise ValueError(f'"{strange[0]}" is no module\'s name, such as q_proj,v_proj or all-linear')
    if "lm_head" in modules:
        raise ValueError("names lm_head, which is not sized as a LoRA target; leave it out")
    if "all-linear" in groups or groups >= {"attention", "mlp"}:
        return "all-linear"
    if groups and not modules:
        return "attention" if "attention" in groups else groups.pop() if len(groups) == 1 else "all-linear"
    for group, members in (("attention", _QKVO), ("mlp", _MLP), ("qv", {"q_proj", "v_proj"})):
        if group in groups:
            modules |= members
    for group, members in (
        ("all-linear", _QKVO | _MLP), ("attention", _QKVO), ("mlp", _MLP), ("qv", {"q_proj", "v_proj"})
    ):  # fmt: skip
        if modules == members:
            return group
    return tuple(sorted(modules))

"""What other tools call the things that answers.yaml holds: a hint for a key that is not known here.

Source: the keys of TRL, Axolotl and LLaMA-Factory configuration files.
"""

from __future__ import annotations

import difflib

from estimators.record import nearest


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# the name here <- the names elsewhere
_ALIASES: dict[str, str] = {
    "model": "base_model model_name_or_path model_name model_id model_path base_model_config "
    "pretrained_model pretrained_model_name_or_path base_model_name hf_model checkpoint policy "
    "policy_model actor_model llm",
    "data.demonstrations": "sft_data sft_dataset sft_file demos demonstration demonstrations "
    "messages instruction_data instruct_data traces reasoning_traces",
    "data.preferences": "dpo_data dpo_dataset preference preferences preference_data preference_dataset "
    "preference_file pairs_file chosen rejected ranking_data",
    "data.prompts": "prompt prompts prompt_data prompt_dataset prompt_file prompts_file rl_data rl_dataset "
    "grpo_dataset questions problems",
    "data.eval": "eval test validation valid val dev eval_data eval_dataset eval_file eval_path test_data "
    "test_datasets test_dataset test_file val_data val_dataset val_file valid_data "
    "validation_data validation_dataset validation_file validation_split dataset_test_split "
    "held_out heldout",
    "reward": "reward_funcs reward_func reward_fn reward_function reward_functions rewards reward_model "
    "reward_model_path reward_model_name_or_path verifier verifier_fn scorer grader",
    "seed": "random_seed data_seed manual_seed random_state rng_seed train_seed",
    "tuning": "finetuning_type fine_tuning_type finetuning adapter use_peft peft peft_type peft_config "
    "use_lora lora qlora use_qlora load_in_4bit load_in_8bit quantization_bit quantization "
    "train_type full_finetune",
    "hardware": "device devices accelerator cluster",
    "hardware.gpu": "gpu gpu_type gpu_name",
    "hardware.count": "gpus num_gpus n_gpus ngpus gpu_count gpus_per_node n_gpus_per_node num_gpus_per_node "
    "nproc nproc_per_node num_processes world_size",
    "hardware.nodes": "nodes num_nodes nnodes n_nodes num_machines",
    "budget.gpu_hours": "gpu_hours max_gpu_hours",
    "budget.usd": "usd dollars cost max_cost price max_usd budget_usd",
    "budget.wall_hours": "wall_hours hours max_hours time_limit max_time walltime wall_time deadline",
    "task": "task_type domain category",
    "verifiable": "is_verifiable verifiable_reward verifiable_rewards has_verifier checkable rlvr",
    "preference_pairs": "pairs has_pairs has_preferences preference_data_available has_preference_pairs",
    "long_cot": "cot chain_of_thought long_chain long_chains long_reasoning reasoning thinking "
    "long_context_reasoning",
    "limited_compute": "low_compute compute_limited low_resource limited_resources small_gpu",
    "base_capable": "base_model_capable capable model_capable base_is_capable",
    "large_scale": "scale large large_model big_model long_run",
}
ALIASES: dict[str, str] = {alias: name for name, row in _ALIASES.items() for alias in row.split()}

_ANY_DATA = _words(
    "train dataset datasets dataset_name dataset_path dataset_dir train_dataset train_data train_file "
    "train_files training_data training_file data_path data_files data_file dataset_mixture "
    "train_path"
)

_METHOD = _words(
    "method methods trainer trainer_type rl rlhf stage stages pipeline algorithm algo recipe "
    "loss_type pref_loss training_type advantage_estimator"
)

# arguments of a stage, not answers: `advisor plan` works them out
_STAGE_ARGUMENTS = _words(
    "learning_rate lr lr_scheduler lr_scheduler_type warmup_steps warmup_ratio weight_decay optimizer "
    "optim per_device_train_batch_size per_device_eval_batch_size micro_batch_size batch_size "
    "train_batch_size gradient_accumulation_steps gradient_checkpointing num_train_epochs num_epochs "
    "epochs max_steps steps num_generations generation_batch_size max_completion_length "
    "max_prompt_length max_length max_seq_length sequence_len cutoff_len temperature top_p top_k beta "
    "epsilon epsilon_high use_vllm vllm_mode vllm_gpu_memory_utilization bf16 fp16 torch_dtype dtype "
    "attn_implementation flash_attention flash_attn sample_packing packing lora_r lora_rank "
    "lora_alpha lora_dropout lora_target lora_target_modules save_steps eval_steps logging_steps "
    "report_to output_dir deepspeed fsdp template chat_template"
)


def hint(key: str, known: list[str]) -> str:
    """One clause on what an unknown `key` is called here, where it belongs, or which known key is nearest.

    `known` are the keys at its place; a dotted name ("data.eval") says in which block another one belongs.
    """
    name = key.strip().lower().replace("-", "_").replace(" ", "_")
    if name in known:
        return f'write it as "{name}"'
    if name in ALIASES and ALIASES[name].split(".")[-1] in known:  # in its own block, or at the top
        return f'its name here is "{ALIASES[name]}"'
    if len(known) < 10 and (typo := nearest(name, known)):
        return f'did you mean "{typo}"?'
    if name in _ANY_DATA:
        return (
            'its name here is "data.demonstrations" (for SFT), "data.preferences" (for DPO) '
            'or "data.prompts" (for RL)'
        )
    if name in _METHOD:
        return "the method is not an answer: it is recommended from the six answers"
    if name in _STAGE_ARGUMENTS:
        return (
            "an argument of a stage is not an answer: `advisor plan` works it out and writes it to plan.yaml"
        )
    if name in ALIASES:
        return f'its name here is "{ALIASES[name]}"'
    # a typo of a known key, or of another tool's name for it
    close = difflib.get_close_matches(name, [*known, *ALIASES], n=1, cutoff=0.75)
    if close:
        return f'did you mean "{ALIASES.get(close[0], close[0])}"?'
    if difflib.get_close_matches(name, _STAGE_ARGUMENTS, n=1, cutoff=0.8):
        return (
            "an argument of a stage is not an answer: `advisor plan` works it out and writes it to plan.yaml"
        )
    return ""

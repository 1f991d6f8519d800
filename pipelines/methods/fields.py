"""The names that a trainer's config class takes, read from the installed TRL without importing it."""

from __future__ import annotations

import ast
import importlib.util
import re
from functools import lru_cache
from pathlib import Path

from estimators.errors import BadInput
from estimators.record import nearest

CONFIG_FILES = {"sft.py": "sft_config.py", "dpo.py": "dpo_config.py", "grpo.py": "grpo_config.py"}

ALIASES = {
    "lr": "learning_rate",
    "batch_size": "per_device_train_batch_size",
    "micro_batch_size": "per_device_train_batch_size",
    "micro_batch": "per_device_train_batch_size",
    "train_batch_size": "per_device_train_batch_size",
    "gradient_accumulation": "gradient_accumulation_steps",
    "grad_accum": "gradient_accumulation_steps",
    "epochs": "num_train_epochs",
    "num_epochs": "num_train_epochs",
    "steps": "max_steps",
    "scheduler": "lr_scheduler_type",
    "lr_scheduler": "lr_scheduler_type",
    "warmup_ratio": "warmup_steps",
    "optimizer": "optim",
    "cutoff_len": "max_length",
    "sequence_len": "max_length",
    "max_seq_length": "max_length",
    "max_new_tokens": "max_completion_length",
    "max_response_length": "max_completion_length",
    "clip_higher": "epsilon_high",
    "clip_ratio_high": "epsilon_high",
    "clip_ratio": "epsilon",
    "clip_ratio_low": "epsilon",
    "kl_coef": "beta",
    "kl_coeff": "beta",
    "pref_beta": "beta",
    "rollout_n": "num_generations",
    "group_size": "num_generations",
    "use_bf16": "bf16",
    "eval_batch_size": "per_device_eval_batch_size",
}
"""Names of other tools (Axolotl, LLaMA-Factory, verl) and of habit -> TRL's."""


@lru_cache
def trainer_fields(script: str) -> dict[str, str]:
    """Field -> annotation of the config class behind a stage script (`sft.py`, `dpo.py`, `grpo.py`).

    Raises BadInput where TRL or transformers is not installed.
    """
    return {
        **_class_fields(_package("transformers") / "training_args.py"),
        **_class_fields(_package("trl") / "trainer" / "base_config.py"),
        **_class_fields(_package("trl") / "trainer" / CONFIG_FILES[script]),
    }


def check_value(script: str, name: str, value: object) -> None:
    """BadInput where a field takes numbers alone and `value` is text, or takes no list and it is one."""
    kinds = set(re.findall(r"\w+", trainer_fields(script).get(name, "")))
    if kinds and kinds <= {"int", "float", "bool", "None"} and isinstance(value, (str, list, dict)):
        raise BadInput(f'"{name}" takes a number ({trainer_fields(script)[name]}), not {value!r}')


def check_field(script: str, name: str) -> None:
    """BadInput with the nearest name where the trainer has no such field."""
    known = trainer_fields(script)
    if name not in known:
        guess = ALIASES.get(name.lower()) or nearest(name, known)
        hint = f'; did you mean "{guess}"?' if guess else ""
        raise BadInput(
            f'"{name}" is not an argument of the trainer behind {script.removesuffix(".py")}{hint}'
        )


def _package(name: str) -> Path:
    """The folder of an installed package, without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise BadInput(f"{name} is not installed; install it with: pip install {name}")
    return Path(spec.origin).parent


def _class_fields(path: Path) -> dict[str, str]:
    """Annotated names in the bodies of a module's classes, with their annotations."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        statement.target.id: ast.unparse(statement.annotation)
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }

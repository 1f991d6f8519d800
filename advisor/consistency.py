"""Where answers and files do not agree: warnings, and an error where nothing could be trained."""

from __future__ import annotations

from typing import Any

from advisor.answers import Answers, DataFiles
from advisor.questions import SIX_BY_KEY
from advisor.rules import Decision, case_of, decide
from estimators.errors import BadInput
from pipelines.methods import METHODS

TASK_REWARDS = {
    "math": "math_reward",
    "code": "code_reward",
    "extraction": "json_schema_reward",
    "tool-calling": "tool_call_reward",
}
"""Tasks that a built-in reward checks."""

_HOLDS = {
    "demonstrations": "worked answers",
    "preferences": "pairs of a chosen and a rejected answer",
    "prompts": "prompts with what the reward needs",
}


def refuse_what_cannot_train(answers: Answers, decision: Decision) -> None:
    """BadInput where no stage finds its data among the files named, or one file is to be two things."""
    _refuse_shared_files(answers.data)
    needed = [METHODS[stage].data for stage in decision.pipeline]
    named = [key for key in DataFiles.model_fields if getattr(answers.data, key) and key != "eval"]
    if not named or any(key in named for key in needed):
        return
    ways = {
        "prompts": "answer verifiable yes and name a reward, to train on data.prompts with RL",
        "preferences": "answer preference_pairs yes, to train on data.preferences with DPO",
        "demonstrations": "answer base_capable no, to train on data.demonstrations with SFT",
    }
    pipeline = " → ".join(stage.upper() for stage in decision.pipeline)
    missing = " and ".join(f"data.{key} ({_HOLDS[key]})" for key in dict.fromkeys(needed))
    raise BadInput(
        f"these answers lead to {pipeline}, which needs {missing}, and only "
        f"{' and '.join(f'data.{key}' for key in named)} {'is' if len(named) == 1 else 'are'} named. "
        f"Name that file, or {' or '.join(ways[key] for key in named)}"
    )


def _refuse_shared_files(data: DataFiles) -> None:
    by_file: dict[str, str] = {}
    for key in ("preferences", "demonstrations", "prompts", "eval"):
        path = getattr(data, key)
        other = by_file.setdefault(path, key) if path else key
        if other == key:
            continue
        if key == "eval":
            raise BadInput(
                f"data.eval and data.{other} are the same file, {path}: what is measured must not be "
                "trained on. Leave data.eval out (some prompts are then held out), or name another file"
            )
        if other == "preferences":
            raise BadInput(
                f"data.{key} and data.preferences are the same file, {path}: pairs are not {_HOLDS[key]}. "
                f"Name another file for data.{key}"
            )


def data_warnings(answers: Answers, decision: Decision) -> list[str]:
    """Sentences on answers and files that contradict each other; none for the six answers alone."""
    data = answers.data
    warnings = []
    if data.preferences and answers.preference_pairs != "yes":
        warnings.append(
            f"data.preferences is named, but preference_pairs is {answers.preference_pairs}: the pairs "
            "are not used. Answer yes to train on them with DPO."
        )
    if answers.reward and answers.verifiable != "yes":
        warnings.append(
            f"reward is {answers.reward}, but verifiable is {answers.verifiable}: no stage uses the reward. "
            "Answer yes if right answers pass it and wrong ones do not."
        )
    warnings += _task_warnings(answers, decision)
    if answers.limited_compute == "yes" and answers.tuning == "full":
        warnings.append(
            "limited_compute is yes, but tuning is full, which keeps optimiser state for every parameter. "
            "tuning: lora needs a fraction of it."
        )
    if decision.economy and answers.tuning == "full":
        warnings.append("The economy form of RL is LoRA; tuning: full takes precedence.")
    if answers.model or any(getattr(data, key) for key in DataFiles.model_fields):
        warnings += _missing_files(answers, decision)
    return warnings


def _task_warnings(answers: Answers, decision: Decision) -> list[str]:
    reward = TASK_REWARDS.get(answers.task or "")
    if reward and answers.verifiable == "no":
        return [
            f"The task is {answers.task}, which can often be checked: the built-in {reward} does. "
            "If it suits, answer verifiable yes."
        ]
    if answers.task in ("dialogue", "safety") and answers.verifiable == "yes":
        return [
            f"A program rarely judges {answers.task} well, and RL finds every gap in it: try the reward on "
            "wrong, empty and evasive answers first."
        ]
    if reward and answers.reward in TASK_REWARDS.values() and answers.reward != reward:
        return [
            f"The task is {answers.task}, but the reward is {answers.reward}; {reward} is the one for it."
        ]
    return []


def missing_keys(values: dict[str, Any]) -> list[str]:
    """The keys that a plan cannot do without and that these answers, perhaps not complete yet, lack."""
    missing = [key for key in [*SIX_BY_KEY, "model"] if not values.get(key)]
    if any(key in SIX_BY_KEY for key in missing):
        return missing
    answers = Answers.model_validate(values)
    stages = decide(case_of(answers)).pipeline
    missing += [f"data.{METHODS[s].data}" for s in stages if not getattr(answers.data, METHODS[s].data)]
    if any(METHODS[stage].is_rl for stage in stages) and not answers.reward:
        missing.append("reward")
    return missing


def _missing_files(answers: Answers, decision: Decision) -> list[str]:
    """What the pipeline's stages still need before they can be planned."""
    warnings = []
    for stage in decision.pipeline:
        key = METHODS[stage].data
        if not getattr(answers.data, key):
            warnings.append(f"{stage.upper()} trains on data.{key} ({_HOLDS[key]}), which names no file yet.")
    if any(METHODS[stage].is_rl for stage in decision.pipeline) and not answers.reward:
        known = TASK_REWARDS.get(answers.task or "")
        remedy = (
            f"{known} is the built-in one for {answers.task}"
            if known
            else "a built-in name, or file.py:function"
        )
        warnings.append(f"RL needs a reward, and none is named: {remedy}.")
    return warnings

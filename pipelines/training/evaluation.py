"""pass@1 and pass@k of a policy on held-out prompts, scored with the task's own reward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedTokenizerBase

from estimators.errors import BadInput
from pipelines.passk import mean_interval, pass_at_k
from pipelines.stages import Evaluation, PassRates

Row = dict[str, Any]
RIGHT = 1.0 - 1e-6
"""A completion is right when the task pays it in full."""


def evaluate_policy(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    rows: list[Row],
    reward: Callable[..., list[float | None]],
    settings: Evaluation,
    seed: int,
) -> tuple[PassRates, list[Row]]:
    """Sample `settings.samples` completions for each row's prompt and score them.

    The generator is seeded and the trainer's own random state is left as it was, so an evaluation neither
    depends on a training nor changes it.

    Returns: the rates, and one record per prompt (prompt, completions, rewards).
    Raises: BadInput where no prompt could be scored.
    """
    rows = rows[: settings.prompts]
    if not rows:
        raise BadInput("there is no held-out prompt to evaluate on; name a file under data.eval")
    k = settings.samples
    prompts = [row["prompt"] for row in rows for _ in range(k)]
    was_training = model.training
    model.eval()
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        torch.manual_seed(seed)
        completions, ids, truncated = _sample(model, tokenizer, prompts, settings)
    model.train(was_training)
    columns = {name: [row.get(name) for row in rows for _ in range(k)] for name in rows[0]}
    scores = _score(
        reward, {**columns, "prompts": prompts, "completions": completions, "completion_ids": ids}
    )
    lengths = [len(tokens) for tokens in ids]
    records = []
    per_prompt: list[tuple[int, int]] = []
    for index, row in enumerate(rows):
        part = slice(index * k, (index + 1) * k)
        scored = [score for score in scores[part] if score is not None]
        if scored:
            per_prompt.append((len(scored), sum(score >= RIGHT for score in scored)))
        records.append({"prompt": row["prompt"], "completions": completions[part], "rewards": scores[part]})
    if not per_prompt:
        raise BadInput(
            "the reward returned None for every held-out prompt; check the answers (gold) in data.eval"
        )
    rates = PassRates(
        prompts=len(per_prompt),
        samples=k,
        pass_at_1=mean_interval([right / n for n, right in per_prompt]),
        pass_at_k=mean_interval([pass_at_k(n, right, n) for n, right in per_prompt]),
        all_right=sum(right == n for n, right in per_prompt) / len(per_prompt),
        all_wrong=sum(right == 0 for _, right in per_prompt) / len(per_prompt),
        truncated=sum(truncated) / len(truncated),
        mean_tokens=sum(lengths) / len(lengths),
        unscored=sum(score is None for score in scores),
    )
    return rates, records


def _score(reward: Callable[..., list[float | None]], columns: dict[str, list[Any]]) -> list[float | None]:
    """The reward of every completion, called as TRL calls it: columns as lists."""
    given = {name: values for name, values in columns.items() if name not in ("prompt", "completion")}
    return [None if score is None else float(score) for score in reward(**given)]


def _sample(
    model: Any, tokenizer: PreTrainedTokenizerBase, prompts: list[Any], settings: Evaluation
) -> tuple[list[Any], list[list[int]], list[bool]]:
    """One completion per prompt, with its tokens (the end token too) and whether it met the limit.

    A prompt of messages is rendered with the chat template and answered with a list of one message.
    """
    config = GenerationConfig(
        max_new_tokens=settings.max_new_tokens,
        do_sample=True,
        temperature=settings.temperature,
        top_k=0,
        top_p=1.0,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=tokenizer.bos_token_id,
    )
    completions: list[Any] = []
    tokens: list[list[int]] = []
    truncated: list[bool] = []
    for batch in _chunks(prompts, settings.batch_size):
        chat = not isinstance(batch[0], str)
        texts = [render(tokenizer, prompt) for prompt in batch]
        inputs = tokenizer(
            texts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=not chat
        )
        inputs = {name: inputs[name].to(model.device) for name in ("input_ids", "attention_mask")}
        output = model.generate(**inputs, generation_config=config)[:, inputs["input_ids"].shape[1] :].cpu()
        for ids in output:
            ends = (ids == tokenizer.eos_token_id).nonzero()
            length = int(ends[0]) + 1 if len(ends) else len(ids)
            tokens.append(ids[:length].tolist())
            truncated.append(len(ends) == 0)
            text = tokenizer.decode(ids[:length], skip_special_tokens=True)
            completions.append([{"role": "assistant", "content": text}] if chat else text)
    return completions, tokens, truncated


def render(tokenizer: PreTrainedTokenizerBase, prompt: Any) -> str:
    """The text that the model sees for a prompt."""
    if isinstance(prompt, str):
        return prompt
    return str(tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True))


def _chunks(items: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def text_of(value: Any) -> str:
    """A prompt or completion as plain text, for tables."""
    if isinstance(value, str):
        return value
    if isinstance(value, Iterable):
        return "\n".join(str(message.get("content", "")) for message in value)
    return str(value)

"""The content of rows: a digest of a source, a key for each prompt, and splits that no row straddles."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import orjson

from estimators.errors import BadInput
from pipelines.datasets.normalise import Row

SPACE = re.compile(r"\s+")


def canonical_bytes(value: Any) -> bytes:
    """A JSON text of `value` that does not depend on the order of keys or on the container it came from."""
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    except TypeError:  # integers beyond 64 bits
        import json

        return json.dumps(
            value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str
        ).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return list(value)
    return str(value)


def digest_of(rows: Iterable[Row]) -> str:
    """sha256 over the canonical JSON of each row, in order."""
    whole = hashlib.sha256()
    for row in rows:
        whole.update(canonical_bytes(row))
        whole.update(b"\n")
    return whole.hexdigest()


def prompt_of(record: Mapping[str, Any]) -> Any:
    """What a row asks: its prompt, the messages before the first answer, or its text."""
    for name in ("prompt", "question", "problem", "query", "instruction"):
        if record.get(name) is not None:
            extra = record.get("input") or record.get("context") if name == "instruction" else None
            return [record[name], extra] if extra else record[name]
    for name in ("messages", "conversations", "conversation"):
        if isinstance(record.get(name), list):
            return _before_answer(record[name])
    chosen, rejected = record.get("chosen"), record.get("rejected")
    if isinstance(chosen, list):
        return _before_answer(chosen)
    if isinstance(chosen, str) and isinstance(rejected, str):
        from pipelines.datasets.messages import RowProblem
        from pipelines.datasets.normalise import implicit_prompt

        try:
            return implicit_prompt(chosen, rejected)["prompt"]
        except RowProblem:
            return chosen
    return record["text"] if "text" in record else dict(record)


def _before_answer(messages: list[Any]) -> list[Any]:
    """The user's messages before the first answer (a system prompt that many rows share is no prompt)."""
    asked = []
    for message in messages:
        if not isinstance(message, Mapping):
            return list(messages)
        role = message.get("role", message.get("from"))
        if role in ("assistant", "gpt"):
            break
        if role not in ("system", "developer"):
            asked.append(message.get("content", message.get("value")))
    return asked or list(messages)


def prompt_key(record: Mapping[str, Any]) -> bytes:
    """16 bytes that are equal for rows with the same prompt, whatever their case and white space.

    A plain prompt and the same words as one user message have the same key.
    """
    prompt = prompt_of(record)
    if isinstance(prompt, list) and prompt and all(isinstance(item, Mapping) for item in prompt):
        prompt = _before_answer(prompt)
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    text = prompt if isinstance(prompt, str) else canonical_bytes(prompt).decode()
    return hashlib.blake2b(
        SPACE.sub(" ", text).strip().casefold().encode("utf-8", "replace"), digest_size=16
    ).digest()


def split_records(records: Iterable[Row], eval_fraction: float, seed: int = 0) -> tuple[list[Row], list[Row]]:
    """Training and evaluation rows, in their order; rows with the same prompt are on the same side.

    Prompts are ordered by a hash of their content and `seed` (not by their place in the file), and whole
    prompts are taken for evaluation until they hold `eval_fraction` of the rows. The same rows in another
    order give the same split. At least one prompt stays on each side where there are two. Raises BadInput
    for a fraction outside [0, 1).
    """
    if not 0 <= eval_fraction < 1:
        raise BadInput(f"eval_fraction is {eval_fraction}; give a share from 0 up to, and without, 1")
    rows = list(records)
    keys = [prompt_key(row) for row in rows]
    sizes: dict[bytes, int] = {}
    for key in keys:
        sizes[key] = sizes.get(key, 0) + 1
    wanted = eval_fraction * len(rows)
    held_out: set[bytes] = set()
    if wanted > 0 and len(sizes) > 1:
        salt = seed.to_bytes(8, "little", signed=True)
        taken = 0
        for key in sorted(sizes, key=lambda key: hashlib.blake2b(key, key=salt, digest_size=8).digest()):
            room = wanted - taken
            if held_out and (room <= 0 or sizes[key] > 2 * room):
                if room <= 0:
                    break
                continue  # a prompt with many rows would overshoot; a smaller one fits
            if len(held_out) + 1 == len(sizes):
                break
            held_out.add(key)
            taken += sizes[key]
    train = [row for row, key in zip(rows, keys, strict=True) if key not in held_out]
    evaluation = [row for row, key in zip(rows, keys, strict=True) if key in held_out]
    return train, evaluation

"""How many tokens a text has, without loading a model: by the tokenizer's file, else a cautious guess."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

TOKENS_PER_CHAR = 1 / 3
"""A cautious guess where no tokenizer is at hand; English prose has about 1 token in 4.5 characters."""

SAMPLE_CHARS = 200_000


def model_folders(model: str) -> list[Path]:
    """The folders that may hold a model's files: itself, and its snapshots in the hub's local cache."""
    folders = [Path(model)]
    if "/" in model:
        hub = Path.home() / ".cache" / "huggingface" / "hub"
        folders += sorted((hub / f"models--{model.replace('/', '--')}" / "snapshots").glob("*"))
    return folders


def context_length(model: str) -> int | None:
    """The longest sequence that a model's positions allow, where its config.json is at hand and says so."""
    for folder in model_folders(model):
        if (folder / "config.json").exists():
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            length = (config.get("text_config") or config).get("max_position_embeddings")
            return int(length) if length else None
    return None


def tokens_per_char(model: str, texts: Iterable[str]) -> float:
    """Tokens for each character of `texts` (the first so many of them) by the model's tokenizer.json."""
    path = next((f / "tokenizer.json" for f in model_folders(model) if (f / "tokenizer.json").exists()), None)
    if path is None:
        return TOKENS_PER_CHAR
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokens = chars = 0
    for text in texts:
        if text:
            tokens += len(tokenizer.encode(text, add_special_tokens=False).ids)
            chars += len(text)
        if chars > SAMPLE_CHARS:
            break
    return tokens / chars if chars else TOKENS_PER_CHAR

"""How many tokens a text has, without loading a model: by the tokenizer's file, else a cautious guess."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from estimators.record import Record

TOKENS_PER_CHAR = 1 / 3
"""A cautious guess where no tokenizer is at hand; English prose has about 1 token in 4.5 characters."""

SAMPLE_CHARS = 200_000
MAX_DRAWN = 1024
"""The largest batch for which the longest row is computed; in larger ones it is hardly longer."""


class Lengths(Record):
    """How many tokens rows have, as time depends on it: a batch is padded to its longest row."""

    longest: tuple[float, ...]
    """Expected tokens of the longest of 1, 2, 4, ... MAX_DRAWN rows drawn at random; first the mean."""

    @classmethod
    def of(cls, tokens: Sequence[float]) -> Lengths:
        """Those of the rows with `tokens` tokens each."""
        ordered, total = sorted(tokens), len(tokens)
        sizes = [2**power for power in range(MAX_DRAWN.bit_length())]
        return cls(
            longest=tuple(
                sum(
                    value * ((rank / total) ** size - ((rank - 1) / total) ** size)
                    for rank, value in enumerate(ordered, start=1)
                )
                for size in sizes
            )
        )

    @property
    def mean(self) -> float:
        return self.longest[0]

    def longest_of(self, rows: int) -> int:
        """Expected tokens of the longest of `rows` rows, rounded up."""
        power = min(math.log2(max(rows, 1)), len(self.longest) - 1.0)
        below = int(power)
        above = min(below + 1, len(self.longest) - 1)
        share = power - below
        return math.ceil(self.longest[below] * (1 - share) + self.longest[above] * share - 1e-9)


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

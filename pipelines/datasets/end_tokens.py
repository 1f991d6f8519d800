"""End tokens written by hand: harmless in every row or in none, a fault in some."""

from __future__ import annotations

import re

END_TOKENS = (
    "</s>", "<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<eos>", "<end_of_turn>",
    "<|end|>", "<|eom_id|>", "<|eot|>", "<｜end▁of▁sentence｜>", "<|END_OF_TURN_TOKEN|>", "<|endofturn|>",
    "<|end_of_turn|>", "<|return|>", "<|user_end|>", "<|eos|>",
)  # fmt: skip
PATTERN = re.compile("|".join(re.escape(token) for token in END_TOKENS))


def end_token_in(text: str) -> str | None:
    """The last end token of a known model family in `text`, or None."""
    if "<" not in text:
        return None
    found = None
    for match in PATTERN.finditer(text):
        found = match.group()
    return found

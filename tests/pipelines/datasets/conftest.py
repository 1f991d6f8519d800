"""Tiny tokenizers, written as the files that a model folder has; nothing heavy is imported for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MARKED = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}<|im_start|>assistant\n"
    "{% generation %}{{ m['content'] }}<|im_end|>\n{% endgeneration %}"
    "{% else %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    + CHATML
)
NEVER_CLOSED = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
TEMPLATES = {
    "chatml": CHATML,
    "marked": MARKED,
    "no_system": NO_SYSTEM,
    "never_closed": NEVER_CLOSED,
    "none": None,
}


@pytest.fixture(scope="session")
def make_tokenizer(tmp_path_factory) -> Callable[..., Path]:
    """A folder with a byte-level tokenizer: one token a byte, one a special token."""

    def make(template: str = "chatml", *, pad: str | None = "<pad>", eos: str | None = "<|im_end|>") -> Path:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers

        folder = tmp_path_factory.mktemp("tokenizer")
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        special = ["<pad>", "<|im_start|>", "<|im_end|>", "</s>"]
        vocabulary = {token: index for index, token in enumerate([*special, *alphabet])}
        tokenizer = Tokenizer(models.BPE(vocabulary, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens(special)
        tokenizer.save(str(folder / "tokenizer.json"))
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": 4096,
            "pad_token": pad,
            "eos_token": eos,
            "chat_template": TEMPLATES[template],
        }
        known = {key: value for key, value in config.items() if value is not None}
        (folder / "tokenizer_config.json").write_text(json.dumps(known))
        return folder

    return make

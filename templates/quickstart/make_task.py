"""Make the quickstart's base model and data: two-digit additions for a model of 0.9 M parameters.

Usage: python make_task.py FOLDER SEED

The model starts from random weights and knows 17 characters. Of its demonstrations 40 % work digit by digit
and are right (`47+85=` -> `>7+5=12;4+8+1=13;#132`); 60 % guess at once (`#131`) and are right 30 % of the
time. So fine-tuning on them leaves a model that mostly guesses, and that RL can teach to work.
"""

import json
import random
import sys
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CHARACTERS = "0123456789+=>;#"
HELD_OUT = 400
SHARE_WORKED = 0.455
"""Of the rows drawn; 0.4 of those that are left once each row counts once."""
SHARE_LUCKY = 0.3
COPIES = 2


def worked(a: int, b: int) -> str:
    """The sum by digits, lowest first, with the carry: 47 + 85 -> `>7+5=12;4+8+1=13;#132`."""
    ones = a % 10 + b % 10
    carry = "+1" if ones > 9 else ""
    tens = a // 10 + b // 10 + ones // 10
    return f">{a % 10}+{b % 10}={ones};{a // 10}+{b // 10}{carry}={tens};#{a + b}"


def guess(a: int, b: int, rng: random.Random) -> str:
    """A number near the sum, right with chance SHARE_LUCKY."""
    if rng.random() < SHARE_LUCKY:
        return f"#{a + b}"
    wrong = a + b + rng.choice([-20, -11, -10, -9, -2, -1, 1, 2, 9, 10, 11, 20])
    return f"#{max(wrong, 0) if wrong != a + b else wrong + 1}"


def make_data(folder: Path, rng: random.Random) -> None:
    """demonstrations.jsonl and prompts.jsonl for training, eval.jsonl held out."""
    pairs = [(a, b) for a in range(100) for b in range(100)]
    rng.shuffle(pairs)
    held_out, rest = pairs[:HELD_OUT], pairs[HELD_OUT:]
    demonstrations: dict[tuple[str, str], None] = {}  # in order, each row once
    for _ in range(COPIES):
        for a, b in rest:
            answer = worked(a, b) if rng.random() < SHARE_WORKED else guess(a, b, rng)
            demonstrations[f"{a:02d}+{b:02d}=", answer] = None
    write(folder / "demonstrations.jsonl", [{"prompt": p, "completion": c} for p, c in demonstrations])
    write(folder / "prompts.jsonl", [{"prompt": f"{a:02d}+{b:02d}=", "answer": str(a + b)} for a, b in rest])
    write(folder / "eval.jsonl", [{"prompt": f"{a:02d}+{b:02d}=", "answer": str(a + b)} for a, b in held_out])


def write(path: Path, rows: list[dict[str, str]]) -> None:
    """Rows as JSONL."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def make_model(folder: Path, seed: int) -> None:
    """A Llama of 0.9 M parameters from random weights, with a tokenizer of one token per character."""
    vocabulary = {token: index for index, token in enumerate(["<pad>", "<end>", *CHARACTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    from tokenizers import decoders

    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>")
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(vocabulary),
            hidden_size=128,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=4,
            intermediate_size=384,
            max_position_embeddings=64,
            tie_word_embeddings=True,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
        )
    )
    model.save_pretrained(folder)
    fast.save_pretrained(folder)


def main(folder: str, seed: str) -> None:
    """Write FOLDER/base-model and FOLDER/*.jsonl."""
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    make_data(root, random.Random(int(seed)))
    make_model(root / "base-model", int(seed))


if __name__ == "__main__":
    main(*sys.argv[1:])

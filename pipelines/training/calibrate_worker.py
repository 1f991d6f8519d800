"""Two short real trainings and two short generations on this machine, to learn how fast it is.

`python -m pipelines.training.calibrate_worker` reads one JSON request on stdin and prints the measured
seconds as one JSON answer. Weights are random and nothing is downloaded: speed does not depend on their
values.
"""

from __future__ import annotations

import time

BEGAN = time.perf_counter()

import contextlib  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import statistics  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402
from trl import SFTConfig, SFTTrainer  # noqa: E402

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
STEPS = 12
"""Optimizer steps of each training; the first four are warm-up."""


class Clock(TrainerCallback):
    """Notes when every optimizer step ends."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.ends.append(time.perf_counter())

    def seconds(self) -> float:
        """Median seconds of a step after the warm-up."""
        gaps = [later - earlier for earlier, later in zip(self.ends, self.ends[1:], strict=False)]
        return statistics.median(gaps[3:])


def tokenizer(vocab: int) -> PreTrainedTokenizerFast:
    """A tokenizer of one word per id; only its padding is used."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    words = {f"w{number}": number for number in range(min(vocab, 64))}
    inner = Tokenizer(WordLevel(words, unk_token="w0"))
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="w0", eos_token="w1", unk_token="w0")


def build(request: dict[str, Any]) -> Any:
    values = {key: value for key, value in request["config"].items() if key not in ("torch_dtype", "dtype")}
    config = CONFIG_MAPPING[values.pop("model_type")](**values)
    model = AutoModelForCausalLM.from_config(config, dtype=DTYPES[request["weights_dtype"]])
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


def train_seconds(request: dict[str, Any], micro_batch: int, length: int) -> tuple[float, float]:
    """Seconds of one optimizer step, and of everything before the first one."""
    began = time.perf_counter()
    model = build(request)
    rows = [{"input_ids": [2 + (index % 7) for index in range(length)]} for _ in range(micro_batch * STEPS)]
    adapter = None
    if request["tuning"] == "lora":
        from peft import LoraConfig

        modules = request["lora_modules"]
        adapter = LoraConfig(r=request["lora_rank"], target_modules=modules, task_type="CAUSAL_LM")
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        settings = SFTConfig(
            output_dir=folder,
            per_device_train_batch_size=micro_batch,
            max_steps=STEPS,
            max_length=length,
            gradient_checkpointing=request["gradient_checkpointing"],
            bf16=request["autocast"] == "bf16",
            fp16=request["autocast"] == "fp16",
            use_cpu=not torch.cuda.is_available(),
            optim=request["optimizer"],
            report_to=[],
            save_strategy="no",
            logging_steps=1,
            disable_tqdm=True,
            dataset_num_proc=None,
        )
        trainer = SFTTrainer(
            model=model,
            args=settings,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer(model.config.get_text_config().vocab_size),
            peft_config=adapter,
            callbacks=[clock],
        )
        ready = time.perf_counter()
        trainer.train()
    return clock.seconds(), ready - began


def generate_seconds(model: Any, sequences: int, prompt: int, new_tokens: int) -> float:
    """Seconds to sample exactly `new_tokens` for `sequences` prompts."""
    device = next(model.parameters()).device
    ids = torch.full((sequences, max(prompt, 1)), 2, dtype=torch.long, device=device)
    mask = torch.ones_like(ids)
    settings = {
        "do_sample": True,
        "min_new_tokens": new_tokens,
        "max_new_tokens": new_tokens,
        "pad_token_id": 0,
    }
    took = []
    for _ in range(2):
        began = time.perf_counter()
        model.generate(input_ids=ids, attention_mask=mask, **settings)
        if device.type == "cuda":
            torch.cuda.synchronize()
        took.append(time.perf_counter() - began)
    return min(took)


def measure(request: dict[str, Any]) -> dict[str, Any]:
    imported = time.perf_counter() - BEGAN
    small, large = request["micro_batches"]
    length = request["length"]
    small_seconds, ready = train_seconds(request, small, length)
    large_seconds, _ = train_seconds(request, large, length)
    answer: dict[str, Any] = {
        "import_seconds": imported,
        "ready_seconds": ready,
        "small": {"tokens": small * length, "seconds": small_seconds},
        "large": {"tokens": large * length, "seconds": large_seconds},
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "threads": torch.get_num_threads(),
    }
    if request["new_tokens"]:
        model = build(request).eval()
        with torch.inference_mode():
            for name, sequences in (("one", 1), ("many", request["sequences"])):
                tokens = request["new_tokens"]
                short = generate_seconds(model, sequences, request["prompt"], max(1, tokens // 4))
                long = generate_seconds(model, sequences, request["prompt"], tokens)
                token = (long - short) / (tokens - max(1, tokens // 4))
                answer[name] = {"sequences": sequences, "token_seconds": max(token, 1e-6)}
    return answer


def main() -> None:
    import logging
    import warnings

    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    os.environ.setdefault("TQDM_DISABLE", "1")
    request = json.loads(sys.stdin.read())
    with contextlib.redirect_stdout(sys.stderr):
        answer = measure(request)
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()

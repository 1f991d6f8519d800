"""Two short real trainings and two short generations on this machine, to learn how fast it is.

Each is timed for a few seconds, so that the whole takes less than a minute for small models.

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
from transformers import (  # noqa: E402
    AutoModelForCausalLM,
    PreTrainedTokenizerFast,
    StoppingCriteria,
    StoppingCriteriaList,
    TrainerCallback,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402
from trl import GRPOTrainer, SFTConfig, SFTTrainer  # noqa: E402, F401  (GRPO for the time that a stage imports)

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
WARM_UP = 2
"""Steps and tokens whose time does not count: memory is taken from the system in them."""
LEAST, MOST = 3, 64
"""Steps or tokens that are timed: as many as fit the budget of seconds, between these."""


class Clock(TrainerCallback):
    """Notes when every optimizer step ends, and ends the training when enough were timed."""

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self.times = Times()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop = self.times.enough(self.budget)


class Token(StoppingCriteria):
    """Notes when every token of a batch is there, and ends the generation when enough were timed."""

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self.times = Times()

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        if input_ids.device.type == "cuda":
            torch.cuda.synchronize()
        return torch.full((len(input_ids),), self.times.enough(self.budget), device=input_ids.device)


class Times:
    """When things ended, one after the other."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.ends: list[float] = []

    def enough(self, budget: float) -> bool:
        """Notes that one ended now; whether it is enough of them for `budget` seconds."""
        self.ends.append(time.perf_counter())
        timed = len(self.ends) - 1 - WARM_UP
        return timed >= LEAST and self.ends[-1] - self.ends[0] > budget

    def gap(self) -> float:
        """Mean seconds from one end to the next after the warm-up; a stage takes their sum, slow ones too."""
        first = min(WARM_UP, len(self.ends) - 2)
        return (self.ends[-1] - self.ends[first]) / (len(self.ends) - 1 - first)

    def first(self) -> float:
        """Seconds that the first took more than those after it."""
        return max(0.0, self.ends[0] - self.began - self.gap())


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


def train_times(request: dict[str, Any], rows: int, length: int) -> tuple[Times, float]:
    """When optimizer steps on `rows` sequences, padded to `length` tokens, ended; and seconds until they
    began.

    Every other sequence is shorter, as in real data: padding makes attention use a mask.
    """
    began = time.perf_counter()
    model = build(request)
    sequences = [[2] * length, [2] * max(2, length * 2 // 3)]
    steps = WARM_UP + MOST + 1
    adapter = None
    if request["tuning"] == "lora":
        from peft import LoraConfig

        modules = request["lora_modules"]
        adapter = LoraConfig(r=request["lora_rank"], target_modules=modules, task_type="CAUSAL_LM")
    clock = Clock(request["budget"])
    with tempfile.TemporaryDirectory() as folder:
        settings = SFTConfig(
            output_dir=folder,
            per_device_train_batch_size=rows,
            max_steps=steps,
            max_length=length,
            gradient_checkpointing=request["gradient_checkpointing"],
            bf16=request["autocast"] == "bf16",
            fp16=request["autocast"] == "fp16",
            use_cpu=not torch.cuda.is_available(),
            optim=request["optimizer"],
            report_to=[],
            save_strategy="no",
            logging_steps=steps,
            disable_tqdm=True,
            train_sampling_strategy="sequential",
            dataset_num_proc=None,
        )
        trainer = SFTTrainer(
            model=model,
            args=settings,
            train_dataset=Dataset.from_dict({"input_ids": (sequences * rows)[:rows] * steps}),
            processing_class=tokenizer(model.config.get_text_config().vocab_size),
            peft_config=adapter,
            callbacks=[clock],
        )
        ready = time.perf_counter()
        clock.times.began = ready
        trainer.train()
    return clock.times, ready - began


def token_seconds(
    model: Any, sequences: int, prompt: int, new_tokens: int, budget: float
) -> tuple[float, float]:
    """Seconds of one token more for each of `sequences` sequences, and how much longer the first one took.

    Generates as often as the budget allows.
    """
    device = next(model.parameters()).device
    ids = torch.full((sequences, max(prompt, 1)), 2, dtype=torch.long, device=device)
    calls: list[Times] = []
    while not calls or time.perf_counter() - calls[0].began < budget:
        token = Token(budget)
        model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            top_k=0,
            min_new_tokens=new_tokens,
            max_new_tokens=new_tokens,
            pad_token_id=0,
            stopping_criteria=StoppingCriteriaList([token]),
        )
        calls.append(token.times)
    return statistics.mean(times.gap() for times in calls), calls[0].first()


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Seconds of a step with few and with many tokens, and of a token sampled for one and for many."""
    imported = time.perf_counter() - BEGAN
    answer: dict[str, Any] = {"import_seconds": imported}
    for name in ("small", "large"):
        rows, length = request[name]
        times, ready = train_times(request, rows, length)
        answer[name] = {"tokens": rows * length, "length": length, "seconds": times.gap()}
        answer.setdefault("ready_seconds", ready + times.first())
    model = build(request).eval()
    with torch.inference_mode():
        for name, sequences in (("one", 1), ("many", request["sequences"])):
            seconds, first = token_seconds(
                model, sequences, request["prompt"], request["new_tokens"], request["budget"]
            )
            answer[name] = {"sequences": sequences, "token_seconds": seconds}
            answer.setdefault("first_token_seconds", first)
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

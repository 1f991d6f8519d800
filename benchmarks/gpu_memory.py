"""Measures the peak of real TRL steps and appends it, with versions, to `benchmarks/data/gpu_memory.jsonl`.

    python benchmarks/gpu_memory.py                  every case, on the GPU at hand
    python benchmarks/gpu_memory.py --dry-run        the smallest case of each kind; works on a CPU

SFT, DPO and GRPO, full and LoRA, three sizes from random weights: nothing is downloaded. Each case runs in a
process of its own. On a GPU the allocated and the reserved peak of the allocator and what the device shows
are noted; on a CPU only the process's resident peak, and nothing is written. The tests read the file
(`tests/pipelines/test_sizing_measured.py`).
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DATA = ROOT / "benchmarks" / "data" / "gpu_memory.jsonl"
sys.path.insert(0, str(ROOT))

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
             "intermediate_size": 768, "vocab_size": 4096},
    "0.5B": {"hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14,
             "num_key_value_heads": 2,
             "intermediate_size": 4864, "vocab_size": 151936, "tie_word_embeddings": True},
    "1.5B": {"hidden_size": 1536, "num_hidden_layers": 28, "num_attention_heads": 12,
             "num_key_value_heads": 2,
             "intermediate_size": 8960, "vocab_size": 151936, "tie_word_embeddings": True},
    "7B": {"hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
           "num_key_value_heads": 4,
           "intermediate_size": 18944, "vocab_size": 152064, "tie_word_embeddings": False},
}  # fmt: skip
STEPS = 3


def cases(dry: bool) -> list[dict[str, Any]]:
    """What is measured: the request of an estimate, with the config of its model."""
    found = []
    for size in ("tiny",) if dry else ("0.5B", "1.5B", "7B"):
        for method in ("sft", "dpo", "grpo"):
            for tuning in ("lora", "full"):
                if size == "7B" and tuning == "full":
                    continue
                length = 64 if dry else 1024
                micro = 4 if method == "grpo" else 2
                found.append(
                    {
                        "size": size, "method": method, "tuning": tuning, "lora_rank": 16,
                        "micro_batch": micro, "max_prompt_length": length // 2,
                        "max_completion_length": length // 2, "max_length": length, "num_generations": 4,
                        "gradient_checkpointing": True, "optimizer": "adamw_torch_fused",
                    }
                )  # fmt: skip
    return found


def run_case(case: dict[str, Any]) -> dict[str, Any]:
    """Trains a few steps in this process, and returns its peaks in bytes."""
    import resource

    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import LlamaConfig, LlamaForCausalLM
    from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

    from pipelines.training.calibrate_worker import tokenizer

    gpu = torch.cuda.is_available()
    dtype = torch.float32 if case["tuning"] == "full" or not gpu else torch.bfloat16
    config = LlamaConfig(**SIZES[case["size"]], max_position_embeddings=8192, pad_token_id=0, eos_token_id=1)
    model = LlamaForCausalLM(config).to(dtype)
    if gpu:
        model = model.to("cuda")
    words = " ".join(f"w{2 + number % 50}" for number in range(case["max_prompt_length"]))
    answer = " ".join(f"w{3 + number % 40}" for number in range(case["max_completion_length"] - 1))
    rows = case["micro_batch"] * STEPS
    adapter = LoraConfig(r=case["lora_rank"], target_modules="all-linear", task_type="CAUSAL_LM")
    shared: dict[str, Any] = {
        "per_device_train_batch_size": case["micro_batch"], "max_steps": STEPS, "report_to": [],
        "gradient_checkpointing": case["gradient_checkpointing"], "optim": case["optimizer"], "bf16": gpu,
        "use_cpu": not gpu, "save_strategy": "no", "disable_tqdm": True, "logging_steps": 1,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        common = {
            "model": model,
            "processing_class": tokenizer(64),
            "peft_config": adapter if case["tuning"] == "lora" else None,
        }
        trainer: Any
        if case["method"] == "sft":
            data = Dataset.from_list([{"text": f"{words} {answer}"}] * rows)
            settings = SFTConfig(output_dir=folder, max_length=case["max_length"], **shared)
            trainer = SFTTrainer(args=settings, train_dataset=data, **common)
        elif case["method"] == "dpo":
            pair = {"prompt": words, "chosen": f" {answer}", "rejected": f" {answer}"}
            settings = DPOConfig(output_dir=folder, max_length=case["max_length"], **shared)
            if case["tuning"] == "full":
                common["ref_model"] = copy.deepcopy(model)  # from random weights there is no path to load it
            trainer = DPOTrainer(args=settings, train_dataset=Dataset.from_list([pair] * rows), **common)
        else:
            settings = GRPOConfig(
                output_dir=folder,
                num_generations=case["num_generations"],
                max_completion_length=case["max_completion_length"],
                generation_kwargs={"min_new_tokens": case["max_completion_length"]},
                **shared,
            )
            trainer = GRPOTrainer(
                args=settings,
                train_dataset=Dataset.from_list([{"prompt": words}] * rows),
                reward_funcs=lambda completions, **kwargs: [float(len(text) % 3) for text in completions],
                **common,
            )
        if gpu:
            torch.cuda.reset_peak_memory_stats()
        trainer.train()
    peaks: dict[str, Any] = {"process_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    if gpu:
        free, total = torch.cuda.mem_get_info()
        peaks |= {
            "allocated_bytes": torch.cuda.max_memory_allocated(),
            "reserved_bytes": torch.cuda.max_memory_reserved(),
            "device_used_bytes": total - free,
            "device": torch.cuda.get_device_name(),
        }
    else:
        peaks["device"] = "CPU"
    return peaks


def record(case: dict[str, Any], peaks: dict[str, Any]) -> dict[str, Any]:
    import datetime

    names = ("torch", "transformers", "trl", "peft", "accelerate")
    return {
        "case": case,
        "config": {"model_type": "llama", **SIZES[case["size"]]},
        "peaks": peaks,
        "versions": {name: version(name) for name in names},
        "date": datetime.date.today().isoformat(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dry-run", action="store_true", help="the smallest cases; the file is not written")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        case = json.loads(options.one)
        print("\n" + json.dumps(record(case, run_case(case))))
        return
    for case in cases(options.dry_run):
        done = subprocess.run(
            [sys.executable, __file__, "--one", json.dumps(case)], capture_output=True, text=True, check=False
        )
        name = f"{case['size']} {case['method']} {case['tuning']}"
        if done.returncode:
            print(f"{name}: failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
            continue
        row = json.loads(done.stdout.strip().splitlines()[-1])
        peaks = {key: f"{value / 2**30:.3f} GiB" for key, value in row["peaks"].items() if key != "device"}
        print(f"{name} on {row['peaks']['device']}: {peaks}")
        if not options.dry_run and row["peaks"]["device"] != "CPU":
            DATA.parent.mkdir(exist_ok=True)
            with DATA.open("a", encoding="utf-8") as handle:
                handle.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()

"""One stage process: read config.yaml, train or resume, evaluate, save, and write done.json last.

A stage script builds the trainer and hands it to `run_stage`; everything that is the same for every method
is here.
"""

from __future__ import annotations

import dataclasses
import fcntl
import gc
import importlib.metadata
import os
import resource
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psutil
import torch
import transformers
from datasets import Dataset
from datasets import disable_progress_bars as disable_dataset_bars
from transformers import PrinterCallback, TrainerCallback, set_seed
from trl.rewards import get_soft_overlong_punishment

from estimators.errors import AdvisorError, BadInput
from estimators.record import nearest
from pipelines import stages
from pipelines.datasets import read_records
from pipelines.events import EventLog, read_events, seconds_so_far
from pipelines.rewards import load_reward
from pipelines.stages import PassRates, StageConfig, StageResult
from pipelines.training.callbacks import CompleteMark, EventCallback, newest_checkpoint
from pipelines.training.evaluation import evaluate_policy, text_of
from pipelines.training.guarded_reward import GuardedReward
from pipelines.training.models import load_finished, load_policy, load_tokenizer, save_policy

A = TypeVar("A")
SUPERVISED = "ADVISOR_SUPERVISED"
EXIT_BAD_INPUT = 1
EXIT_FAILED = 3
SAMPLE_PROMPTS = 24
"""Prompts whose completions go into the table of an evaluation."""


class Stage:
    """What a stage script needs: its config, model, rows, rewards, arguments and callbacks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run_dir = folder.parent
        self.config: StageConfig = stages.read_stage(folder)
        self.identity = stages.stage_identity(self.run_dir, folder.name)
        self.events = EventLog(folder / stages.EVENTS)
        self.event_callback = EventCallback(self.events)
        self.tokenizer = load_tokenizer(self.config, self.run_dir)
        self.seconds = {"earlier attempts": seconds_so_far(read_events(folder / stages.EVENTS))}
        self.events.write("attempt")

    def policy(self) -> tuple[Any, Any]:
        """The model to train, and the adapter config for the trainer (None where there is nothing to add)."""
        return load_policy(self.config, self.run_dir, self.folder)

    def rows(self, name: str | None) -> list[dict[str, Any]]:
        """The records of a data file of this run."""
        return [] if name is None else list(read_records(self.run_dir / name))

    def train_dataset(self) -> Dataset:
        """The training rows."""
        if self.config.data.train is None:
            raise BadInput(f"{self.folder / stages.CONFIG}: data.train names no file to train on")
        return Dataset.from_list(self.rows(self.config.data.train))

    def eval_dataset(self) -> Dataset | None:
        """Held-out rows in the training format, or None."""
        rows = self.rows(self.config.data.eval)
        return Dataset.from_list(rows) if rows else None

    def task_reward(self) -> Callable[..., list[float | None]] | None:
        """The task's own reward, unshaped."""
        if self.config.reward is None:
            return None
        return GuardedReward(load_reward(self.config.reward, self.run_dir), self.config.reward)

    def reward_functions(self) -> list[Any]:
        """The task's reward first, then the shaping ones."""
        task = self.task_reward()
        if task is None:
            raise BadInput(f"{self.folder / stages.CONFIG}: {self.config.method} needs a reward")
        functions: list[Any] = [task]
        if self.config.overlong is not None:
            functions.append(
                get_soft_overlong_punishment(
                    max_completion_len=int(self.config.trainer["max_completion_length"]),
                    soft_punish_cache=self.config.overlong.cache,
                )
            )
        return functions

    def reward_weights(self) -> list[float]:
        """One weight per reward function."""
        return [1.0] + ([self.config.overlong.weight] if self.config.overlong is not None else [])

    def arguments(self, config_class: type[A], **extra: Any) -> A:
        """The trainer's arguments: the config's `trainer` section, and what every stage sets alike."""
        cpu = not torch.cuda.is_available()
        given = {
            "output_dir": str(self.folder),
            "report_to": [],
            "disable_tqdm": True,
            "seed": self.config.seed,
            "use_cpu": cpu,
            "logging_first_step": True,
            "logging_nan_inf_filter": False,
            "dataloader_pin_memory": not cpu,
            **({"bf16": False} if cpu else {}),
            **extra,
            **self.config.trainer,
        }
        known = {field.name for field in dataclasses.fields(config_class)}  # type: ignore[arg-type]
        for name in self.config.trainer:
            if name not in known:
                guess = nearest(name, known)
                hint = f'; did you mean "{guess}"?' if guess else ""
                raise BadInput(
                    f'{self.folder / stages.CONFIG}: "trainer.{name}" is not a field of '
                    f"{config_class.__name__}{hint}"
                )
        try:
            return config_class(**{name: value for name, value in given.items() if name in known})
        except (ValueError, TypeError) as error:
            reason = " ".join(str(error).split())
            raise BadInput(
                f"{self.folder / stages.CONFIG}: {config_class.__name__} refuses: {reason}"
            ) from None

    def callbacks(self) -> list[TrainerCallback]:
        """Those of every trainer."""
        return [self.event_callback, CompleteMark()]

    def phase(self, name: str) -> Phase:
        """A context manager that logs and times a phase."""
        return Phase(self, name)

    def evaluate(self, model: Any) -> PassRates | None:
        """pass@k on the held-out prompts; None where the task has no reward or no prompts."""
        reward, settings = self.task_reward(), self.config.evaluation
        if reward is None or settings is None or self.config.data.prompts is None:
            return None
        rows = self.rows(self.config.data.prompts)
        rates, records = evaluate_policy(model, self.tokenizer, rows, reward, settings, seed=self.config.seed)
        self.events.write("completions", step=0, name="held-out", rows=_table(records[:SAMPLE_PROMPTS]))
        return rates


def _table(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first two completions of each prompt, as rows."""
    return [
        {"prompt": text_of(record["prompt"]), "completion": text_of(completion), "reward": reward}
        for record in records
        for completion, reward in list(zip(record["completions"], record["rewards"], strict=True))[:2]
    ]


class Phase:
    """Logs that a phase began, and adds its wall time to the stage's."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage, self.name = stage, name

    def __enter__(self) -> None:
        self.stage.events.write("phase", name=self.name)
        self.start = time.monotonic()

    def __exit__(self, *exception: object) -> None:
        spent = self.stage.seconds.get(self.name, 0.0) + time.monotonic() - self.start
        self.stage.seconds[self.name] = round(spent, 3)


def run_stage(script: str, build: Callable[[Stage], Any]) -> None:
    """Run the stage whose script this is; ends the process with its exit code.

    `build(stage)` returns the trainer. 0 done; 1 a problem the user can mend, told in one line on stderr;
    3 anything else, with its traceback in the log.
    """
    sys.exit(_guarded(Path(script).resolve().parent, lambda stage: _train(stage, build(stage))))


def run_probe(script: str) -> None:
    """Run a stage that trains nothing: pass@k of the model that the pipeline starts from."""
    sys.exit(_guarded(Path(script).resolve().parent, _probe))


def _guarded(folder: Path, work: Callable[[Stage], None]) -> int:
    """`work` on an opened stage, as an exit code."""
    _quiet_libraries()
    if os.environ.get(SUPERVISED):
        threading.Thread(target=_die_with_supervisor, daemon=True).start()
    try:
        with (folder / ".lock").open("w") as lock:
            _lock(lock, folder)
            stage = Stage(folder)
            set_seed(stage.config.seed)
            work(stage)
        return 0
    except AdvisorError as error:
        sys.stderr.write(f"error: {error}\n")
        return EXIT_FAILED if error.exit_code == EXIT_FAILED else EXIT_BAD_INPUT
    except Exception as error:
        traceback.print_exc()  # to the log; the user is shown the last line
        sys.stderr.write(f"error: {_in_one_line(error)}\n")
        return EXIT_FAILED


def _in_one_line(error: Exception) -> str:
    """What happened and where, for a user; running out of GPU memory comes with its remedy."""
    if isinstance(error, torch.OutOfMemoryError):
        return (
            "the GPU ran out of memory; in the stage's config.yaml halve per_device_train_batch_size and "
            "double gradient_accumulation_steps, or set gradient_checkpointing: true"
        )
    frame = traceback.extract_tb(error.__traceback__)[-1]
    what = " ".join(str(error).split())[:500]
    return f"{type(error).__name__}: {what} ({frame.filename}:{frame.lineno})"


def _train(stage: Stage, trainer: Any) -> None:
    """Train or resume, evaluate, save, and mark the stage as finished."""
    stage.event_callback.trainer = trainer
    trainer.remove_callback(PrinterCallback)  # the event log has it
    checkpoint = newest_checkpoint(stage.folder)
    if checkpoint is not None:
        stage.events.write("note", text=f"resumed from {checkpoint.name}")
    stage.seconds["start"] = round(time.time() - psutil.Process().create_time(), 3)
    with stage.phase("train"):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    note = _stop_note(trainer, stage.folder)
    model = trainer.accelerator.unwrap_model(trainer.model)
    _drop_optimizer(trainer)
    metrics: dict[str, float] = {}
    with stage.phase("evaluate"):
        if trainer.eval_dataset is not None and stage.config.data.eval is not None:
            metrics = {k: v for k, v in trainer.evaluate().items() if isinstance(v, float)}
        rates = stage.evaluate(model)
    with stage.phase("save"):
        save_policy(model, stage.tokenizer, stage.folder / stages.MODEL)
    _finish(stage, model, trainer.state.global_step, rates, metrics, note)


def _drop_optimizer(trainer: Any) -> None:
    """Free gradients and optimizer states: the evaluation has the memory that its estimate counts on."""
    trainer.model.zero_grad(set_to_none=True)
    trainer.optimizer = trainer.lr_scheduler = None
    trainer.accelerator._optimizers.clear()
    trainer.accelerator._schedulers.clear()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _stop_note(trainer: Any, folder: Path) -> str | None:
    """What ended a training early; raises where it never had a signal, so that nothing was learned.

    Its checkpoints hold nothing either and are removed, or the next run would resume from them.
    """
    guard = getattr(trainer, "guard", None)
    if guard is None or trainer.state.global_step == 0:
        return None
    causes = {
        "all_right": "every completion was right, so there was nothing left to learn",
        "all_wrong": "every completion was wrong",
        "no_difference": "the completions of each group got the same reward",
    }
    step, reason = trainer.state.global_step, trainer.stop_reason
    if guard.had_signal or reason == "all_right":
        return f"stopped at step {step}: in the last steps {causes[reason]}" if reason else None
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint, ignore_errors=True)
    remedy = {
        "all_wrong": "The model cannot do the task yet: use easier prompts, more or better demonstrations in "
        "an SFT stage before this one, or check that the reward pays a right answer",
        "no_difference": "Check that the reward tells completions of one prompt apart, raise num_generations "
        "or the temperature",
    }
    told = reason or "no_difference"
    raise BadInput(f"no group carried a signal in {step} steps: {causes[told]}. {remedy[told]}")


def _probe(stage: Stage) -> None:
    """Evaluate the model that the pipeline starts from."""
    model = load_finished(stage.config, stage.run_dir)
    stage.seconds["start"] = round(time.time() - psutil.Process().create_time(), 3)
    with stage.phase("evaluate"):
        rates = stage.evaluate(model)
    _finish(stage, model, 0, rates, {}, None)


def _finish(
    stage: Stage, model: Any, steps: int, rates: PassRates | None, metrics: dict[str, float], note: str | None
) -> None:
    """Log the held-out numbers and write done.json."""
    values = dict(metrics)
    if rates is not None:
        values |= {
            "eval/pass_at_1": rates.pass_at_1.value,
            "eval/pass_at_1_low": rates.pass_at_1.low,
            "eval/pass_at_1_high": rates.pass_at_1.high,
            f"eval/pass_at_{rates.samples}": rates.pass_at_k.value,
            "eval/truncated": rates.truncated,
            "eval/mean_tokens": rates.mean_tokens,
        }
    memory, kind = peak_memory()
    values |= {"peak_memory_gib": memory / 2**30, **{f"seconds/{k}": v for k, v in stage.seconds.items()}}
    stage.events.write("metrics", step=steps, max_steps=steps, values=values)
    if note:
        stage.events.write("note", text=note)
    stages.write_result(
        stage.folder,
        StageResult(
            identity=stage.identity,
            method=stage.config.method,
            steps=steps,
            seconds=stage.seconds,
            peak_memory_bytes=memory,
            memory_kind=kind,
            num_parameters=sum(p.numel() for p in model.parameters()),
            num_trainable_parameters=sum(p.numel() for p in model.parameters() if p.requires_grad),
            pass_rates=rates,
            metrics=metrics,
            note=note,
            versions=_versions(),
        ),
    )


def peak_memory() -> tuple[int, Any]:
    """Highest memory so far in bytes: what the GPU allocator reserved, or this process's resident set."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_reserved(), "device"
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "process"


def _versions() -> dict[str, str]:
    """The versions that the result was made with."""
    names = ("torch", "transformers", "trl", "peft", "accelerate", "datasets")
    return {name: importlib.metadata.version(name) for name in names}


def _lock(lock: Any, folder: Path) -> None:
    """Hold the stage's lock while the process lives; waits a moment for a worker that is being ended."""
    for _ in range(50):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            time.sleep(0.1)
    raise BadInput(f"{folder}: another process is running this stage; wait for it, or end it first")


def _die_with_supervisor() -> None:
    """End this process when the supervisor's end of stdin closes, however the supervisor died."""
    while os.read(0, 4096):  # not sys.stdin: its lock would abort the interpreter's own end
        pass
    os._exit(143)


def _quiet_libraries() -> None:
    """No progress bars and no advice from libraries: the log is for what happened."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    disable_dataset_bars()

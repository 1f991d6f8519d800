"""GRPO and DAPO on TRL's GRPOTrainer: dynamic sampling, and a guard against steps without signal.

A group is the G completions of one prompt. Its advantages are its rewards less their mean, so a group that
is all right or all wrong teaches nothing. DAPO (arXiv:2503.14476, section 3.2) keeps sampling until the
batch is full of groups with signal; TRL 1.16 has no such thing, so it is here. What counts is the task
reward alone: a length penalty differs between completions that are equally wrong, and would hide them.

Axis letters: R rows of a batch (groups x G), N groups, G completions of a group, T tokens.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import GRPOTrainer

from estimators.errors import BadInput
from pipelines.stages import DynamicSampling

EPSILON = 1e-6
"""Task rewards closer than this are equal."""

PROMPT_KEYS = ("prompt_ids", "prompt_mask")
"""Left-padded along their last axis; every other key with an axis T is right-padded."""

EXACT_LOSSES = ("dapo", "cispo", "vespo")
"""Losses divided by `num_items_in_batch`: exact for a part-filled batch once that number is right."""

ROW_MEAN_LOSSES = ("grpo", "dr_grpo", "luspo", "sapo")
"""Losses that average over rows: a part-filled batch needs the factor rows / used rows."""

Batch = dict[str, Any]


class GroupTrainer(GRPOTrainer):
    """TRL's GRPOTrainer that knows which groups carry signal.

    Without `dynamic_sampling` it is plain GRPO, bit for bit, with the shares of solved and failed groups
    logged. With it, every batch is filled with groups whose task rewards differ.

    Args:
        num_task_rewards: the first so many of `reward_funcs` are the task; the rest is shaping.
        dynamic_sampling: its bounds; None for plain GRPO.
        patience: so many optimizer steps in a row without any signal end the training; None is 3 under
            dynamic sampling, where each has looked at many groups, and 10 without.
    """

    def __init__(
        self,
        *args: Any,
        num_task_rewards: int = 1,
        dynamic_sampling: DynamicSampling | None = None,
        patience: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.num_task_rewards = num_task_rewards
        self.dynamic_sampling = dynamic_sampling
        self.last_samples: Batch = {}
        self.stop_reason: str | None = None
        self._window_informative = 0
        self._window_solved = 0
        self._window_failed = 0
        self._window_groups = 0
        self._batch_of_step = 0
        if dynamic_sampling is not None:
            self._check_dynamic_sampling()
        self.guard = SignalGuard(self, patience or (10 if dynamic_sampling is None else 3))
        self.add_callback(self.guard)

    def _check_dynamic_sampling(self) -> None:
        """Refuse what a part-filled batch would normalise wrongly."""
        if self.loss_type not in EXACT_LOSSES + ROW_MEAN_LOSSES:
            raise BadInput(
                f'dynamic sampling with loss_type "{self.loss_type}" would normalise a part-filled batch '
                f"wrongly; use one of {', '.join(EXACT_LOSSES + ROW_MEAN_LOSSES)}"
            )
        if self.scale_rewards == "batch" or self.multi_objective_aggregation != "sum_then_normalize":
            raise BadInput(
                'dynamic sampling needs scale_rewards "group" or "none" and multi_objective_aggregation '
                '"sum_then_normalize": the other forms use the statistics of groups that are left out'
            )

    # Rewards ------------------------------------------------------------------------------------------

    def _calculate_rewards(
        self, inputs: list[Batch], prompts: list[Any], completions: list[Any], completion_ids_list: list[Any]
    ) -> torch.Tensor:
        """TRL's rewards (gathered over ranks, shape R x functions), kept to judge the groups by."""
        rewards_RF = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if self.model.training:
            self._task_rewards_R = self._task_reward(rewards_RF)
        self.last_samples = {
            "prompts": prompts,
            "completions": completions,
            "rewards": rewards_RF[: len(prompts)].tolist(),
            "names": list(self.reward_func_names),
        }
        return rewards_RF

    def _task_reward(self, rewards_RF: torch.Tensor) -> torch.Tensor:
        """Weighted sum of the task's own reward columns; NaN where none could score the row."""
        task_RF = rewards_RF[:, : self.num_task_rewards]
        weights_F = self.reward_weights[: self.num_task_rewards].to(task_RF.device)
        task_R = (task_RF * weights_F).nansum(dim=1)
        task_R[torch.isnan(task_RF).all(dim=1)] = torch.nan
        return task_R

    def _judge_groups(self) -> list[bool]:
        """Which of the groups just scored carry signal; counts and logs the rest. The same on all ranks."""
        groups_NG = self._task_rewards_R.view(-1, self.num_generations)
        informative: list[bool] = []
        solved = failed = 0
        best = float(self.reward_weights[: self.num_task_rewards].sum())
        for group_G in groups_NG.tolist():
            scored = [reward for reward in group_G if not math.isnan(reward)]
            signal = len(scored) >= 2 and max(scored) - min(scored) > EPSILON
            informative.append(signal)
            if scored and not signal:
                solved += scored[0] >= best - EPSILON
                failed += scored[0] <= EPSILON
        metrics = self._metrics["train"]
        metrics["groups/informative"].append(sum(informative) / len(informative))
        metrics["groups/all_right"].append(solved / len(informative))
        metrics["groups/all_wrong"].append(failed / len(informative))
        self._window_informative += sum(informative)
        self._window_solved += solved
        self._window_failed += failed
        self._window_groups += len(informative)
        return informative

    # Rollouts -----------------------------------------------------------------------------------------

    def _generate_and_score_completions(self, inputs: list[Batch]) -> Batch:
        """A scored batch of len(inputs) rows; under dynamic sampling, of groups with signal."""
        if not self.model.training:
            evaluated: Batch = super()._generate_and_score_completions(inputs)
            return evaluated
        if self.dynamic_sampling is None:
            scored: Batch = super()._generate_and_score_completions(inputs)
            self._judge_groups()
            return scored
        return self._fill_batch(inputs, self.dynamic_sampling)

    def _fill_batch(self, inputs: list[Batch], bounds: DynamicSampling) -> Batch:
        """Sample rounds of prompts until the batch holds only groups with signal, or the bounds end it.

        Every decision below rests on gathered values, so all ranks take the same number of rounds.
        """
        world = self.accelerator.num_processes
        needed = len(inputs) * world // self.num_generations
        prompts = _PromptStream(
            self.train_dataset, self.args.seed, self.state.global_step, self._batch_of_step
        )
        self._batch_of_step += 1
        prompts.mark_used(gather_object([row["prompt"] for row in inputs[:: self.num_generations]]))
        parts: list[Batch] = []
        found = generated = rounds = 0
        first: Batch | None = None
        while True:
            batch = super()._generate_and_score_completions([dict(row) for row in inputs])
            informative = self._judge_groups()
            first = batch if first is None else first
            rounds += 1
            generated += len(informative)
            found += sum(informative)
            parts += gather_object([self._keep(batch, informative)])
            if found >= needed or rounds >= bounds.max_rounds:
                break
            rate = max(found / generated, 1 / (2 * generated))
            wanted = min(math.ceil((needed - found) / rate), needed)
            step = world // math.gcd(self.num_generations, world)
            inputs = self._local_rows(prompts.take(math.ceil(wanted / step) * step))
            if not inputs:
                break
        used = min(found, needed)
        metrics = self._metrics["train"]
        metrics["dynamic_sampling/rounds"].append(rounds)
        metrics["dynamic_sampling/groups_generated"].append(generated)
        metrics["dynamic_sampling/groups_used"].append(used)
        metrics["dynamic_sampling/groups_left_out"].append(found - used)
        metrics["dynamic_sampling/fill"].append(used / needed)
        return self._assemble(parts, first, used * self.num_generations, needed * self.num_generations)

    def _keep(self, batch: Batch, informative: Sequence[bool]) -> Batch:
        """The rows of this rank that belong to groups with signal."""
        if any(key in batch for key in ("pixel_values", "num_images")):
            raise BadInput('dynamic sampling handles text only; set "dynamic_sampling: null" for images')
        rows = len(batch["advantages"])
        start = self.accelerator.process_index * rows
        kept = [row for row in range(rows) if informative[(start + row) // self.num_generations]]
        device = torch.device("cpu") if self.accelerator.num_processes > 1 else batch["advantages"].device
        return {
            key: value[kept].to(device)
            for key, value in batch.items()
            if isinstance(value, torch.Tensor) and value.ndim
        }

    def _local_rows(self, groups: list[Batch]) -> list[Batch]:
        """This rank's share of the rows of a global list of prompts, each repeated G times."""
        rows = [row for row in groups for _ in range(self.num_generations)]
        share = len(rows) // self.accelerator.num_processes
        rank = self.accelerator.process_index
        return rows[rank * share : (rank + 1) * share]

    def _assemble(self, parts: list[Batch], template: Batch, used: int, needed: int) -> Batch:
        """This rank's part of `used` rows with signal, topped up to `needed` rows that count for nothing.

        The batch keeps its shape, so that ranks stay in step; rows that top up have a zero mask and a zero
        advantage, and the loss is divided by what was really used.
        """
        device = self.accelerator.device
        if used == 0:
            empty = dict(template)
            empty["completion_mask"] = torch.zeros_like(template["completion_mask"])
            empty["advantages"] = torch.zeros_like(template["advantages"])
            empty["num_items_in_batch"] = torch.zeros_like(template["num_items_in_batch"])
            empty["loss_scale"] = torch.ones((), device=device)
            return empty
        pool = {key: value[:used] for key, value in concatenate(parts).items()}
        mask_RT = pool["completion_mask"] * pool.get("tool_mask", 1)
        tokens = mask_RT.sum()
        if used < needed:
            filler = {key: value[torch.arange(needed - used) % used] for key, value in pool.items()}
            filler["completion_mask"] = torch.zeros_like(filler["completion_mask"])
            filler["advantages"] = torch.zeros_like(filler["advantages"])
            pool = {key: torch.cat([value, filler[key]]) for key, value in pool.items()}
        rank, world = self.accelerator.process_index, self.accelerator.num_processes
        local = {key: value[rank::world].to(device) for key, value in pool.items()}
        local["num_items_in_batch"] = tokens.to(device)
        scale = needed / used if self.loss_type in ROW_MEAN_LOSSES else 1.0
        local["loss_scale"] = torch.tensor(scale, device=device)
        return local

    def _compute_loss(self, model: Any, inputs: Batch) -> torch.Tensor:
        """TRL's loss, with a part-filled batch counted as what it holds."""
        loss: torch.Tensor = super()._compute_loss(model, inputs)
        return loss * inputs["loss_scale"] if "loss_scale" in inputs else loss


class _PromptStream:
    """Prompts for the extra rounds of one batch: a permutation by (seed, step, batch of the step) alone.

    It takes nothing from the data loader, whose position must stay the step count, so a resumed run draws
    the same prompts.
    """

    def __init__(self, dataset: Any, seed: int, *position: int) -> None:
        self._dataset = dataset
        self._order = list(range(len(dataset)))
        random.Random(f"{seed}/{position}").shuffle(self._order)
        self._next = 0
        self._used: set[str] = set()

    def mark_used(self, prompts: list[Any]) -> None:
        """Prompts of the first round, not to be sampled again in this step."""
        self._used.update(map(repr, prompts))

    def take(self, count: int) -> list[Batch]:
        """The next `count` rows; none at all once fewer than that are left."""
        rows: list[Batch] = []
        while len(rows) < count and self._next < len(self._order):
            row = self._dataset[self._order[self._next]]
            self._next += 1
            key = repr(row["prompt"])
            if key not in self._used:
                self._used.add(key)
                rows.append(row)
        return rows if len(rows) == count else []


def concatenate(parts: list[Batch]) -> Batch:
    """Batches joined along their rows, padded to the widest: prompts to the left, the rest to the right."""
    joined: Batch = {}
    for key in parts[0]:
        values = [part[key] for part in parts]
        width = max((value.shape[1] for value in values if value.ndim == 2), default=0)
        if width:
            values = [_widen(value, width, left=key in PROMPT_KEYS) for value in values]
        joined[key] = torch.cat(values)
    return joined


def _widen(value_RT: torch.Tensor, width: int, left: bool) -> torch.Tensor:
    """`value_RT` with zero columns added up to `width`; masked positions, so the value does not matter."""
    missing = width - value_RT.shape[1]
    return torch.nn.functional.pad(value_RT, (missing, 0) if left else (0, missing))


class SignalGuard(TrainerCallback):
    """Leaves the weights alone on a step without signal, and ends a training that has none.

    Under dynamic sampling an empty step drops the gradients: zero gradients would still move the weights
    through the optimizer's momentum. Plain GRPO keeps its own behaviour.
    """

    def __init__(self, trainer: GroupTrainer, patience: int) -> None:
        self.trainer = trainer
        self.patience = patience
        self.dead_steps = self.dead_solved = self.dead_failed = self.dead_groups = 0
        self.had_signal = False

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.trainer.dynamic_sampling is not None and self._dead():
            for parameter in self.trainer.model.parameters():
                parameter.grad = None

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        trainer = self.trainer
        trainer._batch_of_step = 0
        if trainer._window_groups == 0:  # a step on rollouts of an earlier one
            return
        if self._dead():
            self.dead_steps += 1
            self.dead_solved += trainer._window_solved
            self.dead_failed += trainer._window_failed
            self.dead_groups += trainer._window_groups
        else:
            self.dead_steps = self.dead_solved = self.dead_failed = self.dead_groups = 0
            self.had_signal = True
        if self.dead_steps >= self.patience:
            trainer.stop_reason = self._reason()
            control.should_training_stop = True
        trainer._window_informative = trainer._window_solved = trainer._window_failed = 0
        trainer._window_groups = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """After a resume, signal that was seen before counts: the checkpoints hold what it taught."""
        self.remember(state)

    def remember(self, state: TrainerState) -> None:
        """Whether the steps in a state's history had any signal."""
        self.had_signal = any(entry.get("groups/informative") for entry in state.log_history)

    def _reason(self) -> str:
        """Why the last steps had no signal, over all their groups."""
        if self.dead_solved == self.dead_groups:
            return "all_right"
        return "all_wrong" if self.dead_failed == self.dead_groups else "no_difference"

    def _dead(self) -> bool:
        return self.trainer._window_groups > 0 and self.trainer._window_informative == 0

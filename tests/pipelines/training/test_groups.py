"""GRPO and DAPO in real training: what enters a batch, how it is normalised, when it stops."""

import json
import warnings

import pytest

torch = pytest.importorskip("torch")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer
    from trl.rewards import get_soft_overlong_punishment

from estimators.errors import BadInput
from pipelines.stages import DynamicSampling
from pipelines.training.groups import GroupTrainer, _PromptStream, concatenate

pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore")]
G = 4


@pytest.fixture(scope="module")
def rows(task):
    return [json.loads(line) for line in (task / "prompts.jsonl").read_text().splitlines()[:64]]


@pytest.fixture
def build(task, rows, tmp_path):
    """A trainer on the tiny model: 4 prompts a step, 4 completions each."""

    def make(reward, cls=GroupTrainer, shaping=(), data=rows, trainer=None, **config):
        tokenizer = AutoTokenizer.from_pretrained(task / "base-model")
        model = AutoModelForCausalLM.from_pretrained(task / "base-model")
        settings = {
            "output_dir": str(tmp_path / "out"),
            "report_to": [],
            "use_cpu": True,
            "bf16": False,
            "max_steps": 3,
            "per_device_train_batch_size": 4 * G,
            "num_generations": G,
            "max_completion_length": 8,
            "learning_rate": 1e-3,
            "lr_scheduler_type": "constant",
            "save_strategy": "no",
            "disable_tqdm": True,
            "gradient_checkpointing": False,
            "loss_type": "dapo",
            "beta": 0.0,
            "logging_steps": 1,
            "seed": 0,
            **config,
        }
        return cls(
            model=model,
            args=GRPOConfig(**settings),
            train_dataset=Dataset.from_list(data),
            processing_class=tokenizer,
            reward_funcs=[reward, *shaping],
            **({"num_task_rewards": 1} if cls is not GRPOTrainer else {}),
            **(trainer or {}),
        )

    return make


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


def trained_weights(build, *args, **kwargs):
    """Built and trained before the next one is built: the constructor seeds the global generators."""
    trainer = build(*args, **kwargs)
    trainer.train()
    return weights(trainer)


def by_place(completions, **kwargs):
    """Every group has signal: its completions are paid 0, 1, 0, 1."""
    return [float(i % 2) for i in range(len(completions))]


def even_prompts_only(prompts, completions, **kwargs):
    """Groups of prompts that begin with an even digit have signal; the others are all wrong."""
    return [float(i % 2) if int(p[0]) % 2 == 0 else 0.0 for i, p in enumerate(prompts)]


class Seen(GroupTrainer):
    """Keeps every batch that reaches the loss."""

    def _compute_loss(self, model, inputs):
        if self.model.training:
            self.seen = [*getattr(self, "seen", []), {k: v.clone() for k, v in inputs.items()}]
        return super()._compute_loss(model, inputs)


def test_without_dynamic_sampling_it_is_trls_grpo_bit_for_bit(build):
    ours = trained_weights(build, by_place)
    assert torch.equal(ours, trained_weights(build, by_place, cls=GRPOTrainer))


def test_where_no_group_is_left_out_dynamic_sampling_changes_nothing(build):
    ours = trained_weights(build, by_place, trainer={"dynamic_sampling": DynamicSampling()})
    assert torch.equal(ours, trained_weights(build, by_place, cls=GRPOTrainer))


def test_only_groups_with_signal_enter_and_the_batch_is_full(build):
    trainer = build(even_prompts_only, cls=Seen, trainer={"dynamic_sampling": DynamicSampling()})
    trainer.train()
    tokenizer = trainer.processing_class
    assert len(trainer.seen) == 3
    for batch in trainer.seen:
        assert len(batch["advantages"]) == 4 * G
        assert (batch["advantages"].abs() > 0.1).all()
        prompts = tokenizer.batch_decode(batch["prompt_ids"], skip_special_tokens=True)
        assert all(int(prompt[0]) % 2 == 0 for prompt in prompts)
        counts = {prompt: prompts.count(prompt) for prompt in prompts}
        assert set(counts.values()) == {G}, "whole groups, and no prompt twice"
    logged = [entry for entry in trainer.state.log_history if "dynamic_sampling/rounds" in entry]
    assert max(entry["dynamic_sampling/rounds"] for entry in logged) > 1
    assert all(entry["dynamic_sampling/fill"] == 1.0 for entry in logged)


def test_a_length_penalty_does_not_make_a_dead_group_look_alive(build):
    """TRL's frac_reward_zero_std would be 0 here: the shaping differs inside every group."""

    def shaping(completions, **kwargs):
        return [-0.1 * (i % 3) for i in range(len(completions))]

    trainer = build(
        even_prompts_only, cls=Seen, shaping=[shaping], trainer={"dynamic_sampling": DynamicSampling()}
    )
    trainer.train()
    for batch in trainer.seen:
        prompts = trainer.processing_class.batch_decode(batch["prompt_ids"], skip_special_tokens=True)
        assert all(int(prompt[0]) % 2 == 0 for prompt in prompts)
    assert all(
        e["frac_reward_zero_std"] == 0 for e in trainer.state.log_history if "frac_reward_zero_std" in e
    )


@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "dr_grpo"])
def test_a_part_filled_batch_has_the_gradient_of_what_it_holds(build, loss_type):
    """One group of four has signal; the rest tops up and must count for nothing, in sum or in mean."""

    def one_group(prompts, completions, **kwargs):
        first = prompts[0]
        return [float(i % 2) if p == first else 0.0 for i, p in enumerate(prompts)]

    trainer = build(
        one_group,
        cls=Seen,
        trainer={"dynamic_sampling": DynamicSampling(max_rounds=1)},
        loss_type=loss_type,
        max_steps=1,
    )
    trainer.train()
    (batch,) = trainer.seen
    used = batch["completion_mask"].sum(1) > 0
    assert used.sum() == G
    assert batch["num_items_in_batch"] == batch["completion_mask"].sum()
    alone = {k: v[used] if v.ndim else v for k, v in batch.items()}
    alone["loss_scale"] = torch.tensor(1.0)

    def gradient(inputs):
        trainer.model.train()
        trainer.model.zero_grad()
        GroupTrainer._compute_loss(trainer, trainer.model, inputs).backward()
        return torch.cat([p.grad.flatten() for p in trainer.model.parameters()])

    whole, part = gradient(batch), gradient(alone)
    assert part.norm() > 1e-3
    assert (whole - part).abs().max() <= 1e-6 * part.abs().max()


def test_a_step_without_signal_leaves_the_weights_alone_even_with_momentum(build):
    """Two live steps build momentum; the third has none, and zero gradients would still move the weights."""
    calls = {"n": 0}

    def dies(completions, **kwargs):
        calls["n"] += 1
        return by_place(completions) if calls["n"] <= 2 else [0.0] * len(completions)

    one_round = DynamicSampling(max_rounds=1)
    live = trained_weights(build, by_place, trainer={"dynamic_sampling": one_round}, max_steps=2)
    options = {"dynamic_sampling": one_round, "patience": 99}
    assert torch.equal(live, trained_weights(build, dies, trainer=options, max_steps=4))


@pytest.mark.parametrize(("paid", "reason"), [(0.0, "all_wrong"), (1.0, "all_right"), (0.5, "no_difference")])
@pytest.mark.parametrize("dynamic", [None, DynamicSampling(max_rounds=2)])
def test_a_training_without_signal_stops_with_its_cause(build, paid, reason, dynamic):
    trainer = build(
        lambda completions, **kwargs: [paid] * len(completions),
        trainer={"dynamic_sampling": dynamic, "patience": 3},
        max_steps=20,
    )
    trainer.train()
    assert trainer.state.global_step == 3
    assert trainer.stop_reason == reason


def test_clip_higher_lets_a_ratio_of_1_25_through_and_symmetric_clipping_does_not(build):
    """Positive advantage, ratio 1.25: below 1 + 0.28 it has a gradient, above 1 + 0.2 it has none."""
    gradients = {}
    for high in (0.28, None):
        trainer = build(by_place, cls=Seen, max_steps=1, epsilon=0.2, epsilon_high=high)
        trainer.train()
        (batch,) = trainer.seen
        model = trainer.model.train()
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
        logps, _, _ = trainer._get_per_token_logps_and_entropies(
            model, ids, mask, batch["completion_ids"].size(1)
        )
        batch["old_per_token_logps"] = logps.detach() - torch.log(torch.tensor(1.25))
        batch["advantages"] = torch.ones_like(batch["advantages"])
        model.zero_grad()
        trainer._compute_loss(model, batch).backward()
        gradients[high] = sum(float(p.grad.abs().sum()) for p in model.parameters())
    assert gradients[0.28] > 1e-3
    assert gradients[None] == 0.0


def test_token_level_loss_weighs_tokens_and_grpo_weighs_sequences(build):
    """Two completions of 2 and 8 tokens, advantages +1 and -1, ratio 1.

    dapo: -(2 - 8) / 10 = 0.6; grpo: -(1 - 1) / 2 = 0.
    """
    losses = {}
    for loss_type in ("dapo", "grpo"):
        trainer = build(by_place, cls=Seen, max_steps=1, loss_type=loss_type)
        trainer.train()
        (batch,) = trainer.seen
        prompt = {k: batch[k][:2] for k in ("prompt_ids", "prompt_mask")}
        mask = torch.zeros(2, 8, dtype=torch.long)
        mask[0, :2], mask[1, :] = 1, 1
        made = {
            **prompt,
            "completion_ids": torch.full((2, 8), 5),
            "completion_mask": mask,
            "advantages": torch.tensor([1.0, -1.0]),
            "num_items_in_batch": mask.sum(),
        }
        losses[loss_type] = float(trainer._compute_loss(trainer.model.train(), made))
    assert losses["dapo"] == pytest.approx(0.6)
    assert losses["grpo"] == pytest.approx(0.0, abs=1e-6)


def test_the_overlong_punishment_is_paid_beside_the_task(build):
    """Random weights hardly ever end within 8 tokens, so nearly all completions are punished in full."""
    trainer = build(by_place, shaping=[get_soft_overlong_punishment(8, 4)], max_steps=2)
    trainer.train()
    entry = next(e for e in trainer.state.log_history if "rewards/by_place/mean" in e)
    punished = entry["rewards/soft_overlong_punishment_reward/mean"]
    assert -1.0 <= punished < -0.5
    assert entry["rewards/by_place/mean"] == 0.5
    assert entry["reward"] == pytest.approx(0.5 + punished, abs=1e-5)


def test_what_would_be_normalised_wrongly_is_refused(build):
    with pytest.raises(BadInput, match="bnpo"):
        build(by_place, loss_type="bnpo", trainer={"dynamic_sampling": DynamicSampling()})
    with pytest.raises(BadInput, match="scale_rewards"):
        build(by_place, scale_rewards="batch", trainer={"dynamic_sampling": DynamicSampling()})


def test_extra_prompts_depend_on_seed_and_step_alone():
    data = [{"prompt": str(i)} for i in range(20)]
    first = _PromptStream(data, 0, 3)
    first.mark_used(["1", "2"])
    again = _PromptStream(data, 0, 3)
    again.mark_used(["1", "2"])
    taken = [row["prompt"] for row in first.take(5)]
    assert taken == [row["prompt"] for row in again.take(5)]
    assert taken != [row["prompt"] for row in _PromptStream(data, 0, 4).take(5)]
    assert not {"1", "2"} & set(taken)
    assert len(first.take(13)) == 13
    assert first.take(1) == [], "no prompt twice in a step"


def test_batches_of_different_widths_join_with_prompts_to_the_right():
    joined = concatenate(
        [
            {"prompt_ids": torch.tensor([[1, 2]]), "completion_ids": torch.tensor([[3]])},
            {"prompt_ids": torch.tensor([[4]]), "completion_ids": torch.tensor([[5, 6]])},
        ]
    )
    assert joined["prompt_ids"].tolist() == [[1, 2], [0, 4]]
    assert joined["completion_ids"].tolist() == [[3, 0], [5, 6]]


def test_a_training_that_had_signal_keeps_what_it_learned_when_it_ends(build):
    """Two live steps, then none: the stop is noted, and the guard knows that there was something to keep."""
    calls = {"n": 0}

    def dies(completions, **kwargs):
        calls["n"] += 1
        return by_place(completions) if calls["n"] <= 2 else [1.0] * len(completions)

    trainer = build(dies, trainer={"patience": 3}, max_steps=20)
    trainer.train()
    assert trainer.state.global_step == 5
    assert (trainer.stop_reason, trainer.guard.had_signal) == ("all_right", True)
    dead = build(
        lambda completions, **kwargs: [0.0] * len(completions), trainer={"patience": 3}, max_steps=20
    )
    dead.train()
    assert (dead.stop_reason, dead.guard.had_signal) == ("all_wrong", False)

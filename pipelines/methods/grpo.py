"""GRPO and DAPO: rollouts in groups, scored by a program.

TRL 1.16 defaults to DAPO's loss, so plain GRPO has to ask for its own, or the two would differ in nothing
but the clip range and the sampling.
"""

from pipelines.methods.base import Method, Setting

GRPO = Method(
    name="grpo",
    title="GRPO",
    paper="arXiv:2402.03300, section 4",
    script="grpo.py",
    data="prompts",
    data_formats=("prompt_only",),
    is_rl=True,
    learning_rate={"full": 1e-6, "lora": 1e-5, "qlora": 1e-5},
    learning_rate_why="the paper's 1e-6 for full tuning, ten times that for an adapter",
    effective_batch=256,
    epochs=1,
    min_steps=100,
    max_steps=300,
    settings={
        "loss_type": Setting(
            value="grpo", why="mean per sequence, as in the paper; TRL's default is DAPO's loss"
        ),
        "epsilon": Setting(value=0.2, why="symmetric clip range, as in PPO"),
        "beta": Setting(value=0.0, why="no KL term, so no reference model in memory; 0.04 is the paper's"),
        "num_generations": Setting(value=8, why="completions per prompt: the group that advantages compare"),
        "scale_rewards": Setting(value="group", why="advantage = (reward - mean) / std of its group"),
        "temperature": Setting(value=1.0, why="rollouts are drawn from the policy itself"),
        "lr_scheduler_type": Setting(value="constant_with_warmup", why="RL has no natural end to decay to"),
        "warmup_steps": Setting(value=0.03, why="share of the steps; AdamW's moments are empty at first"),
    },
)

DAPO = GRPO.variant(
    "dapo",
    title="DAPO",
    paper="arXiv:2503.14476",
    settings={
        "loss_type": Setting(
            value="dapo", why="token-level loss: long chains count by their tokens (section 3.3)"
        ),
        "epsilon": Setting(value=0.2, why="the lower bound of the clip range stays"),
        "epsilon_high": Setting(
            value=0.28, why="clip-higher: room for unlikely tokens to grow (section 3.1)"
        ),
        "beta": Setting(value=0.0, why="the policy may leave the reference behind (section 2.3)"),
        "mask_truncated_completions": Setting(
            value=False, why="soft punishment instead of masking, as in the authors' recipe (section 3.4)"
        ),
    },
    dynamic_sampling=True,
    overlong=True,
)

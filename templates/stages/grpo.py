"""GRPO or DAPO on prompts with a reward. Reads config.yaml beside it.

What makes it DAPO is in config.yaml: epsilon_high, loss_type, overlong and dynamic_sampling.
"""

from trl import GRPOConfig

from pipelines.training.groups import GroupTrainer
from pipelines.training.stage import Stage, run_stage


def build(stage: Stage) -> GroupTrainer:
    """The trainer of this stage; yours to change, and a change makes the stage run again."""
    model, adapter = stage.policy()
    return GroupTrainer(
        model=model,
        processing_class=stage.tokenizer,
        peft_config=adapter,
        args=stage.arguments(GRPOConfig, reward_weights=stage.reward_weights()),
        train_dataset=stage.train_dataset(),
        reward_funcs=stage.reward_functions(),
        num_task_rewards=1,
        dynamic_sampling=stage.config.dynamic_sampling,
        callbacks=stage.callbacks(),
    )


if __name__ == "__main__":
    run_stage(__file__, build)

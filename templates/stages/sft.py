"""Supervised fine-tuning on demonstrations. Reads config.yaml beside it."""

from trl import SFTConfig, SFTTrainer

from pipelines.training.stage import Stage, run_stage


def build(stage: Stage) -> SFTTrainer:
    """The trainer of this stage; yours to change, and a change makes the stage run again."""
    model, adapter = stage.policy()
    return SFTTrainer(
        model=model,
        processing_class=stage.tokenizer,
        peft_config=adapter,
        args=stage.arguments(SFTConfig),
        train_dataset=stage.train_dataset(),
        eval_dataset=stage.eval_dataset(),
        callbacks=stage.callbacks(),
    )


if __name__ == "__main__":
    run_stage(__file__, build)

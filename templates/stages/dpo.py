"""Direct preference optimisation on pairs. Reads config.yaml beside it."""

from trl import DPOConfig, DPOTrainer

from pipelines.training.stage import Stage, run_stage


def build(stage: Stage) -> DPOTrainer:
    """The trainer of this stage; yours to change, and a change makes the stage run again.

    The reference is the policy that the stage starts from: a frozen copy of an adapter, the base model under
    a new adapter, or a second copy of the weights. TRL picks by what the model is.
    """
    model, adapter = stage.policy()
    return DPOTrainer(
        model=model,
        processing_class=stage.tokenizer,
        peft_config=adapter,
        args=stage.arguments(DPOConfig),
        train_dataset=stage.train_dataset(),
        eval_dataset=stage.eval_dataset(),
        callbacks=stage.callbacks(),
    )


if __name__ == "__main__":
    run_stage(__file__, build)

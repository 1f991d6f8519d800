"""Direct preference optimisation: a loss on pairs against a frozen reference."""

from pipelines.methods.base import Method, Setting

DPO = Method(
    name="dpo",
    title="DPO",
    paper="arXiv:2305.18290",
    script="dpo.py",
    data="preferences",
    data_formats=("preference",),
    learning_rate={"full": 5e-7, "lora": 5e-6, "qlora": 5e-6},
    learning_rate_why="pairs push hard: rates of SFT ruin the policy within one epoch (arXiv:2310.16944)",
    effective_batch=32,
    epochs=1,
    max_steps=5_000,
    settings={
        "beta": Setting(value=0.1, why="strength of the tie to the reference (paper, section 6)"),
        "lr_scheduler_type": Setting(value="cosine", why="decays to zero by the end of the stage"),
        "warmup_steps": Setting(value=0.1, why="share of the steps (arXiv:2310.16944, appendix)"),
    },
)

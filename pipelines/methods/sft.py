"""Supervised fine-tuning: next-token loss on demonstrations."""

from pipelines.methods.base import Method, Setting

SFT = Method(
    name="sft",
    title="SFT",
    paper="arXiv:2203.02155, section 3.1",
    script="sft.py",
    data="demonstrations",
    data_formats=("text", "messages", "prompt_completion"),
    learning_rate={"full": 2e-5, "lora": 2e-4, "qlora": 2e-4},
    learning_rate_why="an adapter wants about ten times the rate of full tuning (arXiv:2106.09685, app. D)",
    effective_batch=32,
    epochs=2,
    max_steps=5_000,
    settings={
        "lr_scheduler_type": Setting(value="cosine", why="decays to zero by the end of the stage"),
        "warmup_steps": Setting(value=0.03, why="share of the steps; AdamW's moments are empty at first"),
    },
)

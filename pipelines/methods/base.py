"""What a training method is: one record whose defaults are the vetted setting."""

from __future__ import annotations

from typing import Any, Literal

from estimators.record import Record

DataKind = Literal["demonstrations", "preferences", "prompts"]


class Setting(Record):
    """A trainer argument that differs from TRL's default, and why."""

    value: Any
    why: str


class Method(Record):
    """A post-training method on one of TRL's trainers. A variant is a difference to another method."""

    name: str
    title: str
    paper: str
    script: str
    """The stage script under templates/stages."""
    data: DataKind
    """The kind of data it trains on."""
    data_formats: tuple[str, ...]
    """Formats of that data that the trainer takes, by TRL's names."""
    is_rl: bool = False
    """It samples rollouts and scores them with a reward."""
    learning_rate: dict[str, float]
    """By tuning: full, lora, qlora."""
    learning_rate_why: str
    effective_batch: int
    """Examples (sequences, pairs, or completions) per optimizer step."""
    epochs: float
    min_steps: int = 1
    """Steps at least, however few rows there are: prompts are sampled again."""
    max_steps: int
    """Steps at most, however many rows there are."""
    settings: dict[str, Setting]
    dynamic_sampling: bool = False
    overlong: bool = False

    def variant(self, name: str, settings: dict[str, Setting], **changes: Any) -> Method:
        """A method that differs from this one in what is given."""
        return self.model_copy(update={"name": name, "settings": {**self.settings, **settings}, **changes})

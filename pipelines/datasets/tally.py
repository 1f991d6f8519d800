"""What is measured of all rows of a source: lengths, repeats, end tokens, prompts that leave no room."""

from __future__ import annotations

from collections import Counter

from pipelines.datasets.checks import text_of
from pipelines.datasets.end_tokens import end_token_in
from pipelines.datasets.fast import MAX_LISTED, Facts, Layout, is_long_prompt
from pipelines.datasets.normalise import Row
from pipelines.datasets.repeats import Repeats
from pipelines.datasets.row_hash import row_key

MAX_LONG = 1_000


class Tally:
    """Facts about rows, one row or one block at a time; indices count the rows that are used."""

    def __init__(self) -> None:
        self.rows = 0
        self.repeats = Repeats()
        self.lengths: dict[str, Counter[int]] = {}
        self.ended: list[tuple[int, str]] = []
        self.ended_rows = 0
        self.unended: list[int] = []
        self.long_prompts: list[tuple[int, int]] = []
        """(index, characters of the prompt)."""

    def add_facts(self, facts: Facts) -> None:
        """Add a block of ordinary rows."""
        start = self.rows
        self.rows += facts.rows
        for part, counts in facts.lengths.items():
            self.lengths.setdefault(part, Counter()).update(counts)
        self.repeats.extend(facts.row_keys, facts.prompt_keys)
        self.ended_rows += facts.ended_rows
        self.ended.extend((start + i, token) for i, token in facts.ended[: MAX_LISTED - len(self.ended)])
        self.unended.extend(start + i for i in facts.unended[: MAX_LISTED - len(self.unended)])
        self.long_prompts.extend(
            (start + i, size) for i, size in facts.long_prompts[: MAX_LONG - len(self.long_prompts)]
        )

    def add_row(self, row: Row, layout: Layout, gold: str | None) -> None:
        """Add one normalised row."""
        index = self.rows
        self.rows += 1
        parts = [ours for ours, _ in layout.parts]
        texts = [text_of(row[part]) for part in parts]
        for part, text in zip(parts, texts, strict=True):
            self.lengths.setdefault(part, Counter())[len(text)] += 1
        row_hash, prompt_hash = row_key(row, parts, _gold_key(row.get(gold)) if gold else None)
        self.repeats.add(row_hash, prompt_hash if gold else None)
        if not layout.conversational and layout.format in ENDED_FORMATS:
            self._add_end(index, texts[-1])
        if layout.format == "messages":
            asked, answered = lengths_of_turns(row["messages"])
        elif len(texts) > 1:
            asked, answered = len(texts[0]), len(texts[1])
        else:
            return
        if (
            is_long_prompt(asked, answered, layout.long_prompt_chars, layout.short_answer_share)
            and len(self.long_prompts) < MAX_LONG
        ):
            self.long_prompts.append((index, asked))

    def _add_end(self, index: int, text: str) -> None:
        token = end_token_in(text)
        if token is None:
            if len(self.unended) < MAX_LISTED:
                self.unended.append(index)
            return
        self.ended_rows += 1
        if len(self.ended) < MAX_LISTED:
            self.ended.append((index, token))


ENDED_FORMATS = ("text", "prompt_completion", "preference", "unpaired_preference")


def _gold_key(value: object) -> object:
    if isinstance(value, str):
        return value
    from pipelines.datasets.content import canonical_bytes

    return canonical_bytes(value)


def lengths_of_turns(messages: list[Row]) -> tuple[int, int]:
    """Characters before the first answer, and the others."""
    first = next((i for i, message in enumerate(messages) if message["role"] == "assistant"), len(messages))
    before = sum(len(text_of([message])) for message in messages[:first]) + max(first - 1, 0)
    return before, len(text_of(messages)) - before

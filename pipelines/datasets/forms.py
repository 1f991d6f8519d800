"""Which format a row's columns make, and which column plays which part: one table, first match wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Format = Literal["text", "messages", "prompt_completion", "preference", "unpaired_preference", "prompt_only"]

PROMPT_NAMES = ("prompt", "question", "problem", "query", "instruction")
COMPLETION_NAMES = ("completion", "response", "output")
GOLDS: dict[str, tuple[str, ...]] = {
    "answer": ("answer", "ground_truth", "final_answer", "reference_answer", "gold", "solution"),
    "tests": ("tests", "test_cases", "unit_tests", "test_list", "test"),
    "schema": ("schema", "json_schema"),
    "tool_calls": ("tool_calls", "expected_tool_calls"),
}
"""What a reward needs beside the prompt: TRL passes these columns to reward functions by name."""
# columns that may be absent from a row without a remark
OPTIONAL = frozenset(
    {"tools", "system", "input", "context", "history", "entry_point", "chat_template_kwargs", "images"}
)


@dataclass(frozen=True, slots=True)
class Form:
    """One way to write a format. `parts` maps TRL's column to the names it may have in the file."""

    name: str
    format: Format
    parts: Mapping[str, Sequence[str]]
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    steps: tuple[str, ...] = ()
    """Names of the conversions that the report lists under `normalise`."""


@dataclass(frozen=True, slots=True)
class Match:
    """A form with the columns that were found: `columns` maps TRL's column to the one in the file."""

    form: Form
    columns: dict[str, str]

    @property
    def format(self) -> Format:
        return self.form.format

    @property
    def renamed(self) -> dict[str, str]:
        """The columns that carry another name in the file."""
        return {ours: theirs for ours, theirs in self.columns.items() if ours != theirs}


_GOLD_OPTIONS = dict(GOLDS)
_CONVERSATIONS = ("conversations", "conversation")

FORMS: tuple[Form, ...] = (
    Form(
        "openai_preference",
        "preference",
        {"prompt": ("input",), "chosen": ("preferred_output",), "rejected": ("non_preferred_output",)},
        steps=("openai_preference_to_preference",),
    ),
    Form(
        "sharegpt_preference",
        "preference",
        {"prompt": _CONVERSATIONS, "chosen": ("chosen",), "rejected": ("rejected",)},
        {"system": ("system",)},
        steps=("sharegpt_to_messages",),
    ),
    Form(
        "alpaca_preference",
        "preference",
        {"prompt": ("instruction",), "chosen": ("chosen",), "rejected": ("rejected",)},
        {"input": ("input",), "system": ("system",)},
        steps=("alpaca_to_prompt_completion",),
    ),
    Form(
        "preference",
        "preference",
        {"chosen": ("chosen",), "rejected": ("rejected",)},
        {"prompt": PROMPT_NAMES, "system": ("system",)},
    ),
    Form(
        "sharegpt_unpaired",
        "unpaired_preference",
        {"prompt": _CONVERSATIONS, "label": ("kto_tag",)},
        steps=("sharegpt_to_messages",),
    ),
    Form(
        "unpaired",
        "unpaired_preference",
        {"prompt": PROMPT_NAMES, "completion": COMPLETION_NAMES, "label": ("label", "kto_tag")},
    ),
    Form("messages_prompt", "prompt_only", {"prompt": ("messages",)}, _GOLD_OPTIONS),
    Form("messages", "messages", {"messages": ("messages",)}, {"tools": ("tools",)}),
    Form(
        "sharegpt",
        "messages",
        {"messages": _CONVERSATIONS},
        {"system": ("system",), "tools": ("tools",)},
        steps=("sharegpt_to_messages",),
    ),
    Form(
        "verl",
        "prompt_only",
        {"prompt": ("prompt",), "answer": ("reward_model",)},
        steps=("verl_to_prompt_only",),
    ),
    Form("prompt_completion", "prompt_completion", {"prompt": ("prompt",), "completion": ("completion",)}),
    Form(
        "alpaca",
        "prompt_completion",
        {"prompt": ("instruction",), "completion": ("output", "response", "completion")},
        {"input": ("input", "context"), "system": ("system",), "history": ("history",)},
        steps=("alpaca_to_prompt_completion",),
    ),
    Form(
        "renamed_prompt_completion",
        "prompt_completion",
        {"prompt": (*PROMPT_NAMES, "input"), "completion": COMPLETION_NAMES},
        {"system": ("system",)},
    ),
    Form("mbpp", "prompt_only", {"prompt": ("text",), "tests": ("test_list",)}),
    Form("prompt_only", "prompt_only", {"prompt": PROMPT_NAMES}, _GOLD_OPTIONS),
    Form("text", "text", {"text": ("text",)}),
)


def find_form(example: Mapping[str, Any]) -> Match | None:
    """The first form whose columns `example` has; its values decide where names are not enough."""
    by_lower: dict[str, str] = {}
    for name in example:
        by_lower.setdefault(name.strip().lower(), name)
    for form in FORMS:
        columns: dict[str, str] = {}
        for ours, names in form.parts.items():
            found = next((by_lower[name] for name in names if name in by_lower), None)
            if found is None:
                break
            columns[ours] = found
        else:
            for ours, names in form.options.items():
                found = next(
                    (by_lower[n] for n in names if n in by_lower and by_lower[n] not in columns.values()),
                    None,
                )
                if found is not None:
                    columns[ours] = found
            match = Match(form, columns)
            if _values_agree(match, example):
                return match
    return None


def mapped_form(mapping: Mapping[str, str]) -> Match | None:
    """The form for columns that a user named: TRL's column -> the column in the file."""
    found = find_form(dict.fromkeys(mapping, ""))
    if found is None or set(found.columns) != set(mapping):
        return None
    return Match(
        Form(found.form.name, found.format, found.form.parts, found.form.options, found.form.steps),
        dict(mapping),
    )


def _values_agree(match: Match, example: Mapping[str, Any]) -> bool:
    """The cases where the names of the columns fit a form and the values do not."""
    name = match.form.name
    if name == "openai_preference":
        value = example[match.columns["prompt"]]
        return isinstance(value, dict) and "messages" in value
    if match.format == "unpaired_preference":
        return is_label(example[match.columns["label"]])
    if name == "verl":
        value = example[match.columns["answer"]]
        return isinstance(value, dict) and "ground_truth" in value
    if name == "messages_prompt":
        messages = example[match.columns["prompt"]]
        has_gold = any(gold in match.columns for gold in GOLDS)
        return has_gold and isinstance(messages, list) and bool(messages) and not _has_assistant(messages)
    return True


def _has_assistant(messages: list[Any]) -> bool:
    return any(isinstance(m, dict) and m.get("role") == "assistant" for m in messages)


def is_label(value: object) -> bool:
    """Is this a thumbs up or down (KTO's label) and not the name of a class?"""
    if isinstance(value, str):
        return value.strip().lower() in ("true", "false", "0", "1", "yes", "no")
    return isinstance(value, (bool, int)) and value in (0, 1)


def gold_of(columns: Mapping[str, str]) -> str | None:
    """The gold column that a prompt-only dataset carries for rewards: answer, tests, schema or tool_calls."""
    return next((gold for gold in GOLDS if gold in columns), None)

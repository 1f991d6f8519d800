"""What is odd about one normalised row, whatever its container."""

from __future__ import annotations

from typing import Any

from pipelines.datasets.forms import Format
from pipelines.datasets.messages import kind_of, order_problems
from pipelines.datasets.normalise import Row

# one token is about four characters of English and rarely more than eight of anything
LONGEST_CONTEXT_TOKENS = 128_000
CHARS_PER_TOKEN = 4
LONG_CHARS = LONGEST_CONTEXT_TOKENS * CHARS_PER_TOKEN


def text_of(value: Any) -> str:
    """The text of a part: itself, or the contents of its messages one after another."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(str(m.get("content") or "") for m in value if isinstance(m, dict))
    return "" if value is None else str(value)


def parts_of(format: Format) -> tuple[str, ...]:
    """The columns that are trained on or asked, in order."""
    return {
        "text": ("text",),
        "messages": ("messages",),
        "prompt_completion": ("prompt", "completion"),
        "preference": ("prompt", "chosen", "rejected"),
        "unpaired_preference": ("prompt", "completion"),
        "prompt_only": ("prompt",),
    }[format]


def row_warnings(row: Row, format: Format, gold: str | None) -> list[str]:
    """What is odd about a normalised row; it can be used all the same."""
    found: list[str] = []
    for part in parts_of(format):
        value = row[part]
        text = text_of(value)
        if not text.strip() and not _has_calls(value):
            found.append(f"{part} is empty")
        elif len(text) > LONG_CHARS:
            found.append(f"{part} longer than any context window ({len(text)} characters)")
        if isinstance(value, list):
            found.extend(_message_warnings(value, part))
    if format == "preference" and row["chosen"] == row["rejected"]:
        found.append("chosen and rejected are identical")
    if format == "prompt_only" and gold is not None:
        problem = gold_problem(row.get(gold), gold)
        if problem:
            found.append(problem)
    return found


def _has_calls(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(m, dict) and m.get("tool_calls") for m in value)


def _message_warnings(messages: list[Row], part: str) -> list[str]:
    roles = tuple(message["role"] for message in messages)
    found = []
    if part in ("completion", "chosen", "rejected"):
        if roles[0] not in ("assistant", "tool"):
            found.append(f"{part} starts with a {roles[0]} message")
        elif roles[-1] != "assistant":
            found.append(f"{part} ends with a {roles[-1]} message")
    else:
        found.extend(order_problems(roles, is_prompt=part == "prompt"))
        if part == "prompt" and roles[-1] == "assistant":
            found.append("the prompt ends with an assistant message")
    if part == "messages":
        for number, message in enumerate(messages, 1):
            if (
                message["role"] == "assistant"
                and not message["content"].strip()
                and not message.get("tool_calls")
            ):
                found.append(f"message {number} (assistant) is empty")
                break
    return found


def gold_problem(value: Any, gold: str) -> str | None:
    """Why a reward cannot use this gold, or None."""
    if value is None:
        return f"no usable gold: {gold} is missing or null"
    if gold == "answer":
        if isinstance(value, str) and not value.strip():
            return "no usable gold: answer is empty"
        if isinstance(value, (list, dict)) and not value:
            return "no usable gold: answer is empty"
        if isinstance(value, float) and value != value:
            return "no usable gold: answer is NaN"
        return None
    if gold == "tests":
        return _tests_problem(value)
    if gold == "schema":
        if not isinstance(value, dict):
            return f"no usable gold: schema is {kind_of(value)}, not a JSON schema"
        return _schema_problem(value)
    calls = value if isinstance(value, list) else [value]
    if not calls:
        return "no usable gold: tool_calls is empty"
    for call in calls:
        function = call.get("function", call) if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            return "no usable gold: a tool call has no function name"
    return None


def _tests_problem(value: Any) -> str | None:
    if isinstance(value, str):
        return None if value.strip() else "no usable gold: tests is empty"
    if not isinstance(value, list):
        return f"no usable gold: tests is {kind_of(value)}, not a list"
    if not value:
        return "no usable gold: tests is empty"
    for number, test in enumerate(value, 1):
        if isinstance(test, dict) and (test.get("code") or "stdout" in test or "output" in test):
            continue
        if isinstance(test, str) and test.strip():
            continue
        return f'no usable gold: test {number} has neither "code" nor "stdin" and "stdout"'
    return None


def _schema_problem(schema: Row) -> str | None:
    import jsonschema

    try:
        jsonschema.validators.validator_for(schema).check_schema(schema)
    except jsonschema.SchemaError as error:
        return f"no usable gold: the schema is not valid ({error.message[:80]})"
    return None

"""Messages as plain text, for a model without a chat template, which TRL needs to write them."""

from __future__ import annotations

from typing import Any

from estimators.errors import BadInput

Row = dict[str, Any]
Messages = list[dict[str, Any]]


def as_plain(row: Row) -> Row:
    """A conversational row with strings for messages; `messages` becomes `prompt` and `completion`.

    One user's turn is its text alone. Longer talks name who speaks: "User: ...", "Assistant: ". Turns after
    the assistant's last one are left out. Raises BadInput for tool calls, which only a template can write.
    """
    changed = dict(row)
    if isinstance(messages := changed.pop("messages", None), list):
        last = max((i for i, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
        if last < 0:
            raise BadInput(
                "a row of messages has no turn of the assistant, so there is nothing to learn from"
            )
        changed = {"prompt": messages[:last], "completion": [messages[last]], **changed}
    for name in ("prompt", "completion", "chosen", "rejected"):
        if isinstance(changed.get(name), list):
            changed[name] = prompt_text(changed[name]) if name == "prompt" else _answer(changed[name])
    return changed


def prompt_text(messages: Messages) -> str:
    """What comes before the answer."""
    if len(messages) == 1 and messages[0]["role"] == "user":
        return _content(messages[0])
    return "".join(f"{m['role'].capitalize()}: {_content(m)}\n" for m in messages) + "Assistant: "


def _answer(messages: Messages) -> str:
    """The answer: its only turn, or a talk from the assistant's first word on."""
    first, *rest = messages
    return "\n".join([_content(first), *(f"{m['role'].capitalize()}: {_content(m)}" for m in rest)])


def _content(message: dict[str, Any]) -> str:
    if message.get("tool_calls"):
        raise BadInput(
            "the data holds tool calls, and the model has no chat template to write them with; "
            "choose a model that has one (an instruct model)"
        )
    content = message.get("content")
    return content if isinstance(content, str) else ""

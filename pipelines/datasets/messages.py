"""Messages: from the forms that people write to TRL's, and what is wrong with them."""

from __future__ import annotations

import json
from typing import Any

from estimators.record import nearest

ROLES = ("system", "developer", "user", "assistant", "tool")
SHAREGPT_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "system": "system",
}
SHAREGPT_TOOL_ROLES = ("function_call", "observation", "function_response", "tool_call", "tool_response")
FOREIGN_ROLES = {
    "human": "user", "gpt": "assistant", "bot": "assistant", "ai": "assistant", "model": "assistant",
    "chatgpt": "assistant", "function": "tool", "observation": "tool", "ipython": "tool",
}  # fmt: skip


class RowProblem(Exception):
    """A row cannot be used; `remedy` says what to do."""

    def __init__(self, reason: str, remedy: str | None = None) -> None:
        self.reason = reason
        self.remedy = remedy
        super().__init__(reason)


def as_messages(value: Any, what: str, *, mend_tools: bool = False) -> list[dict[str, Any]]:
    """`value` as a list of {"role", "content", ...} messages, ShareGPT's {"from", "value"} included.

    `mend_tools` turns ShareGPT's function_call and observation into tool calls and tool messages. Raises
    RowProblem.
    """
    if isinstance(value, str):
        value = _parsed(value, what)
    if isinstance(value, dict) and ({"role", "content"} <= value.keys() or {"from", "value"} <= value.keys()):
        value = [value]
    if not isinstance(value, list):
        raise RowProblem(f'"{what}" is {kind_of(value)}, not a list of messages')
    if not value:
        raise RowProblem(f'"{what}" holds no messages')
    return [_message(item, number, what, mend_tools) for number, item in enumerate(value, 1)]


def _parsed(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise RowProblem(f'"{what}" is text, not a list of messages') from None


def _message(item: Any, number: int, what: str, mend_tools: bool) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise RowProblem(
            f'message {number} of "{what}" is {kind_of(item)}, not an object',
            'a message is {"role": "user", "content": "..."}',
        )
    if "role" not in item and "from" in item:
        return _sharegpt_message(item, number, mend_tools)
    role = item.get("role")
    if role is None:
        raise RowProblem(
            f'message {number} of "{what}" has no role', 'a message is {"role": ..., "content": ...}'
        )
    if role not in ROLES:
        guess = FOREIGN_ROLES.get(str(role).lower()) or nearest(str(role), ROLES)
        raise RowProblem(
            f'unknown role "{role}" in message {number}',
            (f'did you mean "{guess}"? ' if guess else "") + f"known: {', '.join(ROLES)}",
        )
    message = {key: entry for key, entry in item.items() if entry is not None or key == "content"}
    if isinstance(message.get("content"), list):
        message["content"] = _text_of_parts(message["content"], number)
    calls = message.get("tool_calls")
    if calls is not None:
        message["tool_calls"] = (
            [_tool_call(call, number) for call in calls] if isinstance(calls, list) else calls
        )
        if not isinstance(calls, list):
            raise RowProblem(f"tool_calls of message {number} is {kind_of(calls)}, not a list")
        if not calls:
            del message["tool_calls"]
    content = message.get("content")
    if content is None:
        if role != "assistant" or not message.get("tool_calls"):
            missing = "content is null" if "content" in item else "has no content"
            raise RowProblem(f'message {number} ({role}) of "{what}": {missing}')
        message["content"] = ""
    elif not isinstance(content, str):
        raise RowProblem(f"content of message {number} ({role}) is {kind_of(content)}, not text")
    return message


def _sharegpt_message(item: dict[str, Any], number: int, mend_tools: bool) -> dict[str, Any]:
    role, value = item.get("from"), item.get("value")
    if mend_tools and role in ("function_call", "tool_call"):
        return {"role": "assistant", "content": "", "tool_calls": _calls_in(value, number)}
    if mend_tools and role in ("observation", "function_response", "tool_response", "tool"):
        return {
            "role": "tool",
            "content": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False),
        }
    known = SHAREGPT_ROLES.get(str(role).lower() if role is not None else "")
    if known is None:
        remedy = f"known: {', '.join(SHAREGPT_ROLES)}"
        if role in (*SHAREGPT_TOOL_ROLES, "tool"):
            remedy = "`advisor check data FILE --fix -o OUT` rewrites it as tool calls and tool messages"
        raise RowProblem(f'unknown ShareGPT role "{role}"', remedy)
    if value is None:
        raise RowProblem(
            f"message {number} ({role}): value is null"
            if "value" in item
            else f"message {number} ({role}) has no value"
        )
    if not isinstance(value, str):
        raise RowProblem(f"value of message {number} ({role}) is {kind_of(value)}, not text")
    return {"role": known, "content": value}


def _calls_in(value: Any, number: int) -> list[dict[str, Any]]:
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise RowProblem(
            f"the function call in message {number} is not JSON", "write name and arguments as JSON"
        ) from None
    return [_tool_call(call, number) for call in (parsed if isinstance(parsed, list) else [parsed])]


def _tool_call(call: Any, number: int) -> dict[str, Any]:
    """A tool call as {"type": "function", "function": {"name", "arguments": {...}}}."""
    if not isinstance(call, dict):
        raise RowProblem(f"a tool call of message {number} is {kind_of(call)}, not an object")
    call = {key: entry for key, entry in call.items() if entry is not None}
    function = call["function"] if isinstance(call.get("function"), dict) else call
    if not isinstance(function.get("name"), str):
        raise RowProblem(f"a tool call of message {number} has no function name")
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except ValueError:
            raise RowProblem(f"the arguments of a tool call in message {number} are not JSON") from None
    result: dict[str, Any] = {
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }
    if isinstance(call.get("id"), str):
        result["id"] = call["id"]
    return result


def _text_of_parts(parts: list[Any], number: int) -> str:
    texts = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif (
            isinstance(part, dict)
            and part.get("type", "text") == "text"
            and isinstance(part.get("text"), str)
        ):
            texts.append(part["text"])
        else:
            kind = part.get("type") if isinstance(part, dict) else kind_of(part)
            raise RowProblem(
                f"message {number} holds a part of type {kind}",
                "only text parts are trained on here; remove the others",
            )
    return "".join(texts)


def kind_of(value: Any) -> str:
    """A JSON value's kind in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, (list, tuple)):
        return "a list"
    return "an object" if isinstance(value, dict) else type(value).__name__


def order_problems(roles: tuple[str, ...], *, is_prompt: bool = False) -> list[str]:
    """What is odd about the order of roles: templates raise on it, or train on less than meant."""
    found = []
    spoken = [role for role in roles if role not in ("system", "developer")]
    if any(role in ("system", "developer") for role in roles[1:]):
        place = next(i for i, role in enumerate(roles) if i and role in ("system", "developer")) + 1
        found.append(f"roles out of order: message {place} is a system message after the first")
    if spoken and spoken[0] == "assistant":
        found.append("roles out of order: the assistant speaks first")
    elif spoken and spoken[0] == "tool":
        found.append("roles out of order: a tool answers before it is called")
    for i in range(1, len(spoken)):
        if spoken[i] == spoken[i - 1] and spoken[i] in ("user", "assistant"):
            found.append(f"roles out of order: two {spoken[i]} messages in a row")
            break
    if roles and not is_prompt and roles[-1] != "assistant":
        found.append(f"the last message is from the {roles[-1]}: nothing is trained after it")
    return found

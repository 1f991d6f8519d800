"""Messages as plain text for a model without a chat template."""

from __future__ import annotations

from typing import Any

import pytest

from estimators.errors import BadInput
from pipelines.plain import as_plain


def turn(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def test_one_question_and_its_answer_are_their_texts() -> None:
    row = {"messages": [turn("user", "1+1="), turn("assistant", "2")], "id": 7}
    assert as_plain(row) == {"prompt": "1+1=", "completion": "2", "id": 7}


def test_a_longer_talk_names_who_speaks() -> None:
    row = {
        "messages": [
            turn("system", "Add."),
            turn("user", "1+1="),
            turn("assistant", "2"),
            turn("user", "Thanks"),
        ]
    }
    assert as_plain(row) == {"prompt": "System: Add.\nUser: 1+1=\nAssistant: ", "completion": "2"}


def test_pairs_and_prompts() -> None:
    ask = [turn("user", "1+1=")]
    row = {"prompt": ask, "chosen": [turn("assistant", "2")], "rejected": [turn("assistant", "3")]}
    assert as_plain(row) == {"prompt": "1+1=", "chosen": "2", "rejected": "3"}
    assert as_plain({"prompt": ask, "answer": "2"}) == {"prompt": "1+1=", "answer": "2"}


def test_plain_rows_stay() -> None:
    row = {"prompt": "1+1=", "completion": "2"}
    assert as_plain(row) == row


def test_no_answer_is_refused() -> None:
    with pytest.raises(BadInput, match="no turn of the assistant"):
        as_plain({"messages": [turn("user", "1+1=")]})


def test_tool_calls_need_a_template() -> None:
    call = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "add", "arguments": {}}}],
    }
    with pytest.raises(BadInput, match="no chat template"):
        as_plain({"messages": [turn("user", "1+1="), call]})

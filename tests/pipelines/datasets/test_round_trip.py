"""What --fix writes loads in TRL's trainer for its format, and trains two real steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.datasets.fix import fix_source

ROOT = Path(__file__).parents[3]
U = {"role": "user", "content": "2+2?"}
A = {"role": "assistant", "content": "4"}
B = {"role": "assistant", "content": "5"}
TOOL = {
    "type": "function",
    "function": {"name": "w", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
OTHER_TOOL = {
    "type": "function",
    "function": {"name": "t", "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}}},
}


def call(name: str, arguments: object) -> dict[str, object]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": function}],
    }


CALL_TEXT = '{"name": "w", "arguments": {"city": "Rome"}}'


# format -> raw rows, each with something to mend
RAW: dict[str, list[object]] = {
    "text": [{"text": "a b c"}, {"text": ""}, {"text": "d e f"}, {"text": "a b c"}],
    "messages": [
        {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yo"}]},
        {
            "conversations": [
                {"from": "human", "value": "w"},
                {"from": "function_call", "value": CALL_TEXT},
                {"from": "observation", "value": "21"},
                {"from": "gpt", "value": "21"},
            ]
        },
    ],
    "messages_tools": [
        {"messages": [U, call("w", {"city": "Rome"}), {"role": "tool", "content": "21"}, A], "tools": [TOOL]},
        {
            "messages": [U, call("t", {"zone": 3}), {"role": "tool", "content": "21"}, A],
            "tools": [OTHER_TOOL],
        },
    ],
    "prompt_completion": [
        {"instruction": "add", "input": "1 2", "output": "3"},
        {"instruction": "sky?", "input": "", "output": "blue"},
    ],
    "prompt_completion_chat": [{"prompt": [U], "completion": [A]}, {"prompt": [U], "completion": [B]}],
    "preference": [
        {"prompt": "a", "chosen": "x", "rejected": "y"},
        {"prompt": "b", "chosen": "s", "rejected": "s"},
        {"prompt": "c", "chosen": "x", "rejected": "z"},
    ],
    "preference_implicit": [
        {"chosen": [U, A], "rejected": [U, B]},
        {"chosen": [U, A, U, A], "rejected": [U, A, U, B]},
    ],
    "preference_text": [
        {"chosen": "\n\nHuman: hi\n\nAssistant: Yes", "rejected": "\n\nHuman: hi\n\nAssistant: No"},
        {"chosen": "\n\nHuman: ho\n\nAssistant: Yes", "rejected": "\n\nHuman: ho\n\nAssistant: No"},
    ],
    "prompt_only": [
        {"question": "1+1", "answer": 2},
        {"question": "1+2", "answer": "3"},
        {"question": "x", "answer": None},
    ],
    "prompt_only_tests": [
        {"prompt": [U], "tests": [{"code": "assert f(1)"}]},
        {"prompt": [A, U], "tests": [{"stdin": "1", "stdout": "2"}]},
    ],
    "prompt_only_schema": [
        {"prompt": "a", "schema": {"type": "object", "properties": {"a": {"type": "string"}}}},
        {"prompt": "b", "schema": {"type": "array"}},
    ],
}


@pytest.mark.train
def test_two_steps_for_each_format(make_tokenizer, tmp_path):
    files = []
    for kind, rows in RAW.items():
        source = tmp_path / f"{kind}.jsonl"
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        fixed = fix_source(source, tmp_path / f"{kind}.clean.jsonl")
        assert kind.startswith(fixed.format)
        files.append(f"{kind}={fixed.output}")
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("two_steps.py")), str(make_tokenizer()), *files],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    trained = {
        line.split()[0]: int(line.split()[1]) for line in done.stdout.splitlines() if line.split()[0] in RAW
    }
    assert trained == dict.fromkeys(RAW, 2)

"""Each kind of failure in several forms: the right format, or the right error at the right place."""

from __future__ import annotations

import gzip
import json

import pytest
import zstandard

from pipelines.datasets import DataError, inspect_source, read_records


def lines(*rows: object) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def turn(role: str, content: object, **more: object) -> dict[str, object]:
    return {"role": role, "content": content, **more}


U, A, S = (lambda c: turn("user", c)), (lambda c: turn("assistant", c)), (lambda c: turn("system", c))
CALL = {"id": "c1", "type": "function", "function": {"name": "w", "arguments": '{"city": "Rome"}'}}
TOOL = {"type": "function", "function": {"name": "w", "parameters": {"type": "object", "properties": {}}}}
PC = {"prompt": "a", "completion": "b"}

# name -> (content, format, conversational, rows, normalise, warning lines)
FORMATS: dict[str, tuple[bytes, str, bool, int, list[str], list[int]]] = {
    "messages.jsonl": (lines({"messages": [S("s"), U("a"), A("b")]}), "messages", True, 1, [], []),
    "many_turns.jsonl": (lines({"messages": [U("a"), A("b"), U("c"), A("d")]}), "messages", True, 1, [], []),
    "chat_prompt_completion.jsonl": (
        lines({"prompt": [U("a")], "completion": [A("b")]}),
        "prompt_completion",
        True,
        1,
        [],
        [],
    ),
    "chat_prompt_only.jsonl": (lines({"prompt": [U("a")], "answer": "1"}), "prompt_only", True, 1, [], []),
    "chat_preference.jsonl": (
        lines({"prompt": [U("a")], "chosen": [A("b")], "rejected": [A("c")]}),
        "preference",
        True,
        1,
        [],
        [],
    ),
    "hh.jsonl": (
        lines(
            {
                "chosen": "\n\nHuman: hi\n\nAssistant: Yes I do",
                "rejected": "\n\nHuman: hi\n\nAssistant: Yes no",
            }
        ),
        "preference",
        False,
        1,
        ["extract_implicit_prompt"],
        [],
    ),
    "ultrafeedback.jsonl": (
        lines({"prompt": "hi", "chosen": [U("hi"), A("a")], "rejected": [U("hi"), A("b")], "score": 1.0}),
        "preference",
        True,
        1,
        [],
        [],
    ),
    "orca_dpo.jsonl": (
        lines({"system": "", "question": "q", "chosen": "a", "rejected": "b"}),
        "preference",
        False,
        1,
        ["rename_columns"],
        [],
    ),
    "openai_preference.jsonl": (
        lines(
            {"input": {"messages": [U("a")]}, "preferred_output": [A("b")], "non_preferred_output": [A("c")]}
        ),
        "preference",
        True,
        1,
        ["openai_preference_to_preference"],
        [],
    ),
    "sharegpt.jsonl": (
        lines({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}),
        "messages",
        True,
        1,
        ["sharegpt_to_messages"],
        [],
    ),
    "sharegpt_system_column.jsonl": (
        lines(
            {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}], "system": "s"}
        ),
        "messages",
        True,
        1,
        ["sharegpt_to_messages"],
        [],
    ),
    "conversations_of_roles.jsonl": (
        lines({"conversations": [U("a"), A("b")]}),
        "messages",
        True,
        1,
        ["sharegpt_to_messages"],
        [],
    ),
    "alpaca.jsonl": (
        lines(
            {"instruction": "Add", "input": "1 2", "output": "3"},
            {"instruction": "Sky?", "input": "", "output": "b"},
        ),
        "prompt_completion",
        False,
        2,
        ["alpaca_to_prompt_completion"],
        [],
    ),
    "dolly.jsonl": (
        lines({"instruction": "i", "context": "c", "response": "r", "category": "x"}),
        "prompt_completion",
        False,
        1,
        ["alpaca_to_prompt_completion"],
        [],
    ),
    "question_answer.jsonl": (
        lines({"question": "1+1", "answer": "2"}),
        "prompt_only",
        False,
        1,
        ["rename_columns"],
        [],
    ),
    "problem_solution.jsonl": (
        lines({"problem": "p", "solution": "\\boxed{1}"}),
        "prompt_only",
        False,
        1,
        ["rename_columns"],
        [],
    ),
    "prompt_response.jsonl": (
        lines({"prompt": "p", "response": "r"}),
        "prompt_completion",
        False,
        1,
        ["rename_columns"],
        [],
    ),
    "upper_case.csv": (b"Prompt,Completion\na,b\n", "prompt_completion", False, 1, ["rename_columns"], []),
    "tools.jsonl": (
        lines(
            {
                "messages": [U("w?"), turn("assistant", None, tool_calls=[CALL]), turn("tool", "21"), A("x")],
                "tools": [TOOL],
            }
        ),
        "messages",
        True,
        1,
        [],
        [],
    ),
    "content_parts.jsonl": (
        lines({"messages": [turn("user", [{"type": "text", "text": "a"}]), A("b")]}),
        "messages",
        True,
        1,
        [],
        [],
    ),
    "messages_as_text.jsonl": (
        lines({"messages": json.dumps([U("a"), A("b")])}),
        "messages",
        True,
        1,
        [],
        [],
    ),
    "rft.jsonl": (
        lines({"messages": [U("a")], "reference_answer": "1"}),
        "prompt_only",
        True,
        1,
        ["rename_columns"],
        [],
    ),
    "verl.jsonl": (
        lines({"prompt": [U("1+1")], "reward_model": {"style": "rule", "ground_truth": "2"}}),
        "prompt_only",
        True,
        1,
        ["verl_to_prompt_only"],
        [],
    ),
    "tests.jsonl": (
        lines(
            {"prompt": "p", "tests": [{"code": "assert f(1)"}]},
            {"prompt": "q", "tests": [{"stdin": "1", "stdout": "2"}]},
        ),
        "prompt_only",
        False,
        2,
        [],
        [],
    ),
    "mbpp.jsonl": (
        lines({"text": "p", "code": "x", "test_list": ["assert f(1)"]}),
        "prompt_only",
        False,
        1,
        ["rename_columns"],
        [],
    ),
    "schema.jsonl": (lines({"prompt": "p", "schema": {"type": "object"}}), "prompt_only", False, 1, [], []),
    "bad_schema.jsonl": (lines({"prompt": "p", "schema": {"type": 5}}), "prompt_only", False, 1, [], [1]),
    "empty_tests.jsonl": (
        lines({"prompt": "p", "tests": [{"code": "x"}]}, {"prompt": "q", "tests": []}),
        "prompt_only",
        False,
        2,
        [],
        [2],
    ),
    "tool_calls_gold.jsonl": (
        lines({"prompt": "p", "tool_calls": [{"name": "w", "arguments": {}}]}),
        "prompt_only",
        False,
        1,
        [],
        [],
    ),
    "null_answer.jsonl": (
        lines({"prompt": "a", "answer": "1"}, {"prompt": "b", "answer": None}),
        "prompt_only",
        False,
        2,
        [],
        [2],
    ),
    "no_answer.jsonl": (
        lines({"prompt": "a", "answer": "1"}, {"prompt": "b"}),
        "prompt_only",
        False,
        2,
        [],
        [2],
    ),
    "label_of_a_class.jsonl": (lines({"text": "a", "label": 1}), "text", False, 1, [], []),
    "bom.jsonl": (b"\xef\xbb\xbf" + lines({"text": "a"}), "text", False, 1, ["strip_bom"], []),
    "bom_inside.jsonl": (
        lines({"text": "a"}) + b"\xef\xbb\xbf" + lines({"text": "b"}),
        "text",
        False,
        2,
        ["strip_bom"],
        [],
    ),
    "crlf.jsonl": (b'{"text": "a"}\r\n{"text": "b"}\r\n', "text", False, 2, [], []),
    "line_separator.jsonl": (lines({"text": "a\u2028b\x85c"}), "text", False, 1, [], []),
    "infinity.jsonl": (
        b'{"prompt": "a", "answer": "1", "s": 0.5}\n{"prompt": "b", "answer": "1", "s": -Infinity}\n',
        "prompt_only",
        False,
        2,
        [],
        [2],
    ),
    "extra_column.jsonl": (
        lines(PC, {**PC, "prompt": "c", "source": "x"}),
        "prompt_completion",
        False,
        2,
        [],
        [2],
    ),
    "lost_column.jsonl": (
        lines({**PC, "source": "x"}, {**PC, "prompt": "c"}),
        "prompt_completion",
        False,
        2,
        [],
        [2],
    ),
    "whole_and_half.jsonl": (
        lines({**PC, "s": 1}, {**PC, "prompt": "c", "s": 0.5}),
        "prompt_completion",
        False,
        2,
        [],
        [],
    ),
    "lines.ndjson": (lines({"text": "a"}, {"text": "b"}), "text", False, 2, [], []),
    "lines.json": (lines({"text": "a"}, {"text": "b"}), "text", False, 2, [], []),
    "array.jsonl": (json.dumps([{"text": "a"}, {"text": "b"}]).encode(), "text", False, 2, [], []),
    "data.json": (
        json.dumps({"data": [{"text": "a"}]}, indent=1).encode(),
        "text",
        False,
        1,
        ["unwrap_data"],
        [],
    ),
    "one_object.json": (json.dumps(PC, indent=2).encode(), "prompt_completion", False, 1, [], []),
    "rows.jsonl.gz": (gzip.compress(lines({"text": "a"})), "text", False, 1, [], []),
    "rows.jsonl.zst": (zstandard.compress(lines({"text": "a"})), "text", False, 1, [], []),
    "two_frames.jsonl.zst": (
        zstandard.compress(lines({"text": "a"})) + zstandard.compress(lines({"text": "b"})),
        "text",
        False,
        2,
        [],
        [],
    ),
    "packed_without_suffix.jsonl": (gzip.compress(lines({"text": "a"})), "text", False, 1, [], []),
    "semicolon.csv": (
        b"prompt;completion\na;b\n",
        "prompt_completion",
        False,
        1,
        ["delimiter_semicolon"],
        [],
    ),
    "tab.csv": (b"prompt\tcompletion\na\tb\n", "prompt_completion", False, 1, ["delimiter_tab"], []),
    "rows.tsv": (b"prompt\tcompletion\na\tb, c\n", "prompt_completion", False, 1, [], []),
    "line_break.csv": (
        b'prompt,completion\n"a\nb","say ""hi"""\nc,d\n',
        "prompt_completion",
        False,
        2,
        [],
        [],
    ),
    "index_column.csv": (b",prompt,completion\n0,a,b\n1,c,d\n", "prompt_completion", False, 2, [], []),
    "spaces_in_header.csv": (b"prompt, completion\na, b\n", "prompt_completion", False, 1, [], []),
    "pipe.csv": (b"prompt|completion\na|b\n", "prompt_completion", False, 1, ["delimiter_pipe"], []),
    "empty_cell.csv": (b"prompt,completion\na,b\nc,\n", "prompt_completion", False, 2, [], [3]),
    "too_large_a_number.jsonl": (
        b'{"prompt": "a", "answer": "1", "x": 1e999}\n',
        "prompt_only",
        False,
        1,
        [],
        [1],
    ),
    "escaped_emoji.jsonl": (b'{"text": "\\ud83d\\ude00"}\n', "text", False, 1, [], []),
    "blank_line.csv": (
        b"prompt,completion\r\na,b\r\n\r\nc,d\r\n",
        "prompt_completion",
        False,
        2,
        ["skip_blank_lines"],
        [],
    ),
    "messages.csv": (
        b'messages\n"[{""role"": ""user"", ""content"": ""a""}, '
        b'{""role"": ""assistant"", ""content"": ""b""}]"\n',
        "messages",
        True,
        1,
        ["parse_json_cells"],
        [],
    ),
    "roles_out_of_order.jsonl": (
        lines(
            {"messages": [U("1"), A("b")]},
            {"messages": [U("2"), U("c"), A("b")]},
            {"messages": [A("3"), U("b"), A("c")]},
            {"messages": [U("4"), S("c"), A("b")]},
            {"messages": [U("5"), A("b"), U("c")]},
        ),
        "messages",
        True,
        5,
        [],
        [2, 3, 4, 5],
    ),
    "identical_chat.jsonl": (
        lines({"prompt": [U("a")], "chosen": [A("x")], "rejected": [A("x")]}),
        "preference",
        True,
        1,
        [],
        [1],
    ),
    "identical_implicit.jsonl": (
        lines({"chosen": [U("a"), A("x")], "rejected": [U("a"), A("x")]}),
        "preference",
        True,
        1,
        ["extract_implicit_prompt"],
        [1],
    ),
    "empty_chosen.jsonl": (
        lines(
            {"prompt": "a", "chosen": "x", "rejected": "y"}, {"prompt": "b", "chosen": "", "rejected": "z"}
        ),
        "preference",
        False,
        2,
        [],
        [2],
    ),
    "empty_answer.jsonl": (
        lines({"messages": [U("a"), A("b")]}, {"messages": [U("b"), A(" ")]}),
        "messages",
        True,
        2,
        [],
        [2],
    ),
    "blank_text.jsonl": (lines({"text": "a"}, {"text": " \n "}), "text", False, 2, [], [2]),
    "end_token_missing_once.jsonl": (
        lines({"text": "a</s>"}, {"text": "b</s>"}, {"text": "c"}),
        "text",
        False,
        3,
        [],
        [3],
    ),
    "end_token_always.jsonl": (lines({"text": "a</s>"}, {"text": "b</s>"}), "text", False, 2, [], []),
    "chatml_end_once.jsonl": (
        lines({"text": "a"}, {"text": "b"}, {"text": "c<|im_end|>"}),
        "text",
        False,
        3,
        [],
        [3],
    ),
    "duplicates.jsonl": (
        lines(PC, {"prompt": "x", "completion": "y"}, PC, PC),
        "prompt_completion",
        False,
        4,
        [],
        [3, 4],
    ),
    "other_answers_in_sft.jsonl": (
        lines(PC, {**PC, "completion": "c"}),
        "prompt_completion",
        False,
        2,
        [],
        [],
    ),
    "huge_answer.jsonl": (
        lines(PC, {"prompt": "q", "completion": "y" * 1_200_000}),
        "prompt_completion",
        False,
        2,
        [],
        [2],
    ),
}

# name -> (content, line, start of the reason)
ERRORS: dict[str, tuple[bytes, int | None, str]] = {
    "latin1.jsonl": ('{"text": "ok"}\n{"text": "café"}\n'.encode("latin-1"), 2, "not UTF-8: byte 0xE9"),
    "latin1.csv": ("prompt,completion\na,b\nc,café\n".encode("latin-1"), 3, "not UTF-8: byte 0xE9"),
    "utf16be.jsonl": (
        b"\xfe\xff" + '{"text": "a"}\n'.encode("utf-16-be"),
        1,
        "not UTF-8: UTF-16 byte order mark",
    ),
    "utf32.jsonl": ('{"text": "a"}\n'.encode("utf-32"), 1, "not UTF-8: UTF-32 byte order mark"),
    "utf16_without_mark.jsonl": ('{"text": "a"}\n'.encode("utf-16-le"), 1, "not UTF-8: looks like UTF-16"),
    "utf16.csv": ("prompt,completion\na,b\n".encode("utf-16"), 1, "not UTF-8: UTF-16 byte order mark"),
    "surrogate.jsonl": (b'{"text": "ok"}\n{"text": "bad \\ud83d"}\n', 2, "lone surrogate \\ud83d"),
    "surrogate_in_messages.jsonl": (
        b'{"messages": [{"role": "user", "content": "\\udc00"}, {"role": "assistant", "content": "b"}]}\n',
        1,
        "lone surrogate",
    ),
    "two_objects.jsonl": (
        b'{"text": "a"}\n{"text": "b"} {"text": "c"}\n',
        2,
        "invalid JSON: two objects on one line",
    ),
    "two_objects_glued.jsonl": (b'{"text": "a"}{"text": "c"}\n', 1, "invalid JSON: two objects on one line"),
    "two_objects_comma.jsonl": (
        b'{"text": "a"}, {"text": "c"}\n',
        1,
        "invalid JSON: a comma after the object",
    ),
    "trailing_comma.jsonl": (b'{"text": "a",}\n', 1, "invalid JSON: trailing comma"),
    "cut_in_string.jsonl": (b'{"text": "a"}\n{"text": "b', 2, "invalid JSON: the line ends in the middle"),
    "cut_after_value.jsonl": (b'{"text": "a"}\n{"text": "b"', 2, "invalid JSON: the line ends in the middle"),
    "cut_array.json": (
        b'[{"text": "a"},\n{"text": "b"},\n{"te',
        3,
        "invalid JSON: the line ends in the middle",
    ),
    "missing_brace.jsonl": (b'{"text": "a"\n{"text": "b"}\n', 1, "invalid JSON: missing closing brace"),
    "missing_bracket.jsonl": (
        b'{"messages": [{"role": "user", "content": "a"}\n{"text": "b"}\n',
        1,
        "invalid JSON: missing closing bracket",
    ),
    "raw_newline.jsonl": (b'{"text": "a"}\n{"text": "b\nc"}\n', 2, "invalid JSON: a string is not closed"),
    "raw_tab.jsonl": (b'{"text": "a\tb"}\n', 1, "invalid JSON: a raw tab inside a string"),
    "python_none.jsonl": (b'{"text": None}\n', 1, "invalid JSON: None is not a JSON word"),
    "curly_quotes.jsonl": ("{“text”: “a”}\n".encode(), 1, "invalid JSON: typographic quotes"),
    "backslash.jsonl": (rb'{"text": "C:\dir"}' + b"\n", 1, "invalid JSON: a backslash"),
    "no_quotes.jsonl": (b'{text: "a"}\n', 1, "invalid JSON: a key without quotes"),
    "pretty.jsonl": (
        json.dumps({"text": "a"}, indent=1).encode(),
        1,
        "invalid JSON: an object spread over several",
    ),
    "prose.jsonl": (b"hello\n", 1, "invalid JSON"),
    "nul_bytes.jsonl": (b'{"text": "a"}\n\x00\x00\x00\n', 2, "invalid JSON"),
    "string_rows.jsonl": (b'"a"\n"b"\n', 1, "the row is a string"),
    "null_row.jsonl": (b'{"text": "a"}\nnull\n', 2, "the row is null"),
    "key_twice.jsonl": (
        b'{"prompt": "a", "prompt": "b", "completion": "c"}\n',
        1,
        'the key "prompt" stands twice',
    ),
    "key_twice_in_array.json": (
        b'[\n{"text": "a"},\n{"text": "a", "text": "b"}]',
        3,
        'the key "text" stands twice',
    ),
    "comma_in_array.json": (b'[{"text": "a"},\n{"text": "b"},\n]', 3, "invalid JSON: trailing comma"),
    "no_comma_in_array.json": (b'[\n{"text": "a"}\n{"text": "b"}\n]', 3, "invalid JSON: a comma"),
    "blank_only.jsonl": (b"\n \n\n", None, "no rows"),
    "empty.csv": (b"", None, "no rows"),
    "header_only.csv": (b"prompt,completion\n", None, "no rows"),
    "empty_array.json": (b"[]", None, "no rows"),
    "mark_only.jsonl": (b"\xef\xbb\xbf", None, "no rows"),
    "mixed_answer.jsonl": (
        lines({"prompt": "a", "answer": "1"}, {"prompt": "b", "answer": 2}),
        2,
        'column "answer" is a number',
    ),
    "mixed_text.jsonl": (lines({"text": "a"}, {"text": 5}), 2, '"text" is a number'),
    "mixed_shape.jsonl": (lines(PC, {"prompt": [U("b")], "completion": [A("x")]}), 2, '"prompt" is a list'),
    "mixed_shape_back.jsonl": (
        lines({"prompt": [U("b")], "completion": [A("x")]}, PC),
        2,
        '"prompt" is text',
    ),
    "mixed_formats.jsonl": (lines({"text": "a"}, {"messages": [U("b"), A("x")]}), 2, '"text" is missing'),
    "mixed_extra.jsonl": (
        lines({**PC, "id": 1}, {"prompt": "c", "completion": "d", "id": "x"}),
        2,
        'column "id" is text',
    ),
    "null_completion.jsonl": (lines(PC, {"prompt": "c", "completion": None}), 2, '"completion" is null'),
    "null_content.jsonl": (
        lines({"messages": [U("a"), A("b")]}, {"messages": [U("a"), A(None)]}),
        2,
        "message 2",
    ),
    "null_messages.jsonl": (
        lines({"messages": [U("a"), A("b")]}, {"messages": None}),
        2,
        '"messages" is null',
    ),
    "missing_completion.jsonl": (lines(PC, {"prompt": "c"}), 2, '"completion" is missing'),
    "missing_in_first.jsonl": (lines({"prompt": "c"}, PC), 1, '"completion" is missing'),
    "empty_row.jsonl": (lines({"text": "a"}, {}), 2, '"text" is missing'),
    "nan_completion.jsonl": (
        b'{"prompt": "a", "completion": "b"}\n{"prompt": "c", "completion": NaN}\n',
        2,
        '"completion" is a number',
    ),
    "object_prompt.jsonl": (lines({"prompt": {"text": "a"}, "completion": "b"}), 1, '"prompt" is an object'),
    "unknown_columns.jsonl": (lines({"q": "a", "a": "b"}), 1, 'the columns "q", "a" match no known format'),
    "no_header.csv": (b"2+2,4\n3+3,6\n", 1, 'the columns "2+2", "4" match no known format'),
    "unknown_role.jsonl": (
        lines({"messages": [U("a"), A("b")]}, {"messages": [turn("human", "a"), A("b")]}),
        2,
        'unknown role "human"',
    ),
    "no_role.jsonl": (
        lines({"messages": [{"content": "a"}, A("b")]}),
        1,
        'message 1 of "messages" has no role',
    ),
    "no_content.jsonl": (lines({"messages": [{"role": "user"}, A("b")]}), 1, "message 1"),
    "observation.jsonl": (
        lines({"conversations": [{"from": "human", "value": "a"}, {"from": "observation", "value": "b"}]}),
        1,
        'unknown ShareGPT role "observation"',
    ),
    "no_messages.jsonl": (
        lines({"messages": [U("a"), A("b")]}, {"messages": []}),
        2,
        '"messages" holds no messages',
    ),
    "only_system.jsonl": (lines({"messages": [S("a")]}), 1, "no assistant message"),
    "completion_of_a_user.jsonl": (
        lines({"prompt": [U("a")], "completion": [U("b")]}),
        1,
        "no assistant message",
    ),
    "image.jsonl": (
        lines({"messages": [turn("user", [{"type": "image_url", "image_url": {"url": "x"}}]), A("b")]}),
        1,
        "message 1 holds a part of type image_url",
    ),
    "no_shared_text.jsonl": (
        lines({"chosen": "yes", "rejected": "no"}),
        1,
        "chosen and rejected share no prompt",
    ),
    "only_system_shared.jsonl": (
        lines({"chosen": [S("s"), U("a"), A("x")], "rejected": [S("s"), U("b"), A("x")]}),
        1,
        "chosen and rejected share no prompt",
    ),
    "unpaired_numbers.jsonl": (lines({**PC, "label": 1}), 1, "unpaired preference"),
    "unpaired.csv": (b"prompt,completion,label\na,b,true\n", 1, "unpaired preference"),
    "carriage_returns.csv": (b"prompt,completion\ra,b\r", 1, "the line ends are bare carriage returns"),
    "cut_in_character.jsonl": (
        '{"text": "a"}\n{"text": "\u00fc'.encode()[:-1],
        2,
        "not UTF-8: the text ends in the middle of a character",
    ),
    "tools_that_are_no_json.jsonl": (
        lines({"messages": [U("a"), A("b")], "tools": "nope"}),
        1,
        '"tools" is text that is not JSON',
    ),
    "short_row.csv": (b"prompt,completion\na,b\nc\n", 3, "1 field, expected 2"),
    "long_row_after_line_break.csv": (b'prompt,completion\n"a\nb",c\nd,e,f\n', 4, "3 fields, expected 2"),
    "quote_not_closed.csv": (b'prompt,completion\na,b\n"c,d\ne,f\n', 3, "a quoted field is not closed"),
    "column_twice.csv": (
        b"prompt,prompt,completion\na,b,c\n",
        1,
        'the header names the column "prompt" twice',
    ),
    "python_list.csv": (
        b"messages\n\"[{'role': 'user', 'content': 'a'}]\"\n",
        2,
        'the column "messages" holds a Python list',
    ),
    "cut.jsonl.gz": (gzip.compress(lines({"text": "a"}) * 1000)[:60], None, "the gzip stream ends early"),
    "cut.jsonl.zst": (
        zstandard.compress(lines({"text": "a"}) * 1000)[:25],
        None,
        "the zstd stream ends early",
    ),
    "not_gzip.jsonl.gz": (b"hello", None, "not a gzip file"),
    "zip.jsonl": (b"PK\x03\x04abc", None, "a zip archive"),
    "cut.parquet": (b"PAR1abcdefghijkl", None, "not a complete Parquet file"),
    "not_arrow.arrow": (b"hello world", None, "not an Arrow file"),
    "unknown.bin": (b"abc", None, 'the suffix ".bin"'),
}


@pytest.mark.parametrize("name", FORMATS)
def test_format(name, tmp_path):
    content, kind, conversational, rows, steps, warned = FORMATS[name]
    path = tmp_path / name
    path.write_bytes(content)
    report = inspect_source(path)
    assert report.error is None, report.error
    assert (report.format, report.conversational, report.rows) == (kind, conversational, rows)
    assert report.normalise == steps
    assert [warning.line for warning in report.warnings] == warned, report.warnings
    assert report.sample is not None
    assert len(list(read_records(path))) == rows


@pytest.mark.parametrize("name", ERRORS)
def test_error(name, tmp_path):
    content, line, reason = ERRORS[name]
    path = tmp_path / name
    path.write_bytes(content)
    report = inspect_source(path)
    assert report.error is not None
    assert report.error.line == line, report.error
    assert report.error.reason.startswith(reason), report.error
    assert (report.format, report.conversational, report.rows) == (None, None, None)


@pytest.mark.parametrize("name", ["missing.jsonl", "nowhere/rows.csv"])
def test_a_missing_file_says_so(name, tmp_path):
    (tmp_path / "misssing.jsonl").write_text("{}")
    with pytest.raises(DataError, match="no such file or folder"):
        list(read_records(tmp_path / name))


def test_nearest_name_is_proposed(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "a"}')
    report = inspect_source(tmp_path / "trian.jsonl")
    assert report.error is not None
    assert "train.jsonl" in str(report.error.remedy)


def test_a_folder_is_one_source_and_its_test_part_is_not_trained_on(tmp_path):
    (tmp_path / "train-0.jsonl").write_bytes(lines({"text": "a"}))
    (tmp_path / "train-1.jsonl.gz").write_bytes(gzip.compress(lines({"text": "b"}, {"text": "a"})))
    (tmp_path / "test.jsonl").write_bytes(lines({"text": "c"}))
    (tmp_path / "README.md").write_text("x")
    report = inspect_source(tmp_path)
    assert report.rows == 3
    assert [(w.line, w.reason) for w in report.warnings] == [
        (2, f"duplicate of line 1 of {tmp_path / 'train-0.jsonl'}")
    ]
    assert any("test.jsonl" in note for note in report.notes)
    assert any("README.md" in note for note in report.notes)


def test_an_error_in_a_folder_names_the_file(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines({"text": "a"}))
    (tmp_path / "b.jsonl").write_bytes(lines({"text": "a"}, {"text": None}))
    report = inspect_source(tmp_path)
    assert report.error is not None
    assert (report.error.file, report.error.line) == (str(tmp_path / "b.jsonl"), 2)


def test_all_broken_rows_are_listed_and_reading_stops_after_twenty(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "a"}\n{"text"\n{"text": null}\n' + "{\n" * 50)
    report = inspect_source(path)
    assert [problem.line for problem in report.problems] == list(range(2, 22))
    assert report.error == report.problems[0]


def test_a_mapping_names_unknown_columns(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(lines({"q": "1+1", "a": "2"}))
    report = inspect_source(path, mapping={"prompt": "q", "answer": "a"})
    assert (report.format, report.sample) == ("prompt_only", {"prompt": "1+1", "answer": "2"})

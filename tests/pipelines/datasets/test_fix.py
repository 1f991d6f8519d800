"""--fix: what is mended, what is left out, and that the list says so line by line."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from estimators.errors import BadInput
from pipelines.datasets import inspect_source, read_records
from pipelines.datasets.fix import fix_source

CASES = Path(__file__).parents[2] / "cases" / "data"


def fixed(content: bytes | str, tmp_path, name: str = "rows.jsonl"):
    """The rows that --fix writes for a file, and its list of changes as (line, did, what)."""
    source = tmp_path / name
    source.write_bytes(content if isinstance(content, bytes) else content.encode())
    before = hashlib.sha256(source.read_bytes()).hexdigest()
    result = fix_source(source, tmp_path / "clean.jsonl")
    assert hashlib.sha256(source.read_bytes()).hexdigest() == before
    rows = list(read_records(result.output))
    changes = [json.loads(line) for line in Path(result.changes).read_text().splitlines()]
    report = inspect_source(result.output)
    assert report.error is None
    assert (report.format, report.rows) == (result.format, result.rows)
    assert result.rows == len(rows)
    assert result.left_out == sum(change["did"] == "left out" for change in changes)
    assert result.changed == sum(change["did"] == "changed" for change in changes)
    return rows, [
        (change.get("line", change.get("row")), change["did"], change["what"]) for change in changes
    ]


def test_broken_lines_are_mended_or_left_out_each_with_its_line(tmp_path):
    rows, changes = fixed(
        '{"text": "a"}\n'
        "{'text': 'b'}\n"
        '{"text": "c"} {"text": "d"}\n'
        '{"text": "e",}\n'
        '{"text": "f"},\n'
        '{"text": "g\th"}\n'
        "\n"
        '{"text": "cut\n'
        '{"text": null}\n'
        '{"text": "a"}\n'
        '{"text": ""}\n'
        '{"text": "x", "text": "y"}\n'
        '{"text": "h\\ud83d"}\n',
        tmp_path,
    )
    assert [row["text"] for row in rows] == ["a", "b", "c", "d", "e", "f", "g\th"]
    by_line = {line: (did, what) for line, did, what in changes}
    assert by_line[2] == ("changed", "a Python dict, written as JSON")
    assert by_line[3] == ("changed", "2 objects on one line, now one a line")
    assert by_line[4] == ("changed", "a trailing comma was removed")
    assert by_line[5] == ("changed", "the comma after the object was removed")
    assert by_line[6] == ("changed", "raw control characters inside a text, now escaped")
    assert by_line[7] == ("changed", "a blank line was left out")
    assert by_line[8] == ("left out", "invalid JSON: a string is not closed")
    assert by_line[9] == ("left out", '"text" is null')
    assert by_line[10] == ("left out", "duplicate of line 1")
    assert by_line[11] == ("left out", "text is empty")
    assert by_line[12] == ("left out", 'the key "text" stands twice in one object')
    assert by_line[13][0] == "left out"
    assert len(by_line) == 12


def test_sharegpt_tools_become_tool_calls(tmp_path):
    rows, changes = fixed((CASES / "11_sharegpt_tool_roles.jsonl").read_bytes(), tmp_path)
    assert rows[1]["messages"] == [
        {"role": "user", "content": "Weather in Rome?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"type": "function", "function": {"name": "weather", "arguments": {"city": "Rome"}}}
            ],
        },
        {"role": "tool", "content": '{"t":21}'},
        {"role": "assistant", "content": "21 degrees."},
    ]
    assert changes == [
        (None, "all rows", "sharegpt_to_messages (conversations -> messages)"),
        (2, "changed", "function_call and observation, now tool calls and tool messages"),
    ]


def test_utf16_becomes_utf8(tmp_path):
    rows, changes = fixed((CASES / "13_utf16.jsonl").read_bytes(), tmp_path)
    assert rows == [{"prompt": "The sky is", "completion": " blue."}, {"prompt": "2+2=", "completion": " 4"}]
    assert changes == [(1, "changed", "UTF-16, written as UTF-8")]


def test_a_guess_is_not_made(tmp_path):
    """Latin-1 may be any of fifteen encodings: the row is left out, not decoded by luck."""
    rows, changes = fixed('{"text": "a"}\n{"text": "café"}\n'.encode("latin-1"), tmp_path)
    assert rows == [{"text": "a"}]
    assert changes[0][:2] == (2, "left out")


def test_mixed_types_become_text_and_constants_null(tmp_path):
    rows, changes = fixed(
        '{"prompt": "a", "answer": 1, "id": 7, "s": 0.5}\n'
        '{"prompt": "b", "answer": "2", "id": "x", "s": NaN}\n'
        '{"prompt": "c", "answer": "3", "id": "y"}\n{"prompt": "d", "answer": null, "id": "z", "s": 1}\n',
        tmp_path,
    )
    assert rows == [
        {"prompt": "a", "answer": "1", "id": "7", "s": 0.5},
        {"prompt": "b", "answer": "2", "id": "x", "s": None},
        {"prompt": "c", "answer": "3", "id": "y", "s": None},
    ]
    assert changes == [
        (1, "changed", "answer: a number, now text"),
        (1, "changed", "id: a number, now text as in other rows"),
        (2, "changed", "s: nan is not JSON, now null"),
        (3, "changed", "s: missing, now null"),
        (4, "left out", "no usable gold: answer is missing or null"),
    ]


def test_identical_pairs_and_ragged_rows_are_left_out(tmp_path):
    rows, changes = fixed((CASES / "36_preference_identical.jsonl").read_bytes(), tmp_path)
    assert len(rows) == 1
    assert changes == [(2, "left out", "chosen and rejected are identical")]
    rows, changes = fixed((CASES / "52_csv_ragged.csv").read_bytes(), tmp_path, "rows.csv")
    assert rows == [{"prompt": "a", "completion": "1"}]
    assert changes == [(3, "left out", "3 fields, expected 2")]


def test_a_mapped_form_is_written_in_trls_columns(tmp_path):
    rows, changes = fixed('{"instruction": "Add", "input": "1 2", "output": "3", "id": 1}\n', tmp_path)
    assert rows == [{"prompt": "Add\n\n1 2", "completion": "3", "id": 1}]
    names = "instruction -> prompt, output -> completion"
    assert changes == [(None, "all rows", f"alpaca_to_prompt_completion ({names})")]


@pytest.mark.parametrize("target", ["rows.jsonl", "./sub/../rows.jsonl"])
def test_the_source_is_never_overwritten(target, tmp_path):
    source = tmp_path / "rows.jsonl"
    source.write_text('{"text": "a"}\n')
    (tmp_path / "sub").mkdir()
    with pytest.raises(BadInput, match="never touched"):
        fix_source(source, tmp_path / target)
    with pytest.raises(BadInput, match="never touched"):
        fix_source(tmp_path, tmp_path / "new.jsonl")


def test_a_file_without_a_usable_row_writes_nothing(tmp_path):
    source = tmp_path / "rows.jsonl"
    source.write_text('{"prompt": "a", "completion": null}\n')
    with pytest.raises(BadInput, match="no row can be used"):
        fix_source(source, tmp_path / "clean.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_a_cut_archive_writes_nothing(tmp_path):
    import gzip

    source = tmp_path / "rows.jsonl.gz"
    source.write_bytes(gzip.compress(b'{"text": "a"}\n' * 1000)[:60])
    with pytest.raises(BadInput, match="ends early"):
        fix_source(source, tmp_path / "clean.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl.gz"]


def test_utf16_that_is_cut_writes_nothing(tmp_path):
    source = tmp_path / "rows.jsonl"
    source.write_bytes('{"text": "a"}\n'.encode("utf-16")[:-1])
    with pytest.raises(BadInput, match="not UTF-16 throughout"):
        fix_source(source, tmp_path / "clean.jsonl")


def test_a_column_without_a_name_is_no_part_of_the_format(tmp_path):
    """pandas writes its index as a first column without a name."""
    rows, changes = fixed(",prompt,completion\n0,a,b\n1,c,d\n", tmp_path, "rows.csv")
    assert rows == [{"prompt": "a", "completion": "b", "": "0"}, {"prompt": "c", "completion": "d", "": "1"}]
    assert changes == []

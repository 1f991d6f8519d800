"""Documents that are read in windows: every row on its line, however the windows fall."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.datasets import inspect_source, json_document, read_records, sources
from pipelines.datasets.rows import ReadLog
from pipelines.datasets.sources import find_files, read_file


@settings(max_examples=80, deadline=None)
@given(
    rows=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), min_size=1, max_size=12),
    window=st.integers(1, 64),
    indent=st.sampled_from([None, 0, 2]),
)
def test_rows_and_lines_do_not_depend_on_the_window(rows, window, indent, tmp_path_factory):
    path = tmp_path_factory.mktemp("document") / "rows.json"
    records = [{"text": text, "n": number} for number, text in enumerate(rows)]
    path.write_text(json.dumps(records, indent=indent, ensure_ascii=False), encoding="utf-8", newline="")
    before = json_document.BLOCK_BYTES, sources.HEAD_BYTES
    json_document.BLOCK_BYTES, sources.HEAD_BYTES = window, 8
    try:
        log = ReadLog("rows.json")
        batches = list(read_file(find_files(path)[0][0], log))
    finally:
        json_document.BLOCK_BYTES, sources.HEAD_BYTES = before
    assert [record for batch in batches for record in batch.records] == records
    places = [place for batch in batches for place in batch.places]
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    if indent is None:
        assert places == [1] * len(rows)
    else:
        assert places == [number for number, line in enumerate(lines, 1) if line.strip() == "{"]


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ('{"version": 1, "data": [{"text": "a"}, {"text": "b"}]}', 2),
        ('\n\n  [ {"text": "a"} , {"text": "b"} ]  \n', 2),
        ("[\n]", 0),
        ('{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}', 1),
    ],
)
def test_documents(content, rows, tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(content)
    assert len(list(read_records(path))) == rows
    assert (inspect_source(path).rows or 0) == rows


def test_what_is_left_out_around_the_rows_is_told(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text('{"version": 1, "data": [{"text": "a"}]}')
    report = inspect_source(path)
    assert report.normalise == ["unwrap_data"]
    assert report.notes == ['rows are taken from "data"; not rows, and left out: version']

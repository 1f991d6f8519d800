"""Any list of records in a known format, written in any readable container, comes back equal."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.datasets import content_digest, inspect_source, normalise, read_normalised, read_records

Records = list[dict[str, Any]]

# what a file can hold: any characters but halves of one; Parquet and CSV hold a NUL as well
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
said = texts.filter(lambda text: text.strip() != "")
numbers = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False))


def message(role: str) -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries({"role": st.just(role), "content": said})


conversations = st.builds(
    lambda system, turns: [*system, *(m for pair in turns for m in pair)],
    st.lists(message("system"), max_size=1),
    st.lists(st.tuples(message("user"), message("assistant")), min_size=1, max_size=3),
)
FORMATS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "text": st.fixed_dictionaries({"text": said}),
    "prompt_completion": st.fixed_dictionaries({"prompt": said, "completion": said, "source": texts}),
    "preference": st.fixed_dictionaries({"prompt": said, "chosen": said, "rejected": said}),
    "prompt_only": st.fixed_dictionaries({"prompt": said, "answer": said}),
    "messages": st.fixed_dictionaries({"messages": conversations}),
    "chat_prompt_only": st.fixed_dictionaries(
        {"prompt": st.tuples(message("user")).map(list), "answer": said}
    ),
}
FLAT = ("text", "prompt_completion", "preference", "prompt_only")


def write_jsonl(records: Records) -> bytes:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


def write_csv(path: Path, records: Records, delimiter: str) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(records[0]), delimiter=delimiter, quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(records)


def write(records: Records, path: Path) -> Path:
    """Write `records` in the container that the name of `path` says."""
    name = path.name
    if name.endswith(".jsonl"):
        path.write_bytes(write_jsonl(records))
    elif name.endswith(".json"):
        path.write_text(json.dumps(records, indent=1, ensure_ascii="ascii" in name), encoding="utf-8")
    elif name.endswith(".gz"):
        path.write_bytes(gzip.compress(write_jsonl(records)))
    elif name.endswith(".zst"):
        path.write_bytes(zstandard.compress(write_jsonl(records)))
    elif name.endswith(".csv"):
        write_csv(path, records, ",")
    elif name.endswith(".tsv"):
        write_csv(path, records, "\t")
    elif name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(records), path)
    else:
        table = pa.Table.from_pylist(records)
        make = pa.ipc.new_stream if "stream" in name else pa.ipc.new_file
        with pa.OSFile(str(path), "wb") as file, make(file, table.schema) as writer:
            writer.write_table(table)
    return path


NESTED_CONTAINERS = [
    "a.jsonl",
    "a.json",
    "ascii.json",
    "a.jsonl.gz",
    "a.jsonl.zst",
    "a.parquet",
    "a.arrow",
    "stream.arrow",
]
FLAT_CONTAINERS = ["a.csv", "a.tsv"]


PAIRS = [
    (kind, container)
    for kind in FORMATS
    for container in NESTED_CONTAINERS + (FLAT_CONTAINERS if kind in FLAT else [])  # a CSV cell is text
]


@pytest.mark.parametrize(("kind", "container"), PAIRS)
def test_records_come_back_equal(kind, container, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / container

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(FORMATS[kind], min_size=1, max_size=6))
    def check(records: Records) -> None:
        assert list(read_records(write(records, path))) == records

    check()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "prompt": said,
                "answer": said,
                "n": numbers,
                "tags": st.lists(texts, max_size=2),
                "on": st.booleans(),
            }
        ),
        min_size=1,
        max_size=4,
    )
)
def test_columns_of_every_type_come_back_equal(tmp_path_factory, records):
    path = tmp_path_factory.mktemp("data") / "a.jsonl"
    path.write_bytes(write_jsonl(records))
    assert list(read_records(path)) == records


@given(st.lists(st.integers(), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_integers_of_any_size_are_exact(tmp_path_factory, numbers):
    path = tmp_path_factory.mktemp("data") / "a.jsonl"
    path.write_bytes(write_jsonl([{"prompt": "p", "n": number} for number in numbers]))
    assert [record["n"] for record in read_records(path)] == numbers


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(FORMATS)).flatmap(
        lambda kind: st.tuples(st.just(kind), st.lists(FORMATS[kind], min_size=1))
    )
)
def test_the_digest_is_of_the_rows_and_not_of_the_container(tmp_path_factory, drawn):
    kind, records = drawn
    folder = tmp_path_factory.mktemp("data")
    names = ["a.jsonl", "a.json", "a.jsonl.gz", "a.parquet", "a.arrow"] + (["a.csv"] if kind in FLAT else [])
    digests = {content_digest(write(records, folder / name)) for name in names}
    assert len(digests) == 1
    shuffled = [dict(reversed(list(record.items()))) for record in records]
    assert content_digest(write(shuffled, folder / "b.jsonl")) in digests
    assert content_digest(write([*records, records[0]], folder / "c.jsonl")) not in digests


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(FORMATS)).flatmap(lambda kind: st.lists(FORMATS[kind], min_size=1, max_size=5)))
def test_normalised_rows_are_recognised_as_what_they_are(tmp_path_factory, records):
    """Normalising what is normal changes nothing."""
    path = write(records, tmp_path_factory.mktemp("data") / "a.jsonl")
    report = inspect_source(path)
    assert report.error is None, report.error
    rows = list(read_normalised(path, report))
    again = write(rows, path.with_name("b.jsonl"))
    second = inspect_source(again)
    assert (second.format, second.conversational, second.rows) == (
        report.format,
        report.conversational,
        report.rows,
    )
    assert [normalise(record, second) for record in read_records(again)] == rows


def test_tool_calls_survive_parquet(tmp_path):
    """Arrow gives every message and every argument object the keys of all; the nulls are taken out again."""
    call = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Rome"}}}
    other = {"type": "function", "function": {"name": "clock", "arguments": {"zone": "UTC"}}}
    records = [
        {
            "messages": [
                {"role": "user", "content": "w?"},
                {"role": "assistant", "content": "", "tool_calls": [call, other]},
                {"role": "tool", "content": "21"},
                {"role": "assistant", "content": "21"},
            ]
        },
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
    ]
    for name in ("a.parquet", "a.jsonl"):
        path = write(records, tmp_path / name)
        report = inspect_source(path)
        assert list(read_normalised(path, report)) == records


def test_a_saved_datasets_folder_is_read(tmp_path):
    """`Dataset.save_to_disk` writes an Arrow stream and two JSON files that are no data."""
    table = pa.Table.from_pylist([{"text": "a"}, {"text": "b"}])
    with (
        pa.OSFile(str(tmp_path / "data-00000-of-00001.arrow"), "wb") as file,
        pa.ipc.new_stream(file, table.schema) as out,
    ):
        out.write_table(table)
    (tmp_path / "state.json").write_text("{}")
    (tmp_path / "dataset_info.json").write_text("{}")
    report = inspect_source(tmp_path)
    assert (report.format, report.rows, report.notes) == ("text", 2, [])

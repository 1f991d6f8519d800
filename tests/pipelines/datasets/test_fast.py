"""The fast way says the same as the careful way, and never more."""

from __future__ import annotations

import gc
import json
import random
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.datasets.fast import Layout
from pipelines.datasets.inspect import inspect_source
from pipelines.datasets.inspector import Inspector
from pipelines.datasets.key_scan import SMALL_BYTES, count_keys, has_long_digits, is_exact
from pipelines.datasets.rows import ReadLog
from pipelines.datasets.sources import find_files, read_file

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def text(generator: random.Random, most: int) -> str:
    return " ".join(generator.choices(WORDS, k=generator.randint(1, most)))


def rows_of(kind: str, count: int, generator: random.Random) -> list[dict[str, object]]:
    """Rows of a kind, some of them twice, some with an end token, some with a contradicting answer."""
    rows: list[dict[str, object]] = []
    for number in range(count):
        if rows and generator.random() < 0.05:
            rows.append(dict(generator.choice(rows)))
            continue
        long = 3000 if generator.random() < 0.01 else 12
        prompt, answer = text(generator, long), text(generator, 6)
        end = "</s>" if generator.random() < 0.02 else ""
        turns = [("user", prompt), ("assistant", answer), ("user", "so?"), ("assistant", answer + end)]
        messages = [{"role": role, "content": content} for role, content in turns[: generator.choice([2, 4])]]
        made: dict[str, dict[str, object]] = {
            "text": {"text": prompt + end},
            "prompt_completion": {
                "prompt": prompt,
                "completion": answer + end,
                "score": generator.choice([1, 0.5, None]),
            },
            "preference": {"prompt": prompt, "chosen": answer, "rejected": text(generator, 9)},
            "prompt_only": {
                "prompt": text(generator, 2),
                "answer": str(generator.randint(0, 3)),
                "id": str(number),
            },
            "alpaca": {"instruction": prompt, "input": generator.choice(["", answer]), "output": answer},
            "messages": {"messages": messages},
            "chat_preference": {
                "prompt": messages[:1],
                "chosen": [{"role": "assistant", "content": answer}],
                "rejected": [{"role": "assistant", "content": text(generator, 9)}],
            },
            "sharegpt": {
                "conversations": [
                    {"from": {"user": "human", "assistant": "gpt"}[str(m["role"])], "value": m["content"]}
                    for m in messages
                ]
            },
        }
        rows.append(made[kind])
    return rows


def careful_report(source: Path):
    inspector = Inspector(str(source), careful=True)
    logs = []
    for file in find_files(source)[0]:
        log = ReadLog(file.shown, on_error=inspector.problem, quick=True)
        logs.append(log)
        for batch in read_file(file, log):
            inspector.add(log, batch)
    return inspector.report(logs)


@pytest.mark.parametrize(
    "kind",
    [
        "text",
        "prompt_completion",
        "preference",
        "prompt_only",
        "alpaca",
        "messages",
        "chat_preference",
        "sharegpt",
    ],
)
def test_fast_equals_careful(kind, tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = rows_of(kind, 6000, random.Random(kind))
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)) + b"\n")
    fast = inspect_source(path, workers=1)
    careful = careful_report(path)
    assert fast.error is None, fast.error
    assert fast.rows == 6000
    assert sum(fast.warning_counts.values()) > 0
    assert fast == careful


def test_several_processes_say_the_same_as_one(tmp_path, monkeypatch):
    import pipelines.datasets.parallel as parallel

    monkeypatch.setattr(parallel, "RANGE_BYTES", 300_001)  # many ranges that end inside of lines
    path = tmp_path / "rows.jsonl"
    rows = rows_of("prompt_only", 20_000, random.Random(1))
    rows[15_000]["extra"] = 1  # a row for the careful way, far from the start
    lines = [orjson.dumps(row) for row in rows]
    lines[17_000] = b""
    path.write_bytes(b"\n".join(lines))
    one, two = inspect_source(path, workers=1), inspect_source(path, workers=2)
    assert one.error is None, one.error
    assert one.rows == 19_999
    assert 'column "extra"' in " ".join(warning.reason for warning in one.warnings)
    assert one == two


def test_a_broken_line_far_from_the_start_is_named_by_all_processes(tmp_path, monkeypatch):
    import pipelines.datasets.parallel as parallel

    monkeypatch.setattr(parallel, "RANGE_BYTES", 300_001)
    path = tmp_path / "rows.jsonl"
    lines = [orjson.dumps(row) for row in rows_of("prompt_completion", 20_000, random.Random(2))]
    lines[18_888] = b'{"prompt": "a", "completion": "b"'
    path.write_bytes(b"\n".join(lines))
    report = inspect_source(path, workers=2)
    assert report.error is not None
    assert (report.error.line, report.error.reason) == (18_889, "invalid JSON: missing closing brace")


@pytest.mark.parametrize("filler", ["", "x" * SMALL_BYTES], ids=["small", "large"])
def test_what_orjson_passes_over_is_found(filler):
    def exact(line: str) -> bool:
        block = line.replace("FILL", filler).encode()
        return is_exact(block, [orjson.loads(block)])

    assert exact('{"a": "FILL", "b": {"c": [1, {"d": 2}]}}')
    assert exact('{"a": "say \\":FILL"}')
    assert not exact('{"a": "FILL", "a": 2}')
    assert not exact('{"x": {"a": "FILL", "a": 2}}')
    assert not exact('{"a": 123456789012345678901234567890, "b": "FILL"}')
    assert has_long_digits(("1" * 19 + filler).encode())
    assert not has_long_digits(("1" * 18 + filler).encode())
    assert count_keys(b'"' + filler.encode() + b'":', 1)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"prompt": "a", "prompt": "b", "completion": "c"}', 'the key "prompt" stands twice in one object'),
        ('{"prompt": "a", "completion": null}', '"completion" is null'),
        ('{"prompt": "a", "completion": 5}', '"completion" is a number, not text'),
        ('{"prompt": "a"}', '"completion" is missing'),
        ('{"prompt": "a", "completion": "\\ud83d"}', "lone surrogate"),
        (
            '{"prompt": "a", "completion": "b"}{"prompt": "c", "completion": "d"}',
            "invalid JSON: two objects on one line",
        ),
        (
            '{"prompt": "a", "completion": "b"}, {"prompt": "c", "completion": "d"}',
            "invalid JSON: a comma after the object",
        ),
    ],
)
def test_one_odd_row_among_thousands_is_found(line, reason, tmp_path):
    lines = [json.dumps({"prompt": f"{n} {'x' * 50}", "completion": "y"}) for n in range(9000)]
    lines[8000] = line
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(lines))
    report = inspect_source(path)
    assert report.error is not None
    assert report.error.line == 8001
    assert report.error.reason.startswith(reason)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=30),
    st.integers(1, 120),
    st.integers(1, 64),
    st.booleans(),
)
def test_ranges_own_each_line_exactly_once(tmp_path_factory, sizes, range_bytes, block_bytes, ended):
    """Ranges of any size, read in blocks of any size, give every line once."""
    import pipelines.datasets.parallel as parallel

    path = tmp_path_factory.mktemp("ranges") / "rows.jsonl"
    lines = [b'{"text":"' + b"x" * size + b'"}' for size in sizes]
    path.write_bytes(b"\n".join(lines) + (b"\n" if ended else b""))
    layout = Layout("text", False, (("text", "text"),), frozenset({"text"}), ())
    size = path.stat().st_size
    before = parallel.BLOCK_BYTES
    parallel.BLOCK_BYTES = block_bytes
    try:
        pieces = [
            piece
            for start in range(0, size, range_bytes)
            for piece in parallel._scan_range(
                str(path), start, min(size, start + range_bytes), start == 0, layout
            )
        ]
    finally:
        parallel.BLOCK_BYTES = before
        gc.enable()
    assert [piece.start for piece in pieces[1:]] == [piece.stop for piece in pieces[:-1]]
    assert (pieces[0].start, pieces[-1].stop) == (0, size)
    assert sum(piece.lines for piece in pieces) == len(lines)

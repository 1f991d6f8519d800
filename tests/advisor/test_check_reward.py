"""`advisor check reward`."""

from __future__ import annotations

import json

import pytest

from advisor.cli import run_app


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rows = [{"prompt": f"What is {k} + 30?", "answer": str(k + 30)} for k in range(10, 30)]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "r.py").write_text(
        "def inside(completions, answer, **kwargs):\n"
        "    return [float(a in c) for c, a in zip(completions, answer)]\n"
        "def raises(completions, answer, **kwargs):\n"
        "    return [1 / 0]\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_sound_reward(folder, capsys):
    assert run_app(["check", "reward", "math", "prompts.jsonl"]) == 0
    assert "20 of 20 golds paid" in capsys.readouterr().out


def test_an_unsound_reward_exits_1_with_the_worst_first(folder, capsys):
    assert run_app(["check", "reward", "r.py:inside", "prompts.jsonl"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("error: pays 1 for a probe that must not be paid")


def test_an_exception_names_its_line(folder, capsys):
    assert run_app(["check", "reward", "r.py:raises", "prompts.jsonl", "--quick"]) == 1
    assert f"raises ZeroDivisionError: division by zero (at {folder / 'r.py'}:4)" in capsys.readouterr().out


def test_json_is_one_document(folder, capsys):
    assert run_app(["check", "reward", "math", "prompts.jsonl", "--json", "--rows", "5"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["golds_paid"], found["findings"]) == (5, 5, [])


def test_reasoning_gym_needs_no_data(folder, capsys):
    assert run_app(["check", "reward", "reasoning_gym:chain_sum", "--rows", "4"]) == 0
    assert "4 of 4 golds paid" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["math"], "say on which data"),
        (["mth", "prompts.jsonl"], 'did you mean "math"'),
        (["math", "no.jsonl"], "no.jsonl"),
    ],
)
def test_what_is_said(arguments, says, folder, capsys):
    assert run_app(["check", "reward", *arguments]) == 1
    assert says in capsys.readouterr().err

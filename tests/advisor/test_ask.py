"""`advisor ask` on a real terminal: the six answers reach the file, and Ctrl-C keeps those given so far."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.answers import read_answers, read_draft
from advisor.questions import SIX

Start = Callable[..., Any]


def answer_six(terminal: Any, keys: str, first: int = 0) -> None:
    """Answer the questions from number `first` on, one key each."""
    for question, key in zip(SIX[first:], keys, strict=True):
        terminal.answer(question.asks, key)


def test_six_answers_reach_the_file(terminal: Start, tmp_path: Path) -> None:
    screen = terminal("ask")
    answer_six(screen, "ynuynu")
    assert screen.end() == 0
    answers = read_answers(tmp_path / "answers.yaml")
    assert [getattr(answers, q.key) for q in SIX] == ["yes", "no", "unsure"] * 2
    for question in SIX:
        assert question.help.split(":")[0][:40] in " ".join(screen.seen.split())
    assert "advisor recommend answers.yaml" in screen.seen


def test_arrows_move_and_other_keys_do_nothing(terminal: Start, tmp_path: Path) -> None:
    screen = terminal("ask", "-o", "mine.yaml")
    answer_six(screen, ["\x1b[B", "\x1b[B\x1b[B", "xq5", "\x1b[A", "u\x1b[A", "y"])  # type: ignore[arg-type]
    assert screen.end() == 0
    answers = read_answers(tmp_path / "mine.yaml")
    assert [getattr(answers, q.key) for q in SIX] == ["no", "unsure", "yes", "unsure", "no", "yes"]


@pytest.mark.parametrize("at", range(6))
def test_ctrl_c_keeps_what_is_answered_and_the_next_call_asks_the_rest(
    terminal: Start, tmp_path: Path, at: int
) -> None:
    screen = terminal("ask")
    for question in SIX[:at]:
        screen.answer(question.asks, "n")
    screen.expect(SIX[at].asks)
    screen.type("\x03")
    assert screen.end() == 130
    assert screen.seen.rstrip().splitlines()[-1].startswith("stopped; ")
    assert "`advisor ask -o answers.yaml` goes on" in screen.seen
    file = tmp_path / "answers.yaml"
    assert (read_draft(file) if at else {}) == {q.key: "no" for q in SIX[:at]}
    assert file.exists() == bool(at)

    screen = terminal("ask")
    answer_six(screen, "y" * (6 - at), first=at)
    assert screen.end() == 0
    answers = read_answers(file)
    assert [getattr(answers, q.key) for q in SIX] == ["no"] * at + ["yes"] * (6 - at)


def test_a_complete_file_offers_its_answers(terminal: Start, tmp_path: Path) -> None:
    file = tmp_path / "answers.yaml"
    file.write_text("".join(f"{q.key}: no\n" for q in SIX) + "model: m\nseed: 5\n")
    screen = terminal("ask")
    answer_six(screen, ["", "", "u", "", "", ""])  # type: ignore[arg-type]
    assert screen.end() == 0
    answers = read_answers(file)
    assert [getattr(answers, q.key) for q in SIX] == ["no", "no", "unsure", "no", "no", "no"]
    assert (answers.model, answers.seed) == ("m", 5)


def test_a_broken_file_is_left_alone(terminal: Start, tmp_path: Path) -> None:
    file = tmp_path / "answers.yaml"
    file.write_text("verifiable: perhaps\n")
    screen = terminal("ask")
    assert screen.end() == 1
    assert 'answers.yaml:1:1: "verifiable" is' in screen.seen
    assert file.read_text() == "verifiable: perhaps\n"


def test_json_is_alone_on_stdout(terminal: Start, tmp_path: Path) -> None:
    """The questions are on stderr: `advisor ask --json > file` asks on the terminal all the same."""
    screen = terminal("ask", "--json")
    answer_six(screen, "yyyyyy")
    assert screen.end() == 0
    assert json.loads(screen.seen[screen.seen.rindex("{") :]) == {q.key: "yes" for q in SIX}


def test_recommend_without_a_file_asks(terminal: Start, tmp_path: Path) -> None:
    screen = terminal("recommend")
    answer_six(screen, "ynnnyn")
    assert screen.end() == 0
    assert "Recommended: GRPO" in screen.seen
    assert read_answers(tmp_path / "answers.yaml").verifiable == "yes"


def test_recommend_without_a_file_can_be_left(terminal: Start, tmp_path: Path) -> None:
    screen = terminal("recommend")
    screen.expect(SIX[0].asks)
    screen.type("\x03")
    assert screen.end() == 130
    assert "`advisor recommend` goes on" in screen.seen


def test_off_a_terminal_it_says_what_to_write(advisor: Callable[..., Any], tmp_path: Path) -> None:
    done = advisor("ask", check=None)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "verifiable: yes" in done.stderr
    assert list(tmp_path.iterdir()) == []

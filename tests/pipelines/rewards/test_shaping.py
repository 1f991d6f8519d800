"""Shaping and combination: the sums done by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.errors import BadInput
from pipelines.rewards.combine import Gate, WeightedSum
from pipelines.rewards.shaping import format_reward, length_reward, repetition_penalty, soft_overlong


def tokens(*lengths):
    return [[7] * length for length in lengths]


def test_soft_overlong_is_equation_13():
    """max 20480, cache 4096: free up to 16384, -0.5 at 18432, -1 at 20480 and beyond."""
    punish = soft_overlong(20480, 4096)
    assert punish(completion_ids=tokens(1, 16384, 18432, 20480, 30000)) == [0.0, 0.0, -0.5, -1.0, -1.0]


def test_soft_overlong_equals_trl():
    trl = pytest.importorskip("trl.rewards", reason="needs trl", exc_type=ImportError)
    ids = tokens(*range(0, 60, 3))
    assert soft_overlong(40, 15)(completion_ids=ids) == pytest.approx(
        trl.get_soft_overlong_punishment(40, 15)(completion_ids=ids)
    )


@given(st.integers(2, 500), st.data())
def test_law_soft_overlong_never_rises_with_length(maximum, data):
    cache = data.draw(st.integers(1, maximum))
    values = soft_overlong(maximum, cache)(completion_ids=tokens(*range(0, maximum + 20, 7)))
    assert values == sorted(values, reverse=True)
    assert all(-1.0 <= v <= 0.0 for v in values)


def test_repetition():
    """n = 2: 5 5 5 5 5 holds 4 bigrams, one distinct: -(1 - 1/4) = -0.75; fewer tokens than n: 0."""
    assert repetition_penalty(2)(completion_ids=[[5] * 5, [1, 2, 3], [1], []]) == [-0.75, 0.0, 0.0, 0.0]


def test_length():
    """Target 10, tolerance 4: 1 within 6 ... 14, 0 from 18 on, half way at 16."""
    assert length_reward(10, 4)(completion_ids=tokens(6, 10, 14, 16, 18, 40, 2)) == [1, 1, 1, 0.5, 0, 0, 0]


def test_format_pays_once():
    reward = format_reward()
    right, twice = "<think>a</think>\nb", "<think>a</think><think>b</think> c"
    assert reward([right, "b", twice, "<think>a</think>", [{"role": "assistant", "content": right}]]) == [
        1,
        0,
        0,
        0,
        1,
    ]


@pytest.mark.parametrize(
    "make", [lambda: soft_overlong(10, 11), lambda: soft_overlong(10, 0), lambda: repetition_penalty(0),
             lambda: repetition_penalty(2, 1.0), lambda: length_reward(0, 1)]
)  # fmt: skip
def test_impossible_settings(make):
    with pytest.raises(BadInput):
        make()


def right(completions, **kwargs):
    return [None if c == "?" else float(c == "yes") for c in completions]


def test_weighted_sum_keeps_the_task_reward_apart():
    """yes at 20 of 20 tokens with cache 10: 1 + 0.5 x -1 = 0.5; the column `task` stays 1."""
    metrics, extra = {}, {}
    total = WeightedSum(right, [("overlong", soft_overlong(20, 10), 0.5)])
    values = total(
        completions=["yes", "no", "?"], completion_ids=tokens(20, 5, 5),
        log_metric=lambda name, value: metrics.update({name: value}),
        log_extra=lambda name, column: extra.update({name: column}),
    )  # fmt: skip
    assert values == [0.5, 0.0, None]
    assert total.components.values == {"task": [1.0, 0.0, None], "overlong": [-1.0, 0.0, 0.0]}
    assert metrics == {"reward/task": 0.5, "reward/overlong": pytest.approx(-1 / 3)}
    assert extra["reward_task"] == [1.0, 0.0, None]


def test_gate():
    """Correct and short: the task reward where the gate holds, 0 elsewhere, None stays None."""
    gate = Gate(
        right, [("short", lambda completion_ids, **k: [float(len(i) < 9) for i in completion_ids], 1.0)]
    )
    assert gate(completions=["yes", "yes", "no", "?"], completion_ids=tokens(5, 9, 5, 9)) == [
        1.0,
        0.0,
        0.0,
        None,
    ]


def test_components_need_names_of_their_own():
    with pytest.raises(BadInput):
        WeightedSum(right, [("task", right, 1.0)])

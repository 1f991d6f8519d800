"""Splits by content: no prompt on both sides, the same rows give the same split."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators.errors import BadInput
from pipelines.datasets import prompt_key, split_records

rows_of_few_prompts = st.lists(
    st.fixed_dictionaries({"prompt": st.sampled_from("abcdefgh"), "completion": st.text(max_size=3)}),
    max_size=60,
)


@given(rows_of_few_prompts, st.floats(0, 0.9), st.integers(-5, 5))
@settings(max_examples=150, deadline=None)
def test_every_row_is_on_one_side_and_no_prompt_on_two(rows, fraction, seed):
    train, held_out = split_records(rows, fraction, seed)
    assert sorted(map(str, train + held_out)) == sorted(map(str, rows))
    assert not {row["prompt"] for row in train} & {row["prompt"] for row in held_out}
    if rows:
        assert train


@given(rows_of_few_prompts, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_order_of_rows_does_not_matter(rows, generator):
    shuffled = list(rows)
    generator.shuffle(shuffled)
    one, two = split_records(rows, 0.3, 7), split_records(shuffled, 0.3, 7)
    for ours, theirs in zip(one, two, strict=True):
        assert sorted(map(str, ours)) == sorted(map(str, theirs))


def test_the_share_is_kept_and_the_seed_matters():
    rows = [{"prompt": str(number), "completion": "x"} for number in range(1000)]
    train, held_out = split_records(rows, 0.1, 0)
    assert (len(train), len(held_out)) == (900, 100)
    assert held_out != split_records(rows, 0.1, 1)[1]
    assert held_out == split_records(rows, 0.1, 0)[1]


def test_one_prompt_with_most_rows_does_not_swallow_the_training_set():
    rows = [{"prompt": "same", "completion": str(n)} for n in range(90)]
    rows += [{"prompt": str(n), "completion": "x"} for n in range(10)]
    for seed in range(20):
        train, held_out = split_records(rows, 0.05, seed)
        assert train
        assert held_out


def test_the_same_question_in_other_clothes_is_the_same_prompt():
    plain = {"prompt": "What is  2+2?\n", "completion": "4"}
    chat = {"messages": [{"role": "user", "content": "what is 2+2?"}, {"role": "assistant", "content": "4"}]}
    with_system = {"messages": [{"role": "system", "content": "s"}, *chat["messages"]]}
    sharegpt = {"conversations": [{"from": "human", "value": "What is 2+2?"}, {"from": "gpt", "value": "4"}]}
    pair = {"prompt": [{"role": "user", "content": "What is 2+2?"}], "chosen": [], "rejected": []}
    assert len({prompt_key(row) for row in (plain, chat, with_system, sharegpt, pair)}) == 1
    assert prompt_key(plain) != prompt_key({"prompt": "What is 2+3?"})


def test_alpaca_rows_differ_by_their_input():
    one, two = ({"instruction": "Add", "input": text, "output": "x"} for text in ("1 2", "3 4"))
    assert prompt_key(one) != prompt_key(two)


@pytest.mark.parametrize("fraction", [-0.1, 1, 2])
def test_a_fraction_outside_its_range_is_refused(fraction):
    with pytest.raises(BadInput, match="eval_fraction"):
        split_records([], fraction)


def test_nothing_is_held_out_of_one_prompt():
    rows = [{"prompt": "a", "completion": random.choice("xy")} for _ in range(5)]
    assert split_records(rows, 0.5, 0) == (rows, [])

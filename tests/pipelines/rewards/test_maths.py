"""`math_reward` on the shared pairs, on our own variants of every kind, and where it runs."""

from __future__ import annotations

import json
import multiprocessing
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.rewards import math_reward
from pipelines.rewards.maths.engine import judge
from pipelines.rewards.maths.extract import answer_of
from pipelines.rewards.workers import POOL

CASES = Path(__file__).parents[2] / "cases"


def rows(name: str) -> list[dict]:
    return [json.loads(line) for line in (CASES / name).read_text(encoding="utf-8").splitlines()]


def test_shared_pairs():
    """All 190, through the reward itself, each within 3 s."""
    wrong = []
    for row in rows("math.jsonl"):
        start = time.monotonic()
        (reward,) = math_reward([row["pred"]], answer=[row["gold"]])
        assert time.monotonic() - start < 3
        if (reward == 1.0) is not row["equal"]:
            wrong.append((row["id"], row["gold"][:60], reward))
    assert wrong == []


def test_shared_pairs_give_the_same_in_one_batch_and_as_messages():
    cases = rows("math.jsonl")
    chats = [[{"role": "assistant", "content": row["pred"]}] for row in cases]
    rewards = math_reward(chats, answer=[row["gold"] for row in cases])
    assert [r == 1.0 for r in rewards] == [row["equal"] for row in cases]


def test_unusable_golds_are_none_and_said_once(caplog):
    golds = ["", None, r"\text{see the solution}", "N/A", "?", "The proof is in the book.", "\\frac{1}{"]
    assert math_reward([r"\boxed{7}"] * len(golds), answer=golds) == [None] * len(golds)
    assert math_reward([""] * 2, answer=["", "see solution"]) == [None, None]
    assert "cannot be compared" in caplog.text
    said = len(caplog.records)
    math_reward([r"\boxed{7}"], answer=["N/A"])
    assert len(caplog.records) == said


@pytest.mark.parametrize("category", sorted({row["category"] for row in rows("math_variants.jsonl")}))
def test_variants(category):
    """More than a thousand pairs of the same kinds as the shared ones."""
    wrong = [
        (row["gold"], row["answer"], row["equal"])
        for row in rows("math_variants.jsonl")
        if row["category"] == category and (judge(row["gold"], row["answer"]) == 1.0) is not row["equal"]
    ]
    assert wrong == []


def test_equality_has_no_favourite_side():
    """Where both sides state a single value, swapping gold and answer changes nothing."""
    one_sided = {"percent", "units", "adversarial", "text_answer", "equation", "mixed_bag"}
    wrong = [
        (row["gold"], row["answer"])
        for row in rows("math_variants.jsonl")
        if row["category"] not in one_sided
        and row["answer"].count("{") == row["answer"].count("}")
        and judge(row["answer"], row["gold"]) is not None
        and (judge(row["answer"], row["gold"]) == 1.0) is not row["equal"]
    ]
    assert wrong == []


def test_every_gold_equals_itself():
    for row in [*rows("math.jsonl"), *rows("math_variants.jsonl")]:
        gold = row["gold"]
        if judge(gold, "7") is not None:
            assert judge(gold, gold) == 1.0, gold


def test_extraction():
    wrong = []
    for row in rows("math_extraction.jsonl"):
        answer = answer_of(row["completion"])
        if ((judge(row["gold"], answer) if answer is not None else 0.0) == 1.0) is not row["equal"]:
            wrong.append((row["gold"], row["completion"], answer))
    assert wrong == []


def test_golds_of_datasets():
    """Numbers, GSM8K's worked solutions, and golds that are boxed or in dollars."""
    assert (
        math_reward(
            [r"\boxed{18}"] * 5, answer=[18, 18.0, "She has 9*2 = 18.\n#### 18", r"$\boxed{18}$", "$18$"]
        )
        == [1.0] * 5
    )


def test_a_worker_that_dies_costs_one_check():
    jobs = [
        {"kind": "math", "gold": "1/2", "pred": "0.5"},
        {"kind": "hang"},
        {"kind": "math", "gold": "x", "pred": "x+0"},
    ]
    start = time.monotonic()
    assert POOL.run(jobs, limit_s=0.5) == [1.0, None, 1.0]
    assert time.monotonic() - start < 10


def test_memory_limit_costs_one_check():
    jobs = [{"kind": "allocate"}, {"kind": "math", "gold": "x", "pred": "x+0"}]
    assert POOL.run(jobs, limit_s=5.0) == [None, 1.0]


def test_same_verdict_in_any_thread():
    cases = rows("math.jsonl")[:120]
    expected = [row["equal"] for row in cases]
    found: dict[int, list[bool]] = {}

    def work(index: int) -> None:
        rewards = math_reward([row["pred"] for row in cases], answer=[row["gold"] for row in cases])
        found[index] = [r == 1.0 for r in rewards]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(found.values()) == [expected] * 4


def _in_child(pair: tuple[str, str]) -> float | None:
    return math_reward([pair[0]], answer=[pair[1]])[0]


def test_same_verdict_in_forked_map_workers():
    """As `datasets.map(num_proc=2)` does: the pool was used before the fork, and again in the children."""
    math_reward([r"\boxed{\frac{1}{2}}"], answer=["0.5"])
    with multiprocessing.get_context("fork").Pool(2) as pool:
        rewards = pool.map(_in_child, [(r"\boxed{\frac{1}{2}}", "0.5"), (r"\boxed{2}", r"\frac{4}{3}")] * 4)
    assert rewards == [1.0, 0.0] * 4
    assert math_reward([r"\boxed{\frac{1}{2}}"], answer=["0.5"]) == [1.0]


FRAGMENTS = st.sampled_from(
    [
        *r"{}^_()[]42xie!%|,;=<-.:'&$√½²/",
        *[
            r"\boxed{",
            r"\frac{",
            r"\sqrt",
            r"\text{",
            r"\{",
            r"\}",
            r"\pm",
            r"\cup",
            r"\\",
            r"\log",
            r"\int",
            r"\lim",
        ],
        *[r"\sum_{k=1}^{", r"\begin{pmatrix}", r"\end{pmatrix}", "</think>", "<answer>", "The answer is "],
        *["9^{9^{9}}", r"\infty", "1,000", "####", "\n"],
    ]
)


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(st.text(max_size=200), st.lists(FRAGMENTS, max_size=25).map("".join)),
    st.sampled_from(["42", "x^2", r"\frac12", "(1,2)", "C", r"\{1,2\}", "x<1"]),
)
def test_never_an_exception_never_outside_the_range(completion, gold):
    (reward,) = math_reward([completion], answer=[gold])
    assert reward in (0.0, 1.0)


@settings(max_examples=100, deadline=None)
@given(st.fractions(max_denominator=1000), st.integers(min_value=1, max_value=50))
def test_law_fractions_equal_exactly_their_multiples(value, factor):
    gold = rf"\frac{{{value.numerator}}}{{{value.denominator}}}"
    assert judge(gold, rf"\frac{{{value.numerator * factor}}}{{{value.denominator * factor}}}") == 1.0
    assert judge(gold, rf"\frac{{{value.numerator * factor + 1}}}{{{value.denominator * factor}}}") == 0.0

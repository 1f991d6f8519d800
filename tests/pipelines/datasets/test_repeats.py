"""Repeats by hash: the dictionary for few rows and the sorted slices for many say the same."""

from __future__ import annotations

import random
from array import array

import pytest

from pipelines.datasets import repeats
from pipelines.datasets.second_look import near_pairs


def by_hand(values):
    firsts: dict[int, int] = {}
    found = []
    for index, value in enumerate(values):
        if value in firsts:
            found.append((index, firsts[value]))
        else:
            firsts[value] = index
    return found


@pytest.mark.parametrize("small", [0, 1_000_000], ids=["sorted", "dictionary"])
def test_repeats(small, monkeypatch):
    monkeypatch.setattr(repeats, "SMALL", small)
    monkeypatch.setattr(repeats, "SLICE", 100)
    generator = random.Random(0)
    spread = [generator.choice([-(2**63), 2**63 - 1, 0, -1, generator.getrandbits(62)]) for _ in range(2000)]
    for values in (spread, list(range(1000)), [7] * 300, [5]):
        assert list(zip(*repeats.repeated(array("q", values)), strict=True)) == by_hand(values)


def test_conflicts_are_equal_prompts_with_other_rows():
    found = repeats.Repeats()
    found.extend([11, 22, 11, 33], [1, 2, 1, 1])
    assert found.duplicates() == (array("q", [2]), array("q", [0]))
    assert found.conflicts() == (array("q", [3]), array("q", [0]))


def test_near_duplicates():
    """One changed word of forty leaves 35 of 41 three-word runs shared: 0.85."""
    words = [f"word{n}" for n in range(40)]
    changed = [*words[:20], "other", *words[21:]]
    unrelated = [f"term{n}" for n in range(40)]
    texts = [" ".join(words), " ".join(unrelated), " ".join(changed), " ".join(words), "short text"]
    assert near_pairs(texts) == [(0, 2)]
    assert near_pairs([" ".join(words).upper(), " ".join(words)]) == [(0, 1)]
    assert near_pairs([" ".join(words), " ".join(reversed(words))]) == []

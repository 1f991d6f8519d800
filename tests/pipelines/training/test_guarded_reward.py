"""A reward that fails says on which completion."""

import pytest

pytest.importorskip("torch")

from estimators.errors import BadInput
from pipelines.training.guarded_reward import GuardedReward


def test_the_completion_that_raises_is_named():
    def fragile(completions, answer, **kwargs):
        return [1.0 / int(text) for text in completions]

    guarded = GuardedReward(fragile, "mine.py:fragile")
    assert guarded.__name__ == "fragile"
    assert guarded(completions=["1", "2"], answer=["", ""]) == [1.0, 0.5]
    with pytest.raises(BadInput, match=r"ValueError.*test_guarded_reward.py:\d+.*'two'"):
        guarded(completions=["1", "two", "3"], answer=["a", "b", "c"])


def test_columns_go_along_with_their_completion():
    def wants_gold(completions, answer, **kwargs):
        return [1.0 if gold.strip() else 0.0 for gold in answer]

    with pytest.raises(BadInput, match=r"AttributeError.*'second'"):
        GuardedReward(wants_gold, "r")(completions=["first", "second"], answer=["1", None])


@pytest.mark.parametrize(
    ("returned", "says"),
    [([1.0], "1 values for 2"), (1.0, "a float"), (["x", 1.0], "'x'"), ([float("nan"), 1.0], "nan")],
)
def test_what_is_no_list_of_numbers_is_refused(returned, says):
    with pytest.raises(BadInput, match=says):
        GuardedReward(lambda completions, **kwargs: returned, "r")(completions=["a", "b"])


def test_none_stays_none_and_true_is_one():
    assert GuardedReward(lambda completions, **k: [None, True], "r")(completions=["a", "b"]) == [None, 1.0]

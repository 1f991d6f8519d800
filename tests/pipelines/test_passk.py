"""pass@k and intervals, by hand."""

import pytest

from pipelines.passk import mean_interval, paired_difference, pass_at_k, wilson


def test_pass_at_k_counts_combinations():
    """n = 4, c = 1: 1 - C(3,2)/C(4,2) = 1 - 3/6."""
    assert pass_at_k(4, 1, 2) == pytest.approx(0.5)
    assert pass_at_k(4, 1, 1) == pytest.approx(0.25)


def test_pass_at_k_at_its_ends():
    assert pass_at_k(8, 0, 8) == 0.0
    assert pass_at_k(8, 8, 1) == 1.0
    assert pass_at_k(8, 1, 8) == 1.0
    with pytest.raises(ValueError, match="between 1 and 4"):
        pass_at_k(4, 2, 5)


def test_wilson_by_hand():
    """p = 0.5, n = 100: centre 0.5, half = 1.96/1.038415 * sqrt(0.0025 + 0.000096) = 0.0962."""
    interval = wilson(0.5, 100)
    assert interval.low == pytest.approx(0.5 - 0.0962, abs=2e-4)
    assert interval.high == pytest.approx(0.5 + 0.0962, abs=2e-4)


def test_all_right_has_an_interval_with_width():
    interval = mean_interval([1.0] * 50)
    assert interval.value == 1.0
    assert interval.high == 1.0
    assert 0.9 < interval.low < 0.95  # Wilson: 50 / (50 + 3.84)


def test_samples_of_one_prompt_do_not_count_as_independent():
    """Prompts that are all right or all wrong carry one draw each: as wide as Wilson over the prompts."""
    values = [1.0] * 50 + [0.0] * 50
    clustered = mean_interval(values)
    assert clustered.high - clustered.low == pytest.approx(
        wilson(0.5, 99).high - wilson(0.5, 99).low, rel=1e-6
    )
    spread = mean_interval([0.5] * 50 + [0.25] * 25 + [0.75] * 25)
    assert spread.high - spread.low < clustered.high - clustered.low


def test_paired_difference_by_hand():
    """Changes 1, 0, 1, 0: mean 0.5, variance of the mean (1/3)/4, half 1.96 * 0.2887."""
    mean, low, high = paired_difference([0, 0, 0, 1], [1, 0, 1, 1])
    assert mean == pytest.approx(0.5)
    assert high - low == pytest.approx(2 * 1.95996 * (1 / 12) ** 0.5, rel=1e-4)
    with pytest.raises(ValueError, match="same prompts"):
        paired_difference([1.0], [])

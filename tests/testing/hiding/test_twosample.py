"""Two-sample tests: p-values that bound exact distributions, and the promised power."""

import math
from fractions import Fraction
from itertools import combinations
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilring.testing.hiding.attackers import (
    choose_bins,
    cut_bins,
    judge_order,
    judge_set,
    least_advantage,
    order_p,
    reject_holm,
    split_p,
)

ROUNDING: Final = 1 + 1e-9


def exact_tail(inside: int, of_second: int, runs: int) -> Fraction:
    """Return the hypergeometric tail."""
    ways = sum(
        math.comb(runs, count) * math.comb(runs, inside - count)
        for count in range(of_second, min(inside, runs) + 1)
    )
    return Fraction(ways, math.comb(2 * runs, inside))


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_split_is_never_rarer_than_its_p_value(data: st.DataObject) -> None:
    """The bound is at least the exact tail, and at most a tenth more far from the middle."""
    runs = data.draw(st.integers(1, 300))
    inside = data.draw(st.integers(0, 2 * runs))
    of_second = data.draw(st.integers(max(0, inside - runs), min(inside, runs)))
    tail = exact_tail(inside, of_second, runs)
    p = split_p(inside, of_second, runs)
    assert p * ROUNDING >= tail
    if of_second > 0.8 * inside and tail < Fraction(1, 1000):
        assert p <= 1.1 * tail * ROUNDING


@pytest.mark.parametrize("runs", [1, 2, 3, 4, 5])
def test_an_order_is_never_rarer_than_its_p_value(runs: int) -> None:
    """All assignments of runs to the samples are enumerated, with and without ties."""
    for values in (np.arange(2 * runs), np.arange(2 * runs) // 2, np.zeros(2 * runs)):
        gaps = []
        for chosen in combinations(range(2 * runs), runs):
            second = np.zeros(2 * runs, np.bool_)
            second[list(chosen)] = True
            gaps.append(round(abs(judge_order(values, second).advantage) * runs))
        for gap in range(runs + 1):
            share = np.mean([each >= gap for each in gaps])
            assert share <= order_p(gap, runs) * ROUNDING


def test_few_assignments_have_small_p_values() -> None:
    """Of all assignments of 12 runs to two samples, at most a fraction p has a p-value up to p."""
    inside = np.arange(12) < 5
    found = []
    for chosen in combinations(range(12), 6):
        second = np.zeros(12, np.bool_)
        second[list(chosen)] = True
        found.append(judge_set(inside, second).p)
    for p in found:
        assert np.mean(np.array(found) <= p * ROUNDING) <= p * ROUNDING


def test_small_p_values_are_not_lost() -> None:
    """Halves that differ completely have their exact probability, far below any table."""
    runs = 50_000
    expected = -math.log(2) * 2 * runs
    assert split_p(runs, runs, runs) == 0.0  # e^-69000 is below the least float
    assert math.log(split_p(1_000, 1_000, runs)) == pytest.approx(-1_000 * math.log(2), rel=0.02)
    assert math.log(order_p(1_000, runs)) == pytest.approx(math.log(2) - 1_000**2 / runs, rel=0.001)
    assert expected < 0


def test_nan_is_above_all_numbers() -> None:
    """Runs without the coordinate tie with each other, and with no other run."""
    values = np.array([1.0, np.nan, 2.0, np.nan])
    assert judge_order(values, np.array([True, False, True, False])).advantage == 1.0
    assert judge_order(values, np.array([True, True, False, False])).advantage == 0.5


def test_frequent_values_have_separate_bins() -> None:
    """Frequent values have separate bins, so events such as "the value is 7" can be chosen."""
    values = np.where(np.arange(1000) % 3 == 0, 7.0, np.linspace(0, 20, 1000))
    bins = cut_bins(values)
    assert len(np.unique(values[bins.place(values) == bins.place(np.array([7.0]))[0]])) == 1
    assert bins.place(values).max() < bins.number


def test_the_chosen_set_is_the_informative_one() -> None:
    """Of bins that differ by chance and one real difference, only the latter is chosen."""
    rng = np.random.default_rng(5)
    second = np.arange(20_000) % 2 == 1
    placed = rng.integers(0, 20, 20_000)
    placed[second & (rng.random(20_000) < 0.05)] = 20
    assert np.flatnonzero(choose_bins(placed, second, 21)).tolist() == [20]


def test_holm_continues_while_it_can() -> None:
    """The second smallest of three is compared with half of the rate, the largest with all."""
    assert reject_holm(np.array([0.04, 0.01, 0.02]), 0.05).tolist() == [True, True, True]
    assert reject_holm(np.array([0.04, 0.01, 0.03]), 0.05).tolist() == [False, True, False]
    assert reject_holm(np.array([0.5, 0.02, 0.03]), 0.05).tolist() == [False, False, False]


def test_the_least_advantage_follows_the_normal_distribution() -> None:
    """The least advantage is (4.9 + 1.65) / sqrt(100,000), or 0.021, with 100,000 held-out runs."""
    assert least_advantage(100_000) == pytest.approx(0.0207, abs=1e-4)


def test_the_least_advantage_is_found_at_the_promised_rate() -> None:
    """95 % of samples with that advantage have a p-value within the rate of alarms.

    The normal distribution and the bound differ slightly: with a true fraction of 0.95, fewer than
    0.92 of 2,000 samples occur with probability below 1e-8.
    """
    rng, runs = np.random.default_rng(6), 5_000
    advantage = least_advantage(2 * runs)
    theirs, ours = (rng.binomial(runs, 0.5 + side * advantage / 2, 2_000) for side in (-1, 1))
    pairs = zip(ours, theirs, strict=True)
    found = [split_p(one + other, one, runs) <= 5e-7 for one, other in pairs]
    assert 0.92 <= np.mean(found) <= 0.975

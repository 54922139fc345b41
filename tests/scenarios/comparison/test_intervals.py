"""Intervals over splits that share rows."""

import numpy as np
import pytest
from scipy import stats

from veilring.scenarios.intervals import Interval, over_splits, share_over_splits


def test_without_overlap_it_is_students_interval() -> None:
    """For disjoint splits it equals SciPy's interval of a mean."""
    values = np.random.default_rng(1).random(7)
    expected = stats.t.interval(0.95, 6, values.mean(), stats.sem(values))
    found = over_splits(values.tolist(), 0.0)
    assert found.mean == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx(expected)


def test_overlap_widens_it_as_published() -> None:
    """Variances are larger by the factor (1/J + q/n) / (1/J)."""
    values = [0.7, 0.8, 0.9, 0.75, 0.8]
    alone, shared = over_splits(values, 0.0), over_splits(values, 0.3)
    wider = (shared.high - shared.mean) / (alone.high - alone.mean)
    assert wider == pytest.approx(((1 / 5 + 0.3) / (1 / 5)) ** 0.5)


def test_equal_numbers_have_no_width() -> None:
    """The interval of equal values has no width."""
    assert over_splits([0.5, 0.5], 0.2) == Interval(0.5, 0.5, 0.5)


def test_equal_fractions_have_the_exact_interval() -> None:
    """It is SciPy's exact interval for that number of queries."""
    found = share_over_splits([1.0, 1.0], 0.2, 20)
    assert found.high == found.mean == 1.0
    assert found.low == pytest.approx(stats.beta.ppf(0.025, 40, 1))


def test_differing_fractions_keep_the_wider_interval() -> None:
    """It is clipped to [0, 1]."""
    assert share_over_splits([0.1, 0.9], 0.2, 20) == Interval(0.5, 0.0, 1.0)

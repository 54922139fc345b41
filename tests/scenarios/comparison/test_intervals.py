"""Intervals over splits that share rows."""

import numpy as np
import pytest
from scipy import stats

from veilring.scenarios.intervals import Interval, over_splits, share_over_splits


def test_without_overlap_it_is_students() -> None:
    """Where splits share nothing, SciPy's interval of a mean is the same."""
    values = np.random.default_rng(1).random(7)
    expected = stats.t.interval(0.95, 6, values.mean(), stats.sem(values))
    found = over_splits(values.tolist(), 0.0)
    assert found.mean == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx(expected)


def test_overlap_widens_it_as_published() -> None:
    """Variances are larger by (1/J + q/n) / (1/J)."""
    values = [0.7, 0.8, 0.9, 0.75, 0.8]
    alone, shared = over_splits(values, 0.0), over_splits(values, 0.3)
    wider = (shared.high - shared.mean) / (alone.high - alone.mean)
    assert wider == pytest.approx(((1 / 5 + 0.3) / (1 / 5)) ** 0.5)


def test_numbers_that_agree_leave_no_width() -> None:
    """The interval of equal values has no width."""
    assert over_splits([0.5, 0.5], 0.2) == Interval(0.5, 0.5, 0.5)


def test_shares_that_agree_reach_as_far_as_their_queries_say() -> None:
    """Then it is SciPy's exact interval of as many queries; a share stays one."""
    found = share_over_splits([1.0, 1.0], 0.2, 20)
    assert found.high == found.mean == 1.0
    assert found.low == pytest.approx(stats.beta.ppf(0.025, 40, 1))


def test_shares_that_differ_much_keep_the_wider_interval() -> None:
    """It is cut at 0 and at 1."""
    assert share_over_splits([0.1, 0.9], 0.2, 20) == Interval(0.5, 0.0, 1.0)

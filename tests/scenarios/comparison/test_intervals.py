"""Intervals over splits that share rows."""

import numpy as np
import pytest
from scipy import stats

from veilring.scenarios.comparison.intervals import Interval, over_splits, within_shares


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


def test_splits_that_agree_leave_no_width() -> None:
    """Nothing is known of what they have in common, and the report says so."""
    assert over_splits([0.5, 0.5], 0.2) == Interval(0.5, 0.5, 0.5)


def test_a_share_stays_one() -> None:
    """An interval is cut at 0 and at 1."""
    assert within_shares(Interval(0.9, -0.2, 1.4)) == Interval(0.9, 0.0, 1.0)

"""Bounds of probabilities, compared with SciPy, and their error rate."""

import numpy as np
import pytest
from scipy import stats

from veilring.privacy.bounds import proportion_bounds


@pytest.mark.parametrize("runs", [1, 10, 100_000])
@pytest.mark.parametrize("alarm", [2.5e-9, 1e-3, 0.3])
def test_bounds_are_the_ends_of_exact_intervals(runs: int, alarm: float) -> None:
    """The bounds are SciPy's exact intervals, for all counts from none to all."""
    counts = np.unique([0, 1, runs // 3, runs - 1, runs])
    found = proportion_bounds(counts, runs, alarm)
    for count, low, high in zip(counts.tolist(), *found, strict=True):
        exact = stats.binomtest(count, runs).proportion_ci(1 - 2 * alarm, "exact")
        assert (low, high) == pytest.approx((exact.low, exact.high), rel=1e-6)


def test_a_bound_misses_at_most_at_its_rate() -> None:
    """Summed over the exact binomial distribution, each bound misses at most at the alarm rate."""
    runs, alarm = 50, 0.05
    counts = np.arange(runs + 1)
    low, high = proportion_bounds(counts, runs, alarm)
    for p in np.linspace(0.01, 0.99, 99):
        pmf = stats.binom.pmf(counts, runs, p)
        assert pmf[low > p].sum() <= alarm
        assert pmf[high < p].sum() <= alarm

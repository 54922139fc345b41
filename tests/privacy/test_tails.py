"""Bounds on the tails of honest reports: safe, and close to the exact tails."""

import math
from fractions import Fraction

import numpy as np
import pytest
from papers.oracles import laplace_sum_max
from scipy.stats import binom, gamma

from veilring.privacy.bounds import NEVER_BITS, binomial_range
from veilring.privacy.noise import discrete_laplace_pmf

# A bound by Chernoff is looser than the exact tail by less than a factor of 2^8 here.
LOOSE_BITS = 8


@pytest.mark.parametrize(
    ("trials", "chance"),
    [(999, 0.2689), (63, 0.5), (1 << 20, 0.2689), (1 << 20, 1e-9), (1000, 1 - 1e-6), (3, 0.26)],
)
def test_a_count_outside_of_its_range_is_never_seen(trials: int, chance: float) -> None:
    """Each tail outside is at most 2^-64, but would not be for a range shorter by one."""
    low, high = binomial_range(trials, chance)
    assert 0 <= low <= trials * chance <= high <= trials
    above, below = binom.logsf(high, trials, chance), binom.logcdf(low - 1, trials, chance)
    assert max(above, below) <= -NEVER_BITS * math.log(2)
    shorter = max(binom.logsf(high - 1, trials, chance), binom.logcdf(low, trials, chance))
    assert shorter >= -(NEVER_BITS + LOOSE_BITS) * math.log(2)


def test_a_certain_coin_has_one_count() -> None:
    """Without trials, or with probability 0 or 1, there is one count."""
    assert binomial_range(0, 0.3) == (0, 0)
    assert binomial_range(10, 0.0) == (0, 0)
    assert binomial_range(10, 1.0) == (10, 10)


@pytest.mark.parametrize("count", [1, 3, 100, 10_000])
def test_a_sum_of_noise_above_its_bound_is_never_seen(count: int) -> None:
    """The exponential bound on the noise is exceeded with probability at most 2^-64."""
    scale = Fraction(1000)
    sum_max = laplace_sum_max(scale, count)
    tail = gamma.logsf((sum_max - count) / 1000, count) / math.log(2)
    assert -(NEVER_BITS + LOOSE_BITS) <= tail <= -NEVER_BITS


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_noise_is_no_greater_than_an_exponential_number_and_one(scale: float) -> None:
    """Each tail of the absolute value is at most the tail of `1 + E` used by the bound."""
    outcomes = np.arange(1, 60)
    exact = 2 * np.array([discrete_laplace_pmf(np.arange(k, 2000), scale).sum() for k in outcomes])
    assert (exact <= np.exp(-(outcomes - 1) / scale) * (1 + 1e-9)).all()

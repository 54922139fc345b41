"""Poisson and Skellam noise: their distributions, exact paths and sums of shares."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.privacy.generators import GENERATORS, follows, seeded

from veilring.errors import InputError
from veilring.privacy.divisible import (
    SKELLAM_VARIANCE_MAX,
    SKELLAM_VARIANCE_MIN,
    PoissonDistribution,
    poisson,
    skellam,
    skellam_pmf,
)

DRAWS = 200_000
MEANS = (1, Fraction(7, 3), 4.5, 19, 300.7)


@settings(max_examples=15)
@given(st.floats(SKELLAM_VARIANCE_MIN, 5000))
def test_probabilities_are_scipys(variance: float) -> None:
    """The distribution is SciPy's, sums to 1, and has the stated variance."""
    k = np.arange(-math.ceil(12 * math.sqrt(variance)) - 60, 1)
    pmf = skellam_pmf(k, variance)
    assert pmf == pytest.approx(stats.skellam.pmf(k, variance / 2, variance / 2), abs=1e-12)
    assert 2 * pmf.sum() - pmf[-1] == pytest.approx(1, abs=1e-12)
    assert 2 * np.sum(k**2 * pmf) == pytest.approx(variance, rel=1e-9)


@pytest.mark.parametrize("generator", GENERATORS.values(), ids=GENERATORS)
@pytest.mark.parametrize("mean", MEANS, ids=str)
def test_poisson_draws_follow_their_distribution(
    mean: float | Fraction, generator: Callable[[], np.random.Generator]
) -> None:
    """200,000 draws pass a G-test against SciPy's probabilities, with either generator."""
    drawn = poisson(mean, DRAWS, generator())
    pmf = stats.poisson.pmf(np.arange(1000), float(mean))
    counts = np.bincount(drawn, minlength=1000)
    assert len(counts) == 1000
    assert follows(counts, pmf, tests=10)


@pytest.mark.parametrize("mean", [2.0**20, SKELLAM_VARIANCE_MAX / 2])
def test_wide_poisson_draws_follow_their_distribution(mean: float) -> None:
    """Draws of large means pass a G-test in bins of half a standard deviation."""
    edges = np.floor(mean + math.sqrt(mean) * np.arange(-4, 4.25, 0.5))
    counts, _ = np.histogram(poisson(mean, 50_000, seeded("wide")), edges + 0.5)
    pmf = np.diff(stats.poisson.cdf(edges, mean))
    assert follows(counts, pmf, tests=2)


@pytest.mark.parametrize("parties", [1, 2, 5])
def test_shares_of_skellam_noise_add_up_exactly(parties: int) -> None:
    """Sums of shares pass a G-test against Skellam noise with the sum of their variances."""
    shares = skellam(Fraction(20, parties), (parties, 60_000), seeded("sums", parties))
    pmf = skellam_pmf(np.arange(-100, 101), 20)
    assert follows(np.bincount(shares.sum(axis=0) + 100, minlength=201), pmf, tests=3)


@pytest.mark.parametrize(
    ("mean", "draws"), [(1, 300), (Fraction(7, 3), 300), (40.25, 300), (3000, 300), (2.0**32, 3)]
)
def test_floats_decide_as_exact_numbers_do(mean: float | Fraction, draws: int) -> None:
    """The same random bits give the same draws on the exact path."""
    quick = poisson(mean, draws, seeded("poisson", str(mean)))
    exact = poisson(mean, draws, seeded("poisson", str(mean)), slack=1.0)
    assert np.array_equal(quick, exact)


@pytest.mark.parametrize("mean", [1, 1.5, Fraction(16, 3), 15.9, 100, 2.0**20, 2.0**32])
def test_floats_are_as_exact_as_assumed(mean: float | Fraction) -> None:
    """A float's probability is closer to the exact bounds than the margin for floats."""
    distribution = PoissonDistribution.of(Fraction(mean))
    step = max(1, distribution.scale // 40)
    x = np.arange(-4 * distribution.scale, 4 * distribution.scale + 1, step)[
        :: 1 + (distribution.scale > 10_000) * 40
    ]
    chances, doubts = distribution.chances(x)
    for place, chance, doubt in zip(x.tolist(), chances.tolist(), doubts.tolist(), strict=True):
        low, high = distribution.bounds(place, 50)
        assert high - low < Fraction(1, 10**30)
        assert abs(Fraction(chance) - low) <= Fraction(doubt) / 2**46


@settings(max_examples=25)
@given(st.floats(1, 400))
def test_no_proposal_is_ever_too_rare(mean: float) -> None:
    """No number is accepted with a probability above 1, and the likeliest with nearly 1."""
    distribution = PoissonDistribution.of(Fraction(mean))
    reach = 4 * distribution.scale + 20
    chances = [distribution.bounds(x, 40)[1] for x in range(-reach, reach + 1)]
    assert 1 - 1e-5 < max(chances) < 1
    assert min(chances) >= 0
    assert distribution.bounds(-distribution.middle - 1, 40)[1] == 0


@pytest.mark.parametrize("variance", [1.9, 0, -3.0, math.nan, math.inf, SKELLAM_VARIANCE_MAX * 2])
def test_variances_out_of_range_are_refused(variance: float) -> None:
    """A variance outside 2 to 2**33, or a mean outside half of it, is refused."""
    for call in (lambda: skellam(variance, 3, seeded()), lambda: skellam_pmf([0], variance)):
        with pytest.raises(InputError, match="variance is"):
            call()
    with pytest.raises(InputError, match="mean is"):
        poisson(variance / 2, 3, seeded())

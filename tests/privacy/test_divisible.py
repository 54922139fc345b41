"""Pólya, Poisson and Skellam noise: their distributions, exact paths and sums of shares."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.privacy.generators import GENERATORS, follows, seeded, spelling

from veilring.privacy.divisible import (
    SKELLAM_VARIANCE_MAX,
    SKELLAM_VARIANCE_MIN,
    PoissonDistribution,
    poisson,
    polya,
    polya_difference,
    polya_difference_pmf,
    polya_pmf,
    skellam,
    skellam_pmf,
)
from veilring.privacy.exact import exp_ceil, exp_floor
from veilring.privacy.noise import discrete_laplace_pmf

DISTRIBUTIONS: tuple[tuple[float | Fraction, float | Fraction], ...] = (
    (Fraction(1, 1000), 40),
    (Fraction(1, 3), Fraction(7, 3)),
    (0.5, 300),
    (Fraction(9, 10), 0.4),
    (1, 7.3),
)


@pytest.mark.slow
@settings(max_examples=30)
@given(st.floats(1e-3, 4), st.floats(0.02, 500))
def test_probabilities_are_scipys(exponent: float, scale: float) -> None:
    """The distribution is SciPy's negative binomial distribution."""
    k = np.arange(int(20 * scale) + 5)
    known = stats.nbinom.pmf(k, exponent, -math.expm1(-1 / scale))
    seen = known > 1e-200
    assert polya_pmf(k, exponent, scale)[seen] == pytest.approx(known[seen], rel=1e-10)
    assert polya_pmf(np.array([-3]), exponent, scale).tolist() == [0.0]


@pytest.mark.parametrize("generator", GENERATORS.values(), ids=GENERATORS)
@pytest.mark.parametrize(("exponent", "scale"), DISTRIBUTIONS, ids=str)
def test_draws_follow_their_distribution(
    exponent: float | Fraction,
    scale: float | Fraction,
    generator: Callable[[], np.random.Generator],
) -> None:
    """200,000 draws pass a G-test against the probabilities, with either generator."""
    drawn = polya(exponent, scale, 200_000, generator())
    pmf = polya_pmf(np.arange(math.ceil(60 * scale)), exponent, scale)
    counts = np.bincount(drawn, minlength=len(pmf))
    assert len(counts) == len(pmf)
    assert follows(counts, pmf, tests=10)


@pytest.mark.parametrize("shares", [1, 2, 3, 7])
@pytest.mark.parametrize("scale", [0.4, 3, 11.5])
def test_shares_add_up_to_discrete_laplace_noise(shares: int, scale: float) -> None:
    """Differences with exponent 1 / m, m of them convolved, are discrete Laplace noise."""
    reach = math.ceil(40 * scale)
    one = polya_difference_pmf(np.arange(-reach, reach + 1), Fraction(1, shares), scale)
    total = one
    for _ in range(shares - 1):
        total = np.convolve(total, one)
    middle = len(total) // 2
    near = np.arange(-reach // 2, reach // 2 + 1)
    assert total[middle + near] == pytest.approx(discrete_laplace_pmf(near, scale), abs=1e-12)


def test_drawn_shares_add_up_to_discrete_laplace_noise() -> None:
    """Sums of five parties' shares pass a G-test against the discrete Laplace distribution."""
    rng, fifth = seeded("shares"), Fraction(1, 5)
    total = polya_difference(fifth, 2.5, (5, 100_000), rng).sum(axis=0)
    pmf = discrete_laplace_pmf(np.arange(-200, 201), 2.5)
    assert follows(np.bincount(total + 200, minlength=401), pmf)


@pytest.mark.parametrize("exponent", [0.1, Fraction(1, 2), 1, Fraction(5, 3), 4])
@pytest.mark.parametrize("scale", [0.3, 6])
def test_differences_have_the_distribution_of_the_convolution(
    exponent: float | Fraction, scale: float
) -> None:
    """The difference's probabilities are NumPy's convolution, and the discrete Laplace's for 1."""
    reach = math.ceil(80 * scale)
    pmf = polya_pmf(np.arange(reach), exponent, scale)
    apart = np.arange(-reach + 1, reach)
    found = polya_difference_pmf(apart, exponent, scale)
    assert found == pytest.approx(np.convolve(pmf, pmf[::-1]), abs=1e-14)
    if exponent == 1:
        assert found == pytest.approx(discrete_laplace_pmf(apart, scale), rel=1e-12)


@pytest.mark.parametrize(
    ("exponent", "scale"),
    [(Fraction(1, 3), 7), (Fraction(1, 1000), 60), (0.9, 0.3), (Fraction(1, 2), 40), (0.2, 1e-5)],
    ids=str,
)
def test_floats_decide_as_exact_numbers_do(exponent: float | Fraction, scale: float) -> None:
    """The same random bits give the same draws on the exact path."""
    quick = polya(exponent, scale, 500, seeded("polya", str(scale)))
    exact = polya(exponent, scale, 500, seeded("polya", str(scale)), slack=2.0**60)
    assert np.array_equal(quick, exact)


@pytest.mark.parametrize("bits", [40, 52, 53, 54, 85, 117, 150])
def test_a_number_next_to_its_threshold_is_decided_correctly(bits: int) -> None:
    """Numbers that differ from P[at least 2] far beyond a float's last bit fall correctly."""
    a, scale = Fraction(1, 2), Fraction(3)
    q = [bound(Fraction(-1, 3)) for bound in (exp_floor, exp_ceil)]
    q_mean = (q[0] + q[1]) / 2
    # 1 - P[0] - P[1], with a square root that is right to 60 digits.
    root = Fraction(math.isqrt(math.floor((1 - q_mean) * 10**120)), 10**60)
    threshold = 1 - root * (1 + a * q_mean)
    for side in (-1, 1):
        number = threshold + side * Fraction(1, 2**bits)
        assert polya(a, scale, 1, spelling(number)).tolist() == [2 if side < 0 else 1]


def test_the_smallest_number_continues_beyond_the_table() -> None:
    """A number below all table entries is decided by its further bits."""
    drawn = polya(0.5, 1, 1, spelling(Fraction(1, 2**80)))
    tail = stats.nbinom.sf(drawn[0] - np.array([1, 0]), 0.5, -math.expm1(-1))
    assert tail[0] > 2.0**-80 > tail[1]
    assert drawn[0] > 42


DRAWS = 200_000
MEANS = (1, Fraction(7, 3), 4.5, 19, 300.7)


@settings(max_examples=15)
@given(st.floats(SKELLAM_VARIANCE_MIN, 5000))
def test_skellam_probabilities_are_scipys(variance: float) -> None:
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
def test_floats_decide_on_poisson_draws_as_exact_numbers(
    mean: float | Fraction, draws: int
) -> None:
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

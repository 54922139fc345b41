"""Pólya noise: its distribution, exact path and sums of shares."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.privacy.generators import GENERATORS, follows, seeded, spelling

from veilring.errors import InputError
from veilring.privacy.divisible import (
    POLYA_SCALE_MAX,
    polya,
    polya_difference,
    polya_difference_pmf,
    polya_pmf,
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


@pytest.mark.parametrize(
    ("exponent", "scale", "message"),
    [
        (0, 1, "exponent is 0"),
        (1.5, 1, "exponent is 1.5; allowed: above 0 and at most 1"),
        (0.5, POLYA_SCALE_MAX + 1, "scale is 32769"),
        (0.5, 0, "scale is 0"),
        (1, 0, "scale is 0"),
    ],
)
def test_invalid_parameters_are_refused(exponent: float, scale: float, message: str) -> None:
    """Exponents and scales out of range are refused."""
    with pytest.raises(InputError, match=message):
        polya(exponent, scale, 3, seeded())
    with pytest.raises(InputError, match="exponent"):
        polya_difference_pmf(np.arange(3), -1, 2)

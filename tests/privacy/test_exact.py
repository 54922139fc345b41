"""Exact numbers: rounded only in the safe direction, and the losses of finite distributions."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from veilring.privacy import exact

PROBABILITIES = st.floats(0, 1) | st.fractions(0, 1)
BITS = st.integers(0, 64)


@given(PROBABILITIES, BITS)
def test_a_probability_is_between_its_neighbours(x: float | Fraction, bits: int) -> None:
    """Floor and ceil enclose the exact number, and are one step apart unless it is on the grid.

    A probability and its complement add up to exactly 1.
    """
    below, above = exact.Dyadic.floor(x, bits).fraction, exact.Dyadic.ceil(x, bits).fraction
    step = Fraction(1, 2**bits)
    assert below <= Fraction(x) <= above
    assert above - below == (0 if Fraction(x) % step == 0 else step)
    p = exact.Dyadic.floor(x, bits)
    assert p.fraction + p.complement.fraction == 1
    assert float(p) == float(p.fraction)


RATIOS = st.fractions(1, 10**30, max_denominator=2**70)


def decimals(x: Fraction) -> Decimal:
    """Return a fraction as a decimal in the current context."""
    return Decimal(x.numerator) / Decimal(x.denominator)


@given(RATIOS)
@example(Fraction(1))
@example(Fraction(2))
def test_a_logarithm_is_rounded_only_as_asked(ratio: Fraction) -> None:
    """Both bounds enclose the logarithm at 150 digits, each as one of its two nearest floats."""
    with localcontext(prec=150):
        truth, low, high = decimals(ratio).ln(), exact.log_floor(ratio), exact.log_ceil(ratio)
        assert Decimal(low) <= truth <= Decimal(high)
        below = math.nextafter(math.nextafter(high, -1), -1)
        assert Decimal(below) < truth or high == 0
        above = math.nextafter(math.nextafter(low, math.inf), math.inf)
        assert Decimal(above) > truth or low == 0


@given(st.fractions(-700, 700, max_denominator=2**60) | st.floats(-700, 700))
@example(-exact.EXP_MAX)
@example(exact.EXP_MAX)
def test_exponentials_are_enclosed(x: float | Fraction) -> None:
    """The exact value, at 150 digits, is between two fractions that differ by 1e-50 of it."""
    low, high = exact.exp_floor(x), exact.exp_ceil(x)
    with localcontext(prec=150):
        truth = decimals(Fraction(x)).exp()
        assert decimals(low) <= truth <= decimals(high)
    assert high - low <= low / 10**50


@given(st.floats(0.01, 8), st.integers(8, 64))
def test_optimised_unary_encoding_keeps_its_budget(epsilon: float, bits: int) -> None:
    """With p = 1/2 and q rounded up, the exact loss is at most epsilon, and approaches it."""
    q = exact.Dyadic.ceil(1 / (1 + exact.exp_floor(epsilon)), bits)
    spent = exact.unary_epsilon(exact.Dyadic(1, 1), q)
    assert spent <= epsilon
    assert epsilon - spent <= 2 * (1 + math.exp(epsilon)) * 2.0**-bits + 1e-12


@given(st.integers(1, 2**16 - 1), st.integers(1, 2**16 - 1))
def test_a_unary_encoding_loses_what_its_two_bits_lose(a: int, b: int) -> None:
    """The loss of two bits, as a distribution on four outcomes, equals the closed form."""
    assume(a >= b)
    p, q = Fraction(a, 2**16), Fraction(b, 2**16)
    distribution = [own * other for own in (p, 1 - p) for other in (q, 1 - q)]
    swapped = [own * other for own in (q, 1 - q) for other in (p, 1 - p)]
    assert exact.unary_epsilon(p, q) == exact.loss(distribution, swapped)


def test_two_distributions_have_their_textbook_loss() -> None:
    """Coins of 3/4 and 1/4 have a loss of ln 3, equal coins none, and impossible outcomes all.

    Two weights of 64 bits that differ by 1 have a loss of 2**-64, not 0.
    """
    assert exact.log_ceil(Fraction(2**64, 2**64 - 1)) == pytest.approx(2.0**-64, rel=1e-15)
    assert exact.log_ceil(Fraction(1)) == 0.0
    p, q = exact.Dyadic(3, 2), exact.Dyadic(1, 2)
    assert exact.epsilon_of(p, q) == exact.epsilon_of(q, p) == pytest.approx(math.log(3), rel=1e-15)
    assert exact.epsilon_of(p, Fraction(3, 4)) == 0.0
    assert exact.epsilon_of(exact.Dyadic(1, 1), exact.Dyadic(1, 0)) == math.inf
    assert exact.unary_epsilon(Fraction(1), Fraction(1, 2)) == math.inf
    assert exact.unary_epsilon(Fraction(1, 2), Fraction(0)) == math.inf
    assert exact.loss((Fraction(0), Fraction(1)), (Fraction(0), Fraction(1))) == 0.0

"""Likelihoods of order statistics, compared with closed forms and SciPy's quadrature."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from veilring.arrays import Floats
from veilring.protocols.ring.attacks.posterior import QuadratureGrid, integrate_log_likelihood

Array = Floats
NOTHING = np.full((1, 1), np.inf)
NONE = np.zeros(1, dtype=np.int64)


def free(_i: int, x: Array) -> Array:
    """Return no evidence."""
    return np.zeros_like(x)


@pytest.mark.parametrize("rows", [1, 2, 7, 100, 5000])
def test_without_evidence_the_integral_is_the_constant(rows: int) -> None:
    """Without evidence, the density integrates to 1: the result is (N-M)!/N! for any M up to N."""
    for depth in {1, min(3, rows), min(12, rows), min(100, rows)}:
        grid = QuadratureGrid(np.array([[0.2, 0.7]]), depth, rows)
        log = integrate_log_likelihood(grid, free, NOTHING, NONE, depth, rows)
        expected = math.lgamma(rows - depth + 1) - math.lgamma(rows + 1)
        assert log[0] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("i", "rows"), [(1, 5), (3, 5), (5, 5), (4, 80), (40, 400)])
def test_the_probability_of_a_small_value_follows_a_beta_distribution(i: int, rows: int) -> None:
    """P(V[i] < t) equals that of Beta(i, N-i+1), down to 1e-12."""
    for t in (0.01, 0.1, 0.6):
        grid = QuadratureGrid(np.array([[t]]), i, rows)

        def below(j: int, x: Array, t: float = t) -> Array:
            return np.where((j != i) | (x < t), 0.0, -np.inf)

        with np.errstate(divide="ignore"):
            expected = stats.beta(i, rows - i + 1).logcdf(t)
        log = integrate_log_likelihood(grid, below, NOTHING, NONE, i, rows)
        constant = math.lgamma(rows - i + 1) - math.lgamma(rows + 1)
        if expected > math.log(1e-12):
            assert log[0] - constant == pytest.approx(expected, abs=1e-9)


def test_two_values_with_factors_are_integrated_together() -> None:
    """A steep factor on V[1] and a bound on V[2] agree with SciPy's double integral."""

    def factor(i: int, x: Array) -> Array:
        if i == 1:
            with np.errstate(invalid="ignore", divide="ignore"):
                return np.where(x < 0.25, -3 * np.log(np.maximum(0.05, 0.3 - x)), -np.inf)
        return np.where(x >= 0.1, 0.0, -np.inf) if i == 2 else np.zeros_like(x)

    for depth in (2, 4):
        grid = QuadratureGrid(np.array([[0.25, 0.1, 0.3]]), depth, 9)
        log = integrate_log_likelihood(grid, factor, NOTHING, NONE, depth, 9)
        expected, _ = integrate.dblquad(
            lambda y, x: (1 - y) ** 7 * (0.3 - x) ** -3, 0, 0.25, lambda x: max(x, 0.1), 1
        )
        left_out = math.log(math.factorial(7) / math.factorial(9 - depth))
        assert log[0] + left_out == pytest.approx(math.log(expected), abs=1e-7)


def test_known_values_are_not_integrated_over() -> None:
    """If the first values are known, the result is their density; if all N are known, it is 1."""
    known = np.array([[0.1, 0.3, np.inf]])
    two = np.array([2])
    grid = QuadratureGrid(np.array([[0.3]]), 3, 6)
    log = integrate_log_likelihood(grid, free, known, two, 2, 6)
    assert log[0] == pytest.approx(4 * math.log(0.7))
    deeper = integrate_log_likelihood(grid, free, known, two, 3, 6)
    assert deeper[0] == pytest.approx(4 * math.log(0.7) - math.log(4))
    assert integrate_log_likelihood(QuadratureGrid(known, 2, 2), free, known, two, 2, 2)[0] == 0


def test_narrow_factors_do_not_underflow() -> None:
    """The probability of 100 values in a hundredth of the range, 1e-200, does not underflow."""
    rows = 100
    grid = QuadratureGrid(np.array([[0.01]]), rows, rows)

    def below(_i: int, x: Array) -> Array:
        return np.where(x < 0.01, 0.0, -np.inf)

    log = integrate_log_likelihood(grid, below, NOTHING, NONE, rows, rows)
    expected = 100 * math.log(0.01) - math.lgamma(rows + 1)
    assert log[0] == pytest.approx(expected, rel=1e-9)


def test_contradictions_have_no_likelihood() -> None:
    """Contradictory evidence gives minus infinity, without a warning."""

    def never(_i: int, x: Array) -> Array:
        return np.full_like(x, -np.inf)

    assert (
        integrate_log_likelihood(QuadratureGrid(NOTHING, 2, 3), never, NOTHING, NONE, 2, 3)[0]
        == -np.inf
    )

"""Growth models on known curves."""

import numpy as np
import pytest
from benchmarks.studies import LINE, PAIRS, Term, closed_form, fit
from hypothesis import given
from hypothesis import strategies as st

from veilring.errors import InputError

X = (1.0, 10.0, 100.0, 1_000.0, 10_000.0)


@given(a=st.floats(1e-3, 1e3), b=st.floats(1e-6, 1e3))
def test_a_line_is_recovered(a: float, b: float) -> None:
    """Points on a line give its factors without residuals, also beyond the fitted range."""
    found = fit(LINE, X, [a + b * x for x in X])
    assert found.factors == pytest.approx((a, b), rel=1e-6, abs=1e-9 * (a + b))
    assert found.worst < 1e-8
    assert found.r_squared == pytest.approx(1.0)
    assert found.left_out == pytest.approx(0.0, abs=1e-4)
    assert found(10**6) == pytest.approx(a + b * 10**6, rel=1e-5)


def test_a_parabola_is_recovered() -> None:
    """A quadratic cost is fitted exactly, and its formula names each term."""
    found = fit(PAIRS, X, [2 + 0.5 * x + 0.25 * x * x for x in X])
    assert found.factors == pytest.approx((2, 0.5, 0.25))
    assert found.formula == "2 + 0.5 x + 0.25 x^2"


def test_curvature_is_detected_by_leaving_the_largest_out() -> None:
    """A line through a parabola misses its largest point by the computed amount."""
    x = (1.0, 2.0, 10.0)
    found = fit(LINE, x, [value**2 for value in x])
    # Without the largest: the line through (1, 1) and (2, 4) has an intercept below 0, so that the
    # best one with none goes through 0: the slope b makes (b - 1)^2 + (b / 2 - 1)^2 least, at 1.2.
    assert found.left_out == pytest.approx(1.2 * 10 / 100 - 1)
    assert found.worst > 0.1


def test_relative_residuals_count_alike_over_decades() -> None:
    """A relative error of a tenth has equal weight at the smallest and the largest point."""
    basis = (Term("x", lambda x: x),)
    small = fit(basis, (1.0, 1e6), (1.1, 1e6)).factors[0]
    large = fit(basis, (1.0, 1e6), (1.0, 1.1e6)).factors[0]
    assert small == pytest.approx(large)


def test_a_correct_closed_form_has_a_factor_of_one() -> None:
    """A model with one factor shows the part that the closed form omits."""
    form = closed_form("hops", lambda n: 9 * n + 1)
    assert fit(form, X, [1.25 * (9 * x + 1) for x in X]).factors == pytest.approx((1.25,))
    assert fit(form, X, [9 * x + 1 for x in X]).formula == "1 hops"


def test_no_factor_is_negative() -> None:
    """No model predicts a lower cost for a larger input: falling points give a constant."""
    found = fit(LINE, X, [5.0, 4.0, 3.0, 2.0, 1.0])
    assert found.factors[1] == 0.0
    assert found.factors[0] > 0.0
    assert "x" not in found.formula


@pytest.mark.parametrize(
    ("x", "y", "allowed"),
    [
        ((1.0,), (1.0,), "at least 2"),
        ((1.0, 2.0), (1.0,), "at least 2"),
        ((1.0, 2.0), (1.0, 0.0), "positive"),
        ((1.0, 2.0), (1.0, float(np.nan)), "positive"),
    ],
)
def test_unsuitable_points_are_refused(
    x: tuple[float, ...], y: tuple[float, ...], allowed: str
) -> None:
    """Too few points, and points without a positive cost, are refused at once."""
    with pytest.raises(InputError, match=allowed):
        fit(LINE, x, y)
    assert fit(LINE, (1.0, 2.0), (1.0, 2.0)).left_out is None

"""Corrections of negative estimates, and the untouched raw ones."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.randomiser import (
    Consistency,
    SurveyEstimate,
    make_consistent,
    project_on_simplex,
)

RAW = np.array([0.5, -0.1, 0.0, 0.4, -0.02])


def estimated(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> SurveyEstimate:
    """Return an estimate over 200 clients."""
    some = np.full(len(values), 0.01)
    return SurveyEstimate(values, some, values - 0.1, values + 0.1, clients=200)


def test_each_method_follows_its_definition() -> None:
    """Negative counts become 1 or 0, or all frequencies are shifted to add up to 1."""
    wanted = {
        "raw": RAW.tolist(),
        "paper": [0.5, 1 / 200, 0.0, 0.4, 1 / 200],
        "clip": [0.5, 0.0, 0.0, 0.4, 0.0],
        # The four greatest stay above 0 and share the 0.12 that they lack of 1.
        "norm-sub": [0.53, 0.0, 0.03, 0.43, 0.01],
    }
    for method in get_args(Consistency):
        assert make_consistent(estimated(RAW), method) == pytest.approx(wanted[method], abs=1e-15)


def test_raw_estimates_and_intervals_are_untouched() -> None:
    """The result shares no memory with the raw estimate."""
    estimate = estimated(RAW.copy())
    for method in get_args(Consistency):
        found = make_consistent(estimate, method)
        found[:] = 7.0
        assert (estimate.values == RAW).all()
        assert (estimate.low == RAW - 0.1).all()
    with pytest.raises(InputError, match="method is 'magic'"):
        make_consistent(estimate, "magic")  # type: ignore[arg-type]  # the refused argument


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=12))
def test_the_projection_is_the_nearest_point(values: list[float]) -> None:
    """The projection is a point of the simplex that fulfils the conditions for the nearest one."""
    point = np.array(values)
    found = project_on_simplex(point)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)
    # The gradient is the same where the entry is above 0, and not smaller elsewhere (KKT).
    gradient = found - point
    assert np.ptp(gradient[found > 0]) < 1e-9
    assert gradient.min() > gradient[found > 0].min() - 1e-9


def test_the_projection_agrees_with_a_solver() -> None:
    """SciPy's least squares under the same constraints gives the same point."""
    # The sum is a row with a huge weight, which makes the solver keep it.
    point, heavy = np.array([0.9, 0.3, -0.4, 0.1, 0.0]), 1e6
    rows = np.vstack((np.eye(5), heavy * np.ones(5)))
    solved, _ = optimize.nnls(rows, np.append(point, heavy))
    assert project_on_simplex(point) == pytest.approx(solved, abs=1e-5)

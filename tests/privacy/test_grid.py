"""Grids: the effect of rounding on sensitivity."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilring.errors import InputError
from veilring.privacy.noise import PublicGrid

VECTORS = st.lists(
    st.tuples(st.floats(-100, 100), st.floats(-100, 100)), min_size=1, max_size=6
).map(np.array)
STEPS = st.integers(-20, 6).map(lambda power: 2.0**power)


@given(VECTORS, STEPS)
def test_rounding_to_the_nearest_costs_the_stated_sensitivity(
    pair: np.ndarray, step: float
) -> None:
    """Two vectors are at most `sensitivity(their distance)` steps apart, in both norms."""
    grid = PublicGrid(step)
    apart = [Fraction(a) - Fraction(b) for a, b in pair.tolist()]
    steps = np.abs(grid.nearest(pair[:, 0]) - grid.nearest(pair[:, 1])).tolist()
    assert sum(steps) <= grid.sensitivity(sum(map(abs, apart), Fraction(0)), len(apart), 1)
    # A square root that is rounded up: the claim is for any distance that is not too small.
    square = sum(d**2 for d in apart)
    distance = Fraction(math.isqrt(math.ceil(square * 2**120)) + 1, 2**60)
    assert sum(s**2 for s in steps) <= Fraction(grid.sensitivity(distance, len(apart), 2)) ** 2


def test_the_cost_of_rounding_is_reached() -> None:
    """Nearly equal vectors in nine dimensions can be three steps apart, and the bound is 3."""
    grid = PublicGrid(0.25)
    low, high = np.full(9, 0.1249), np.full(9, 0.1251)
    assert np.linalg.norm(grid.nearest(low) - grid.nearest(high)) == 3
    assert 3 <= grid.sensitivity(0, 9, 2) <= 3 + 1e-12


@given(st.fractions(0, 100), st.integers(1, 40))
def test_a_sensitivity_is_rounded_up_to_the_next_float(distance: Fraction, dimensions: int) -> None:
    """In the L1 norm, it is the least float that is not below the exact sum of fractions."""
    found, exact = PublicGrid(0.25).sensitivity(distance, dimensions, 1), 4 * distance + dimensions
    assert Fraction(math.nextafter(found, 0)) < exact <= Fraction(found)


def test_steps_are_read_back_exactly() -> None:
    """Whole steps survive the conversion to real numbers and back."""
    grid, steps = PublicGrid(2.0**-16), np.arange(-(10**6), 10**6, 997)
    assert np.array_equal(grid.nearest(grid.values(steps)), steps)


@pytest.mark.parametrize("step", [0.0, -0.5, 0.3, math.inf, math.nan])
def test_steps_are_powers_of_two(step: float) -> None:
    """Other steps would be inexact and are refused."""
    with pytest.raises(InputError, match="power of two"):
        PublicGrid(step)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e300, 2.0**54])
def test_values_off_the_grid_are_refused_unseen(value: float) -> None:
    """Values that are not a whole number of steps are refused and not shown."""
    for grid in (PublicGrid(1.0), PublicGrid(2.0**-60)):
        with pytest.raises(InputError, match="must be finite") as refusal:
            grid.nearest(np.array([0.0, value]))
        assert str(value) not in str(refusal.value)


@pytest.mark.parametrize(("distance", "dimensions", "norm"), [(-1, 1, 1), (1, 0, 2), (1, 1, 3)])
def test_sensitivities_out_of_range_are_refused(
    distance: float, dimensions: int, norm: int
) -> None:
    """Negative distances, no dimensions and other norms are refused."""
    with pytest.raises(InputError, match=r"distance|dimensions|norm"):
        PublicGrid(1.0).sensitivity(distance, dimensions, norm)

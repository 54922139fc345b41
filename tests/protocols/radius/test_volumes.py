"""The volume of a cell within a ball, compared with lengths, integrals and enumerated cells."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilring.protocols.radius.algorithm.conversion import cell_points, covered_1d, covered_2d


def test_intervals_cover_their_fraction_of_cells() -> None:
    """In one dimension, the fraction of a cell is the length of the overlap."""
    covered = covered_1d(np.array([[0.5], [0.0]]), np.array([0.3, 0.1]), 4)
    assert covered == pytest.approx(np.array([[0.2, 1, 1, 0.2], [0.4, 0, 0, 0]]), abs=1e-15)


@given(st.integers(1, 6), st.floats(0.001, 1.5), st.integers(0, 2**32))
def test_discs_cover_their_fraction_of_cells(side: int, radius: float, seed: int) -> None:
    """In two dimensions, fractions equal an integral over the disc's chords."""
    query = np.random.default_rng(seed).random((1, 2))
    covered = covered_2d(query, np.array([radius]), side).reshape(side, side)
    steps = 4000
    edges = np.linspace(0, 1, side + 1)
    for i in range(side):
        width = 1 / side / steps
        x = edges[i] + (np.arange(steps) + 0.5) * width - query[0, 0]
        half = np.sqrt(np.maximum(radius**2 - x**2, 0))
        for j in range(side):
            low = np.maximum(edges[j] - query[0, 1], -half)
            high = np.minimum(edges[j + 1] - query[0, 1], half)
            area = np.maximum(high - low, 0).sum() * width
            # A midpoint sum of a function of variation V errs by V * width / 2; V is at most two
            # rises and falls of a cell's height.
            assert abs(covered[i, j] - area * side**2) <= 4 / side * width / 2 * side**2 + 1e-12


def test_points_lie_in_their_cells() -> None:
    """Each cell gets an equal number of points inside it, without repetition."""
    points = cell_points(3, 4, 81 * 50)
    assert points.shape == (81, 50, 4)
    corners = np.indices((3,) * 4).reshape(4, -1).T / 3
    inside = points - corners[:, None, :]
    assert (inside > 0).all()
    assert (inside < 1 / 3).all()
    assert inside == pytest.approx(np.broadcast_to(inside[:1], inside.shape), abs=1e-12)
    assert len(np.unique(inside[0].round(9), axis=0)) == 50

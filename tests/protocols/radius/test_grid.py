"""The noisy grid, the radii derived from it, and the volume of a cell within a ball."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocols.radius.tables import some_rows

from veilring.arrays import Floats
from veilring.data.table import Rows
from veilring.errors import InputError
from veilring.protocols.radius.algorithm.conversion import (
    GRID_CELLS_MAX,
    NoisyGrid,
    cell_points,
    covered_1d,
    covered_2d,
    grid_radii,
    grid_side,
    noisy_grid,
)


def by_steps(grid: NoisyGrid, query: Floats, k: int, gamma: float) -> float:
    """Increase the radius step by step, as in Algorithm 7, in one or two dimensions."""
    covered = covered_1d if grid.features == 1 else covered_2d
    radius = step = gamma * grid.diagonal
    while radius < grid.diagonal:
        if covered(query[None], np.array([radius]), grid.side)[0] @ grid.counts >= k:
            return radius
        radius += step
    return grid.diagonal


@pytest.mark.parametrize("features", [1, 2])
def test_halving_finds_what_the_papers_loop_finds(features: int) -> None:
    """Halving finds the least multiple of gamma whose ball has mass k, or the diagonal."""
    rng = np.random.default_rng(features)
    grid = NoisyGrid(4, features, rng.integers(0, 9, size=4**features))
    queries = rng.random((10, features))
    for k in (1, 5, 20, 10_000):
        found = grid_radii(grid, queries, k, 0.01)
        expected = [by_steps(grid, query, k, 0.01) for query in queries]
        assert found == pytest.approx(expected, rel=1e-9)


def test_points_represent_the_mass_of_their_cells() -> None:
    """In three dimensions, points within the radius have mass k, and less at one step less."""
    rng = np.random.default_rng(5)
    grid = NoisyGrid(3, 3, rng.integers(0, 20, size=27))
    queries, step = rng.random((6, 3)), 0.01 * math.sqrt(3)
    points = cell_points(3, 3, 16_384)
    mass = grid.counts[:, None] / points.shape[1]
    for k in (1, 10, 100):
        for query, radius in zip(queries, grid_radii(grid, queries, k, 0.01), strict=True):
            away = np.linalg.norm(points - query, axis=2)
            assert (mass * (away <= radius + 1e-9)).sum() >= k - 1e-9
            assert (mass * (away <= radius - step - 1e-9)).sum() < k
    assert grid_radii(grid, queries, 10_000) == pytest.approx(math.sqrt(3))


def test_one_more_row_changes_one_cell_by_one() -> None:
    """With noise from equal generators, neighbouring tables' counts differ in one cell."""
    table = some_rows(500, 3, 6)
    one_more = Rows(np.vstack([table.features, [[1.0, 1.0, 1.0]]]), np.append(table.labels, 0))
    grids = [noisy_grid(rows, 4, 0.01, np.random.default_rng(7)) for rows in (table, one_more)]
    differences = grids[1].counts - grids[0].counts
    assert np.flatnonzero(differences).tolist() in ([63], [])  # the last cell, unless cut at 0
    assert differences.sum() in {0, 1}
    assert min(grid.counts.min() for grid in grids) == 0
    exact = [noisy_grid(rows, 4, 60.0, np.random.default_rng(8)) for rows in (table, one_more)]
    assert (exact[1].counts - exact[0].counts).tolist() == [0] * 63 + [1]
    assert exact[0].counts.sum() == 500


def test_a_grid_has_su_et_als_cells_and_a_limit() -> None:
    """The number of cells per side follows their formula; too many features are refused."""
    assert grid_side(4240, 2, 0.5) == round(212**0.5) == 15
    assert grid_side(1098, 4, 0.5) == round(54.9 ** (1 / 3)) == 4
    assert grid_side(0, 2, 0.5) == 1
    assert grid_side(10_000, 6, 1.0) == 6
    assert grid_side(10**9, 2, 1.0) ** 2 == grid_side(10**9, 4, 1.0) ** 4 == GRID_CELLS_MAX
    with pytest.raises(InputError, match="21 features with 2 cells a side has more than"):
        grid_side(5760, 21, 1.0)


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

"""The noisy grid and the radii derived from it, compared with the paper's loop."""

import math

import numpy as np
import pytest
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

"""How much of each cell of a grid a ball holds: exactly in one and two dimensions.

All is a function of public numbers: queries, radii and the grid. The leading axis is queries.
"""

import numpy as np
from numpy.typing import NDArray

# Points of the quadrature that a grid of few cells gets in each.
_POINTS_A_CELL = 256


def covered_1d(
    queries: NDArray[np.float64], radii: NDArray[np.float64], side: int
) -> NDArray[np.float64]:
    """Return the share of each of `side` cells of [0, 1] that each interval holds, (Q, side).

    Args:
        queries: Shape (Q, 1), in [0, 1].
        radii: Shape (Q,).
        side: The number of cells.
    """
    edges = np.linspace(0.0, 1.0, side + 1)
    low, high = queries - radii[:, None], queries + radii[:, None]
    return np.diff(np.clip(edges, low, high), axis=1) * side


def covered_2d(
    queries: NDArray[np.float64], radii: NDArray[np.float64], side: int
) -> NDArray[np.float64]:
    """Return the share of each cell of [0, 1]^2 that each disc holds, shape (Q, side * side).

    The area of a disc within a rectangle is an alternating sum over the rectangle's corners of the
    area to the lower left of the corner, which has a closed form.

    Args:
        queries: Shape (Q, 2), in [0, 1].
        radii: Shape (Q,), above 0.
        side: The number of cells on each side; cells are in C order.
    """
    edges = np.linspace(0.0, 1.0, side + 1)
    scaled = (edges[None, :, None] - queries[:, None, :]) / radii[:, None, None]
    below = _disc_below(scaled[:, :, None, 0], scaled[:, None, :, 1])
    areas = np.diff(np.diff(below, axis=1), axis=2) * (radii * side)[:, None, None] ** 2
    return np.clip(areas, 0.0, 1.0).reshape(len(queries), side * side)


def cell_points(side: int, features: int, points: int) -> NDArray[np.float64]:
    """Return points spread evenly over each cell of [0, 1]^f, shape (cells, points a cell, f).

    The same points in each cell, in C order of cells: the additive recurrence whose steps are the
    powers of 1 / phi, where phi is the root of `x^(f+1) = x + 1` above 1. It covers a cube of any
    dimension more evenly than random points do, and has nothing random in it.

    Args:
        side: The number of cells on each side.
        features: f.
        points: About how many there may be in all; each cell has at least one.
    """
    a_cell = int(np.clip(points // side**features, 1, _POINTS_A_CELL))
    inside = (0.5 + np.arange(a_cell)[:, None] * _steps(features)) % 1.0
    corners = np.indices((side,) * features).reshape(features, -1).T
    return (corners[:, None, :] + inside[None, :, :]) / side


def _steps(features: int) -> NDArray[np.float64]:
    phi = 2.0
    for _ in range(64):  # converges to the last bit in about half of that
        phi = (1.0 + phi) ** (1.0 / (features + 1))
    return phi ** -np.arange(1.0, features + 1.0)


def _disc_below(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the area of the unit disc's part with first coordinate <= x and second <= y."""
    x, y = np.clip(x, -1.0, 1.0), np.clip(y, -1.0, 1.0)
    left, under = _segment(x), _segment(y)
    inside = (left + under) / 2 - np.pi / 4 + x * y
    beyond = np.where(
        x < 0, np.where(y < 0, 0.0, left), np.where(y < 0, under, left + under - np.pi)
    )
    return np.where(x * x + y * y <= 1.0, inside, beyond)


def _segment(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the area of the unit disc's part with first coordinate <= x."""
    return x * np.sqrt(1.0 - x * x) + np.arcsin(x) + np.pi / 2

"""From k to a radius, once for all queries: a noisy grid of the data (Algorithm 7).

[0, 1]^f is cut into `side ** f` equal cells. A row lies in one of them, so one noisy count each
costs epsilon in all, and everything read from the counts afterwards is free: any number of queries,
of any batch. Hopeless above some six features: either the cells are too many to count, which is
refused, or so large that they say nothing.

Source: Section 4.3; the number of cells is that of Su et al. (CODASPY 2016),
`side = (|D| epsilon / 10) ^ (2 / (2 + f))`.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.privacy.checks import require
from veilring.privacy.laplace import discrete_laplace
from veilring.protocols.radius.algorithm.balls import chunks, distances, require_queries
from veilring.protocols.radius.algorithm.volumes import cell_points, covered_1d, covered_2d
from veilring.protocols.rows import Rows

# Six features and ten thousand rows at epsilon = 1 come to 46,656 cells. With many more, each holds
# less than its noise.
CELLS_MAX: Final = 65_536
GAMMA: Final = 1e-4
"""The step of radii as a share of the diagonal, as in the paper's experiments."""
# A finer step tells no radii apart that the noise does not, and steps are counted in 64 bits.
GAMMA_MIN: Final = 1e-9
# Up to here a coarser grid still has six cells a side; beyond, that there are too many cells may
# only show once the rows are counted.
GRID_FEATURES_MAX: Final = 6
# Of the quadrature above two dimensions: a ball that holds a few hundred of them is measured to
# some per cent, which is less than the counts' noise and the uneven spread within cells.
_POINTS: Final = 16_384
_EXACT_FEATURES: Final = 2
# With more cells, each is so small that where in it the rows are hardly matters.
_EXACT_CELLS: Final = 4096


@dataclass(frozen=True, slots=True, eq=False)
class NoisyGrid:
    """A released grid. Public.

    Attributes:
        side: Cells on each side.
        features: f.
        counts: Shape (side ** f,), in C order, at least 0: a negative count became 0.
    """

    side: int
    features: int
    counts: NDArray[np.int64]

    @property
    def diagonal(self) -> float:
        """The diagonal of the domain: no radius need be longer."""
        return float(np.sqrt(self.features))


def grid_side(rows: int, features: int, epsilon: float) -> int:
    """Return how many cells a side there are (Su et al. 2016), at least 1.

    Where that makes more than `CELLS_MAX` cells, up to six features get a coarser grid, which
    still has six cells a side; more features are refused.

    Args:
        rows: How many rows there are: public, or released with noise.
        features: At least 1.
        epsilon: What the grid may spend.

    Raises:
        InputError: If there are too many features.
    """
    side = max(1, round((max(rows, 1) * epsilon / 10) ** (2 / (2 + features))))
    most = int(CELLS_MAX ** (1 / features) + 1e-9)  # so that the root of a power is whole
    given = f"{features} with {side} cells a side"
    fits = side <= most or features <= GRID_FEATURES_MAX
    require(fits, "features", given, f"at most {CELLS_MAX} cells in all: convert by candidates")
    return int(min(side, most))


def noisy_grid(rows: Rows, side: int, epsilon: float, rng: Generator) -> NoisyGrid:
    """Release how many rows each cell has, under epsilon (Algorithm 7, line 1).

    Args:
        rows: In [0, 1].
        side: As `grid_side` gives it, from public numbers.
        epsilon: Above 0.
        rng: Secret.

    Raises:
        InputError: As `discrete_laplace` does.
    """
    counts = cell_counts(rows, side)
    noisy = counts + discrete_laplace(1 / Fraction(epsilon), len(counts), rng)
    return NoisyGrid(side, rows.features.shape[1], np.maximum(noisy, 0))


def cell_counts(rows: Rows, side: int) -> NDArray[np.int64]:
    """Return how many rows each cell has, shape (side ** f,) in C order. Secret.

    A row is in one cell: what is added or removed changes one count by one.

    Args:
        rows: In [0, 1].
        side: Cells on each side, at least 1.
    """
    features = rows.features.shape[1]
    place = np.minimum((rows.features * side).astype(np.int64), side - 1)
    cell = np.ravel_multi_index(tuple(place.T), (side,) * features)
    return np.bincount(cell, minlength=side**features)


def grid_radii(
    grid: NoisyGrid, queries: NDArray[np.float64], k: int, gamma: float = GAMMA
) -> NDArray[np.float64]:
    """Return the least radius whose ball is expected to hold k rows, shape (Q,) (Algorithm 7).

    Rows are taken to be spread evenly over each cell. Radii are multiples of `gamma` times the
    diagonal, and at most the diagonal, which holds whatever there is. The share of a cell that a
    ball holds is exact in one and two dimensions up to 4,096 cells; else it is the share of points
    that are spread over the cell by a fixed rule.

    Args:
        grid: The released grid.
        queries: Shape (Q, f), in [0, 1].
        k: At least 1.
        gamma: From `GAMMA_MIN` to 1.

    Raises:
        InputError: If a shape or a value does not fit.
    """
    require_queries(queries)
    width = queries.shape[1]
    require(width == grid.features, "queries", f"of {width} features", f"{grid.features}")
    require(k >= 1, "k", k, "a whole number of at least 1")
    require_gamma(gamma)
    if not grid.counts.any():
        return np.full(len(queries), grid.diagonal)
    exact = grid.features <= _EXACT_FEATURES and len(grid.counts) <= _EXACT_CELLS
    find, entries = (
        (_by_area, len(grid.counts)) if exact else (_by_points, max(len(grid.counts), _POINTS))
    )
    parts = [find(grid, queries[chunk], k, gamma) for chunk in chunks(len(queries), entries)]
    return np.concatenate(parts) if parts else np.empty(0)


def require_gamma(gamma: float) -> None:
    """Refuse a step of radii that is none, too fine, or longer than the diagonal."""
    require(GAMMA_MIN <= gamma <= 1, "gamma", gamma, f"a number from {GAMMA_MIN:g} to 1")


def _by_area(
    grid: NoisyGrid, queries: NDArray[np.float64], k: int, gamma: float
) -> NDArray[np.float64]:
    """Find the least step whose ball is full enough by halving: mass grows with the radius."""
    covered = covered_1d if grid.features == 1 else covered_2d
    unit = gamma * grid.diagonal
    low = np.zeros(len(queries), dtype=np.int64)  # too small, or 0
    high = np.full(len(queries), int(np.ceil(1 / gamma)), dtype=np.int64)  # large enough, or last
    while (apart := high - low > 1).any():
        middle = (low + high) // 2
        tried = np.maximum(middle, 1) * unit
        full = covered(queries, tried, grid.side) @ grid.counts >= k
        low, high = np.where(apart & ~full, middle, low), np.where(apart & full, middle, high)
    return np.asarray(np.minimum(high * unit, grid.diagonal))


def _by_points(
    grid: NoisyGrid, queries: NDArray[np.float64], k: int, gamma: float
) -> NDArray[np.float64]:
    """Take points with the mass of their cells in order of distance until k is reached."""
    filled = np.flatnonzero(grid.counts)
    points = cell_points(grid.side, grid.features, _POINTS)[filled]
    mass = np.repeat(grid.counts[filled] / points.shape[1], points.shape[1])
    to_points = distances(queries, points.reshape(-1, grid.features))
    order = np.argsort(to_points, axis=1, kind="stable")
    reached = np.cumsum(mass[order], axis=1) >= k
    first = np.where(reached.any(axis=1), reached.argmax(axis=1), order.shape[1] - 1)
    nearest = np.take_along_axis(order, first[:, None], axis=1)
    needed = np.take_along_axis(to_points, nearest, axis=1)[:, 0]
    steps = np.maximum(1, np.ceil(needed / (gamma * grid.diagonal)))
    enough = np.minimum(steps * gamma * grid.diagonal, grid.diagonal)
    return np.asarray(np.where(reached.any(axis=1), enough, grid.diagonal))

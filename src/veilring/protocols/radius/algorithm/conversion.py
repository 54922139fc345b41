"""Conversion of k into a radius for each query, under its own budget (Algorithms 6 and 7).

**By candidates**, separately for each query (Algorithm 6). If rows were spread evenly, a ball of
radius `r_unif` would contain k of them. The candidates are at most twice that radius. A row changes
the count of a candidate by at most one, and no count if it is outside the largest ball, so the
budget is allocated by the overlap graph of the largest balls.

**By a noisy grid**, once for all queries (Algorithm 7). [0, 1]^f is divided into `side ** f` equal
cells. A row is in one of them, so noisy counts of all cells cost epsilon in total, and radii for
any number of queries follow by free post-processing. A grid is of no use with more than about six
features: the cells are either too many to count, which is refused, or too large to be informative.
The number of cells is that of Su et al. (CODASPY 2016),
`side = (|D| epsilon / 10) ^ (2 / (2 + f))`.

The share of a cell within a ball is exact in one and two dimensions, and otherwise a quadrature. It
is a function of public numbers: queries, radii and the grid. The leading axis is queries.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import exp, lgamma, log, pi
from typing import Final, Literal

import numpy as np
from numpy.random import Generator

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows, pairwise_distances
from veilring.privacy.checks import require, require_that
from veilring.privacy.noise import discrete_laplace
from veilring.privacy.selection import permute_and_flip
from veilring.protocols.radius.algorithm.allocation import WORK_MAX, Allocation, allocate_budget
from veilring.protocols.radius.algorithm.balls import (
    overlap_graph,
    require_queries,
    require_width,
    row_chunks,
)

# More candidates do not help: adjacent ones already differ by less than one per cent. Their counts
# for all queries of a batch take 16 MiB.
CANDIDATES_MAX: Final = 512
_CANDIDATES_MIN: Final = 2  # with one there is no choice
# The largest candidate in units of r_unif, and its ratio to the smallest one.
_LARGEST: Final = 2.0
_SPAN: Final = 16.0
# Six features and ten thousand rows at epsilon = 1 give 46,656 cells. With many more cells, the
# count of each is smaller than its noise.
GRID_CELLS_MAX: Final = 65_536
# Up to here a coarser grid still has six cells per side. With more features, an excess of cells may
# not show until the rows are counted.
GRID_FEATURES_MAX: Final = 6
GAMMA: Final = 1e-4
"""The step of radii as a share of the diagonal, as in the paper's experiments."""
# A finer step is far below the noise, and steps must fit 64 bits.
GAMMA_MIN: Final = 1e-9
# The points of the quadrature above two dimensions. A ball that contains a few hundred of them is
# measured to some per cent, less than the error from noise and uneven rows within cells.
_POINTS: Final = 16_384
# The points of the quadrature in each cell of a grid with few cells.
_POINTS_A_CELL = 256
_EXACT_FEATURES: Final = 2
# With more cells, each is so small that the position of rows within it hardly matters.
_EXACT_CELLS: Final = 4096


@dataclass(frozen=True, slots=True)
class ByCandidates:
    """The interactive conversion: each query chooses a radius among candidates (Algorithm 6)."""

    number: int = 10

    def __post_init__(self) -> None:
        require_candidates(self.number)


@dataclass(frozen=True, slots=True)
class ByGrid:
    """The non-interactive conversion, which reads all radii from one noisy grid (Algorithm 7).

    Attributes:
        gamma: The step of radii, as a share of the domain's diagonal, from `GAMMA_MIN` to 1.
    """

    gamma: float = GAMMA

    def __post_init__(self) -> None:
        require_gamma(self.gamma)


Conversion = ByCandidates | ByGrid
"""A conversion of k. Prefer the grid, except with many features or very few queries."""
ConversionName = Literal["auto", "grid", "candidates"]


def conversion_of(name: ConversionName, features: int) -> Conversion:
    """Return the conversion that a name denotes: `auto` prefers the grid where it can be used."""
    if name == "grid" or (name == "auto" and features <= GRID_FEATURES_MAX):
        return ByGrid()
    return ByCandidates()


def convert_to_radii(
    queries: Floats,
    rows: Rows,
    k: int,
    conversion: Conversion,
    rng: Generator,
    *,
    epsilon: float,
    known_rows: int,
    work: int = WORK_MAX,
) -> Floats:
    """Release a radius for each query, shape (Q,), all under `epsilon`."""
    require_width(queries, rows)
    features = queries.shape[1]
    if isinstance(conversion, ByGrid):
        side = grid_side(known_rows, features, epsilon)
        return grid_radii(noisy_grid(rows, side, epsilon, rng), queries, k, conversion.gamma)
    plan = plan_conversion(
        queries, k, conversion, epsilon=epsilon, known_rows=known_rows, work=work
    )
    candidates = candidate_radii(uniform_radius(k, known_rows, features), conversion.number)
    qualities = candidate_qualities(queries, candidates, rows, k)
    return candidates[permute_and_flip(qualities, plan.epsilons, rng)]


def plan_conversion(
    queries: Floats,
    k: int,
    conversion: ByCandidates,
    *,
    epsilon: float,
    known_rows: int,
    work: int = WORK_MAX,
) -> Allocation:
    """Return the share of the budget of each query's conversion, from public values alone.

    A row outside the largest candidate's ball changes no count of the query, so only those balls
    matter. The number of them that contain one row is at most the size of the largest clique.
    """
    r_unif = uniform_radius(k, known_rows, queries.shape[-1])
    largest = candidate_radii(r_unif, conversion.number)[-1]
    graph = overlap_graph(queries, np.full(len(queries), largest))
    return allocate_budget(graph, epsilon, work=work)


def uniform_radius(k: int, rows: int, features: int) -> float:
    """Return the radius of a ball that contains k of the rows if they fill the unit cube evenly.

    It solves `k = rows * pi^(f/2) / Gamma(f/2 + 1) * r^f` (Section 4.3).

    Args:
        rows: The number of rows, public or released with noise; less than 1 counts as 1.
    """
    require(k >= 1, "k", k, "a whole number of at least 1")
    require(features >= 1, "features", features, "a whole number of at least 1")
    volume = log(k / max(rows, 1)) + lgamma(features / 2 + 1)
    return float(exp(volume / features) / pi**0.5)


def candidate_radii(r_unif: float, number: int) -> Floats:
    """Return the candidates, ascending in equal ratios, shape (number,); the last is 2 `r_unif`.

    The paper's equal steps (Algorithm 6, line 4) lack small candidates for dense regions.
    """
    require_candidates(number)
    return _LARGEST * r_unif * _SPAN ** (np.arange(1 - number, 1) / (number - 1))


def candidate_counts(queries: Floats, candidates: Floats, rows: Rows) -> Ints:
    """Return the secret number of rows in each candidate's ball, shape (Q, n)."""
    require_queries(queries)
    require_width(queries, rows)
    counts = np.zeros((len(queries), len(candidates)), dtype=np.int64)
    for chunk in row_chunks(len(rows), len(queries)):
        near = pairwise_distances(queries, rows.features[chunk])
        for place, radius in enumerate(candidates):
            counts[:, place] += np.count_nonzero(near <= radius, axis=1)
    return counts


def candidate_qualities(queries: Floats, candidates: Floats, rows: Rows, k: int) -> Ints:
    """Return `-|count - k|` for each query and candidate, shape (Q, n) (Algorithm 6, line 6).

    The qualities are secret. Their sensitivity is 1. An additional row may raise one candidate's
    quality and lower another's: quality is not monotone, so mechanisms must halve their rate.
    """
    return -np.abs(candidate_counts(queries, candidates, rows) - k)


def require_candidates(number: int) -> None:
    """Refuse a number of candidates out of range."""
    allowed = f"a whole number from {_CANDIDATES_MIN} to {CANDIDATES_MAX}"
    require(_CANDIDATES_MIN <= number <= CANDIDATES_MAX, "candidates", number, allowed)


@dataclass(frozen=True, slots=True, eq=False)
class NoisyGrid:
    """A released grid of noisy counts, which is public.

    Attributes:
        counts: The noisy counts in C order, shape (side ** f,); negative counts are set to 0.
    """

    side: int
    features: int
    counts: Ints

    @property
    def diagonal(self) -> float:
        """The diagonal of the domain, the longest radius that is useful."""
        return float(np.sqrt(self.features))


def noisy_grid(rows: Rows, side: int, epsilon: float, rng: Generator) -> NoisyGrid:
    """Release the number of rows in each cell, under epsilon (Algorithm 7, line 1)."""
    counts = cell_counts(rows, side)
    noisy = counts + discrete_laplace(1 / Fraction(epsilon), len(counts), rng)
    return NoisyGrid(side, rows.features.shape[1], np.maximum(noisy, 0))


def grid_side(rows: int, features: int, epsilon: float) -> int:
    """Return the number of cells per side (Su et al. 2016), at least 1.

    If this gives more than `GRID_CELLS_MAX` cells, the grid is made coarser for up to six features,
    with at least six cells per side. More features are refused.
    """
    side = max(1, round((max(rows, 1) * epsilon / 10) ** (2 / (2 + features))))
    most = int(GRID_CELLS_MAX ** (1 / features) + 1e-9)  # the root of a power must be whole
    fits = side <= most or features <= GRID_FEATURES_MAX
    require_that(
        fits,
        "features",
        f"a grid of {features} features with {side} cells a side has more than {GRID_CELLS_MAX} "
        "cells; convert by candidates",
    )
    return int(min(side, most))


def cell_counts(rows: Rows, side: int) -> Ints:
    """Return the secret number of rows in each cell, shape (side ** f,) in C order.

    A row is in one cell, so adding or removing it changes one count by one.
    """
    features = rows.features.shape[1]
    place = np.minimum((rows.features * side).astype(np.int64), side - 1)
    cell = np.ravel_multi_index(tuple(place.T), (side,) * features)
    return np.bincount(cell, minlength=side**features)


def grid_radii(grid: NoisyGrid, queries: Floats, k: int, gamma: float = GAMMA) -> Floats:
    """Return the least radius whose ball contains k rows in expectation, shape (Q,) (Algorithm 7).

    Rows are assumed to be spread evenly over each cell. Radii are multiples of `gamma` times the
    diagonal, and at most the diagonal. The share of a cell within a ball is exact in one and two
    dimensions up to 4,096 cells; otherwise it is estimated from a fixed set of points in the cell.
    """
    require_queries(queries)
    width = queries.shape[1]
    require_that(
        width == grid.features,
        "queries",
        f"the queries have {width} features; the grid has {grid.features}",
    )
    require(k >= 1, "k", k, "a whole number of at least 1")
    require_gamma(gamma)
    if not grid.counts.any():
        return np.full(len(queries), grid.diagonal)
    exact = grid.features <= _EXACT_FEATURES and len(grid.counts) <= _EXACT_CELLS
    find, entries = (
        (_by_area, len(grid.counts)) if exact else (_by_points, max(len(grid.counts), _POINTS))
    )
    parts = [find(grid, queries[chunk], k, gamma) for chunk in row_chunks(len(queries), entries)]
    return np.concatenate(parts) if parts else np.empty(0)


def _by_area(grid: NoisyGrid, queries: Floats, k: int, gamma: float) -> Floats:
    """Find the least sufficient step by bisection: the mass of a ball grows with its radius."""
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


def _by_points(grid: NoisyGrid, queries: Floats, k: int, gamma: float) -> Floats:
    """Add up the mass of points in order of distance until it reaches k."""
    filled = np.flatnonzero(grid.counts)
    points = cell_points(grid.side, grid.features, _POINTS)[filled]
    mass = np.repeat(grid.counts[filled] / points.shape[1], points.shape[1])
    to_points = pairwise_distances(queries, points.reshape(-1, grid.features))
    order = np.argsort(to_points, axis=1, kind="stable")
    reached = np.cumsum(mass[order], axis=1) >= k
    first = np.where(reached.any(axis=1), reached.argmax(axis=1), order.shape[1] - 1)
    nearest = np.take_along_axis(order, first[:, None], axis=1)
    needed = np.take_along_axis(to_points, nearest, axis=1)[:, 0]
    steps = np.maximum(1, np.ceil(needed / (gamma * grid.diagonal)))
    enough = np.minimum(steps * gamma * grid.diagonal, grid.diagonal)
    return np.asarray(np.where(reached.any(axis=1), enough, grid.diagonal))


def require_gamma(gamma: float) -> None:
    """Check that a step of radii is neither too fine nor longer than the diagonal."""
    require(GAMMA_MIN <= gamma <= 1, "gamma", gamma, f"a number from {GAMMA_MIN:g} to 1")


def covered_1d(queries: Floats, radii: Floats, side: int) -> Floats:
    """Return the share of each of `side` cells of [0, 1] within each interval, shape (Q, side)."""
    edges = np.linspace(0.0, 1.0, side + 1)
    low, high = queries - radii[:, None], queries + radii[:, None]
    return np.diff(np.clip(edges, low, high), axis=1) * side


def covered_2d(queries: Floats, radii: Floats, side: int) -> Floats:
    """Return the share of each cell of [0, 1]^2 within each disc, shape (Q, side * side).

    The area of a disc within a rectangle is an alternating sum over the rectangle's corners of the
    area to the lower left of the corner, which has a closed form.

    Args:
        side: The number of cells on each side; cells are in C order.
    """
    edges = np.linspace(0.0, 1.0, side + 1)
    scaled = (edges[None, :, None] - queries[:, None, :]) / radii[:, None, None]
    below = _disc_below(scaled[:, :, None, 0], scaled[:, None, :, 1])
    areas = np.diff(np.diff(below, axis=1), axis=2) * (radii * side)[:, None, None] ** 2
    return np.clip(areas, 0.0, 1.0).reshape(len(queries), side * side)


def _disc_below(x: Floats, y: Floats) -> Floats:
    """Return the area of the unit disc's part with first coordinate <= x and second <= y."""
    x, y = np.clip(x, -1.0, 1.0), np.clip(y, -1.0, 1.0)
    left, under = _segment(x), _segment(y)
    inside = (left + under) / 2 - np.pi / 4 + x * y
    beyond = np.where(
        x < 0, np.where(y < 0, 0.0, left), np.where(y < 0, under, left + under - np.pi)
    )
    return np.where(x * x + y * y <= 1.0, inside, beyond)


def _segment(x: Floats) -> Floats:
    """Return the area of the unit disc's part with first coordinate <= x."""
    return x * np.sqrt(1.0 - x * x) + np.arcsin(x) + np.pi / 2


def cell_points(side: int, features: int, points: int) -> Floats:
    """Return points spread evenly over each cell of [0, 1]^f, shape (cells, points a cell, f).

    All cells, in C order, have the same points: an additive recurrence whose steps are the powers
    of 1 / phi, where phi is the root of `x^(f+1) = x + 1` above 1. It is deterministic and covers a
    cube of any dimension more evenly than random points do.

    Args:
        points: The approximate total number of points; each cell has at least one.
    """
    a_cell = int(np.clip(points // side**features, 1, _POINTS_A_CELL))
    inside = (0.5 + np.arange(a_cell)[:, None] * _steps(features)) % 1.0
    corners = np.indices((side,) * features).reshape(features, -1).T
    return (corners[:, None, :] + inside[None, :, :]) / side


def _steps(features: int) -> Floats:
    phi = 2.0
    for _ in range(64):  # converges to the last bit in about half of that
        phi = (1.0 + phi) ** (1.0 / (features + 1))
    return phi ** -np.arange(1.0, features + 1.0)

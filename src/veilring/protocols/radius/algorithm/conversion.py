"""From k to a radius for each query of a batch, under a budget of its own (Algorithms 6 and 7).

**By candidates**, query by query (Algorithm 6). If rows were spread evenly, a ball of radius
`r_unif` would hold k of them. The candidates lie at and below twice that radius. A row changes the
count of a candidate by one at most, and no count if it lies outside the largest ball: so
conversions are allocated by the overlap graph of the largest balls.

**By a noisy grid**, once for all queries (Algorithm 7). [0, 1]^f is cut into `side ** f` equal
cells. A row lies in one of them, so one noisy count of each costs epsilon in all, and everything
read from the counts afterwards is free: any number of queries, of any batch. A grid does not help
above some six features: either the cells are too many to count, which is refused, or so large that
they say nothing. The number of cells is that of Su et al. (CODASPY 2016),
`side = (|D| epsilon / 10) ^ (2 / (2 + f))`.

How much of a cell a ball holds is exact in one and two dimensions, and a quadrature above. It is a
function of public numbers: queries, radii and the grid. The leading axis is queries.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import exp, lgamma, log, pi
from typing import Final, Literal, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data.table import Rows, pairwise_distances
from veilring.privacy.checks import require, require_choice, require_that
from veilring.privacy.noise import discrete_laplace
from veilring.privacy.selection import exponential_mechanism, permute_and_flip
from veilring.protocols.radius.algorithm.allocation import (
    WORK_MAX,
    Allocation,
    AllocationRule,
    allocate_budget,
    require_rule,
)
from veilring.protocols.radius.algorithm.balls import (
    overlap_graph,
    require_queries,
    require_width,
    row_chunks,
)

Spacing = Literal["geometric", "linear"]
"""Equal ratios from 2 r_unif down to an eighth of r_unif, or the paper's equal steps up from 0."""
Chooser = Literal["permute-and-flip", "exponential"]
"""How a candidate is chosen; both halve their rate, since the quality is not monotone."""
# More are no better: two neighbouring ones then differ by less than one in a hundred. Each has a
# count for each query of a batch, 16 MiB in all.
CANDIDATES_MAX: Final = 512
_CANDIDATES_MIN: Final = 2  # a choice
# The largest candidate, in r_unif, and how many times smaller the smallest is.
_LARGEST: Final = 2.0
_SPAN: Final = 16.0
# Six features and ten thousand rows at epsilon = 1 come to 46,656 cells. With many more, each holds
# less than its noise.
GRID_CELLS_MAX: Final = 65_536
# Up to here a coarser grid still has six cells a side; beyond, that there are too many cells may
# only show once the rows are counted.
GRID_FEATURES_MAX: Final = 6
GAMMA: Final = 1e-4
"""The step of radii as a share of the diagonal, as in the paper's experiments."""
# A finer step tells no radii apart that the noise does not, and steps are counted in 64 bits.
GAMMA_MIN: Final = 1e-9
# Of the quadrature above two dimensions: a ball that holds a few hundred of them is measured to
# some per cent, which is less than the counts' noise and the uneven spread within cells.
_POINTS: Final = 16_384
# Points of the quadrature that a grid of few cells gets in each.
_POINTS_A_CELL = 256
_EXACT_FEATURES: Final = 2
# With more cells, each is so small that where in it the rows are hardly matters.
_EXACT_CELLS: Final = 4096


@dataclass(frozen=True, slots=True)
class ByCandidates:
    """Interactive: each query's radius is chosen among candidates (Algorithm 6).

    Attributes:
        number: How many candidates, from 2 to `CANDIDATES_MAX`.
        spacing: How they lie up to twice the radius that would be right for evenly spread rows.
        allocation: The divisor of a query's share of the budget, on the overlap graph of the
            largest candidates' balls; the paper divides by the size of the batch.
        chooser: How a candidate is chosen.

    Raises:
        InputError: If a choice is unknown, or `number` out of range.
    """

    number: int = 10
    spacing: Spacing = "geometric"
    allocation: AllocationRule = "clique"
    chooser: Chooser = "permute-and-flip"

    def __post_init__(self) -> None:
        require_candidates(self.number, self.spacing)
        require_rule(self.allocation)
        require_choice("chooser", self.chooser, Chooser)

    @classmethod
    def paper(cls) -> Self:
        """Return the paper's: ten candidates, equal steps, equal shares, exponential mechanism."""
        return cls(10, "linear", "batch", "exponential")


@dataclass(frozen=True, slots=True)
class ByGrid:
    """Non-interactive: all radii are read from one noisy grid (Algorithm 7).

    Attributes:
        gamma: The step of radii, as a share of the domain's diagonal, from `GAMMA_MIN` to 1.

    Raises:
        InputError: If `gamma` is out of range.
    """

    gamma: float = GAMMA

    def __post_init__(self) -> None:
        require_gamma(self.gamma)


Conversion = ByCandidates | ByGrid
"""How k becomes a radius: by the grid, unless there are too many features or very few queries."""


def convert_to_radii(
    queries: NDArray[np.float64],
    rows: Rows,
    k: int,
    conversion: Conversion,
    rng: Generator,
    *,
    epsilon: float,
    known_rows: int,
    work: int = WORK_MAX,
) -> NDArray[np.float64]:
    """Release a radius for each query, shape (Q,), all under `epsilon`.

    Args:
        queries: Shape (Q, f), in [0, 1].
        rows: The table, of f features. Secret.
        k: How many neighbours are wanted, at least 1.
        conversion: How k becomes a radius.
        rng: The source of randomness. Secret.
        epsilon: The budget, above 0.
        known_rows: About how many rows there are: public, or released before with noise.
        work: The limit of the clique search.

    Raises:
        InputError: If an argument does not fit, or the grid would have too many cells.
    """
    require_width(queries, rows)
    features = queries.shape[1]
    if isinstance(conversion, ByGrid):
        side = grid_side(known_rows, features, epsilon)
        return grid_radii(noisy_grid(rows, side, epsilon, rng), queries, k, conversion.gamma)
    plan = plan_conversion(
        queries, k, conversion, epsilon=epsilon, known_rows=known_rows, work=work
    )
    candidates = _candidates(k, known_rows, features, conversion)
    qualities = candidate_qualities(queries, candidates, rows, k)
    choose = permute_and_flip if conversion.chooser == "permute-and-flip" else exponential_mechanism
    return candidates[choose(qualities, plan.epsilons, rng)]


def plan_conversion(
    queries: NDArray[np.float64],
    k: int,
    conversion: ByCandidates,
    *,
    epsilon: float,
    known_rows: int,
    work: int = WORK_MAX,
) -> Allocation:
    """Return what each query's conversion may spend: a function of public values alone.

    A row outside the largest candidate's ball changes no count of the query. So the balls that
    matter are those, and one row is in no more of them than the largest clique has.

    Args:
        queries: Shape (Q, f), in [0, 1].
        k: The number of neighbours, at least 1.
        conversion: How k becomes a radius.
        epsilon: The budget, above 0.
        known_rows: About how many rows there are.
        work: The limit of the clique search.

    Raises:
        InputError: As `overlap_graph` and `allocate_budget` do.
    """
    largest = _candidates(k, known_rows, queries.shape[-1], conversion)[-1]
    graph = overlap_graph(queries, np.full(len(queries), largest))
    return allocate_budget(graph, epsilon, conversion.allocation, work=work)


def _candidates(
    k: int, known_rows: int, features: int, conversion: ByCandidates
) -> NDArray[np.float64]:
    r_unif = uniform_radius(k, known_rows, features)
    return candidate_radii(r_unif, conversion.number, conversion.spacing)


def true_radii(
    queries: NDArray[np.float64], features: NDArray[np.float64], k: int
) -> NDArray[np.float64]:
    """Return the distance of each query to its k-th nearest row, shape (Q,): to compare with.

    Args:
        queries: Shape (Q, f).
        features: The features of the rows, shape (N, f), N at least k.
        k: The number of neighbours, at least 1.

    Raises:
        InputError: If there are fewer rows than k.
    """
    require(1 <= k <= len(features), "k", k, f"a whole number from 1 to {len(features)}")
    return np.partition(pairwise_distances(queries, features), k - 1, axis=1)[:, k - 1]


def uniform_radius(k: int, rows: int, features: int) -> float:
    """Return the radius of a ball that holds k of the rows, spread evenly over the unit cube.

    It solves `k = rows * pi^(f/2) / Gamma(f/2 + 1) * r^f` (Section 4.3).

    Args:
        k: The number of neighbours, at least 1.
        rows: Public, or released with noise; less than 1 counts as 1.
        features: f, at least 1.

    Raises:
        InputError: If `k` or `features` is less than 1.
    """
    require(k >= 1, "k", k, "a whole number of at least 1")
    require(features >= 1, "features", features, "a whole number of at least 1")
    volume = log(k / max(rows, 1)) + lgamma(features / 2 + 1)
    return float(exp(volume / features) / pi**0.5)


def candidate_radii(r_unif: float, number: int, spacing: Spacing) -> NDArray[np.float64]:
    """Return the candidates, ascending, shape (number,); the last is twice `r_unif`.

    Args:
        r_unif: As `uniform_radius` gives it.
        number: From 2 to `CANDIDATES_MAX`.
        spacing: `"linear"`: `2 j r_unif / n` (Algorithm 6, line 4). `"geometric"`: equal ratios, so
            that dense places, where radii are far below `r_unif`, have candidates too.

    Raises:
        InputError: If `number` is out of range or `spacing` is unknown.
    """
    require_candidates(number, spacing)
    if spacing == "linear":
        return _LARGEST * np.arange(1, number + 1) * r_unif / number
    return _LARGEST * r_unif * _SPAN ** (np.arange(1 - number, 1) / (number - 1))


def candidate_counts(
    queries: NDArray[np.float64], candidates: NDArray[np.float64], rows: Rows
) -> NDArray[np.int64]:
    """Return how many rows each candidate's ball holds, shape (Q, n). Secret.

    Args:
        queries: Shape (Q, f), in [0, 1].
        candidates: Shape (n,), radii.
        rows: The table, of f features.

    Raises:
        InputError: If a shape or a value does not fit.
    """
    require_queries(queries)
    require_width(queries, rows)
    counts = np.zeros((len(queries), len(candidates)), dtype=np.int64)
    for chunk in row_chunks(len(rows), len(queries)):
        near = pairwise_distances(queries, rows.features[chunk])
        for place, radius in enumerate(candidates):
            counts[:, place] += np.count_nonzero(near <= radius, axis=1)
    return counts


def candidate_qualities(
    queries: NDArray[np.float64], candidates: NDArray[np.float64], rows: Rows, k: int
) -> NDArray[np.int64]:
    """Return `-|count - k|` for each query and candidate, shape (Q, n) (Algorithm 6, line 6).

    Secret. Its sensitivity is 1, and a row more may raise one candidate's and lower another's: it
    is not monotone, and a mechanism has to halve its rate for that.

    Args:
        queries: Shape (Q, f), in [0, 1].
        candidates: Shape (n,), radii.
        rows: The table, of f features.
        k: The number of neighbours, at least 1.

    Raises:
        InputError: If a shape or a value does not fit.
    """
    return -np.abs(candidate_counts(queries, candidates, rows) - k)


def require_candidates(number: int, spacing: Spacing) -> None:
    """Refuse an unknown spacing, or a number of candidates out of range."""
    allowed = f"a whole number from {_CANDIDATES_MIN} to {CANDIDATES_MAX}"
    require(_CANDIDATES_MIN <= number <= CANDIDATES_MAX, "candidates", number, allowed)
    require_choice("spacing", spacing, Spacing)


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


def noisy_grid(rows: Rows, side: int, epsilon: float, rng: Generator) -> NoisyGrid:
    """Release how many rows each cell has, under epsilon (Algorithm 7, line 1).

    Args:
        rows: In [0, 1].
        side: As `grid_side` gives it, from public numbers.
        epsilon: Above 0.
        rng: The source of randomness. Secret.

    Raises:
        InputError: See `discrete_laplace`.
    """
    counts = cell_counts(rows, side)
    noisy = counts + discrete_laplace(1 / Fraction(epsilon), len(counts), rng)
    return NoisyGrid(side, rows.features.shape[1], np.maximum(noisy, 0))


def grid_side(rows: int, features: int, epsilon: float) -> int:
    """Return how many cells a side there are (Su et al. 2016), at least 1.

    Where that makes more than `GRID_CELLS_MAX` cells, up to six features get a coarser grid, which
    still has six cells a side; more features are refused.

    Args:
        rows: How many rows there are: public, or released with noise.
        features: At least 1.
        epsilon: What the grid may spend.

    Raises:
        InputError: If there are too many features.
    """
    side = max(1, round((max(rows, 1) * epsilon / 10) ** (2 / (2 + features))))
    most = int(GRID_CELLS_MAX ** (1 / features) + 1e-9)  # so that the root of a power is whole
    fits = side <= most or features <= GRID_FEATURES_MAX
    require_that(
        fits,
        "features",
        f"a grid of {features} features with {side} cells a side has more than {GRID_CELLS_MAX} "
        "cells; convert by candidates",
    )
    return int(min(side, most))


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
    ball holds is exact in one and two dimensions up to 4,096 cells; otherwise it is the share of
    points that are spread over the cell by a fixed rule.

    Args:
        grid: The released grid.
        queries: Shape (Q, f), in [0, 1].
        k: The number of neighbours, at least 1.
        gamma: From `GAMMA_MIN` to 1.

    Raises:
        InputError: If a shape or a value does not fit.
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
    """Refuse a step of radii that is none, too fine, or longer than the diagonal."""
    require(GAMMA_MIN <= gamma <= 1, "gamma", gamma, f"a number from {GAMMA_MIN:g} to 1")


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

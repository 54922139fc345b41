"""Measurements of look-ups for "Differentially private tree-based nearest neighbours".

A walk that returns several points is compared with a blurred query that returns the same number of
points. It has one draw per point if the walk's points are apart (P, GS), and returns the neighbours
of one draw if they are together (E, N).

The randomness of a curve's point depends only on the split's seed and on the names of look-up and
point. Figures that share a measurement therefore share its numbers, which are measured once.
`treewalk_figures` has the figures.
"""

from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from papers.walks import BASIC, Blur, Comparison, Distance, Utility, Variant, blur, spending, walk
from veilring.arrays import Floats
from veilring.data.csv import read_cells
from veilring.errors import InputError
from veilring.privacy.selection import EPSILON_MAX as RESPONSE_MAX
from veilring.privacy.selection import ResponseDistribution
from veilring.protocols.treewalk.algorithm.mechanisms import (
    STEP_EPSILON_MAX,
    bucket_points,
    respond,
)
from veilring.protocols.treewalk.algorithm.tree import Places, nearest_found
from veilring.randomness import Streams

SIDE: Final = 1e9
"""The longest side of the domain, as in the thesis; distances and radii have the same unit."""
USUAL_POINTS: Final = "uniform:100000"
PRIVACY_DELTA: Final = 1e-6
EPSILON_I: Final = 1.0
"""The ε_i of each step by distance, as in the thesis."""
PLACE_QUERIES: Final = 400
_UNIFORM: Final = "uniform"
_COUNT: Final = 100_000
_COUNT_MIN: Final = 257  # a tree of nine levels, so that walks may stop eight levels early
_PLANE: Final = 2
_DEGREES: Final = ("lat", "lon")
_TOP: Final = 5
# The tolerance between two computations of the same distance.
_ROUNDING: Final = 1e-9
# A grid for blurred queries: fine compared with any noise here, and coarse enough to be drawn
# exactly.
_STEP: Final = 1.0
_KEPT: Final = 1 << 14  # numbers of a family's figures, with room
_GROUNDS: Final = 4  # trees of a split, of which the largest have a million points

Account = Literal["paper", "spent"]
"""For comparisons: slips and epsilon as the thesis plots them, or as they are."""


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Points of a server, without labels.

    Attributes:
        name: The name of their source.
        count: The number of points.
        own: The scaled points of a file; none if points are drawn for each split.
    """

    name: str
    count: int
    own: Floats | None = None

    def draw(self, dimensions: int, times: int, rng: Generator) -> Floats:
        """Return the points of a split, shape (points, dimensions), in [0, `SIDE`].

        Args:
            dimensions: The number of coordinates; for a file, its first columns.
            times: The factor of `count`.
            rng: The randomness of points that do not come from a file.

        Raises:
            InputError: If a file has too few columns or too few points.
        """
        if self.own is None:
            return rng.random((times * self.count, dimensions)) * SIDE
        if times > 1:
            allowed = (
                f"{_UNIFORM} or {_UNIFORM}:N, since {times} times as many points are drawn, too"
            )
            raise InputError("data", self.name, allowed)
        if self.own.shape[1] < dimensions:
            raise InputError("data", self.name, f"points of {dimensions} coordinates")
        return self.own[:, :dimensions]


@cache  # one object for each source, so that figures can share its measurements
def load_points(source: str) -> Points:
    """Load points.

    Args:
        source: `uniform` or `uniform:N` for points that are drawn for each split, or the path of a
            CSV file of numbers, which ends in `.csv`. Its first two columns are coordinates. If
            they are `lat` and `lon`, in degrees, they are projected onto a plane that has the right
            proportions in their middle.

    Raises:
        InputError: If the source does not exist, or is not a file of points.
    """
    kind, _, count = source.partition(":")
    if kind == _UNIFORM and (count.isdecimal() or not count):
        drawn = int(count or _COUNT)
        if drawn < _COUNT_MIN:
            raise InputError("data", source, f"at least {_COUNT_MIN} points")
        return Points(f"{drawn:,} uniform points", drawn)
    if not source.lower().endswith(".csv"):
        raise InputError("data", source, "uniform, uniform:N, or the path of a .csv of points")
    return _read(Path(source))


def _read(path: Path) -> Points:
    cells = read_cells(path)
    names = list(cells)[:_PLANE]
    try:
        columns = [cells[name].astype(np.float64) for name in names]
    except ValueError:
        raise InputError("data", path, f"numbers in the columns {', '.join(names)}") from None
    points = np.stack(columns, axis=1)
    if len(points) < _COUNT_MIN or not np.isfinite(points).all():
        raise InputError("data", path, f"at least {_COUNT_MIN} points, all finite")
    if (points == points[0]).all(axis=0).any():
        raise InputError("data", path, f"more than one value in each of {', '.join(names)}")
    if tuple(names) == _DEGREES:
        points[:, 1] *= np.cos(np.radians(points[:, 0].mean()))
    points -= points.min(axis=0)
    return Points(path.name, len(points), points / points.max() * SIDE)


@dataclass(frozen=True, slots=True)
class SearchWay:
    """The look-up of one curve.

    Attributes:
        label: The name of the curve, without dimensions.
        variant: The way in which walks split.
        neighbours: B, the number of neighbours of each point found.
        kind: The mechanism: walks, a bucket response with the buckets of an early walk, or blur
            with the level of the same walk.
        dimensions: The dimensions of the points.
        times: The factor of the usual number of points.
    """

    label: str
    variant: Variant = BASIC
    neighbours: int = 0
    kind: Literal["walk", "response", "blur"] = "walk"
    dimensions: int = 2
    times: int = 1

    def at(self, dimensions: int) -> "SearchWay":
        """Return the same look-up in other dimensions."""
        return replace(self, dimensions=dimensions)

    def larger(self) -> "SearchWay":
        """Return the same look-up among ten times as many points."""
        return replace(self, label=f"{self.label}, 10 N", times=10)

    def blurred(self) -> "SearchWay":
        """Return its comparison: the same number of points from blurred queries."""
        return replace(self, label=f"GEO for {self.label}", kind="blur")


def early(splits: int) -> SearchWay:
    """Return a walk that stops early (E)."""
    return SearchWay(f"E{splits}", Variant("early", splits))


def parallel(splits: int) -> SearchWay:
    """Return walks that begin in parallel (P)."""
    return SearchWay(f"P{splits}", Variant("parallel", splits))


def greedy(neighbours: int = 0) -> SearchWay:
    """Return a walk that splits at every level (GS), with neighbours (GS-N)."""
    label = f"GS-N{neighbours}" if neighbours else "GS"
    return SearchWay(label, Variant("greedy"), neighbours)


def bucket_response(splits: int) -> SearchWay:
    """Return one private message that names a bucket of 2**splits leaves."""
    return SearchWay(
        f"response, buckets of {1 << splits}", Variant("early", splits), kind="response"
    )


class FoundShares(NamedTuple):
    """The shares of queries whose nearest point, or one of the five nearest, was found."""

    raw: float
    top: float


@dataclass(frozen=True, slots=True, eq=False)
class _Ground:
    """The points, domain and queries of a split, with the distances of the five nearest points."""

    places: Places
    high: Floats
    queries: Floats
    apart: Floats


@lru_cache(_KEPT)
def by_distance(
    points: Points, seed: int, way: SearchWay, level: float, account: Account = "paper"
) -> FoundShares:
    """Measure a look-up by distances.

    Args:
        points: The server's points.
        seed: The seed of the split.
        way: The look-up.
        level: The ε_i over the sensitivity, of a basic walk.
        account: With the thesis' accounting, all walks have the same ε_i, and blur has the printed
            ε of its walk. With actual spending, walks and blur all spend the ε per distance of a
            basic walk.
    """
    ground = _ground(points, seed, way.dimensions, way.times)
    depth, rng = ground.places.tree.depth, _rng(seed, way, level)  # both accounts: paired
    if way.kind == "blur":
        printed = spending(Distance(EPSILON_I, 1.0), way.variant, depth, PRIVACY_DELTA).printed
        return _blurred(ground, way, level * (printed if account == "paper" else depth), rng)
    if account == "spent":
        level *= depth / way.variant.compositions(depth)
    return _walked(ground, way, Distance(EPSILON_I, EPSILON_I / level), rng)


@lru_cache(_KEPT)
def by_comparison(
    points: Points, seed: int, way: SearchWay, epsilon: float, account: Account
) -> FoundShares:
    """Measure a look-up by comparisons.

    Args:
        points: The server's points.
        seed: The seed of the split.
        way: The look-up. The noise of blur covers the whole domain: as in the thesis, its loss is
            epsilon between queries a side apart, and greater between opposite corners of a plane.
        epsilon: The ε of the whole walk under the accounting, at δ = `PRIVACY_DELTA`.
        account: The accounting of the thesis, or the actual spending.
    """
    splits = "least-right" if account == "paper" else "default"
    ground = _ground(points, seed, way.dimensions, way.times, splits)
    rng = _rng(seed, way, epsilon, account)
    if way.kind == "blur":
        return _blurred(ground, way, epsilon / SIDE, rng)
    if way.kind == "response":
        return _responded(ground, way, epsilon, rng)
    each = _step_of(way.variant, ground.places.tree.depth, epsilon, account)
    return _walked(ground, way, Comparison(each, paper=account == "paper"), rng)


@lru_cache(_KEPT)
def _step_of(variant: Variant, depth: int, epsilon: float, account: Account) -> float:
    """Return the ε_i at which a whole walk has this epsilon, up to the largest possible ε_i."""
    from scipy.optimize import brentq

    def beyond(each: float) -> float:
        spent = spending(Comparison(each, paper=account == "paper"), variant, depth, PRIVACY_DELTA)
        return (spent.printed if account == "paper" else spent.epsilon) - epsilon

    if beyond(STEP_EPSILON_MAX) <= 0:
        return STEP_EPSILON_MAX
    return float(brentq(beyond, 1e-9, STEP_EPSILON_MAX, xtol=1e-9))


@lru_cache(_GROUNDS)
def _ground(
    points: Points, seed: int, dimensions: int, times: int, splits: str = "default"
) -> _Ground:
    rng = Streams(seed).generator("ground", dimensions, times)
    drawn = points.draw(dimensions, times, rng)
    places = Places.of(drawn, "least-right" if splits == "least-right" else None)
    high = drawn.max(axis=0)
    queries = rng.random((PLACE_QUERIES, dimensions)) * high
    nearest = places.tree.points[places.nearest(queries, _TOP)]
    apart = np.sqrt(np.square(nearest - queries[:, None]).sum(axis=2))
    return _Ground(places, high, queries, apart)


def _rng(seed: int, way: SearchWay, *point: object) -> Generator:
    # The names are spelled out, so that renaming a class does not change a figure's numbers.
    variant = f"Variant(kind={way.variant.kind!r}, splits={way.variant.splits})"
    name = (
        f"Way(label={way.label!r}, variant={variant}, neighbours={way.neighbours}, "
        f"kind={way.kind!r}, dimensions={way.dimensions}, times={way.times})"
    )
    return Streams(seed).generator(name, *map(str, point))


def _walked(ground: _Ground, way: SearchWay, utility: Utility, rng: Generator) -> FoundShares:
    found = walk(ground.places.tree, ground.queries, utility, way.variant, rng).found
    return _judged(ground, ground.places.with_neighbours(found, way.neighbours))


def _responded(ground: _Ground, way: SearchWay, epsilon: float, rng: Generator) -> FoundShares:
    tree, splits = ground.places.tree, way.variant.splits
    distribution = ResponseDistribution.spending(
        min(epsilon, RESPONSE_MAX), 1 << (tree.depth - splits)
    )
    return _judged(
        ground, bucket_points(tree, splits, respond(tree.splits, ground.queries, distribution, rng))
    )


def _blurred(ground: _Ground, way: SearchWay, per_unit: float, rng: Generator) -> FoundShares:
    """Return the accuracy of blurred queries that find the same number of points as the walk."""
    dimensions, found = way.dimensions, way.variant.found(ground.places.tree.depth)
    by = Blur(per_unit, (0.0,) * dimensions, tuple(ground.high), _STEP)
    draws, together = (1, found) if way.variant.kind in {"basic", "early"} else (found, 1)
    moved = blur(ground.queries.repeat(draws, axis=0), by, rng)
    positions = ground.places.nearest(moved, together * (1 + way.neighbours))
    return _judged(ground, positions.reshape(len(ground.queries), -1))


def _judged(ground: _Ground, found: NDArray[np.int32]) -> FoundShares:
    _, apart = nearest_found(ground.queries, ground.places.tree.points[found])
    reach = ground.apart * (1 + _ROUNDING)
    raw, top = ((apart <= reach[:, place]).mean() for place in (0, -1))
    return FoundShares(float(raw), float(top))

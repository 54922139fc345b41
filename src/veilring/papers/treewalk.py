"""What the figures are about: points without labels, drawn at random or read from a CSV file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import product
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data.csv import read_cells
from veilring.errors import InputError
from veilring.papers.claims import Claim, CurveKey
from veilring.papers.figure import Axis, DataKind, Figure, Observe, PointsFor, points_at
from veilring.privacy.response import EPSILON_MAX as RESPONSE_MAX
from veilring.privacy.response import ResponseLaw
from veilring.protocols.treewalk.algorithm.places import Places, nearest_found
from veilring.protocols.treewalk.algorithm.rivals import Blur, blur, points_of, respond
from veilring.protocols.treewalk.algorithm.spending import spending
from veilring.protocols.treewalk.algorithm.steps import EPSILON_MAX, Comparison, Distance, Utility
from veilring.protocols.treewalk.algorithm.walks import BASIC, Variant, walk
from veilring.randomness import Streams

SIDE: Final = 1e9
"""The longest side of the domain, as in the thesis: distances and radii are in parts of it."""
UNIFORM: Final = "uniform"
_COUNT: Final = 100_000
_COUNT_MIN: Final = 257  # a tree of nine levels, so that walks may stop eight levels early
_PLANE: Final = 2
_DEGREES: Final = ("lat", "lon")


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Points of a server.

    Attributes:
        name: Where they came from.
        count: How many there are.
        own: Those of a file, scaled; none if they are drawn anew for each split.
    """

    name: str
    count: int
    own: NDArray[np.float64] | None = None

    def draw(self, dimensions: int, times: int, rng: Generator) -> NDArray[np.float64]:
        """Return the points of a split, shape (points, dimensions), in [0, `SIDE`].

        Args:
            dimensions: Of a file, its first so many columns.
            times: How many times `count` there are.
            rng: Draws them, if they are no file's.

        Raises:
            InputError: If a file has fewer columns, or more points than it has are asked for.
        """
        if self.own is None:
            return rng.random((times * self.count, dimensions)) * SIDE
        if times > 1:
            allowed = f"{UNIFORM} or {UNIFORM}:N, since {times} times as many points are drawn, too"
            raise InputError("data", self.name, allowed)
        if self.own.shape[1] < dimensions:
            raise InputError("data", self.name, f"points of {dimensions} coordinates")
        return self.own[:, :dimensions]


@cache  # one object for each source, so that figures can share what was measured of it
def load_points(source: str) -> Points:
    """Load points.

    Args:
        source: `uniform` or `uniform:N`, drawn anew for each split; or the path of a CSV file of
            numbers, which ends in `.csv`. Its first two columns are coordinates. If they are `lat`
            and `lon`, in degrees, they are drawn on a plane with the right proportions in their
            middle.

    Raises:
        InputError: If there is no such source, or it is no file of points.
    """
    kind, _, count = source.partition(":")
    if kind == UNIFORM and (count.isdecimal() or not count):
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


POINTS: Final = DataKind(load_points, lambda points: points, f"{UNIFORM}:{_COUNT}")


Account = Literal["paper", "spent"]
"""For comparisons: slips and epsilon as the thesis plots them, or as they are."""


@dataclass(frozen=True, slots=True)
class WalkWay:
    """One curve.

    Attributes:
        label: What it is called, without dimensions.
        variant: How walks split.
        neighbours: B.
        kind: Walks; a bucket response with the buckets of an early walk; or blur with the level
            that the same walk has.
        dimensions: Of the points.
        times: How many times the usual number of points.
    """

    label: str
    variant: Variant = BASIC
    neighbours: int = 0
    kind: Literal["walk", "response", "blur"] = "walk"
    dimensions: int = 2
    times: int = 1

    def at(self, dimensions: int) -> "WalkWay":
        """Return the same in other dimensions."""
        return replace(self, dimensions=dimensions)

    def larger(self) -> "WalkWay":
        """Return the same among ten times as many points."""
        return replace(self, label=f"{self.label}, 10 N", times=10)

    def blurred(self) -> "WalkWay":
        """Return what stands beside it: as many points by geo-indistinguishability."""
        return replace(self, label=f"GEO for {self.label}", kind="blur")

    def told_apart(self) -> "WalkWay":
        """Return the same with its dimensions in its name."""
        return replace(self, label=f"{self.label}, {self.dimensions}-d")


def early(splits: int) -> WalkWay:
    """Return a walk that stops early (E)."""
    return WalkWay(f"E{splits}", Variant("early", splits)) if splits else WalkWay("basic")


def parallel(splits: int) -> WalkWay:
    """Return walks that begin in parallel (P)."""
    return WalkWay(f"P{splits}", Variant("parallel", splits)) if splits else WalkWay("basic")


def greedy(neighbours: int = 0) -> WalkWay:
    """Return a walk that splits at every level (GS), with neighbours (GS-N)."""
    label = f"GS-N{neighbours}" if neighbours else "GS"
    return WalkWay(label, Variant("greedy"), neighbours)


def named_bucket(splits: int) -> WalkWay:
    """Return one private message that names a bucket of 2**splits leaves."""
    return WalkWay(f"response, buckets of {1 << splits}", Variant("early", splits), kind="response")


DELTA: Final = 1e-6
EPSILON_I: Final = 1.0  # of each step by distance, as in the thesis
QUERIES: Final = 400
_TOP: Final = 5
# Distances to the same point by two ways of computing them.
_ROUNDING: Final = 1e-9
# A grid for blurred queries: fine beside any noise here, and coarse enough to be drawn exactly.
_STEP: Final = 1.0
_KEPT: Final = 1 << 14  # numbers of a family's figures, with room
_GROUNDS: Final = 4  # trees of a split, of which the largest have a million points


class Accuracy(NamedTuple):
    """Shares of queries of which the nearest point was found, and one of the five nearest."""

    raw: float
    top: float


@dataclass(frozen=True, slots=True, eq=False)
class _Ground:
    """The points of a split, its domain, its queries, and how far their five nearest points are."""

    places: Places
    high: NDArray[np.float64]
    queries: NDArray[np.float64]
    apart: NDArray[np.float64]


@lru_cache(_KEPT)
def by_distance(
    points: Points, seed: int, way: WalkWay, level: float, account: Account = "paper"
) -> Accuracy:
    """Measure a way by distances.

    Args:
        points: Of the server.
        seed: Of the split.
        way: What is measured.
        level: ε_i over the sensitivity, of a basic walk.
        account: The thesis' has the same ε_i for all walks, and blur at what it prints for the walk
            beside it. As spent, walks and blur all have what a basic walk spends, in epsilon a
            distance.
    """
    ground = _ground(points, seed, way.dimensions, way.times)
    depth, rng = ground.places.tree.depth, _rng(seed, way, level)  # both accounts: paired
    if way.kind == "blur":
        printed = spending(Distance(EPSILON_I, 1.0), way.variant, depth, DELTA).printed
        return _blurred(ground, way, level * (printed if account == "paper" else depth), rng)
    if account == "spent":
        level *= depth / way.variant.compositions(depth)
    return _walked(ground, way, Distance(EPSILON_I, EPSILON_I / level), rng)


@lru_cache(_KEPT)
def by_comparison(
    points: Points, seed: int, way: WalkWay, epsilon: float, account: Account
) -> Accuracy:
    """Measure a way by comparisons.

    Args:
        points: Of the server.
        seed: Of the split.
        way: What is measured. Blur has its noise for the whole domain: as in the thesis, it spends
            epsilon on two queries that are a side apart, and in the plane more on opposite corners.
        epsilon: Of the whole walk, as the account has it, at δ = `DELTA`.
        account: Whose.
    """
    splits = "least-right" if account == "paper" else "default"
    ground = _ground(points, seed, way.dimensions, way.times, splits)
    rng = _rng(seed, way, epsilon, account)
    if way.kind == "blur":
        return _blurred(ground, way, epsilon / SIDE, rng)
    if way.kind == "response":
        return _responded(ground, way, epsilon, rng)
    depth = ground.places.tree.depth
    each = _step_of(way.variant, depth, epsilon, account)
    return _walked(ground, way, Comparison(each, paper=account == "paper"), rng)


@lru_cache(_KEPT)
def _step_of(variant: Variant, depth: int, epsilon: float, account: Account) -> float:
    """Return the ε_i at which a whole walk has this epsilon, or the largest there is."""
    from scipy.optimize import brentq  # noqa: PLC0415  (0.2 s, and naming a figure needs none)

    def beyond(each: float) -> float:
        spent = spending(Comparison(each, paper=account == "paper"), variant, depth, DELTA)
        return (spent.printed if account == "paper" else spent.epsilon) - epsilon

    if beyond(EPSILON_MAX) <= 0:
        return EPSILON_MAX
    return float(brentq(beyond, 1e-9, EPSILON_MAX, xtol=1e-9))


@lru_cache(_GROUNDS)
def _ground(
    points: Points, seed: int, dimensions: int, times: int, splits: str = "default"
) -> _Ground:
    rng = Streams(seed).generator("ground", dimensions, times)
    drawn = points.draw(dimensions, times, rng)
    places = Places.of(drawn, "least-right" if splits == "least-right" else None)
    high = drawn.max(axis=0)
    queries = rng.random((QUERIES, dimensions)) * high
    near = places.tree.points[places.nearest(queries, _TOP)]
    apart = np.sqrt(np.square(near - queries[:, None]).sum(axis=2))
    return _Ground(places, high, queries, apart)


def _rng(seed: int, way: WalkWay, *point: object) -> Generator:
    # Written out, so that a figure keeps its numbers when a class gets another name.
    walk = f"Variant(kind={way.variant.kind!r}, splits={way.variant.splits})"
    name = (
        f"Way(label={way.label!r}, variant={walk}, neighbours={way.neighbours}, "
        f"kind={way.kind!r}, dimensions={way.dimensions}, times={way.times})"
    )
    return Streams(seed).generator(name, *map(str, point))


def _walked(ground: _Ground, way: WalkWay, utility: Utility, rng: Generator) -> Accuracy:
    found = walk(ground.places.tree, ground.queries, utility, way.variant, rng).found
    return _judged(ground, ground.places.with_neighbours(found, way.neighbours))


def _responded(ground: _Ground, way: WalkWay, epsilon: float, rng: Generator) -> Accuracy:
    tree, splits = ground.places.tree, way.variant.splits
    law = ResponseLaw.spending(min(epsilon, RESPONSE_MAX), 1 << (tree.depth - splits))
    return _judged(ground, points_of(tree, splits, respond(tree.splits, ground.queries, law, rng)))


def _blurred(ground: _Ground, way: WalkWay, per_unit: float, rng: Generator) -> Accuracy:
    """Return the accuracy of as many points as the walk has, found by blurred queries."""
    dimensions, found = way.dimensions, way.variant.found(ground.places.tree.depth)
    by = Blur(per_unit, (0.0,) * dimensions, tuple(ground.high), _STEP)
    draws, near = (1, found) if way.variant.kind in {"basic", "early"} else (found, 1)
    moved = blur(ground.queries.repeat(draws, axis=0), by, rng)
    positions = ground.places.nearest(moved, near * (1 + way.neighbours))
    return _judged(ground, positions.reshape(len(ground.queries), -1))


def _judged(ground: _Ground, found: NDArray[np.int32]) -> Accuracy:
    _, apart = nearest_found(ground.queries, ground.places.tree.points[found])
    reach = ground.apart * (1 + _ROUNDING)
    return Accuracy(float((apart <= reach[:, 0]).mean()), float((apart <= reach[:, -1]).mean()))


SPLITS: Final = 8
RAW: Final = "nearest found"
TOP: Final = "one of 5 nearest found"
PRINTED: Final = ", as printed"
SPENT: Final = ", as spent"
EQUAL: Final = ", equal spending"
_LEVELS: Final = tuple(10.0**power for power in range(-9, -2))
_EPSILONS: Final = (5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 75.0, 100.0, 150.0, 200.0, 300.0)
_FEW_LEVELS: Final = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
_FEW_EPSILONS: Final = (10.0, 50.0, 75.0, 100.0, 300.0)
_SEED_END: Final = 1 << 63
_CHOSEN: Final = f"chosen: {QUERIES} uniform queries"
_THESIS: Final = "Differentially private tree-based nearest neighbours"


class _Kind(NamedTuple):
    """What figures of one kind have in common.

    Attributes:
        measure: Gives a way's accuracy at a point of the axis, under an account.
        accounts: Each is measured, and has a pair of rows; by what is added to their names.
        setting: All that is fixed.
        x: The axis across.
        grid: Where to measure.
    """

    measure: Callable[[Points, int, WalkWay, float, Account], Accuracy]
    accounts: Mapping[str, Account]
    setting: str
    x: Axis
    grid: PointsFor


_BY_DISTANCE: Final = _Kind(
    by_distance,
    {"": "paper", EQUAL: "spent"},
    f"epsilon_i = {EPSILON_I:g}, side 1e9; GEO at the walk's printed epsilon, delta = {DELTA:g}; "
    f"{_CHOSEN}",
    Axis("epsilon_i / sensitivity (= 1 / privacy radius)", is_log=True),
    points_at(_LEVELS, _FEW_LEVELS),
)
_BY_COMPARISON: Final = _Kind(
    by_comparison,
    {PRINTED: "paper", SPENT: "spent"},
    f"delta = {DELTA:g}; as printed: slips and epsilon of the thesis' plots; {_CHOSEN}",
    Axis("epsilon of the whole walk", is_log=True),
    points_at(_EPSILONS, _FEW_EPSILONS),
)


def distance_figure(
    number: int, title: str, ways: Sequence[WalkWay], claims: tuple[Claim, ...]
) -> Figure:
    """Return a figure over ε_i by sensitivity, of all walks and then of basic ones.

    In the second pair of rows each walk, and blur, spends what a basic walk does there.

    Args:
        number: 6.2 is 2.
        title: What it shows.
        ways: Its curves.
        claims: What the thesis says of it.
    """
    return _figure(_BY_DISTANCE, number, title, ways, claims)


def comparison_figure(
    number: int, title: str, ways: Sequence[WalkWay], claims: tuple[Claim, ...]
) -> Figure:
    """Return a figure over a whole walk's epsilon, as the thesis prints it and as it is spent.

    Args:
        number: 6.17 is 17.
        title: What it shows.
        ways: Its curves.
        claims: What the thesis says of it.
    """
    return _figure(_BY_COMPARISON, number, title, ways, claims)


def _figure(
    kind: _Kind, number: int, title: str, ways: Sequence[WalkWay], claims: tuple[Claim, ...]
) -> Figure:
    names = [f"{name}{suffix}" for suffix in kind.accounts for name in (RAW, TOP)]
    return Figure(
        name=f"treewalk/figure-6.{number}",
        title=title,
        source=_source(number),
        setting=kind.setting,
        x=kind.x,
        measures={name: Axis(name, low=0.0) for name in names},
        grid=kind.grid,
        observe=_observing(kind, ways),
        claims=claims,
        splits=SPLITS,
        subject=POINTS,
        measurement="treewalk",
    )


def _source(number: int) -> str:
    section = "6.2.1" if number <= 16 else "6.2.2"  # noqa: PLR2004  (where the section ends)
    return f'"{_THESIS}", a thesis, Figure 6.{number} (Section {section})'


def _observing(kind: _Kind, ways: Sequence[WalkWay]) -> Observe:
    several = len({way.dimensions for way in ways}) > 1

    def observe(
        points: Points, x: Sequence[float], rng: Generator
    ) -> Mapping[CurveKey, Sequence[float]]:
        seed, curves = int(rng.integers(_SEED_END)), dict[CurveKey, Sequence[float]]()
        for (suffix, account), way in product(kind.accounts.items(), ways):
            label = way.told_apart().label if several else way.label
            found = [kind.measure(points, seed, way, each, account) for each in x]
            curves[CurveKey(f"{RAW}{suffix}", label)] = [each.raw for each in found]
            curves[CurveKey(f"{TOP}{suffix}", label)] = [each.top for each in found]
        return curves

    return observe

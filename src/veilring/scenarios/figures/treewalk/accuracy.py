"""How often one way finds the nearest point, or one of the five nearest, at one level of privacy.

A point of a curve is drawn from the split's seed and the names of way and point only, so that
figures that share a measurement have the same number there, and it is measured once.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.privacy.response import EPSILON_MAX as RESPONSE_MAX
from veilring.privacy.response import ResponseLaw
from veilring.protocols.treewalk.algorithm.places import Places, nearest_found
from veilring.protocols.treewalk.algorithm.rivals import Blur, blur, points_of, respond
from veilring.protocols.treewalk.algorithm.spending import spending
from veilring.protocols.treewalk.algorithm.steps import EPSILON_MAX, Comparison, Distance, Utility
from veilring.protocols.treewalk.algorithm.walks import Variant, walk
from veilring.randomness import Streams
from veilring.scenarios.figures.treewalk.points import SIDE, Points
from veilring.scenarios.figures.treewalk.ways import Account, Way

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
    points: Points, seed: int, way: Way, level: float, account: Account = "paper"
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
    points: Points, seed: int, way: Way, epsilon: float, account: Account
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


def _rng(seed: int, way: Way, *point: object) -> Generator:
    return Streams(seed).generator(repr(way), *map(str, point))


def _walked(ground: _Ground, way: Way, utility: Utility, rng: Generator) -> Accuracy:
    found = walk(ground.places.tree, ground.queries, utility, way.variant, rng).found
    return _judged(ground, ground.places.with_neighbours(found, way.neighbours))


def _responded(ground: _Ground, way: Way, epsilon: float, rng: Generator) -> Accuracy:
    tree, splits = ground.places.tree, way.variant.splits
    law = ResponseLaw.spending(min(epsilon, RESPONSE_MAX), 1 << (tree.depth - splits))
    return _judged(ground, points_of(tree, splits, respond(tree.splits, ground.queries, law, rng)))


def _blurred(ground: _Ground, way: Way, per_unit: float, rng: Generator) -> Accuracy:
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

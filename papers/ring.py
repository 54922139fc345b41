"""Figures 2 to 6 of Xiong, Chitti and Liu, "Mining multiple private databases", SAC 2007.

Given in the paper: the figures' axes, P0 = 1, d = 0.5 and one round in figure 2, two rounds in
figure 6, and 100 random splits of three quarters to one.

The paper does not state the number of parties, the partition of rows, the weights of votes and the
least range `delta` of the noise. Chosen here:

- 10 parties with equal numbers of rows at random, and weights of 1 / distance (its Algorithm 1 is
  the distance-weighted classifier);
- a `delta` of 0.01, with each feature scaled into [0, 1]: it is small compared with most distances
  and hardly affects the results;
- the values of k, n, r and d on the axes; d = 0.5 in figures 3 and 5;
- k = 5, 10 and 20 in figures 3 and 4; two rounds in figures 4 and 5, as in figure 6;
- the bounds that make "close", "as accurate" and "a large range" testable.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.random import Generator

from papers.claims import Claim, CurveKey, above, below
from papers.evidence import (
    LAST,
    changes,
    falls_after,
    falls_from_best,
    heights,
    ratios,
    slopes,
    up_to,
)
from papers.figure import (
    ACCURACY,
    MAJORITY_CLASS,
    Axis,
    Figure,
    HoldOut,
    Observe,
    PointsFor,
    accuracy_points,
    cited,
    draw_hold_out,
    held_out_rows,
    point_by_point,
    points_at,
    points_of,
)
from veilring.arrays import Floats, Ints
from veilring.data.table import Table, pairwise_distances, partition
from veilring.protocols.promise import Facts
from veilring.protocols.ring.algorithm.classify import pooled_knn, ring_knn
from veilring.protocols.ring.algorithm.sums import FixedPoint
from veilring.protocols.ring.algorithm.topk import own_smallest
from veilring.protocols.ring.leakage import leakage_over_orders
from veilring.protocols.ring.roles import SCALE_BITS, KNNParameters
from veilring.protocols.ring.system import PrivateKNN

PRIVATE: Final = "PP-kNN"
ORDINARY: Final = "ordinary kNN"
ESTIMATORS: Final = ("exposure", "claim", "lop")
_GAP: Final = "gap"
_PAPER: Final = (
    'Xiong, Chitti and Liu, "Mining multiple private databases using a kNN classifier", SAC 2007'
)
_PARTIES: Final = 10
_DELTA: Final = 0.01
_TEST_SHARE: Final = 0.25
_D: Final = 0.5
_ROUNDS: Final = 2
_GAP_KS: Final = (5, 10, 20)
_RING_SIZES: Final = (3, 10, 30, 100)
# The queries of each split: with 100 splits, the estimates use 10,000 runs of each ring.
_LEAKAGE_QUERIES: Final = 100


class DealtRows(NamedTuple):
    """One random split, and the partition of its rows among the parties.

    Attributes:
        split: The rows of all parties, and the queries.
        to_rows: The distances of the queries to each party's rows, shape (queries, its rows).
        labels: The classes of each party's rows.
    """

    split: HoldOut
    to_rows: tuple[Floats, ...]
    labels: tuple[Ints, ...]


def deal_rows(
    table: Table, rng: Generator, parties: int = _PARTIES, queries: int | None = None
) -> DealtRows:
    """Split a table at random, three quarters to one, and deal the larger part.

    Args:
        table: The table, scaled into [0, 1].
        rng: The randomness of the split and the partition.
        parties: The number of parties.
        queries: The number of held-out rows to keep; by default all of them.
    """
    train, held_out = draw_hold_out(table, _TEST_SHARE, rng)
    if queries is not None:
        held_out = held_out.take(np.arange(min(queries, len(held_out))))
    parts = [train.take(rows) for rows in partition(train.y, parties, rng)]
    to_rows = tuple(pairwise_distances(held_out.X, part.X) for part in parts)
    return DealtRows(HoldOut(train, held_out), to_rows, tuple(part.y for part in parts))


def _parameters(table: Table, k: int, *, d: float = _D, rounds: int = _ROUNDS) -> KNNParameters:
    """Return the parameters of PP-kNN with P0 = 1, which all of the paper's figures have."""
    system = PrivateKNN(k=k, P0=1.0, d=d, rounds=rounds, delta=_DELTA, weights="distance")
    return system.bind(Facts.of(_PARTIES, table.features, len(table.features.classes)))


def _private(dealt: DealtRows, parameters: KNNParameters, rng: Generator) -> float:
    found = ring_knn(
        dealt.to_rows,
        dealt.labels,
        parameters.topk,
        rng,
        fixed=FixedPoint(SCALE_BITS, len(dealt.labels)),
        classes=parameters.facts.classes,
        weights=parameters.system.weights,
    )
    return dealt.split.accuracy(found.labels)


def _ordinary(split: HoldOut, parameters: KNNParameters) -> float:
    labels = pooled_knn(
        split.held_out.X,
        split.train.X,
        split.train.y,
        parameters.facts.classes,
        parameters.system.k,
        parameters.system.weights,
    )
    return split.accuracy(labels)


def _accuracy_over_k(rounds: int) -> Observe:
    """Return a function that measures both classifiers at each k, and the majority class."""

    def observe(dealt: DealtRows, k: float, rng: Generator) -> Mapping[CurveKey, float]:
        parameters = _parameters(dealt.split.train, int(k), rounds=rounds)
        return accuracy_points(
            {
                PRIVATE: _private(dealt, parameters, rng),
                ORDINARY: _ordinary(dealt.split, parameters),
                MAJORITY_CLASS: dealt.split.majority(),
            }
        )

    return point_by_point(deal_rows, observe)


def _gap_over(make: Callable[[Table, int, float], KNNParameters]) -> Observe:
    """Return a function that measures the difference of both accuracies over a parameter.

    Args:
        make: The function that returns the parameters for a table, a k and a point of the axis.
    """

    def observe(
        table: Table, x: Sequence[float], rng: Generator
    ) -> Mapping[CurveKey, Sequence[float]]:
        dealt = deal_rows(table, rng)
        curves: dict[CurveKey, Sequence[float]] = {}
        for k in _GAP_KS:
            each = [make(table, k, at) for at in x]
            ordinary = _ordinary(dealt.split, each[0])
            gaps = [abs(_private(dealt, parameters, rng) - ordinary) for parameters in each]
            curves[CurveKey(_GAP, f"k = {k}")] = gaps
        return curves

    return observe


def _leakage_over_k(
    table: Table, x: Sequence[float], rng: Generator
) -> Mapping[CurveKey, Sequence[float]]:
    """Measure three estimators of a party's leakage, at each k, for rings of several sizes."""
    curves: dict[CurveKey, list[float]] = {}
    for n in _RING_SIZES:
        dealt = deal_rows(table, rng, n, _LEAKAGE_QUERIES)
        for k in map(int, x):
            own = np.stack([own_smallest(rows, k) for rows in dealt.to_rows], axis=1)
            found = leakage_over_orders(own, _parameters(table, k).topk, _LEAKAGE_QUERIES, rng)
            for name in ESTIMATORS:
                curve = curves.setdefault(CurveKey(name, f"n = {n}"), [])
                curve.append(getattr(found, name).value)
    return curves


def _up_to_rows(values: Sequence[int], *, with_all: bool = False) -> PointsFor:
    """Return the values of k up to the number of rows of a split, and optionally that number."""

    def many(table: Table) -> Sequence[float]:
        rows = len(table) - held_out_rows(table, _TEST_SHARE)
        fitting = [k for k in values if k < rows]
        return [*fitting, rows] if with_all or not fitting else fitting

    return points_of(many)


_SMALL_KS: Final = (1, 2, 3, 5, 7, 10, 15, 20)
_ALL_KS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
_LEAKAGE_KS: Final = (1, 2, 5, 10, 20, 50, 100)
_CLOSE: Final = 0.95  # of the ordinary accuracy
_AS_ACCURATE: Final = 0.01  # one query in a hundred
_USUAL_K: Final = 10
_LARGE_RANGE: Final = 20  # from 1: a factor of twenty
_CHOSEN: Final = f"chosen: n = {_PARTIES}, delta = {_DELTA}, weights 1/distance"
_OF_ACCURACY: Final = {ACCURACY: Axis("accuracy, share of held-out rows")}
_OF_GAP: Final = {_GAP: Axis("|accuracy - ordinary accuracy|", low=0.0)}
_NAMES: Final = {"exposure": "exposure", "claim": "claim", "lop": "loss of privacy (LoP)"}


def _below_one_half(estimator: str) -> Claim:
    return below(
        "the probability of revealing a value is below one half over a large range of k",
        f"{_NAMES[estimator]} at every n and every k up to {_LARGE_RANGE}",
        0.5,
        heights(estimator, at=up_to(_LARGE_RANGE), x="k"),
    )


def _grows(estimator: str) -> Claim:
    return above(
        "with very large k a party is more likely to reveal its values",
        f"{_NAMES[estimator]} at the largest k minus that at k = 1, at every n,",
        0.0,
        changes(estimator),
    )


RING_FIGURES: Final = (
    Figure(
        name="ring/figure-2",
        title="Accuracy of PP-kNN with one round, and of the ordinary classifier",
        source=cited(_PAPER, "2", "6.2"),
        setting=f"P0 = 1, d = {_D}, 1 round; {_CHOSEN}",
        x=Axis("k, neighbours that vote"),
        measures=_OF_ACCURACY,
        grid=_up_to_rows(_SMALL_KS),
        observe=_accuracy_over_k(rounds=1),
        claims=(
            above(
                "with one round PP-kNN is about as accurate as the ordinary classifier",
                "accuracy relative to the ordinary classifier's, at every k,",
                _CLOSE,
                ratios(ACCURACY, PRIVATE, over=ORDINARY, x="k"),
            ),
        ),
    ),
    Figure(
        name="ring/figure-3",
        title="Gap in accuracy against the number of rounds",
        source=cited(_PAPER, "3", "6.3"),
        setting=f"P0 = 1, d = {_D}; {_CHOSEN}",
        x=Axis("r, rounds of PP-TopK"),
        measures=_OF_GAP,
        grid=points_at(range(1, 9)),
        observe=_gap_over(lambda table, k, rounds: _parameters(table, k, rounds=int(rounds))),
        claims=(
            below(
                "the gap in accuracy falls with the number of rounds",
                "slope of the gap a round, at every k,",
                0.0,
                slopes(_GAP),
            ),
            below(
                "many rounds make PP-kNN as accurate as the ordinary classifier",
                "gap with the most rounds, at every k,",
                _AS_ACCURATE,
                heights(_GAP, at=LAST),
            ),
        ),
    ),
    Figure(
        name="ring/figure-4",
        title="Gap in accuracy against the randomisation factor d",
        source=cited(_PAPER, "4", "6.4"),
        setting=f"P0 = 1, {_ROUNDS} rounds (chosen); {_CHOSEN}",
        x=Axis("d, factor of the noise probability a round"),
        measures=_OF_GAP,
        grid=points_at([number / 10 for number in range(1, 11)]),
        observe=_gap_over(lambda table, k, d: _parameters(table, k, d=d)),
        claims=(
            above(
                "the gap in accuracy rises with d",
                "slope of the gap over d, at every k,",
                0.0,
                slopes(_GAP),
            ),
        ),
    ),
    Figure(
        name="ring/figure-5",
        title="Accuracy against k, up to all rows",
        source=cited(_PAPER, "5", "6.5"),
        setting=f"P0 = 1, d = {_D}, {_ROUNDS} rounds (chosen); {_CHOSEN}",
        x=Axis("k, neighbours that vote", is_log=True),
        measures=_OF_ACCURACY,
        grid=_up_to_rows(_ALL_KS, with_all=True),
        observe=_accuracy_over_k(_ROUNDS),
        claims=(
            above(
                "accuracy falls from a usual k to a very large one",
                f"accuracy at k = {_USUAL_K} minus that at k = all rows, of both,",
                0.0,
                falls_after(_USUAL_K, ACCURACY, PRIVATE, ORDINARY),
            ),
            above(
                "accuracy falls from the best k to a very large one",
                "accuracy at the other splits' best k minus that at all rows, of both,",
                0.0,
                falls_from_best(ACCURACY, PRIVATE, ORDINARY),
            ),
        ),
    ),
    Figure(
        name="ring/figure-6",
        title="Leakage of a party to its successor",
        source=cited(_PAPER, "6", "6.6"),
        setting=f"P0 = 1, d = {_D}, {_ROUNDS} rounds; chosen: delta = {_DELTA}",
        x=Axis("k, values sought", is_log=True),
        measures={
            "exposure": Axis("exposure, probability a message", low=0.0),
            "claim": Axis("claim, share that is right", low=0.0),
            "lop": Axis("LoP, probability a claim"),
        },
        grid=_up_to_rows(_LEAKAGE_KS),
        observe=_leakage_over_k,
        claims=(*map(_below_one_half, ESTIMATORS), *map(_grows, ESTIMATORS)),
    ),
)
"""In the order of the paper."""

"""Figures 2 to 6 of Xiong, Chitti and Liu, "Mining multiple private databases", SAC 2007.

`accuracy` measures figures 2 to 5 and `leakage` figure 6; `table` says what each figure is and what
the paper claims of it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data import Table, partition, split
from veilring.papers.claims import Claim, CurveKey, above, below
from veilring.papers.evidence import (
    at_last,
    best_over_last,
    first_points,
    growth,
    lead_over_last,
    relative,
    slopes,
)
from veilring.papers.figure import Axis, Figure, Observe, PointsFor, coarser, points_at
from veilring.protocols.ring import FixedPoint, KNNParameters, pooled_knn
from veilring.protocols.ring.algorithm import pairwise_distances, ring_knn, smallest_distances
from veilring.protocols.ring.roles.knn import SCALE_BITS
from veilring.scenarios.leakage import leakage_among

PARTIES: Final = 10
DELTA: Final = 0.01
TEST_SHARE: Final = 0.25


@dataclass(frozen=True, slots=True, eq=False)
class Dealt:
    """One random split, and who holds which of its rows.

    Attributes:
        train: The rows of all parties.
        held_out: The queries.
        to_rows: The distances of the queries to each party's rows, shape (queries, its rows).
        labels: The classes of each party's rows.
    """

    train: Table
    held_out: Table
    to_rows: tuple[NDArray[np.float64], ...]
    labels: tuple[NDArray[np.int64], ...]


def deal(table: Table, rng: Generator, parties: int = PARTIES, queries: int | None = None) -> Dealt:
    """Split a table at random, three quarters to one, and deal the larger part.

    Args:
        table: Scaled into [0, 1].
        rng: Source of the split and of the partition.
        parties: How many.
        queries: How many held-out rows to keep; all of them by default.
    """
    train, held_out = split(table, TEST_SHARE, rng)
    if queries is not None:
        held_out = held_out.take(np.arange(min(queries, len(held_out))))
    parts = [train.take(rows) for rows in partition(train.labels, parties, rng)]
    to_rows = tuple(pairwise_distances(held_out.features, part.features) for part in parts)
    return Dealt(train, held_out, to_rows, tuple(part.labels for part in parts))


def rows_dealt(table: Table) -> int:
    """Return how many rows all parties of a split hold together."""
    return len(table) - min(max(1, round(TEST_SHARE * len(table))), len(table) - 1)


def parameters_for(table: Table, k: int, d: float, rounds: int) -> KNNParameters:
    """Return the parameters of PP-kNN with P0 = 1, which all of the paper's figures have."""
    return KNNParameters(
        features=len(table.feature_names),
        classes=len(table.class_names),
        k=k,
        P0=1.0,
        d=d,
        rounds=rounds,
        delta=DELTA,
        weights="distance",
    )


ACCURACY: Final = "accuracy"
GAP: Final = "gap"
PRIVATE: Final = "PP-kNN"
ORDINARY: Final = "ordinary kNN"
MAJORITY: Final = "majority class"

Make = Callable[[Table, int, float], KNNParameters]
"""Makes the parameters for a table, a k and a point of the x axis."""


def accuracy_over_k(d: float, rounds: int) -> Observe:
    """Return what measures the accuracy of both classifiers at each k, and of the majority class.

    Args:
        d: Of PP-TopK.
        rounds: Of PP-TopK.
    """

    def observe(
        table: Table, x: Sequence[float], rng: Generator
    ) -> Mapping[CurveKey, Sequence[float]]:
        dealt = deal(table, rng)
        each = [parameters_for(table, int(k), d, rounds) for k in x]
        most_common = np.bincount(dealt.train.labels).argmax()
        majority = _accuracy(np.full(len(dealt.held_out), most_common), dealt)
        return {
            CurveKey(ACCURACY, PRIVATE): [_private(dealt, parameters, rng) for parameters in each],
            CurveKey(ACCURACY, ORDINARY): [_ordinary(dealt, parameters) for parameters in each],
            CurveKey(ACCURACY, MAJORITY): [majority] * len(x),
        }

    return observe


def gap_over(make: Make, ks: Sequence[int]) -> Observe:
    """Return what measures the absolute difference of the two accuracies over a parameter.

    Args:
        make: Sets the parameter to x.
        ks: One curve for each.
    """

    def observe(
        table: Table, x: Sequence[float], rng: Generator
    ) -> Mapping[CurveKey, Sequence[float]]:
        dealt = deal(table, rng)
        curves: dict[CurveKey, Sequence[float]] = {}
        for k in ks:
            each = [make(table, k, at) for at in x]
            ordinary = _ordinary(dealt, each[0])
            gaps = [abs(_private(dealt, parameters, rng) - ordinary) for parameters in each]
            curves[CurveKey(GAP, f"k = {k}")] = gaps
        return curves

    return observe


def _private(dealt: Dealt, parameters: KNNParameters, rng: Generator) -> float:
    found = ring_knn(
        dealt.to_rows,
        dealt.labels,
        parameters.topk,
        rng,
        fixed=FixedPoint(SCALE_BITS, len(dealt.labels)),
        classes=parameters.classes,
        weights=parameters.weights,
    )
    return _accuracy(found.labels, dealt)


def _ordinary(dealt: Dealt, parameters: KNNParameters) -> float:
    labels = pooled_knn(
        dealt.held_out.features,
        dealt.train.features,
        dealt.train.labels,
        parameters.classes,
        parameters.k,
        parameters.weights,
    )
    return _accuracy(labels, dealt)


def _accuracy(labels: NDArray[np.int64], dealt: Dealt) -> float:
    return float((labels == dealt.held_out.labels).mean())


ESTIMATORS: Final = ("exposure", "claim", "lop")
# Of each split: with 100 splits the estimates rest on 10,000 runs of each ring.
QUERIES: Final = 100


def leakage_over_k(d: float, rounds: int, parties: Sequence[int]) -> Observe:
    """Return what measures the three estimators at each k, one curve for each number of parties.

    Args:
        d: Of PP-TopK.
        rounds: Of PP-TopK.
        parties: The numbers of parties, each at least 3.
    """

    def observe(
        table: Table, x: Sequence[float], rng: Generator
    ) -> Mapping[CurveKey, Sequence[float]]:
        curves: dict[CurveKey, list[float]] = {}
        for n in parties:
            dealt = deal(table, rng, n, QUERIES)
            for k in map(int, x):
                own = np.stack([smallest_distances(rows, k) for rows in dealt.to_rows], axis=1)
                topk = parameters_for(table, k, d, rounds).topk
                found = leakage_among(own, topk, QUERIES, rng)
                for name in ESTIMATORS:
                    curve = curves.setdefault(CurveKey(name, f"n = {n}"), [])
                    curve.append(getattr(found, name).value)
        return curves

    return observe


_D: Final = 0.5
_ROUNDS: Final = 2
_SMALL_KS: Final = (1, 2, 3, 5, 7, 10, 15, 20)
_ALL_KS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
_LEAKAGE_KS: Final = (1, 2, 5, 10, 20, 50, 100)
_GAP_KS: Final = (5, 10, 20)
_RING_SIZES: Final = (3, 10, 30, 100)
_CLOSE: Final = 0.95  # of the ordinary accuracy
_AS_ACCURATE: Final = 0.01  # one query in a hundred
_USUAL_K: Final = 10
_LARGE_RANGE: Final = 20  # from 1: a factor of twenty
_CHOSEN: Final = f"chosen: n = {PARTIES}, delta = {DELTA}, weights 1/distance"
_OF_ACCURACY: Final = {ACCURACY: Axis("accuracy, share of held-out rows")}
_OF_GAP: Final = {GAP: Axis("|accuracy - ordinary accuracy|", low=0.0)}
_NAMES: Final = {"exposure": "exposure", "claim": "claim", "lop": "loss of privacy (LoP)"}


def _source(number: int, section: str) -> str:
    paper = "Mining multiple private databases using a kNN classifier"
    return f'Xiong, Chitti and Liu, "{paper}", SAC 2007, Figure {number} (Section {section})'


def _up_to_rows(values: Sequence[int], *, with_all: bool) -> PointsFor:
    """Return a grid of those k that a split has rows for, and of all rows if that is wanted."""

    def grid(table: Table, quick: bool) -> tuple[float, ...]:  # noqa: FBT001  (of every grid)
        rows = rows_dealt(table)
        fitting = [k for k in values if k < rows]
        points = [*fitting, rows] if with_all or not fitting else fitting
        return coarser(points) if quick else tuple(points)

    return grid


def _with_rounds(table: Table, k: int, rounds: float) -> KNNParameters:
    return parameters_for(table, k, _D, int(rounds))


def _with_d(table: Table, k: int, d: float) -> KNNParameters:
    return parameters_for(table, k, d, _ROUNDS)


def _below_one_half(estimator: str) -> Claim:
    return below(
        "the probability of revealing a value is below one half over a large range of k",
        f"{_NAMES[estimator]} at every n and every k up to {_LARGE_RANGE}",
        0.5,
        first_points(estimator, "k", up_to=_LARGE_RANGE),
    )


def _grows(estimator: str) -> Claim:
    return above(
        "with very large k a party is more likely to reveal its values",
        f"{_NAMES[estimator]} at the largest k less that at k = 1, at every n,",
        0.0,
        growth(estimator),
    )


RING_FIGURES: Final = (
    Figure(
        name="ring/figure-2",
        title="Accuracy of PP-kNN with one round, and of the ordinary classifier",
        source=_source(2, "6.2"),
        setting=f"P0 = 1, d = {_D}, 1 round; {_CHOSEN}",
        x=Axis("k, neighbours that vote"),
        measures=_OF_ACCURACY,
        grid=_up_to_rows(_SMALL_KS, with_all=False),
        observe=accuracy_over_k(_D, rounds=1),
        claims=(
            above(
                "with one round PP-kNN is about as accurate as the ordinary classifier",
                "accuracy relative to the ordinary classifier's, at every k,",
                _CLOSE,
                relative(ACCURACY, PRIVATE, ORDINARY, "k"),
            ),
        ),
    ),
    Figure(
        name="ring/figure-3",
        title="Gap in accuracy against the number of rounds",
        source=_source(3, "6.3"),
        setting=f"P0 = 1, d = {_D}; {_CHOSEN}",
        x=Axis("r, rounds of PP-TopK"),
        measures=_OF_GAP,
        grid=points_at(range(1, 9)),
        observe=gap_over(_with_rounds, _GAP_KS),
        claims=(
            below(
                "the gap in accuracy falls with the number of rounds",
                "slope of the gap a round, at every k,",
                0.0,
                slopes(GAP),
            ),
            below(
                "many rounds make PP-kNN as accurate as the ordinary classifier",
                "gap with the most rounds, at every k,",
                _AS_ACCURATE,
                at_last(GAP),
            ),
        ),
    ),
    Figure(
        name="ring/figure-4",
        title="Gap in accuracy against the randomisation factor d",
        source=_source(4, "6.4"),
        setting=f"P0 = 1, {_ROUNDS} rounds (chosen); {_CHOSEN}",
        x=Axis("d, factor of the noise probability a round"),
        measures=_OF_GAP,
        grid=points_at([number / 10 for number in range(1, 11)]),
        observe=gap_over(_with_d, _GAP_KS),
        claims=(
            above(
                "the gap in accuracy rises with d",
                "slope of the gap over d, at every k,",
                0.0,
                slopes(GAP),
            ),
        ),
    ),
    Figure(
        name="ring/figure-5",
        title="Accuracy against k, up to all rows",
        source=_source(5, "6.5"),
        setting=f"P0 = 1, d = {_D}, {_ROUNDS} rounds (chosen); {_CHOSEN}",
        x=Axis("k, neighbours that vote", is_log=True),
        measures=_OF_ACCURACY,
        grid=_up_to_rows(_ALL_KS, with_all=True),
        observe=accuracy_over_k(_D, _ROUNDS),
        claims=(
            above(
                "accuracy falls from a usual k to a very large one",
                f"accuracy at k = {_USUAL_K} less that at k = all rows, of both,",
                0.0,
                lead_over_last(ACCURACY, PRIVATE, ORDINARY, at=_USUAL_K),
            ),
            above(
                "accuracy falls from the best k to a very large one",
                "accuracy at the other splits' best k less that at all rows, of both,",
                0.0,
                best_over_last(ACCURACY, PRIVATE, ORDINARY),
            ),
        ),
    ),
    Figure(
        name="ring/figure-6",
        title="What a party reveals to its successor",
        source=_source(6, "6.6"),
        setting=f"P0 = 1, d = {_D}, {_ROUNDS} rounds; chosen: delta = {DELTA}",
        x=Axis("k, values sought", is_log=True),
        measures={
            "exposure": Axis("exposure, probability a message", low=0.0),
            "claim": Axis("claim, share that is right", low=0.0),
            "lop": Axis("LoP, probability a claim"),
        },
        grid=_up_to_rows(_LEAKAGE_KS, with_all=False),
        observe=leakage_over_k(_D, _ROUNDS, _RING_SIZES),
        claims=(*map(_below_one_half, ESTIMATORS), *map(_grows, ESTIMATORS)),
    ),
)
"""In the order of the paper."""

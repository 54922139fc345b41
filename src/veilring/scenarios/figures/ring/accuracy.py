"""Figures 2 to 5: the accuracy of PP-kNN beside that of the ordinary, pooled classifier."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data import Table
from veilring.protocols.ring import FixedPoint, KNNParameters, pooled_knn
from veilring.protocols.ring.algorithm import ring_knn
from veilring.protocols.ring.roles.knn import SCALE_BITS
from veilring.scenarios.figures.measured import Key
from veilring.scenarios.figures.model import Observe
from veilring.scenarios.figures.ring.dealt import Dealt, deal, parameters_for

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

    def observe(table: Table, x: Sequence[float], rng: Generator) -> Mapping[Key, Sequence[float]]:
        dealt = deal(table, rng)
        each = [parameters_for(table, int(k), d, rounds) for k in x]
        most_common = np.bincount(dealt.train.labels).argmax()
        majority = _accuracy(np.full(len(dealt.held_out), most_common), dealt)
        return {
            Key(ACCURACY, PRIVATE): [_private(dealt, parameters, rng) for parameters in each],
            Key(ACCURACY, ORDINARY): [_ordinary(dealt, parameters) for parameters in each],
            Key(ACCURACY, MAJORITY): [majority] * len(x),
        }

    return observe


def gap_over(make: Make, ks: Sequence[int]) -> Observe:
    """Return what measures the absolute difference of the two accuracies over a parameter.

    Args:
        make: Sets the parameter to x.
        ks: One curve for each.
    """

    def observe(table: Table, x: Sequence[float], rng: Generator) -> Mapping[Key, Sequence[float]]:
        dealt = deal(table, rng)
        curves: dict[Key, Sequence[float]] = {}
        for k in ks:
            each = [make(table, k, at) for at in x]
            ordinary = _ordinary(dealt, each[0])
            gaps = [abs(_private(dealt, parameters, rng) - ordinary) for parameters in each]
            curves[Key(GAP, f"k = {k}")] = gaps
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

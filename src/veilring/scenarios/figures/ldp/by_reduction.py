"""Figures 3 and 4: the accuracy with all features, and with one that stands for them.

A tenth of the training rows is public: the projections and the ranges of new features come from
these, whose owners are not asked. All other training rows are clients, in every series.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import inf
from typing import Final, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data import Table, split
from veilring.protocols.ldp.algorithm.bayes import learn_gaussian
from veilring.protocols.ldp.algorithm.means import Approach, make_means
from veilring.protocols.ldp.algorithm.oracles import DirectEncoding
from veilring.protocols.ldp.algorithm.plain import PlainOracle
from veilring.protocols.ldp.algorithm.reduction import (
    Projection,
    discriminant_components,
    principal_components,
)
from veilring.protocols.ldp.algorithm.steps import Bins, Ranges
from veilring.protocols.ldp.algorithm.surveys import GaussianBayesSurvey
from veilring.scenarios.figures.ldp.learning import (
    MAJORITY,
    PLAIN,
    TEST_SHARE,
    accuracy,
    asked,
    learned_discrete,
    majority,
)
from veilring.scenarios.figures.measured import Key
from veilring.scenarios.figures.model import Observe

ALL_FEATURES: Final = "all features"
PCA: Final = "PCA to 1"
DCA: Final = "DCA to 1"
BINS: Final = 2  # the paper's for the Australian data set
_PUBLIC_SHARE: Final = 0.1
_ORIGIN: Final = "a tenth of the training rows, whose owners are not asked"


class _Reduced(NamedTuple):
    """Clients and queries with new features, and the public ranges of these."""

    clients: NDArray[np.float64]
    labels: NDArray[np.int64]
    queries: NDArray[np.float64]
    ranges: Ranges
    classes: int


Learn = Callable[[_Reduced, float, Generator], NDArray[np.int64]]
"""Asks clients at an epsilon, and returns the labels of the queries."""


def accuracy_by_reduction(measures: Mapping[str, Learn]) -> Observe:
    """Return what measures classifiers at each epsilon, with all features and with one.

    Args:
        measures: The classifiers by their names.
    """

    def observe(table: Table, x: Sequence[float], rng: Generator) -> Mapping[Key, Sequence[float]]:
        train, held_out = split(table, TEST_SHARE, rng)
        clients, public = split(train, _PUBLIC_SHARE, rng)
        reduced = _reduced(clients, public, held_out)
        flat = [majority(clients, held_out)] * len(x)
        curves: dict[Key, Sequence[float]] = {}
        for name, learn in measures.items():
            for series, each in reduced.items():
                found = [accuracy(learn(each, epsilon, rng), held_out) for epsilon in x]
                curves[Key(name, series)] = found
            plain = accuracy(learn(reduced[ALL_FEATURES], inf, rng), held_out)
            curves[Key(name, PLAIN)] = [plain] * len(x)
            curves[Key(name, MAJORITY)] = flat
        return curves

    return observe


def by_bins(oracle: str) -> Learn:
    """Return what learns discrete naive Bayes of bins of equal widths, by an oracle."""

    def learn(reduced: _Reduced, epsilon: float, rng: Generator) -> NDArray[np.int64]:
        counts = (BINS,) * len(reduced.ranges.lows)
        bins = Bins(reduced.ranges, counts)
        rows, sizes = bins(reduced.clients), (counts, reduced.classes)
        model = learned_discrete(
            rows, reduced.labels, sizes, oracle=oracle, epsilon=epsilon, rng=rng
        )
        return model.classify(bins(reduced.queries))

    return learn


def by_moments(approach: Approach) -> Learn:
    """Return what learns Gaussian naive Bayes, by one of the paper's three approaches."""

    def learn(reduced: _Reduced, epsilon: float, rng: Generator) -> NDArray[np.int64]:
        ranges = reduced.ranges
        survey = _survey(approach, epsilon, len(ranges.lows), reduced.classes)
        said = asked(survey, ranges(reduced.clients), reduced.labels, rng)
        return learn_gaussian(survey, said).classify(ranges(reduced.queries))

    return learn


@cache
def _survey(approach: Approach, epsilon: float, features: int, classes: int) -> GaussianBayesSurvey:
    domain = max(2, classes)
    oracle = PlainOracle(domain) if epsilon == inf else DirectEncoding(domain, epsilon)
    return GaussianBayesSurvey(oracle, make_means(approach, epsilon, features, classes))


def _reduced(clients: Table, public: Table, held_out: Table) -> dict[str, _Reduced]:
    features, classes = public.features, len(public.class_names)
    width = features.shape[1]
    unit = Ranges((0.0,) * width, (1.0,) * width)
    projections: dict[str, Projection] = {
        PCA: principal_components(features, 1, origin=_ORIGIN),
        DCA: discriminant_components(features, public.labels, 1, origin=_ORIGIN),
    }
    same = _Reduced(clients.features, clients.labels, held_out.features, unit, classes)
    made = {ALL_FEATURES: same}
    for name, project in projections.items():
        rows, queries = project(clients.features), project(held_out.features)
        ranges = Ranges.of(project(features))
        made[name] = _Reduced(rows, clients.labels, queries, ranges, classes)
    return made

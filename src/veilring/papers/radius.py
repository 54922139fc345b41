"""Figures 7 to 15 of Gursoy et al., "Differentially private nearest neighbor classification", 2017.

`accuracy` measures figures 7 to 9 and 12 to 15, and `conversion` figures 10 and 11; `table` says
what each figure is and what the paper claims of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data import Table, split
from veilring.papers.claims import Claim, CurveKey, above, below
from veilring.papers.evidence import change, lead, values
from veilring.papers.figure import Axis, Figure, Observe, coarser, points_at
from veilring.protocols.radius.algorithm.balls import count_votes, pairwise_distances
from veilring.protocols.radius.algorithm.conversion import (
    ByCandidates,
    ByGrid,
    Conversion,
    convert_to_radii,
    true_radii,
)
from veilring.protocols.radius.algorithm.nearest import (
    NearestParameters,
    label_nearest,
    label_nearest_baseline,
    nearest_votes,
)
from veilring.protocols.radius.algorithm.voting import RNParameters, label_openly, label_within
from veilring.protocols.rows import Rows

TEST_SHARE: Final = 0.2
PER_BALL: Final = 20


@dataclass(frozen=True, slots=True, eq=False)
class Dealt:
    """One random split.

    Attributes:
        rows: The owner's.
        queries: The analyst's, shape (Q, f).
        truth: Their classes, shape (Q,).
        classes: The number of classes.
        radius: Within which a query has `PER_BALL` rows on average.
    """

    rows: Rows
    queries: NDArray[np.float64]
    truth: NDArray[np.int64]
    classes: int
    radius: float

    def radii(self, queries: int) -> NDArray[np.float64]:
        """Return the radius of each of the first so many queries."""
        return np.full(queries, self.radius)

    def accuracy(self, labels: NDArray[np.int64]) -> float:
        """Return the share of right labels, for the first so many queries."""
        return float((labels == self.truth[: len(labels)]).mean())

    def majority(self, queries: int) -> float:
        """Return the accuracy of always answering the owner's most common class."""
        return self.accuracy(np.full(queries, np.bincount(self.rows.labels).argmax()))


def deal(table: Table, rng: Generator) -> Dealt:
    """Split a table at random, four fifths to one.

    Args:
        table: Scaled into [0, 1].
        rng: Source of the split.
    """
    train, held_out = split(table, TEST_SHARE, rng)
    pairs = pairwise_distances(held_out.features, train.features).ravel()
    inside = min(PER_BALL * len(held_out), pairs.size) - 1
    radius = float(np.partition(pairs, inside)[inside])
    rows = Rows(train.features, train.labels)
    return Dealt(rows, held_out.features, held_out.labels, len(table.class_names), radius)


def queries_dealt(table: Table) -> int:
    """Return how many queries a split has."""
    return min(max(1, round(TEST_SHARE * len(table))), len(table) - 1)


ACCURACY: Final = "accuracy"
OPEN: Final = "non-private"
BASELINE: Final = "baseline"
PROPOSED: Final = "proposed"
INTERACTIVE: Final = "interactive"
GRID: Final = "non-interactive"
DEFAULT: Final = "veilring's default"
MAJORITY: Final = "majority class"

# The size of the batch where it is not the axis (Section 5.3).
QUERIES: Final = 100
# In which curves are drawn, so that one has the same colour in all but the last figure.
_ORDER: Final = (OPEN, BASELINE, PROPOSED, GRID, DEFAULT, MAJORITY, INTERACTIVE)
# How many queries of a split are asked in all, where batches are smaller.
_ASKED: Final = 400


def accuracy_over_batch(epsilon: float) -> Observe:
    """Return what measures the accuracy of r-N over the number of queries in a batch.

    Small batches are asked several of, each under a budget of its own, so that their accuracy is
    an average over as many queries as that of larger ones.

    Args:
        epsilon: The budget of a batch.
    """

    def observe(
        table: Table, x: Sequence[float], rng: Generator
    ) -> Mapping[CurveKey, Sequence[float]]:
        dealt = deal(table, rng)
        modes = {
            BASELINE: RNParameters.baseline(epsilon, dealt.classes),
            PROPOSED: RNParameters.paper(epsilon, dealt.classes),
            DEFAULT: RNParameters(epsilon, dealt.classes),
        }
        curves: dict[CurveKey, list[float]] = {}
        for size in map(int, x):
            asked = size * max(1, min(_ASKED, len(dealt.queries)) // size)
            queries, radii = dealt.queries[:asked], dealt.radii(asked)
            found = {OPEN: label_openly(queries, radii, dealt.rows, dealt.classes, rng)}
            for name, mode in modes.items():
                found[name] = _in_batches(dealt, asked, size, mode, rng)
            _add(curves, dealt, found, asked)
        return curves

    return observe


def accuracy_over_k(epsilon: float) -> Observe:
    """Return what measures the accuracy of k-N over k, for a batch of `QUERIES`.

    Args:
        epsilon: The budget of a batch.
    """

    def observe(
        table: Table, x: Sequence[float], rng: Generator
    ) -> Mapping[CurveKey, Sequence[float]]:
        dealt = deal(table, rng)
        curves: dict[CurveKey, list[float]] = {}
        for k in map(int, x):
            found = _nearest(dealt, epsilon, k, rng)
            queries = dealt.queries[:QUERIES]
            found[BASELINE] = label_nearest_baseline(
                queries, dealt.rows, k, dealt.classes, epsilon, rng
            )
            found[INTERACTIVE] = _paper(dealt, epsilon, k, ByCandidates.paper(), rng)
            _add(curves, dealt, found, len(queries))
        return curves

    return observe


def accuracy_over_epsilon(k: int) -> Observe:
    """Return what measures the accuracy of k-N over the budget, for a batch of `QUERIES`.

    Args:
        k: How many neighbours are wanted.
    """

    def observe(
        table: Table, x: Sequence[float], rng: Generator
    ) -> Mapping[CurveKey, Sequence[float]]:
        dealt = deal(table, rng)
        curves: dict[CurveKey, list[float]] = {}
        for epsilon in x:
            found = _nearest(dealt, epsilon, k, rng)
            _add(curves, dealt, found, len(found[OPEN]))
        return curves

    return observe


def _in_batches(
    dealt: Dealt, asked: int, size: int, mode: RNParameters, rng: Generator
) -> NDArray[np.int64]:
    """Return the labels of the first queries, asked in batches of this size."""
    batches = (dealt.queries[first : first + size] for first in range(0, asked, size))
    radii = dealt.radii(size)
    return np.concatenate([label_within(each, radii, dealt.rows, mode, rng) for each in batches])


def _nearest(dealt: Dealt, epsilon: float, k: int, rng: Generator) -> dict[str, NDArray[np.int64]]:
    """Return the labels of k-N without privacy, by the paper's grid, and by the default."""
    queries, rows, classes = dealt.queries[:QUERIES], dealt.rows, dealt.classes
    mode = NearestParameters.halves(epsilon, k, classes, len(rows))
    return {
        OPEN: nearest_votes(queries, rows, k, classes).argmax(axis=1),
        GRID: _paper(dealt, epsilon, k, ByGrid(), rng),
        DEFAULT: label_nearest(queries, rows, mode, rng).labels,
    }


def _paper(
    dealt: Dealt, epsilon: float, k: int, conversion: Conversion, rng: Generator
) -> NDArray[np.int64]:
    mode = NearestParameters.paper(epsilon, k, dealt.classes, len(dealt.rows), conversion)
    return label_nearest(dealt.queries[:QUERIES], dealt.rows, mode, rng).labels


def _add(
    curves: dict[CurveKey, list[float]],
    dealt: Dealt,
    found: Mapping[str, NDArray[np.int64]],
    queries: int,
) -> None:
    """Add a point to each curve, and to that of the majority class."""
    each = {name: dealt.accuracy(labels) for name, labels in found.items()}
    each[MAJORITY] = dealt.majority(queries)
    for name in filter(each.__contains__, _ORDER):
        curves.setdefault(CurveKey(ACCURACY, name), []).append(each[name])


RADIUS_ERROR: Final = "AvRE"
ROWS_ERROR: Final = "RMSE"
ALLOCATED: Final = "veilring's interactive"
K: Final = 30

_CONVERSIONS: Final[Mapping[str, Conversion]] = {
    INTERACTIVE: ByCandidates.paper(),
    GRID: ByGrid(),
    ALLOCATED: ByCandidates(),
}


def conversion_over_epsilon(measure: str) -> Observe:
    """Return what measures one of the two errors of each conversion over its budget.

    Args:
        measure: `RADIUS_ERROR`: the mean of |r' - r| / r in per cent; or `ROWS_ERROR`: the root of
            the mean of (k' - k)^2, where k' rows are within r'.
    """

    def observe(
        table: Table, x: Sequence[float], rng: Generator
    ) -> Mapping[CurveKey, Sequence[float]]:
        dealt = deal(table, rng)
        queries = dealt.queries[:QUERIES]
        k = min(K, len(dealt.rows))
        true = true_radii(queries, dealt.rows.features, k)
        curves: dict[CurveKey, list[float]] = {}
        for epsilon in x:
            for name, how in _CONVERSIONS.items():
                found = convert_to_radii(
                    queries, dealt.rows, k, how, rng, epsilon=epsilon, known_rows=len(dealt.rows)
                )
                if measure == RADIUS_ERROR:
                    # A query that k rows equal has a true radius of 0, and no relative error.
                    far = true > 0
                    error = 100 * (np.abs(found - true)[far] / true[far]).mean()
                else:
                    rows = count_votes(queries, found, dealt.rows, dealt.classes).sum(axis=1)
                    error = np.sqrt(((rows - k) ** 2).mean())
                curves.setdefault(CurveKey(measure, name), []).append(float(error))
        return curves

    return observe


_SPLITS: Final = 20
_BATCHES: Final = (25, 50, 100, 200, 400, 800)
_KS: Final = (5, 10, 20, 30, 50, 75, 100)
_CONVERSION_EPSILONS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
_EPSILONS: Final = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
_BUDGETS: Final = (0.5, 1.0, 2.0)
_REALISTIC: Final = 0.5  # the least budget that the paper calls realistic for a conversion
_AS_GOOD: Final = -0.01  # one query in a hundred
_SMALL: Final = 0.5  # the budget at which the baseline is said to guess
_ACCURACY_AXIS: Final = {ACCURACY: Axis("accuracy, share of held-out rows")}
_ERRORS: Final = {
    RADIUS_ERROR: Axis("AvRE of the radius, per cent", low=0.0),
    ROWS_ERROR: Axis("RMSE of the number of rows", low=0.0),
}


def _source(number: int, section: str) -> str:
    paper = "Differentially private nearest neighbor classification"
    return f'Gursoy et al., "{paper}", 2017, Figure {number} (Section {section})'


def _batches(table: Table, quick: bool) -> tuple[float, ...]:  # noqa: FBT001  (of every grid)
    """Return the batches that a split has queries for, and one of all of them."""
    largest = min(queries_dealt(table), _BATCHES[-1])
    points = [*(size for size in _BATCHES if size < largest), largest]
    return coarser(points) if quick else tuple(points)


def _ks(table: Table, quick: bool) -> tuple[float, ...]:  # noqa: FBT001  (of every grid)
    """Return those k that leave a choice among the rows of a split."""
    rows = len(table) - queries_dealt(table)
    points = [k for k in _KS if 2 * k <= rows] or [1]
    return coarser(points) if quick else tuple(points)


def _above(one: str, other: str, x: str) -> Claim:
    return above(
        f"the {one} classifier is more accurate than the {other}",
        f"accuracy of the {one} less that of the {other}, at every {x},",
        0.0,
        lead(ACCURACY, one, other, x),
    )


def _as_good(other: str, x: str) -> Claim:
    return above(
        f"{DEFAULT}, under the same budget, is at least as accurate as the {other} (not the "
        "paper's claim)",
        f"accuracy of {DEFAULT} less that of the {other}, at every {x},",
        _AS_GOOD,
        lead(ACCURACY, DEFAULT, other, x),
    )


_FALLS: Final = below(
    "the proposed classifier suffers from more queries",
    "accuracy with the most queries less that with the fewest",
    0.0,
    change(ACCURACY, PROPOSED),
)
_GUESSES: Final = below(
    "with many queries the baseline approaches a random guess",
    "accuracy of the baseline less that of the majority class, from 100 queries on,",
    0.05,
    lead(ACCURACY, BASELINE, MAJORITY, "|X|", since=100),
)


_ACCURATE: Final = below(
    "with a realistic budget a conversion errs by less than 30 per cent",
    f"AvRE of the non-interactive, from {_REALISTIC} on,",
    30.0,
    values(RADIUS_ERROR, GRID, "epsilon", since=_REALISTIC),
)


def _over_batch(number: int, epsilon: float) -> Figure:
    lasting = (_GUESSES,) if epsilon == _SMALL else ()
    return Figure(
        name=f"radius/figure-{number}",
        title=f"r-N classification against the number of queries, epsilon = {epsilon:g}",
        source=_source(number, "5.1"),
        setting=f"epsilon = {epsilon:g} a batch; chosen: {PER_BALL} rows a ball on average",
        x=Axis("|X|, queries in a batch", is_log=True),
        measures=_ACCURACY_AXIS,
        grid=_batches,
        observe=accuracy_over_batch(epsilon),
        claims=(
            _above(PROPOSED, BASELINE, "|X|"),
            _FALLS,
            *lasting,
            _as_good(PROPOSED, "|X|"),
        ),
        splits=_SPLITS,
    )


def _of_conversion(number: int, measure: str) -> Figure:
    return Figure(
        name=f"radius/figure-{number}",
        title=f"From k to a radius under privacy: {measure}",
        source=_source(number, "5.2"),
        setting=f"k = {K}, {QUERIES} queries a batch",
        x=Axis("epsilon of the conversion", is_log=True),
        measures={measure: _ERRORS[measure]},
        grid=points_at(_CONVERSION_EPSILONS),
        observe=conversion_over_epsilon(measure),
        claims=(
            below(
                "with a realistic budget the non-interactive conversion is the better one",
                f"{measure} of it less that of the interactive, from {_REALISTIC} on,",
                0.0,
                lead(measure, GRID, INTERACTIVE, "epsilon", since=_REALISTIC),
            ),
            below(
                "a larger budget makes conversions more accurate",
                f"{measure} with the largest budget less that with the smallest, of both,",
                0.0,
                change(measure, GRID, INTERACTIVE),
            ),
            *((_ACCURATE,) if measure == RADIUS_ERROR else ()),
        ),
        splits=_SPLITS,
    )


def _over_k(number: int, epsilon: float) -> Figure:
    return Figure(
        name=f"radius/figure-{number}",
        title=f"k-N classification against k, epsilon = {epsilon:g}",
        source=_source(number, "5.3"),
        setting=f"epsilon = {epsilon:g} a batch of {QUERIES} queries, half of it for conversion",
        x=Axis("k, neighbours wanted"),
        measures=_ACCURACY_AXIS,
        grid=_ks,
        observe=accuracy_over_k(epsilon),
        claims=(
            _above(GRID, BASELINE, "k"),
            _above(INTERACTIVE, BASELINE, "k"),
            _as_good(GRID, "k"),
        ),
        splits=_SPLITS,
    )


RADIUS_FIGURES: Final = (
    *(_over_batch(7 + place, epsilon) for place, epsilon in enumerate(_BUDGETS)),
    _of_conversion(10, RADIUS_ERROR),
    _of_conversion(11, ROWS_ERROR),
    *(_over_k(12 + place, epsilon) for place, epsilon in enumerate(_BUDGETS)),
    Figure(
        name="radius/figure-15",
        title="k-N classification against epsilon",
        source=_source(15, "5.4"),
        setting=f"k = {K}, {QUERIES} queries a batch, half of it for conversion; no rivals",
        x=Axis("epsilon of a batch"),
        measures=_ACCURACY_AXIS,
        grid=points_at(_EPSILONS),
        observe=accuracy_over_epsilon(K),
        claims=(
            above(
                "a larger budget makes private k-N more accurate",
                "accuracy at the largest epsilon less that at the smallest",
                0.0,
                change(ACCURACY, GRID),
            ),
            _above(GRID, MAJORITY, "epsilon"),
            _as_good(GRID, "epsilon"),
        ),
        splits=_SPLITS,
    ),
)
"""In the order of the paper."""

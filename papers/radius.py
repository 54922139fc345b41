"""Figures 7 to 15 of Gursoy et al., "Differentially private nearest neighbor classification", 2017.

Given in the paper: the figures' axes and budgets, 20 repetitions, four fifths of a table private,
w = 1/2, ten candidates, gamma = 0.01 %, 100 queries and k = 30 where they are not the axis. It sets
the radius "so that on average, a test instance would have between 5 and 20 training instances" in
its ball. Chosen here: 20, over all held-out rows; the points on the axes, Laplace noise in the vote
(Algorithm 1), and the bounds that make "approaches a random guess" and "accurate" testable.
Features are scaled by the table's own bounds, which count as public; so does the number of rows.

Not reproduced: PrivBayes, whose only packages are unmaintained, and figure 15's baselines, which
diffprivlib has, but not for current versions of scikit-learn.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from numpy.random import Generator

from papers.claims import Claim, CurveKey, above, below
from papers.evidence import changes, heights, in_measure, leads, since
from papers.figure import (
    ACCURACY,
    MAJORITY_CLASS,
    Axis,
    Figure,
    HoldOut,
    Observe,
    accuracy_points,
    cited,
    draw_hold_out,
    held_out_rows,
    point_by_point,
    points_at,
    points_of,
)
from papers.owner import (
    PaperVotes,
    convert_as_paper,
    label_as_paper,
    label_nearest_baseline,
    label_openly,
    nearest_votes,
    true_radii,
)
from veilring.arrays import Floats, Ints
from veilring.data.table import Rows, Table, pairwise_distances
from veilring.protocols.radius.algorithm.balls import count_votes
from veilring.protocols.radius.algorithm.conversion import (
    ByCandidates,
    ByGrid,
    Conversion,
    convert_to_radii,
)
from veilring.protocols.radius.algorithm.nearest import (
    BudgetParts,
    NearestParameters,
    label_nearest,
    label_within,
)

NON_PRIVATE: Final = "non-private"
BASELINE: Final = "baseline"
PROPOSED: Final = "proposed"
INTERACTIVE: Final = "interactive"
NON_INTERACTIVE: Final = "non-interactive"
DEFAULT: Final = "veilring's default"
ALLOCATED: Final = "veilring's interactive"
PER_BALL: Final = 20
_PAPER: Final = 'Gursoy et al., "Differentially private nearest neighbor classification", 2017'
_TEST_SHARE: Final = 0.2
# The size of the batch if it is not the axis (Section 5.3).
_QUERIES: Final = 100
# The total number of queries of a split if batches are smaller.
_ASKED: Final = 400
_K: Final = 30
# The order of curves, so that each has the same colour in all figures except the last.
_ORDER: Final = (
    NON_PRIVATE,
    BASELINE,
    PROPOSED,
    NON_INTERACTIVE,
    DEFAULT,
    MAJORITY_CLASS,
    INTERACTIVE,
)
_CONVERSIONS: Final[Mapping[str, Conversion]] = {
    NON_INTERACTIVE: ByGrid(),
    ALLOCATED: ByCandidates(),
}

_Labels = Mapping[str, Ints]


_Label = Callable[[Floats, Floats, Rows, Generator], Ints]


class OwnerSplit(NamedTuple):
    """One random split into an owner's rows and an analyst's queries.

    Attributes:
        split: The rows and the queries, as tables.
        rows: The owner's rows.
        radius: The radius within which a query has `PER_BALL` rows on average.
    """

    split: HoldOut
    rows: Rows
    radius: float

    @property
    def queries(self) -> Floats:
        """Shape (Q, f)."""
        return self.split.held_out.X

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.split.train.features.classes)

    def radii(self, queries: int) -> Floats:
        """Return the same radius for each of some queries."""
        return np.full(queries, self.radius)


def split_for_owner(table: Table, rng: Generator) -> OwnerSplit:
    """Split a table, scaled into [0, 1], at random, four fifths to one."""
    split = draw_hold_out(table, _TEST_SHARE, rng)
    train, held_out = split
    pairs = pairwise_distances(held_out.X, train.X).ravel()
    inside = min(PER_BALL * len(held_out), pairs.size) - 1
    radius = float(np.partition(pairs, inside)[inside])
    return OwnerSplit(split, Rows(train.X, train.y), radius)


def _accuracies(each: OwnerSplit, found: _Labels, queries: int) -> Mapping[CurveKey, float]:
    """Return a point of each curve, and of the majority class."""
    shares = {name: each.split.accuracy(labels) for name, labels in found.items()}
    shares[MAJORITY_CLASS] = each.split.majority(queries)
    return accuracy_points({name: shares[name] for name in _ORDER if name in shares})


def _accuracy_over_batch(epsilon: float) -> Observe:
    """Return a function that measures the accuracy of r-N over the number of queries in a batch.

    Small batches are repeated, each under its own budget, so that their accuracy is an average over
    about the same number of queries as for larger ones.

    Args:
        epsilon: The budget of a batch.
    """

    def observe(each: OwnerSplit, x: float, rng: Generator) -> Mapping[CurveKey, float]:
        size, classes = int(x), each.classes
        asked = size * max(1, min(_ASKED, len(each.queries)) // size)
        queries, radii = each.queries[:asked], each.radii(size)
        modes: Mapping[str, _Label] = {
            BASELINE: PaperVotes.baseline(epsilon, classes).label,
            PROPOSED: PaperVotes.proposed(epsilon, classes).label,
            DEFAULT: partial(label_within, epsilon=epsilon, classes=classes),
        }
        found = {NON_PRIVATE: label_openly(queries, each.radii(asked), each.rows, classes, rng)}
        for name, mode in modes.items():
            batches = (queries[first : first + size] for first in range(0, asked, size))
            labels = [mode(batch, radii, each.rows, rng) for batch in batches]
            found[name] = np.concatenate(labels)
        return _accuracies(each, found, asked)

    return point_by_point(split_for_owner, observe)


def _accuracy_of_nearest(k: int | None = None, epsilon: float | None = None) -> Observe:
    """Return a function that measures the accuracy of k-N for a batch, over k or over the budget.

    Args:
        k: The number of neighbours; by default the axis.
        epsilon: The budget of a batch; by default the axis.
    """

    def observe(each: OwnerSplit, x: float, rng: Generator) -> Mapping[CurveKey, float]:
        wanted, budget = k or int(x), epsilon or x
        queries, rows, classes = each.queries[:_QUERIES], each.rows, each.classes

        as_paper = partial(label_as_paper, queries, rows, wanted, classes, budget, rng)
        halves = NearestParameters(
            wanted, classes, BudgetParts(0.0, budget / 2, budget / 2), len(rows)
        )
        found = {
            NON_PRIVATE: nearest_votes(queries, rows, wanted, classes).argmax(axis=1),
            NON_INTERACTIVE: as_paper(grid=True),
            DEFAULT: label_nearest(queries, rows, halves, rng).labels,
        }
        if k is None:
            found[BASELINE] = label_nearest_baseline(queries, rows, wanted, classes, budget, rng)
            found[INTERACTIVE] = as_paper(grid=False)
        return _accuracies(each, found, len(queries))

    return point_by_point(split_for_owner, observe)


def _conversion_error(measure: str) -> Observe:
    """Return a function that measures an error of each conversion over its budget.

    Args:
        measure: `_RADIUS_ERROR`: the mean of |r' - r| / r in per cent; or `_ROWS_ERROR`: the square
            root of the mean of (k' - k)^2, where k' rows are within r'.
    """

    def observe(each: OwnerSplit, epsilon: float, rng: Generator) -> Mapping[CurveKey, float]:
        queries, rows = each.queries[:_QUERIES], each.rows
        k = min(_K, len(rows))
        true = true_radii(queries, rows.features, k)
        errors = {}
        converted = {INTERACTIVE: convert_as_paper(queries, rows, k, rng, epsilon=epsilon)}
        for name, how in _CONVERSIONS.items():
            converted[name] = convert_to_radii(
                queries, rows, k, how, rng, epsilon=epsilon, known_rows=len(rows)
            )
        for name, found in converted.items():
            if measure == _RADIUS_ERROR:
                # A query that equals k rows has a true radius of 0, and no relative error.
                far = true > 0
                error = 100 * (np.abs(found - true)[far] / true[far]).mean()
            else:
                inside = count_votes(queries, found, rows, each.classes).sum(axis=1)
                error = np.sqrt(((inside - k) ** 2).mean())
            errors[CurveKey(measure, name)] = float(error)
        return errors

    return point_by_point(split_for_owner, observe)


_SPLITS: Final = 20
_BATCHES: Final = (25, 50, 100, 200, 400, 800)
_KS: Final = (5, 10, 20, 30, 50, 75, 100)
_CONVERSION_EPSILONS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
_EPSILONS: Final = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
_BUDGETS: Final = (0.5, 1.0, 2.0)
_REALISTIC: Final = 0.5  # the smallest budget that the paper calls realistic for a conversion
_AS_GOOD: Final = -0.01  # one query in a hundred
_SMALL: Final = 0.5  # the budget at which the baseline supposedly guesses
_RADIUS_ERROR: Final = "AvRE"
_ROWS_ERROR: Final = "RMSE"
_ACCURACY_AXIS: Final = {ACCURACY: Axis("accuracy, share of held-out rows")}
_ERRORS: Final = {
    _RADIUS_ERROR: Axis("AvRE of the radius, per cent", low=0.0),
    _ROWS_ERROR: Axis("RMSE of the number of rows", low=0.0),
}


def _batches(table: Table) -> Sequence[float]:
    """Return the batch sizes that a split has enough queries for, and one of all queries."""
    largest = min(held_out_rows(table, _TEST_SHARE), _BATCHES[-1])
    return [*(size for size in _BATCHES if size < largest), largest]


def _ks(table: Table) -> Sequence[float]:
    """Return the values of k that are below the number of rows of a split."""
    rows = len(table) - held_out_rows(table, _TEST_SHARE)
    return [k for k in _KS if 2 * k <= rows] or [1]


def _above(one: str, other: str, x: str) -> Claim:
    return above(
        f"the {one} classifier is more accurate than the {other}",
        f"accuracy of the {one} minus that of the {other}, at every {x},",
        0.0,
        leads(in_measure(ACCURACY, (one, other)), x=x),
    )


def _as_good(other: str, x: str) -> Claim:
    return above(
        f"{DEFAULT}, under the same budget, is at least as accurate as the {other} (not the "
        "paper's claim)",
        f"accuracy of {DEFAULT} minus that of the {other}, at every {x},",
        _AS_GOOD,
        leads(in_measure(ACCURACY, (DEFAULT, other)), x=x),
    )


_FALLS: Final = below(
    "the proposed classifier suffers from more queries",
    "accuracy with the most queries minus that with the fewest",
    0.0,
    changes(ACCURACY, PROPOSED),
)
_GUESSES: Final = below(
    "with many queries the baseline approaches a random guess",
    "accuracy of the baseline minus that of the majority class, from 100 queries on,",
    0.05,
    leads(in_measure(ACCURACY, (BASELINE, MAJORITY_CLASS)), at=since(100), x="|X|"),
)
_ACCURATE: Final = below(
    "with a realistic budget a conversion errs by less than 30 per cent",
    f"AvRE of the non-interactive, from {_REALISTIC} on,",
    30.0,
    heights(_RADIUS_ERROR, NON_INTERACTIVE, at=since(_REALISTIC), x="epsilon"),
)


def _over_batch(number: int, epsilon: float) -> Figure:
    return Figure(
        name=f"radius/figure-{number}",
        title=f"r-N classification against the number of queries, epsilon = {epsilon:g}",
        source=cited(_PAPER, str(number), "5.1"),
        setting=f"epsilon = {epsilon:g} a batch; chosen: {PER_BALL} rows a ball on average",
        x=Axis("|X|, queries in a batch", is_log=True),
        measures=_ACCURACY_AXIS,
        grid=points_of(_batches),
        observe=_accuracy_over_batch(epsilon),
        claims=(
            _above(PROPOSED, BASELINE, "|X|"),
            _FALLS,
            *((_GUESSES,) if epsilon == _SMALL else ()),
            _as_good(PROPOSED, "|X|"),
        ),
        splits=_SPLITS,
    )


def _of_conversion(number: int, measure: str) -> Figure:
    return Figure(
        name=f"radius/figure-{number}",
        title=f"Private conversion of k to a radius: {measure}",
        source=cited(_PAPER, str(number), "5.2"),
        setting=f"k = {_K}, {_QUERIES} queries a batch",
        x=Axis("epsilon of the conversion", is_log=True),
        measures={measure: _ERRORS[measure]},
        grid=points_at(_CONVERSION_EPSILONS),
        observe=_conversion_error(measure),
        claims=(
            below(
                "with a realistic budget the non-interactive conversion is the better one",
                f"{measure} of it minus that of the interactive, from {_REALISTIC} on,",
                0.0,
                leads(
                    in_measure(measure, (NON_INTERACTIVE, INTERACTIVE)),
                    at=since(_REALISTIC),
                    x="epsilon",
                ),
            ),
            below(
                "a larger budget makes conversions more accurate",
                f"{measure} with the largest budget minus that with the smallest, of both,",
                0.0,
                changes(measure, NON_INTERACTIVE, INTERACTIVE),
            ),
            *((_ACCURATE,) if measure == _RADIUS_ERROR else ()),
        ),
        splits=_SPLITS,
    )


def _over_k(number: int, epsilon: float) -> Figure:
    return Figure(
        name=f"radius/figure-{number}",
        title=f"k-N classification against k, epsilon = {epsilon:g}",
        source=cited(_PAPER, str(number), "5.3"),
        setting=f"epsilon = {epsilon:g} a batch of {_QUERIES} queries, half of it for conversion",
        x=Axis("k, neighbours wanted"),
        measures=_ACCURACY_AXIS,
        grid=points_of(_ks),
        observe=_accuracy_of_nearest(epsilon=epsilon),
        claims=(
            _above(NON_INTERACTIVE, BASELINE, "k"),
            _above(INTERACTIVE, BASELINE, "k"),
            _as_good(NON_INTERACTIVE, "k"),
        ),
        splits=_SPLITS,
    )


RADIUS_FIGURES: Final = (
    *(_over_batch(7 + place, epsilon) for place, epsilon in enumerate(_BUDGETS)),
    _of_conversion(10, _RADIUS_ERROR),
    _of_conversion(11, _ROWS_ERROR),
    *(_over_k(12 + place, epsilon) for place, epsilon in enumerate(_BUDGETS)),
    Figure(
        name="radius/figure-15",
        title="k-N classification against epsilon",
        source=cited(_PAPER, "15", "5.4"),
        setting=f"k = {_K}, {_QUERIES} queries a batch, half of it for conversion; no baselines",
        x=Axis("epsilon of a batch"),
        measures=_ACCURACY_AXIS,
        grid=points_at(_EPSILONS),
        observe=_accuracy_of_nearest(k=_K),
        claims=(
            above(
                "a larger budget makes private k-N more accurate",
                "accuracy at the largest epsilon minus that at the smallest",
                0.0,
                changes(ACCURACY, NON_INTERACTIVE),
            ),
            _above(NON_INTERACTIVE, MAJORITY_CLASS, "epsilon"),
            _as_good(NON_INTERACTIVE, "epsilon"),
        ),
        splits=_SPLITS,
    ),
)
"""In the order of the paper."""

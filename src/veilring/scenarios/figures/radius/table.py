"""Figures 7 to 15 as a table: how each is measured, and what the paper claims of it.

Given in the paper: the figures' axes and budgets, 20 repetitions, four fifths of a table private,
w = 1/2, ten candidates, gamma = 0.01 %, 100 queries and k = 30 where they are not the axis. Chosen
here, beside what `dealt` says: the points on the axes, Laplace noise in the vote (Algorithm 1), and
the bounds that make "approaches a random guess" and "accurate" testable.

Not drawn: PrivBayes, whose only packages are not kept up, and figure 15's rivals, which diffprivlib
has but not for the scikit-learn of today.
"""

from typing import Final

from veilring.data import Table
from veilring.scenarios.figures.claims import Claim, above, below
from veilring.scenarios.figures.evidence import change, lead, values
from veilring.scenarios.figures.grids import coarser, points_at
from veilring.scenarios.figures.model import Axis, Figure
from veilring.scenarios.figures.radius.accuracy import (
    ACCURACY,
    BASELINE,
    DEFAULT,
    GRID,
    INTERACTIVE,
    MAJORITY,
    PROPOSED,
    QUERIES,
    accuracy_over_batch,
    accuracy_over_epsilon,
    accuracy_over_k,
)
from veilring.scenarios.figures.radius.conversion import (
    RADIUS_ERROR,
    ROWS_ERROR,
    K,
    conversion_over_epsilon,
)
from veilring.scenarios.figures.radius.dealt import PER_BALL, queries_dealt

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


FIGURES: Final = (
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

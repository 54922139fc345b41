"""Figures 2 to 6 as a table: how each is measured, and what the paper claims of it.

Given in the paper: the figures' axes, P0 = 1, d = 0.5 and one round in figure 2, two rounds in
figure 6, and 100 random splits of three quarters to one. Chosen here, beside what `dealt` says: the
values of k, n, r and d on the axes; d = 0.5 in figures 3 and 5; k = 5, 10 and 20 in figures 3 and
4; two rounds in figures 4 and 5, as in figure 6; and the bounds that make "close", "as accurate"
and "a large range" testable.
"""

from collections.abc import Sequence
from typing import Final

from veilring.data import Table
from veilring.protocols.ring import KNNParameters
from veilring.scenarios.figures.claims import Claim, above, below
from veilring.scenarios.figures.evidence import (
    at_last,
    best_over_last,
    first_points,
    growth,
    lead_over_last,
    relative,
    slopes,
)
from veilring.scenarios.figures.grids import coarser, points_at
from veilring.scenarios.figures.model import Axis, Figure, Grid
from veilring.scenarios.figures.ring.accuracy import (
    ACCURACY,
    GAP,
    ORDINARY,
    PRIVATE,
    accuracy_over_k,
    gap_over,
)
from veilring.scenarios.figures.ring.dealt import DELTA, PARTIES, parameters_for, rows_dealt
from veilring.scenarios.figures.ring.leakage import ESTIMATORS, leakage_over_k

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


def _up_to_rows(values: Sequence[int], *, with_all: bool) -> Grid:
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


FIGURES: Final = (
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

"""What each figure of the paper shows, how it is measured here, and what the paper claims."""

from collections.abc import Callable
from functools import partial
from typing import Final

from veilring.data import Table, load_table
from veilring.protocols.prediction.algorithm.filter import QUERIES_MIN
from veilring.scenarios.figures.claims import Claim, above, below
from veilring.scenarios.figures.evidence import relative
from veilring.scenarios.figures.grids import points_at
from veilring.scenarios.figures.model import Axis, Figure, Grid, Subject
from veilring.scenarios.figures.prediction.accuracy import (
    ACCURACY,
    HASHED,
    best_threshold_growth,
    over_epsilon,
    over_queries,
    over_rows,
    over_threshold,
    with_hashing,
)
from veilring.scenarios.figures.prediction.cost import (
    EPSILON,
    IND_KNN,
    SECONDS,
    SGD,
    SGD_CHANGES,
    over_retraining,
    over_tables,
)
from veilring.scenarios.figures.prediction.cost import HASHED as HASHED_KNN
from veilring.scenarios.figures.prediction.cost import over_queries as cost_over_queries
from veilring.scenarios.figures.prediction.dealt import queries_dealt, rows_dealt
from veilring.scenarios.figures.prediction.methods import (
    GDP,
    NOISY_SGD,
    OPEN,
    PRIVATE_KNN,
    RDP,
)

_PAPER: Final = "Zhu, Zhao, Guo and Wang, Private Prediction Strikes Back, UAI 2023"
_SETTING: Final = (
    "δ = 1e-5; up to 800 queries; tuned on as many public ones, as in the paper; centred on these"
)
_EPSILON: Final = 1.0
_EPSILONS: Final = (0.5, 1.0, 1.5, 2.0)
_QUICK_EPSILONS: Final = (0.5, 1.0, 2.0)
_AT_EPSILONS: Final = points_at(_EPSILONS, _QUICK_EPSILONS)
_THRESHOLDS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
_HASH_TABLES: Final = (10.0, 20.0, 30.0)
_ACCURACY: Final = {ACCURACY: Axis("accuracy")}
_BETWEEN_MIN: Final = 2  # changes; and at most half of the stream, so that there is one
_E: Final = "ε"
SPLITS: Final = 5
"""As in the paper."""
_TABLES: Final = Subject(load_table, lambda table: table, "digits")
"""Features as they are: embeddings have no bounds, and only their directions count."""
_figure: Final = partial(Figure, subject=_TABLES, splits=SPLITS)


def _shares(count: Callable[[Table], int], shares: tuple[float, ...], least: int) -> Grid:
    """Return a grid of shares of a number that depends on the table."""

    def grid(table: Table, quick: bool) -> tuple[float, ...]:  # noqa: FBT001 (as `Grid` has it)
        used = shares[::2] if quick else shares
        return tuple(sorted({float(max(least, round(each * count(table)))) for each in used}))

    return grid


def _beats(at: str, x: str) -> Claim:
    """Return the claim that Ind-KNN beats Private-kNN, under the same accountant."""
    return above(
        f"Ind-KNN beats Private-kNN {at}",
        "accuracy of Ind-KNN (rdp) over that of Private-kNN",
        1.0,
        relative(ACCURACY, RDP, PRIVATE_KNN, x),
    )


FIGURES: Final = (
    _figure(
        name="prediction/figure-1",
        title="Accuracy over the length of the stream",
        source=f"{_PAPER}, Figure 1 (b)",
        setting=f"ε = {_EPSILON:g}, {_SETTING}",
        x=Axis("queries T", is_log=True),
        measures=_ACCURACY,
        grid=_shares(queries_dealt, (0.05, 0.125, 0.25, 0.5, 1.0), QUERIES_MIN),
        observe=over_queries(_EPSILON),
        claims=(_beats("for every number of queries", "T"),),
    ),
    _figure(
        name="prediction/figure-2",
        title="Accuracy over epsilon",
        source=f"{_PAPER}, Figures 1 (a) and 2",
        setting=_SETTING,
        x=Axis(_E),
        measures=_ACCURACY,
        grid=_AT_EPSILONS,
        observe=over_epsilon,
        claims=(
            _beats("at every epsilon", _E),
            above(
                "Ind-KNN is comparable to Linear NoisySGD",
                "accuracy of Ind-KNN (rdp) over that of NoisySGD",
                0.97,
                relative(ACCURACY, RDP, NOISY_SGD, _E),
            ),
            above(
                "exact Gaussian accounting gains accuracy (ours, not the paper's)",
                "accuracy under gdp over that under rdp",
                1.0,
                relative(ACCURACY, GDP, RDP, _E),
            ),
            above(
                "Ind-KNN is near the vote without privacy",
                "accuracy of Ind-KNN (gdp) over that without privacy",
                0.95,
                relative(ACCURACY, GDP, OPEN, _E),
            ),
        ),
    ),
    _figure(
        name="prediction/figure-3",
        title="The cost of change: retraining every Q queries",
        source=f"{_PAPER}, Figure 3",
        setting=(
            "ε = 1 for the stream of Ind-KNN, σ2 = 0.7, τ = 0.2, and for each training of 100 steps"
        ),
        x=Axis("queries between changes, Q", is_log=True),
        measures={SECONDS: Axis("wall-clock seconds a query", low=0.0), EPSILON: Axis(_E, low=0.0)},
        grid=_shares(queries_dealt, (0.05, 0.1, 0.2, 0.35, 0.5), _BETWEEN_MIN),
        observe=over_retraining,
        claims=(
            above(
                "retraining costs NoisySGD more privacy than Ind-KNN takes in all",
                "ε of NoisySGD over that of Ind-KNN, with one change or more",
                1.0,
                relative(EPSILON, SGD, IND_KNN, "Q"),
            ),
        ),
    ),
    _figure(
        name="prediction/figure-4",
        title="Hashing: accuracy with 30 tables of 8 hyperplanes",
        source=f"{_PAPER}, Figure 4",
        setting=_SETTING,
        x=Axis(_E),
        measures=_ACCURACY,
        grid=_AT_EPSILONS,
        observe=with_hashing,
        claims=(
            above(
                "hashing costs little accuracy",
                "accuracy hashed over that unhashed, with the same parameters",
                0.95,
                relative(ACCURACY, HASHED, GDP, _E),
            ),
        ),
    ),
    _figure(
        name="prediction/figure-5",
        title="Accuracy over the number of private rows",
        source=f"{_PAPER}, Figure 5",
        setting=f"ε = {_EPSILON:g}, {_SETTING}; rows repeat, as there",
        x=Axis("private rows N", is_log=True),
        measures=_ACCURACY,
        grid=_shares(rows_dealt, (0.25, 0.5, 1.0, 2.0, 4.0), QUERIES_MIN),
        observe=over_rows(_EPSILON),
        claims=(_beats("at every size", "N"),),
    ),
    _figure(
        name="prediction/table-1",
        title="What a query takes, and what the stream costs",
        source=f"{_PAPER}, Table 1",
        setting=(
            "ε = 1 a stream or a training; σ2 = 0.7, τ = 0.2; one block, or hashed and alone; "
            "up to 10 trainings for changes"
        ),
        x=Axis("queries T", is_log=True),
        measures={SECONDS: Axis("wall-clock seconds a query", low=0.0), EPSILON: Axis(_E, low=0.0)},
        grid=_shares(queries_dealt, (0.05, 0.125, 0.25, 0.5, 1.0), QUERIES_MIN),
        observe=cost_over_queries,
        claims=(
            below(
                "with changes NoisySGD takes longer than Ind-KNN",
                "seconds of Ind-KNN over those of NoisySGD with ten trainings",
                1.0,
                relative(SECONDS, IND_KNN, SGD_CHANGES, "T"),
            ),
        ),
    ),
    _figure(
        name="prediction/table-3",
        title="Hashing: seconds of a lone query",
        source=f"{_PAPER}, Table 3",
        setting="ε = 1, σ2 = 0.7, τ = 0.2, 8 hyperplanes a table",
        x=Axis("hash tables L"),
        measures={SECONDS: Axis("wall-clock seconds a query", low=0.0)},
        grid=points_at(_HASH_TABLES, _HASH_TABLES),
        observe=over_tables,
        claims=(
            below(
                "hashing makes a query several times faster",
                "seconds hashed over those unhashed",
                0.5,
                relative(SECONDS, HASHED_KNN, IND_KNN, "L"),
            ),
        ),
    ),
    _figure(
        name="prediction/table-5",
        title="Accuracy over the threshold",
        source=f"{_PAPER}, Table 5 and its appendix B",
        setting=f"σ2 tuned with τ; {_SETTING}",
        x=Axis("τ"),
        measures=_ACCURACY,
        grid=points_at(_THRESHOLDS, _THRESHOLDS),
        observe=over_threshold(_QUICK_EPSILONS),
        claims=(
            above(
                "the best threshold rises with epsilon",
                "best τ at ε = 2 less that at ε = 0.5",
                0.0,
                best_threshold_growth("ε = 0.5", "ε = 2"),
            ),
        ),
    ),
)

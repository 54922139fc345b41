"""What each figure of the paper shows, how it is measured here, and what the paper claims."""

from collections.abc import Callable
from functools import partial
from typing import Final

from veilring.data import Table, load_table
from veilring.scenarios.figures.claims import Claim
from veilring.scenarios.figures.evidence import relative
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

__all__ = ("FIGURES", "SPLITS")

_PAPER: Final = "Zhu, Zhao, Guo and Wang, Private Prediction Strikes Back, UAI 2023"
_SETTING: Final = (
    "δ = 1e-5; up to 800 queries; tuned on as many public ones, as in the paper; centred on these"
)
_EPSILON: Final = 1.0
_EPSILONS: Final = (0.5, 1.0, 1.5, 2.0)
_QUICK_EPSILONS: Final = (0.5, 1.0, 2.0)
_THRESHOLDS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
_HASH_TABLES: Final = (10.0, 20.0, 30.0)
_ACCURACY: Final = {ACCURACY: Axis("accuracy")}
_QUERIES_MIN: Final = 4
_E: Final = "ε"
SPLITS: Final = 5
"""As in the paper."""
_TABLES: Final = Subject(load_table, lambda table: table, "digits")
"""Features as they are: embeddings have no bounds, and only their directions count."""


def _epsilons(_table: Table, quick: bool) -> tuple[float, ...]:  # noqa: FBT001 (as `Grid` has it)
    return _QUICK_EPSILONS if quick else _EPSILONS


def _shares(count: Callable[[Table], int], shares: tuple[float, ...], least: int) -> Grid:
    """Return a grid of shares of a number that depends on the table."""

    def grid(table: Table, quick: bool) -> tuple[float, ...]:  # noqa: FBT001 (as `Grid` has it)
        used = shares[::2] if quick else shares
        return tuple(sorted({float(max(least, round(each * count(table)))) for each in used}))

    return grid


def _fixed(points: tuple[float, ...]) -> Grid:
    return lambda _table, _quick: points


_RELATIVE: Final = partial(relative, ACCURACY)

FIGURES: Final = (
    Figure(
        name="prediction/figure-1",
        title="Accuracy over the length of the stream",
        source=f"{_PAPER}, Figure 1 (b)",
        setting=f"ε = {_EPSILON:g}, {_SETTING}",
        x=Axis("queries T", is_log=True),
        measures=_ACCURACY,
        grid=_shares(queries_dealt, (0.05, 0.125, 0.25, 0.5, 1.0), _QUERIES_MIN),
        observe=over_queries(_EPSILON),
        subject=_TABLES,
        splits=SPLITS,
        claims=(
            Claim(
                "Ind-KNN beats Private-kNN for every number of queries",
                "accuracy of Ind-KNN (rdp) over that of Private-kNN",
                "above",
                1.0,
                _RELATIVE(RDP, PRIVATE_KNN, "T"),
            ),
        ),
    ),
    Figure(
        name="prediction/figure-2",
        title="Accuracy over epsilon",
        source=f"{_PAPER}, Figures 1 (a) and 2",
        setting=_SETTING,
        x=Axis(_E),
        measures=_ACCURACY,
        grid=_epsilons,
        observe=over_epsilon,
        subject=_TABLES,
        splits=SPLITS,
        claims=(
            Claim(
                "Ind-KNN beats Private-kNN at every epsilon",
                "accuracy of Ind-KNN (rdp) over that of Private-kNN",
                "above",
                1.0,
                _RELATIVE(RDP, PRIVATE_KNN, _E),
            ),
            Claim(
                "Ind-KNN is comparable to Linear NoisySGD",
                "accuracy of Ind-KNN (rdp) over that of NoisySGD",
                "above",
                0.97,
                _RELATIVE(RDP, NOISY_SGD, _E),
            ),
            Claim(
                "exact Gaussian accounting gains accuracy (ours, not the paper's)",
                "accuracy under gdp over that under rdp",
                "above",
                1.0,
                _RELATIVE(GDP, RDP, _E),
            ),
            Claim(
                "Ind-KNN is near the vote without privacy",
                "accuracy of Ind-KNN (gdp) over that without privacy",
                "above",
                0.95,
                _RELATIVE(GDP, OPEN, _E),
            ),
        ),
    ),
    Figure(
        name="prediction/figure-3",
        title="The cost of change: retraining every Q queries",
        source=f"{_PAPER}, Figure 3",
        setting=(
            "ε = 1 for the stream of Ind-KNN, σ2 = 0.7, τ = 0.2, and for each training of 100 steps"
        ),
        x=Axis("queries between changes, Q", is_log=True),
        measures={SECONDS: Axis("wall-clock seconds a query", low=0.0), EPSILON: Axis(_E, low=0.0)},
        grid=_shares(queries_dealt, (0.05, 0.125, 0.25, 0.5, 1.0), _QUERIES_MIN),
        observe=over_retraining,
        subject=_TABLES,
        splits=SPLITS,
        claims=(
            Claim(
                "retraining costs NoisySGD more privacy than Ind-KNN takes in all",
                "ε of NoisySGD over that of Ind-KNN",
                "above",
                0.99,
                relative(EPSILON, SGD, IND_KNN, "Q"),
            ),
        ),
    ),
    Figure(
        name="prediction/figure-4",
        title="Hashing: accuracy with 30 tables of 8 hyperplanes",
        source=f"{_PAPER}, Figure 4",
        setting=_SETTING,
        x=Axis(_E),
        measures=_ACCURACY,
        grid=_epsilons,
        observe=with_hashing,
        subject=_TABLES,
        splits=SPLITS,
        claims=(
            Claim(
                "hashing costs little accuracy",
                "accuracy hashed over that unhashed, with the same parameters",
                "above",
                0.95,
                _RELATIVE(HASHED, GDP, _E),
            ),
        ),
    ),
    Figure(
        name="prediction/figure-5",
        title="Accuracy over the number of private rows",
        source=f"{_PAPER}, Figure 5",
        setting=f"ε = {_EPSILON:g}, {_SETTING}; rows repeat, as there",
        x=Axis("private rows N", is_log=True),
        measures=_ACCURACY,
        grid=_shares(rows_dealt, (0.25, 0.5, 1.0, 2.0, 4.0), _QUERIES_MIN),
        observe=over_rows(_EPSILON),
        subject=_TABLES,
        splits=SPLITS,
        claims=(
            Claim(
                "Ind-KNN beats Private-kNN at every size",
                "accuracy of Ind-KNN (rdp) over that of Private-kNN",
                "above",
                1.0,
                _RELATIVE(RDP, PRIVATE_KNN, "N"),
            ),
        ),
    ),
    Figure(
        name="prediction/table-1",
        title="What a query takes, and what the stream costs",
        source=f"{_PAPER}, Table 1",
        setting=(
            "ε = 1 a stream or a training; σ2 = 0.7, τ = 0.2; one block, or hashed and alone; "
            "10 trainings for changes"
        ),
        x=Axis("queries T", is_log=True),
        measures={SECONDS: Axis("wall-clock seconds a query", low=0.0), EPSILON: Axis(_E, low=0.0)},
        grid=_shares(queries_dealt, (0.05, 0.125, 0.25, 0.5, 1.0), _QUERIES_MIN),
        observe=cost_over_queries,
        subject=_TABLES,
        splits=SPLITS,
        claims=(
            Claim(
                "with changes NoisySGD takes longer than Ind-KNN",
                "seconds of Ind-KNN over those of NoisySGD with ten trainings",
                "below",
                1.0,
                relative(SECONDS, IND_KNN, SGD_CHANGES, "T"),
            ),
        ),
    ),
    Figure(
        name="prediction/table-3",
        title="Hashing: seconds of a lone query",
        source=f"{_PAPER}, Table 3",
        setting="ε = 1, σ2 = 0.7, τ = 0.2, 8 hyperplanes a table",
        x=Axis("hash tables L"),
        measures={SECONDS: Axis("wall-clock seconds a query", low=0.0)},
        grid=_fixed(_HASH_TABLES),
        observe=over_tables,
        subject=_TABLES,
        splits=SPLITS,
        claims=(
            Claim(
                "hashing makes a query several times faster",
                "seconds hashed over those unhashed",
                "below",
                0.5,
                relative(SECONDS, HASHED_KNN, IND_KNN, "L"),
            ),
        ),
    ),
    Figure(
        name="prediction/table-5",
        title="Accuracy over the threshold",
        source=f"{_PAPER}, Table 5 and its appendix B",
        setting=f"σ2 tuned with τ; {_SETTING}",
        x=Axis("τ"),
        measures=_ACCURACY,
        grid=_fixed(_THRESHOLDS),
        observe=over_threshold(_QUICK_EPSILONS),
        subject=_TABLES,
        splits=SPLITS,
        claims=(
            Claim(
                "the best threshold rises with epsilon",
                "best τ at ε = 2 less that at ε = 0.5",
                "above",
                0.0,
                best_threshold_growth("ε = 0.5", "ε = 2"),
            ),
        ),
    ),
)

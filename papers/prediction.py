"""The figures of Zhu, Zhao, Guo and Wang, "Private prediction strikes back", UAI 2023.

The paper has 800 or 1,000 queries and the same number for validation. Chosen here: 800, or a fifth
of a smaller table. Features are directions from the mean of the validation queries, which is
public. As in the paper, every method is tuned by asking the validation queries of the private rows;
no accounting includes the leakage of that choice. The tuning grids are those of the paper, thinned
out. Only Ind-KNN has more than six choices: its two parameters depend on each other.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import ceil
from time import perf_counter
from typing import Final, TypeVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from papers.baselines import (
    ClassMeans,
    NoisySGD,
    SampledKNN,
    answer_by_private_knn,
    best_class,
    kernel_vote,
    release_sums,
    train_noisy_sgd,
)
from papers.claims import Claim, CurveKey, Evidence, Measured, Take, above, below
from papers.evidence import ratios
from papers.figure import (
    ACCURACY,
    Axis,
    DataKind,
    Figure,
    Observe,
    PointsFor,
    accuracy_points,
    point_by_point,
    points_at,
    points_of,
)
from papers.tuning import PublicTable, best_tau, stream_accuracy, tune_parameters
from veilring.arrays import Ints
from veilring.data.sources import load
from veilring.data.table import Table
from veilring.errors import InputError
from veilring.privacy.accounting import Accountant, individual_budget
from veilring.privacy.budgets import budget_units
from veilring.protocols.prediction.algorithm.directions import Hashing, Kernel, quantise
from veilring.protocols.prediction.algorithm.filter import STREAM_QUERIES_MIN, FilterParameters
from veilring.protocols.prediction.algorithm.predictor import Predictor

GDP: Final = "Ind-KNN, gdp"
RDP: Final = "Ind-KNN, rdp"
PRIVATE_KNN: Final = "Private-kNN"
NOISY_SGD: Final = "NoisySGD"
CLASS_MEANS: Final = "DP class means"
NO_PRIVACY: Final = "no privacy"
HASHED: Final = "hashed"
COST_EPSILON: Final = "epsilon"
SECONDS: Final = "seconds"
IND_KNN: Final = "Ind-KNN"
IND_KNN_HASHED: Final = "Ind-KNN, hashed"
SGD_CHANGES: Final = "NoisySGD, changes"
_DELTA: Final = 1e-5
_QUERIES_MAX: Final = 800  # as for two of the paper's tables
_ROWS_MIN: Final = 20  # or a fifth of them is fewer than the 4 queries that Ind-KNN needs
_COSINE: Final = Kernel("cosine")
_SIGMAS: Final = (0.2, 0.3, 0.45, 0.7, 1.2, 2.0)
_STEP: Final = 0.05
_NEIGHBOURS: Final = (50, 150, 400)
_RATES: Final = (0.05, 0.2)
_LEARNING_RATES: Final = (1.0, 3.0)
_SGD_STEPS: Final = 100
_SGD_RATE: Final = 0.1
_SGD_LEARNING_RATE: Final = 2.0  # if it is not tuned

_Option = TypeVar("_Option")


@dataclass(frozen=True, slots=True, eq=False)
class StreamSplit:
    """One random split; all features are quantised.

    Attributes:
        validation: The private rows, and the queries to tune on.
        stream: The same rows, and the queries that count.
        classes: The number of classes.
    """

    validation: PublicTable
    stream: PublicTable
    classes: int

    @property
    def rows(self) -> NDArray[np.float32]:
        """The private rows, shape (rows, features)."""
        return self.stream.rows

    @property
    def labels(self) -> Ints:
        """The labels of the private rows, shape (rows,)."""
        return self.stream.labels

    def first(self, queries: int) -> "StreamSplit":
        """Return the same split with only the first queries of either kind."""
        return self._changed(
            lambda on: replace(on, queries=on.queries[:queries], truth=on.truth[:queries])
        )

    def repeated(self, rows: int) -> "StreamSplit":
        """Return the same split with this number of rows: the first ones, or all repeated."""
        places = np.arange(rows) % len(self.rows)
        return self._changed(lambda on: replace(on, rows=on.rows[places], labels=on.labels[places]))

    def blocks(self, size: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Return the stream's queries in blocks, each with its number from 0."""
        queries = self.stream.queries
        return enumerate(queries[first : first + size] for first in range(0, len(queries), size))

    def _changed(self, change: Callable[[PublicTable], PublicTable]) -> "StreamSplit":
        return StreamSplit(change(self.validation), change(self.stream), self.classes)


def stream_queries(table: Table) -> int:
    """Return the number of queries of a split, which is also the number for validation."""
    return min(_QUERIES_MAX, len(table) // 5)


def private_rows(table: Table) -> int:
    """Return the number of private rows of a split."""
    return len(table) - 2 * stream_queries(table)


def split_for_stream(table: Table, rng: Generator) -> StreamSplit:
    """Split a table at random into private rows, validation queries that are public, and a stream.

    Raises:
        InputError: If it is too small.
    """
    if len(table) < _ROWS_MIN:
        raise InputError.because(
            f"the table has {len(table)} rows; at least {_ROWS_MIN} are needed", field="table"
        )
    order, queries = rng.permutation(len(table)), stream_queries(table)
    asked, tried, kept = np.split(order, [queries, 2 * queries])
    lengths = np.linalg.norm(table.X[tried], axis=1, keepdims=True)
    origin = (table.X[tried] / lengths).mean(axis=0)
    rows, known = quantise(table.X[kept], origin), table.y[kept]
    validation, stream = (
        PublicTable(rows, known, quantise(table.X[some], origin), table.y[some])
        for some in (tried, asked)
    )
    return StreamSplit(validation, stream, len(table.features.classes))


# Each method, tuned on validation queries and then asked the stream: its accuracy there.


def _tuned(each: StreamSplit, epsilon: float, rng: Generator) -> tuple[FilterParameters, Kernel]:
    """Return the parameters of Ind-KNN that do best on the validation queries."""
    budget = individual_budget(epsilon, _DELTA, "gdp")
    parameters = FilterParameters(each.classes, len(each.stream.queries), budget, sigma2=1.0)
    best = tune_parameters(each.validation, parameters, _COSINE, rng, sigmas=_SIGMAS, step=_STEP)[0]
    return replace(parameters, sigma2=best.sigma2), replace(_COSINE, tau=best.tau)


def _ind_knn(each: StreamSplit, epsilon: float, rng: Generator) -> dict[str, float]:
    """Return the accuracies under both accountants, tuned once."""
    parameters, kernel = _tuned(each, epsilon, rng)
    accountants: dict[str, Accountant] = {GDP: "gdp", RDP: "rdp"}
    return {
        series: stream_accuracy(
            each.stream,
            replace(parameters, budget=individual_budget(epsilon, _DELTA, by)),
            kernel,
            rng,
        )
        for series, by in accountants.items()
    }


def _private_vote(each: StreamSplit, epsilon: float, rng: Generator) -> float:
    def labels(option: tuple[int, float], on: PublicTable) -> Ints:
        parameters = SampledKNN.calibrate(
            each.classes, *option, queries=len(each.stream.queries), epsilon=epsilon, delta=_DELTA
        )
        return answer_by_private_knn(parameters, on.rows, on.labels, on.queries, rng)

    return _best(each, product(_NEIGHBOURS, _RATES), labels)


def _noisy_sgd(each: StreamSplit, epsilon: float, rng: Generator) -> float:
    options = [_sgd_parameters(each, epsilon, rate) for rate in _LEARNING_RATES]
    weights = [train_noisy_sgd(option, each.rows, each.labels, rng) for option in options]
    return _best(each, weights, lambda option, on: best_class(on.queries, option))


def _sgd_parameters(
    each: StreamSplit, epsilon: float, learning_rate: float = _SGD_LEARNING_RATE
) -> NoisySGD:
    """Return the parameters of one training on the private rows."""
    batch = _SGD_RATE * len(each.rows)
    made = NoisySGD(each.classes, _SGD_STEPS, _SGD_RATE, batch, learning_rate=learning_rate)
    return made.calibrate(epsilon, _DELTA)


def class_means_accuracy(each: StreamSplit, epsilon: float, rng: Generator) -> float:
    """Return the accuracy of the released sums, which have no parameters to tune."""
    parameters = ClassMeans.calibrate(each.classes, epsilon, _DELTA)
    sums = release_sums(parameters, each.rows, each.labels, rng)
    return _share_right(best_class(each.stream.queries, sums), each.stream)


def open_vote_accuracy(each: StreamSplit) -> float:
    """Return the accuracy of the vote without privacy, with its own best threshold."""
    kernel = replace(_COSINE, tau=best_tau(each.validation, _COSINE, each.classes))
    on = each.stream
    return _share_right(kernel_vote(on.rows, on.labels, on.queries, kernel, each.classes), on)


def _share_right(labels: Ints, on: PublicTable) -> float:
    return float((labels == on.truth).mean())


def _best(
    each: StreamSplit, options: Iterable[_Option], labels: Callable[[_Option, PublicTable], Ints]
) -> float:
    """Return the accuracy of the option that does best on the validation queries."""
    tried, on = list(options), each.validation
    best = max(tried, key=lambda option: _share_right(labels(option, on), on))
    return _share_right(labels(best, each.stream), each.stream)


def _all_methods(each: StreamSplit, epsilon: float, rng: Generator) -> dict[CurveKey, float]:
    return accuracy_points(
        {
            **_ind_knn(each, epsilon, rng),
            PRIVATE_KNN: _private_vote(each, epsilon, rng),
            NOISY_SGD: _noisy_sgd(each, epsilon, rng),
            CLASS_MEANS: class_means_accuracy(each, epsilon, rng),
            NO_PRIVACY: open_vote_accuracy(each),
        }
    )


# Figures of accuracy.

_EPSILON: Final = 1.0  # if it is not the axis
_EPSILONS: Final = (0.5, 1.0, 1.5, 2.0)
_QUICK_EPSILONS: Final = (0.5, 1.0, 2.0)


def _split_and_hashing(table: Table, rng: Generator) -> tuple[StreamSplit, Hashing]:
    each = split_for_stream(table, rng)
    return each, Hashing.draw(each.rows.shape[1], rng)


def _with_hashing(
    dealt: tuple[StreamSplit, Hashing], epsilon: float, rng: Generator
) -> Mapping[CurveKey, float]:
    """Measure Ind-KNN without hashing and with it, with the same parameters."""
    each, hashing = dealt
    chosen = _tuned(each, epsilon, rng)
    unhashed = stream_accuracy(each.stream, *chosen, rng, None)
    return accuracy_points(
        {GDP: unhashed, HASHED: stream_accuracy(each.stream, *chosen, rng, hashing)}
    )


def _over_threshold(
    table: Table, x: Sequence[float], rng: Generator
) -> Mapping[CurveKey, Sequence[float]]:
    """Measure Ind-KNN at each τ, with the best σ2 for each epsilon."""
    each, curves = split_for_stream(table, rng), dict[CurveKey, Sequence[float]]()
    for epsilon in _QUICK_EPSILONS:
        parameters, kernel = _tuned(each, epsilon, rng)
        curves[CurveKey(ACCURACY, f"ε = {epsilon:g}")] = [
            stream_accuracy(each.stream, parameters, replace(kernel, tau=tau), rng) for tau in x
        ]
    return curves


def best_tau_growth(low: str, high: str) -> Take:
    """Take the excess of the best τ of one curve over that of another, split by split."""

    def take(measured: Measured) -> Evidence:
        taus, curves = np.array(measured.x), measured.of(ACCURACY)
        best = [taus[curves[series].argmax(axis=1)] for series in (low, high)]
        return Evidence((f"{high} minus {low}",), (best[1] - best[0])[:, None])

    return take


# Figures of cost: the time and privacy of retraining, and the savings of hashing.

_TARGET: Final = 1.0  # of Ind-KNN's whole stream, and of one training
_SIGMA2: Final = 0.7
_TAU: Final = 0.2
_RATE: Final = 0.1  # of Private-kNN
_K: Final = 150
_CHANGES: Final = 10


def _over_retraining(each: StreamSplit, x: float, rng: Generator) -> Mapping[CurveKey, float]:
    """Measure the cost of a query if the rows change, and models are retrained, every Q queries.

    A record is forgotten at each change. Ind-KNN overwrites its row. NoisySGD trains again, and the
    total cost of its training runs is counted for the records that every run uses.
    """
    count, every, trained = len(each.stream.queries), int(x), _sgd_parameters(each, _TARGET)
    trainings = trained.account().repeat(ceil(count / every))
    return {
        CurveKey(SECONDS, IND_KNN): _stream_seconds(each, every, None, rng) / count,
        CurveKey(SECONDS, NOISY_SGD): _training_seconds(each, trained, every, rng) / count,
        CurveKey(COST_EPSILON, IND_KNN): _TARGET,
        CurveKey(COST_EPSILON, NOISY_SGD): trainings.epsilon(_DELTA),
    }


def _cost_over_queries(whole: StreamSplit, x: float, rng: Generator) -> Mapping[CurveKey, float]:
    """Measure the time of a query and the cost of the stream, for each method.

    `NoisySGD, changes` trains about ten times over the stream, depending on the size of blocks.
    """
    count = int(x)
    each, every = whole.first(count), ceil(count / _CHANGES)
    trained, on = _sgd_parameters(each, _TARGET), each.stream
    knn = SampledKNN.calibrate(
        each.classes, _K, _RATE, queries=count, epsilon=_TARGET, delta=_DELTA
    )
    hashing = Hashing.draw(each.rows.shape[1], rng)
    seconds = {
        IND_KNN: _stream_seconds(each, count, None, rng),
        IND_KNN_HASHED: _stream_seconds(each, 1, hashing, rng),
        PRIVATE_KNN: _seconds(
            lambda: answer_by_private_knn(knn, on.rows, on.labels, on.queries, rng)
        ),
        NOISY_SGD: _training_seconds(each, trained, count, rng),
        SGD_CHANGES: _training_seconds(each, trained, every, rng),
    }
    trainings, found = trained.account().repeat(ceil(count / every)), dict[CurveKey, float]()
    for series, taken in seconds.items():
        found[CurveKey(SECONDS, series)] = taken / count
        cost = trainings.epsilon(_DELTA) if series == SGD_CHANGES else _TARGET
        found[CurveKey(COST_EPSILON, series)] = cost
    return found


def _over_tables(
    table: Table, x: Sequence[float], rng: Generator
) -> Mapping[CurveKey, Sequence[float]]:
    """Measure the seconds of a single query, with each number of hash tables and unhashed."""
    each = split_for_stream(table, rng)
    count, features = len(each.stream.queries), each.rows.shape[1]
    hashings = [Hashing.draw(features, rng, int(tables)) for tables in x]
    hashed = [_stream_seconds(each, 1, hashing, rng) / count for hashing in hashings]
    alone = _stream_seconds(each, 1, None, rng) / count
    return {CurveKey(SECONDS, IND_KNN_HASHED): hashed, CurveKey(SECONDS, IND_KNN): [alone] * len(x)}


def _stream_seconds(
    each: StreamSplit, every: int, hashing: Hashing | None, rng: Generator
) -> float:
    """Return the seconds of a stream in blocks, with a record forgotten between them."""
    budget, on = individual_budget(_TARGET, _DELTA, "gdp"), each.stream
    parameters = FilterParameters(
        each.classes, max(STREAM_QUERIES_MIN, len(on.queries)), budget, _SIGMA2
    )
    made = Predictor(parameters, Kernel("cosine", _TAU), on.rows.shape[1], hashing=hashing)
    count = len(on.rows)
    units = np.full(count, budget_units(budget, field="budget"))
    made.add(np.arange(count), on.rows, on.labels, units)

    def answer() -> None:
        for number, queries in each.blocks(every):
            made.answer_block(queries, rng)
            if every > 1 and number < count:
                made.forget(np.array([number]))

    return _seconds(answer)


def _training_seconds(each: StreamSplit, parameters: NoisySGD, every: int, rng: Generator) -> float:
    def answer() -> None:
        for number, queries in each.blocks(every):
            rows, labels = each.rows[number:], each.labels[number:]
            best_class(queries, train_noisy_sgd(parameters, rows, labels, rng))

    return _seconds(answer)


def _seconds(do: Callable[[], object]) -> float:
    start = perf_counter()
    do()
    return perf_counter() - start


_PAPER: Final = "Zhu, Zhao, Guo and Wang, Private Prediction Strikes Back, UAI 2023"
_SETTING: Final = (
    "δ = 1e-5; up to 800 queries; tuned on as many public ones, as in the paper; centred on these"
)
_AT_EPSILONS: Final = points_at(_EPSILONS, _QUICK_EPSILONS)
_THRESHOLDS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
_HASH_TABLES: Final = (10.0, 20.0, 30.0)
_ACCURACY: Final = {ACCURACY: Axis("accuracy")}
_SECONDS: Final = {SECONDS: Axis("wall-clock seconds a query", low=0.0)}
_BETWEEN_MIN: Final = 2  # changes; at most half of the stream, so that there is at least one
_E: Final = "ε"
_COST: Final = {**_SECONDS, COST_EPSILON: Axis(_E, low=0.0)}
# Features as they are: embeddings have no bounds, and only their directions count.
_TABLES: Final = DataKind(load, lambda table: table, "digits")
_figure: Final = partial(Figure, subject=_TABLES, splits=5)  # as in the paper


def _shares(count: Callable[[Table], int], shares: tuple[float, ...], least: int) -> PointsFor:
    """Return shares of a number that depends on the table."""

    def of(shares: tuple[float, ...]) -> Callable[[Table], Sequence[float]]:
        return lambda table: sorted(
            {float(max(least, round(each * count(table)))) for each in shares}
        )

    return points_of(of(shares), of(shares[::2]))


def _of_methods(at: Callable[[StreamSplit, float], tuple[StreamSplit, float]]) -> Observe:
    """Return a function that measures the accuracy of all methods.

    Args:
        at: The function that returns the split and the epsilon at a point of the axis.
    """
    return point_by_point(split_for_stream, lambda each, x, rng: _all_methods(*at(each, x), rng))


def _beats(at: str, x: str) -> Claim:
    """Return the claim that Ind-KNN beats Private-kNN, under the same accountant."""
    return above(
        f"Ind-KNN beats Private-kNN {at}",
        "accuracy of Ind-KNN (rdp) over that of Private-kNN",
        1.0,
        ratios(ACCURACY, RDP, over=PRIVATE_KNN, x=x),
    )


_LENGTH: Final = Axis("queries T", is_log=True)
_LENGTHS: Final = _shares(stream_queries, (0.05, 0.125, 0.25, 0.5, 1.0), STREAM_QUERIES_MIN)

PREDICTION_FIGURES: Final = (
    _figure(
        name="prediction/figure-1",
        title="Accuracy over the length of the stream",
        source=f"{_PAPER}, Figure 1 (b)",
        setting=f"ε = {_EPSILON:g}, {_SETTING}",
        x=_LENGTH,
        measures=_ACCURACY,
        grid=_LENGTHS,
        observe=_of_methods(lambda each, queries: (each.first(int(queries)), _EPSILON)),
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
        observe=_of_methods(lambda each, epsilon: (each, epsilon)),
        claims=(
            _beats("at every epsilon", _E),
            above(
                "Ind-KNN is comparable to Linear NoisySGD",
                "accuracy of Ind-KNN (rdp) over that of NoisySGD",
                0.97,
                ratios(ACCURACY, RDP, over=NOISY_SGD, x=_E),
            ),
            above(
                "exact Gaussian accounting gains accuracy (ours, not the paper's)",
                "accuracy under gdp over that under rdp",
                1.0,
                ratios(ACCURACY, GDP, over=RDP, x=_E),
            ),
            above(
                "Ind-KNN is near the vote without privacy",
                "accuracy of Ind-KNN (gdp) over that without privacy",
                0.95,
                ratios(ACCURACY, GDP, over=NO_PRIVACY, x=_E),
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
        measures=_COST,
        grid=_shares(stream_queries, (0.05, 0.1, 0.2, 0.35, 0.5), _BETWEEN_MIN),
        observe=point_by_point(split_for_stream, _over_retraining),
        claims=(
            above(
                "retraining costs NoisySGD more privacy than Ind-KNN takes in all",
                "ε of NoisySGD over that of Ind-KNN, with one change or more",
                1.0,
                ratios(COST_EPSILON, NOISY_SGD, over=IND_KNN, x="Q"),
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
        observe=point_by_point(_split_and_hashing, _with_hashing),
        claims=(
            above(
                "hashing costs little accuracy",
                "accuracy hashed over that unhashed, with the same parameters",
                0.95,
                ratios(ACCURACY, HASHED, over=GDP, x=_E),
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
        grid=_shares(private_rows, (0.25, 0.5, 1.0, 2.0, 4.0), STREAM_QUERIES_MIN),
        observe=_of_methods(lambda each, rows: (each.repeated(int(rows)), _EPSILON)),
        claims=(_beats("at every size", "N"),),
    ),
    _figure(
        name="prediction/table-1",
        title="Time of a query, and cost of the stream",
        source=f"{_PAPER}, Table 1",
        setting=(
            "ε = 1 a stream or a training; σ2 = 0.7, τ = 0.2; one block, or hashed and alone; "
            "up to 10 training runs for changes"
        ),
        x=_LENGTH,
        measures=_COST,
        grid=_LENGTHS,
        observe=point_by_point(split_for_stream, _cost_over_queries),
        claims=(
            below(
                "with changes NoisySGD takes longer than Ind-KNN",
                "seconds of Ind-KNN over those of NoisySGD with ten training runs",
                1.0,
                ratios(SECONDS, IND_KNN, over=SGD_CHANGES, x="T"),
            ),
        ),
    ),
    _figure(
        name="prediction/table-3",
        title="Hashing: seconds for a single query",
        source=f"{_PAPER}, Table 3",
        setting="ε = 1, σ2 = 0.7, τ = 0.2, 8 hyperplanes a table",
        x=Axis("hash tables L"),
        measures=_SECONDS,
        grid=points_at(_HASH_TABLES, _HASH_TABLES),
        observe=_over_tables,
        claims=(
            below(
                "hashing makes a query several times faster",
                "seconds hashed over those unhashed",
                0.5,
                ratios(SECONDS, IND_KNN_HASHED, over=IND_KNN, x="L"),
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
        observe=_over_threshold,
        claims=(
            above(
                "the best threshold rises with epsilon",
                "best τ at ε = 2 minus that at ε = 0.5",
                0.0,
                best_tau_growth("ε = 0.5", "ε = 2"),
            ),
        ),
    ),
)
"""All of them."""

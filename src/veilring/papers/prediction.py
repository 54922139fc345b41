"""The figures of Zhu, Zhao, Guo and Wang, "Private prediction strikes back", UAI 2023.

`dealt` splits a table, `methods` has Ind-KNN and its rivals, each tuned on validation queries,
`accuracy` and `cost` measure, and `table` says what each figure is and what the paper claims of it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import ceil
from time import perf_counter
from typing import Final, TypeVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data import Table, load_table
from veilring.errors import InputError
from veilring.papers.claims import Claim, CurveKey, Evidence, Measured, Take, above, below
from veilring.papers.evidence import relative
from veilring.papers.figure import Axis, DataKind, Figure, Observe, PointsFor, points_at
from veilring.privacy.accounting import Accountant, individual_budget
from veilring.privacy.ledger.units import budget_units
from veilring.protocols.prediction.algorithm.features import quantise
from veilring.protocols.prediction.algorithm.filter import STREAM_QUERIES_MIN, IndKNN
from veilring.protocols.prediction.algorithm.kernels import Hashing, Kernel, kernel_vote
from veilring.protocols.prediction.algorithm.predictor import Predictor
from veilring.protocols.prediction.rivals import (
    ClassMeans,
    NoisySGD,
    PrivateKNN,
    best_class,
    private_knn,
    release_sums,
    train,
)
from veilring.protocols.prediction.tuning import (
    PublicTable,
    best_tau,
    stream_accuracy,
    tune_parameters,
)

DELTA: Final = 1e-5
QUERIES_MAX: Final = 800  # as for two of the paper's tables
_ROWS_MIN: Final = 20  # or a fifth of them is fewer than the 4 queries that Ind-KNN needs


@dataclass(frozen=True, slots=True, eq=False)
class Dealt:
    """One random split; all features are quantised.

    Attributes:
        validation: The private rows, and the queries to tune on.
        stream: The same rows, and the queries that count.
        classes: How many there are.
    """

    validation: PublicTable
    stream: PublicTable
    classes: int

    @property
    def rows(self) -> NDArray[np.float32]:
        """The private rows, shape (rows, features)."""
        return self.stream.rows

    @property
    def labels(self) -> NDArray[np.int64]:
        """Theirs, shape (rows,)."""
        return self.stream.labels

    def first(self, queries: int) -> "Dealt":
        """Return the same with the first so many queries of either kind."""
        few = [
            PublicTable(each.rows, each.labels, each.queries[:queries], each.truth[:queries])
            for each in (self.validation, self.stream)
        ]
        return Dealt(few[0], few[1], self.classes)

    def repeated(self, rows: int) -> "Dealt":
        """Return the same with so many rows: the first ones, or all over and over."""
        places = np.arange(rows) % len(self.rows)
        few = [
            PublicTable(each.rows[places], each.labels[places], each.queries, each.truth)
            for each in (self.validation, self.stream)
        ]
        return Dealt(few[0], few[1], self.classes)


def queries_dealt(table: Table) -> int:
    """Return how many queries a split has, and for validation as many again."""
    return min(QUERIES_MAX, len(table) // 5)


def rows_dealt(table: Table) -> int:
    """Return how many private rows a split has."""
    return len(table) - 2 * queries_dealt(table)


def deal(table: Table, rng: Generator) -> Dealt:
    """Split a table at random.

    Raises:
        InputError: If it is too small.
    """
    if len(table) < _ROWS_MIN:
        raise InputError("table", f"of {len(table)} rows", f"at least {_ROWS_MIN} rows")
    order, queries = rng.permutation(len(table)), queries_dealt(table)
    asked, tried, kept = np.split(order, [queries, 2 * queries])
    lengths = np.linalg.norm(table.features[tried], axis=1, keepdims=True)
    origin = (table.features[tried] / lengths).mean(axis=0)
    rows, known = quantise(table.features[kept], origin), table.labels[kept]
    validation, stream = (
        PublicTable(rows, known, quantise(table.features[some], origin), table.labels[some])
        for some in (tried, asked)
    )
    return Dealt(validation, stream, len(table.class_names))


GDP: Final = "Ind-KNN, gdp"
RDP: Final = "Ind-KNN, rdp"
PRIVATE_KNN: Final = "Private-kNN"
NOISY_SGD: Final = "NoisySGD"
CLASS_MEANS: Final = "DP class means"
OPEN: Final = "no privacy"
COSINE: Final = Kernel("cosine")

_SIGMAS: Final = (0.2, 0.3, 0.45, 0.7, 1.2, 2.0)
_STEP: Final = 0.05
_NEIGHBOURS: Final = (50, 150, 400)
_RATES: Final = (0.05, 0.2)
_LEARNING_RATES: Final = (1.0, 3.0)
_SGD_STEPS: Final = 100
_SGD_RATE: Final = 0.1
_SGD_LEARNING_RATE: Final = 2.0  # where it is not tuned

_Option = TypeVar("_Option")


def tuned(dealt: Dealt, epsilon: float, kernel: Kernel, rng: Generator) -> tuple[IndKNN, Kernel]:
    """Return the parameters of Ind-KNN that do best on the validation queries."""
    budget = individual_budget(epsilon, DELTA, "gdp")
    queries = len(dealt.stream.queries)
    parameters = IndKNN(dealt.classes, queries, budget, sigma2=1.0)
    best = tune_parameters(dealt.validation, parameters, kernel, rng, sigmas=_SIGMAS, step=_STEP)[0]
    return replace(parameters, sigma2=best.sigma2), replace(kernel, tau=best.tau)


def ind_knn(
    dealt: Dealt, chosen: tuple[IndKNN, Kernel], epsilon: float, by: Accountant, rng: Generator
) -> float:
    """Return the accuracy of Ind-KNN with parameters from `tuned`, under another accountant."""
    budget = individual_budget(epsilon, DELTA, by)
    return stream_accuracy(dealt.stream, replace(chosen[0], budget=budget), chosen[1], rng)


def ind_knns(dealt: Dealt, epsilon: float, rng: Generator) -> dict[str, float]:
    """Return the accuracies under both accountants, tuned once."""
    chosen = tuned(dealt, epsilon, COSINE, rng)
    return {
        GDP: ind_knn(dealt, chosen, epsilon, "gdp", rng),
        RDP: ind_knn(dealt, chosen, epsilon, "rdp", rng),
    }


def private_vote(dealt: Dealt, epsilon: float, rng: Generator) -> float:
    """Return the accuracy of Private-kNN."""
    count = len(dealt.stream.queries)

    def labels(option: tuple[int, float], on: PublicTable) -> NDArray[np.int64]:
        k, rate = option
        parameters = PrivateKNN.calibrate(
            dealt.classes, k, rate, queries=count, epsilon=epsilon, delta=DELTA
        )
        return private_knn(parameters, on.rows, on.labels, on.queries, rng)

    return _best(dealt, product(_NEIGHBOURS, _RATES), labels)


def noisy_sgd(dealt: Dealt, epsilon: float, rng: Generator) -> float:
    """Return the accuracy of a linear classifier trained with noisy gradients."""
    options = [sgd_parameters(dealt, epsilon, rate) for rate in _LEARNING_RATES]
    weights = [train(each, dealt.rows, dealt.labels, rng) for each in options]
    return _best(dealt, weights, lambda each, on: best_class(on.queries, each))


def sgd_parameters(
    dealt: Dealt, epsilon: float, learning_rate: float = _SGD_LEARNING_RATE
) -> NoisySGD:
    """Return the parameters of one training on the private rows."""
    batch = _SGD_RATE * len(dealt.rows)
    made = NoisySGD(dealt.classes, _SGD_STEPS, _SGD_RATE, batch, learning_rate=learning_rate)
    return made.calibrate(epsilon, DELTA)


def class_means(dealt: Dealt, epsilon: float, rng: Generator) -> float:
    """Return the accuracy of the released sums. There is nothing to tune."""
    parameters = ClassMeans.calibrate(dealt.classes, epsilon, DELTA)
    sums = release_sums(parameters, dealt.rows, dealt.labels, rng)
    return accuracy_of(best_class(dealt.stream.queries, sums), dealt.stream)


def open_vote(dealt: Dealt) -> float:
    """Return the accuracy of the vote without privacy, with its own best threshold."""
    kernel = replace(COSINE, tau=best_tau(dealt.validation, COSINE, dealt.classes))
    on = dealt.stream
    return accuracy_of(kernel_vote(on.rows, on.labels, on.queries, kernel, dealt.classes), on)


def accuracy_of(labels: NDArray[np.int64], on: PublicTable) -> float:
    """Return the share of right labels."""
    return float((labels == on.truth).mean())


def _best(
    dealt: Dealt,
    options: Iterable[_Option],
    labels: Callable[[_Option, PublicTable], NDArray[np.int64]],
) -> float:
    """Return the accuracy of the option that does best on the validation queries."""
    tried, on = list(options), dealt.validation
    best = max(tried, key=lambda each: accuracy_of(labels(each, on), on))
    return accuracy_of(labels(best, dealt.stream), dealt.stream)


ACCURACY: Final = "accuracy"
HASHED: Final = "hashed"

_Curves = dict[CurveKey, list[float]]


def over_epsilon(
    table: Table, x: Sequence[float], rng: Generator
) -> Mapping[CurveKey, Sequence[float]]:
    """Measure all methods at each epsilon."""
    dealt, curves = deal(table, rng), _Curves()
    for epsilon in x:
        _add(curves, _all(dealt, epsilon, rng))
    return curves


def over_queries(epsilon: float) -> Observe:
    """Return what measures all methods on streams of each length."""

    def observe(
        table: Table, x: Sequence[float], rng: Generator
    ) -> Mapping[CurveKey, Sequence[float]]:
        dealt, curves = deal(table, rng), _Curves()
        for queries in x:
            _add(curves, _all(dealt.first(int(queries)), epsilon, rng))
        return curves

    return observe


def over_rows(epsilon: float) -> Observe:
    """Return what measures methods on more and more private rows, each of which may repeat."""

    def observe(
        table: Table, x: Sequence[float], rng: Generator
    ) -> Mapping[CurveKey, Sequence[float]]:
        dealt, curves = deal(table, rng), _Curves()
        for rows in x:
            _add(curves, _all(dealt.repeated(int(rows)), epsilon, rng))
        return curves

    return observe


def with_hashing(
    table: Table, x: Sequence[float], rng: Generator
) -> Mapping[CurveKey, Sequence[float]]:
    """Measure Ind-KNN with hashing and without at each epsilon, with the same parameters."""
    dealt, curves = deal(table, rng), _Curves()
    hashing = Hashing.draw(dealt.rows.shape[1], rng)
    for epsilon in x:
        chosen = tuned(dealt, epsilon, COSINE, rng)
        found = {
            GDP: stream_accuracy(dealt.stream, *chosen, rng),
            HASHED: stream_accuracy(dealt.stream, *chosen, rng, hashing),
        }
        _add(curves, found)
    return curves


def over_threshold(epsilons: Sequence[float]) -> Observe:
    """Return what measures Ind-KNN at each τ, with the σ2 that is best for each epsilon."""

    def observe(
        table: Table, x: Sequence[float], rng: Generator
    ) -> Mapping[CurveKey, Sequence[float]]:
        dealt, curves = deal(table, rng), _Curves()
        for epsilon in epsilons:
            parameters, kernel = tuned(dealt, epsilon, COSINE, rng)
            for tau in x:
                accuracy = stream_accuracy(dealt.stream, parameters, replace(kernel, tau=tau), rng)
                _add(curves, {f"ε = {epsilon:g}": accuracy})
        return curves

    return observe


def best_threshold_growth(low: str, high: str) -> Take:
    """Take by how much the best τ of one curve is above that of another, split by split."""

    def take(measured: Measured) -> Evidence:
        taus, curves = np.array(measured.x), measured.of(ACCURACY)
        best = [taus[curves[series].argmax(axis=1)] for series in (low, high)]
        return Evidence((f"{high} less {low}",), (best[1] - best[0])[:, None])

    return take


def _all(dealt: Dealt, epsilon: float, rng: Generator) -> dict[str, float]:
    return {
        **ind_knns(dealt, epsilon, rng),
        PRIVATE_KNN: private_vote(dealt, epsilon, rng),
        NOISY_SGD: noisy_sgd(dealt, epsilon, rng),
        CLASS_MEANS: class_means(dealt, epsilon, rng),
        OPEN: open_vote(dealt),
    }


def _add(curves: _Curves, found: Mapping[str, float]) -> None:
    for series, value in found.items():
        curves.setdefault(CurveKey(ACCURACY, series), []).append(value)


EPSILON: Final = "epsilon"
SECONDS: Final = "seconds"
IND_KNN: Final = "Ind-KNN"
SGD: Final = "NoisySGD"
HASHED_KNN: Final = "Ind-KNN, hashed"
SGD_CHANGES: Final = "NoisySGD, changes"

_TARGET: Final = 1.0  # of Ind-KNN's whole stream, and of one training
_SIGMA2: Final = 0.7
_TAU: Final = 0.2
_RATE: Final = 0.1  # of Private-kNN
_K: Final = 150
_CHANGES: Final = 10


def over_retraining(
    table: Table, x: Sequence[float], rng: Generator
) -> Mapping[CurveKey, Sequence[float]]:
    """Measure what a query costs if the rows change, and all is trained anew, every Q queries.

    A record is forgotten at each change. Ind-KNN overwrites its row. NoisySGD trains again, and
    what its trainings cost together is counted for the records that are in all of them.
    """
    dealt = deal(table, rng)
    count = len(dealt.stream.queries)
    trained, curves = sgd_parameters(dealt, _TARGET), dict[CurveKey, list[float]]()
    for every in map(int, x):
        times = ceil(count / every)
        found = {
            CurveKey(SECONDS, IND_KNN): _stream(dealt, every, None, rng) / count,
            CurveKey(SECONDS, SGD): _trainings(dealt, trained, every, rng) / count,
            CurveKey(EPSILON, IND_KNN): _TARGET,
            CurveKey(EPSILON, SGD): trained.account().repeat(times).epsilon(DELTA),
        }
        for key, value in found.items():
            curves.setdefault(key, []).append(value)
    return curves


def cost_over_queries(
    table: Table, x: Sequence[float], rng: Generator
) -> Mapping[CurveKey, Sequence[float]]:
    """Measure what a query of a stream takes, and what the stream costs, for each method.

    `NoisySGD, changes` trains ten times over the stream, or nearly so where blocks of equal size
    do not come out at ten.
    """
    dealt, curves = deal(table, rng), dict[CurveKey, list[float]]()
    for count in map(int, x):
        few = dealt.first(count)
        trained = sgd_parameters(few, _TARGET)
        knn = PrivateKNN.calibrate(
            few.classes, _K, _RATE, queries=count, epsilon=_TARGET, delta=DELTA
        )
        every, hashing = ceil(count / _CHANGES), Hashing.draw(few.rows.shape[1], rng)
        seconds = {
            IND_KNN: _stream(few, count, None, rng),
            HASHED_KNN: _stream(few, 1, hashing, rng),
            PRIVATE_KNN: _votes(few, knn, rng),
            SGD: _trainings(few, trained, count, rng),
            SGD_CHANGES: _trainings(few, trained, every, rng),
        }
        account = trained.account().repeat(ceil(count / every))
        for series, taken in seconds.items():
            curves.setdefault(CurveKey(SECONDS, series), []).append(taken / count)
            cost = account.epsilon(DELTA) if series == SGD_CHANGES else _TARGET
            curves.setdefault(CurveKey(EPSILON, series), []).append(cost)
    return curves


def over_tables(
    table: Table, x: Sequence[float], rng: Generator
) -> Mapping[CurveKey, Sequence[float]]:
    """Measure the seconds of a lone query, hashed with so many tables and not hashed."""
    dealt = deal(table, rng)
    count, features = len(dealt.stream.queries), dealt.rows.shape[1]
    hashings = [Hashing.draw(features, rng, int(tables)) for tables in x]
    hashed = [_stream(dealt, 1, hashing, rng) / count for hashing in hashings]
    alone = _stream(dealt, 1, None, rng) / count
    return {CurveKey(SECONDS, HASHED_KNN): hashed, CurveKey(SECONDS, IND_KNN): [alone] * len(x)}


def _stream(dealt: Dealt, every: int, hashing: Hashing | None, rng: Generator) -> float:
    """Return the seconds of a stream in blocks, with a record forgotten between them."""
    budget, on = individual_budget(_TARGET, DELTA, "gdp"), dealt.stream
    parameters = IndKNN(dealt.classes, max(STREAM_QUERIES_MIN, len(on.queries)), budget, _SIGMA2)
    made = Predictor(parameters, Kernel("cosine", _TAU), on.rows.shape[1], hashing=hashing)
    count = len(on.rows)
    units = np.full(count, budget_units(budget, field="budget"))
    made.add(np.arange(count), on.rows, on.labels, units)

    def answer() -> None:
        for number, first in enumerate(range(0, len(on.queries), every)):
            made.answer_block(on.queries[first : first + every], rng)
            if every > 1 and number < count:
                made.forget(np.array([number]))

    return _seconds(answer)


def _votes(dealt: Dealt, knn: PrivateKNN, rng: Generator) -> float:
    on = dealt.stream
    return _seconds(lambda: private_knn(knn, on.rows, on.labels, on.queries, rng))


def _trainings(dealt: Dealt, parameters: NoisySGD, every: int, rng: Generator) -> float:
    on = dealt.stream

    def answer() -> None:
        for number, first in enumerate(range(0, len(on.queries), every)):
            rows, labels = on.rows[number:], on.labels[number:]
            best_class(on.queries[first : first + every], train(parameters, rows, labels, rng))

    return _seconds(answer)


def _seconds(do: Callable[[], object]) -> float:
    start = perf_counter()
    do()
    return perf_counter() - start


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
_TABLES: Final = DataKind(load_table, lambda table: table, "digits")
"""Features as they are: embeddings have no bounds, and only their directions count."""
_figure: Final = partial(Figure, subject=_TABLES, splits=SPLITS)


def _shares(count: Callable[[Table], int], shares: tuple[float, ...], least: int) -> PointsFor:
    """Return a grid of shares of a number that depends on the table."""

    def grid(table: Table, quick: bool) -> tuple[float, ...]:  # noqa: FBT001 (as `PointsFor` has it)
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


PREDICTION_FIGURES: Final = (
    _figure(
        name="prediction/figure-1",
        title="Accuracy over the length of the stream",
        source=f"{_PAPER}, Figure 1 (b)",
        setting=f"ε = {_EPSILON:g}, {_SETTING}",
        x=Axis("queries T", is_log=True),
        measures=_ACCURACY,
        grid=_shares(queries_dealt, (0.05, 0.125, 0.25, 0.5, 1.0), STREAM_QUERIES_MIN),
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
        grid=_shares(rows_dealt, (0.25, 0.5, 1.0, 2.0, 4.0), STREAM_QUERIES_MIN),
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
        grid=_shares(queries_dealt, (0.05, 0.125, 0.25, 0.5, 1.0), STREAM_QUERIES_MIN),
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


"""All of them."""

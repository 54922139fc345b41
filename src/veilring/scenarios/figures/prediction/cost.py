"""Figures of cost: what retraining takes in time and in privacy, and what hashing saves."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from time import perf_counter
from typing import Final

import numpy as np
from numpy.random import Generator

from veilring.data import Table
from veilring.privacy.accounting import individual_budget
from veilring.privacy.ledger.units import budget_units
from veilring.protocols.prediction.algorithm import Hashing, IndKNN, Kernel, Predictor
from veilring.protocols.prediction.algorithm.filter import QUERIES_MIN
from veilring.protocols.prediction.rivals import (
    NoisySGD,
    PrivateKNN,
    best_class,
    private_knn,
    train,
)
from veilring.scenarios.figures.measured import Key
from veilring.scenarios.figures.prediction.dealt import DELTA, Dealt, deal
from veilring.scenarios.figures.prediction.methods import PRIVATE_KNN, sgd_parameters

EPSILON: Final = "epsilon"
SECONDS: Final = "seconds"
IND_KNN: Final = "Ind-KNN"
SGD: Final = "NoisySGD"
HASHED: Final = "Ind-KNN, hashed"
SGD_CHANGES: Final = "NoisySGD, changes"

_TARGET: Final = 1.0  # of Ind-KNN's whole stream, and of one training
_SIGMA2: Final = 0.7
_TAU: Final = 0.2
_RATE: Final = 0.1  # of Private-kNN
_NEIGHBOURS: Final = 150
_CHANGES: Final = 10


def over_retraining(
    table: Table, x: Sequence[float], rng: Generator
) -> Mapping[Key, Sequence[float]]:
    """Measure what a query costs if the rows change, and all is trained anew, every Q queries.

    A record is forgotten at each change. Ind-KNN overwrites its row. NoisySGD trains again, and
    what its trainings cost together is counted for the records that are in all of them.
    """
    dealt = deal(table, rng)
    count = len(dealt.stream.queries)
    trained, curves = sgd_parameters(dealt, _TARGET), dict[Key, list[float]]()
    for every in map(int, x):
        times = ceil(count / every)
        found = {
            Key(SECONDS, IND_KNN): _stream(dealt, every, None, rng) / count,
            Key(SECONDS, SGD): _trainings(dealt, trained, every, rng) / count,
            Key(EPSILON, IND_KNN): _TARGET,
            Key(EPSILON, SGD): trained.account().repeat(times).epsilon(DELTA),
        }
        for key, value in found.items():
            curves.setdefault(key, []).append(value)
    return curves


def over_queries(table: Table, x: Sequence[float], rng: Generator) -> Mapping[Key, Sequence[float]]:
    """Measure what a query of a stream takes, and what the stream costs, for each method.

    `NoisySGD, changes` trains ten times over the stream, or nearly so where blocks of equal size
    do not come out at ten.
    """
    dealt, curves = deal(table, rng), dict[Key, list[float]]()
    for count in map(int, x):
        few = dealt.first(count)
        trained = sgd_parameters(few, _TARGET)
        knn = PrivateKNN.calibrate(
            few.classes, _NEIGHBOURS, _RATE, queries=count, epsilon=_TARGET, delta=DELTA
        )
        every, hashing = ceil(count / _CHANGES), Hashing.draw(few.rows.shape[1], rng)
        seconds = {
            IND_KNN: _stream(few, count, None, rng),
            HASHED: _stream(few, 1, hashing, rng),
            PRIVATE_KNN: _votes(few, knn, rng),
            SGD: _trainings(few, trained, count, rng),
            SGD_CHANGES: _trainings(few, trained, every, rng),
        }
        account = trained.account().repeat(ceil(count / every))
        for series, taken in seconds.items():
            curves.setdefault(Key(SECONDS, series), []).append(taken / count)
            cost = account.epsilon(DELTA) if series == SGD_CHANGES else _TARGET
            curves.setdefault(Key(EPSILON, series), []).append(cost)
    return curves


def over_tables(table: Table, x: Sequence[float], rng: Generator) -> Mapping[Key, Sequence[float]]:
    """Measure the seconds of a lone query, hashed with so many tables and not hashed."""
    dealt = deal(table, rng)
    count, features = len(dealt.stream.queries), dealt.rows.shape[1]
    hashings = [Hashing.draw(features, rng, int(tables)) for tables in x]
    hashed = [_stream(dealt, 1, hashing, rng) / count for hashing in hashings]
    alone = _stream(dealt, 1, None, rng) / count
    return {Key(SECONDS, HASHED): hashed, Key(SECONDS, IND_KNN): [alone] * len(x)}


def _stream(dealt: Dealt, every: int, hashing: Hashing | None, rng: Generator) -> float:
    """Return the seconds of a stream in blocks, with a record forgotten between them."""
    budget, on = individual_budget(_TARGET, DELTA, "gdp"), dealt.stream
    parameters = IndKNN(dealt.classes, max(QUERIES_MIN, len(on.queries)), budget, _SIGMA2)
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

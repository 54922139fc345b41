"""The predictor of a prediction server, beside published code."""

import time
import tracemalloc
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from benchmarks.measurement import Bound, Measurement, Timed, pairs, ratios
from benchmarks.samples import Clusters
from veilring.arrays import Ints
from veilring.privacy.accounting import individual_budget
from veilring.privacy.budgets import UNITS
from veilring.protocols.prediction.algorithm.directions import (
    BLOCK,
    Hashing,
    Kernel,
    inner_products,
)
from veilring.protocols.prediction.algorithm.filter import FilterParameters
from veilring.protocols.prediction.algorithm.predictor import Predictor

RECORDS = 50_000
FEATURES = 768
CLASSES = 10
QUERIES = 1000  # T
TAU = 0.3
SIGMA2 = 0.5
BUDGET = individual_budget(1.0, 1e-5, "gdp")


class _Data(NamedTuple):
    rows: NDArray[np.float32]
    labels: Ints
    queries: NDArray[np.float32]


def measure_prediction(*, quick: bool) -> list[Measurement]:
    """Measure Ind-KNN on 50,000 rows of 768 features: in blocks, alone, hashed; and its memory.

    The reference follows the pattern of code that is published with papers on private prediction:
    for each query it masks the records that still have budget, copies their features in double
    precision, multiplies, and loops over the neighbours.
    """
    data = _clustered(5_000 if quick else 50_000, np.random.default_rng(1))
    alone, repetitions = 2 if quick else 4, 3
    block = min(len(data.queries), BLOCK)
    published = _published(data, alone)
    count = f"{len(data.rows):,} rows"
    return [
        ratios(
            f"a query in a block of {block}, {count}, times faster than published code",
            _each(pairs(_ours(data, block), published, repetitions), block, alone),
            None if quick else Bound("at least", 100.0),
            faster=True,
        ),
        ratios(
            f"a query in a block of {block}, {count}, beside its product alone",
            _each(pairs(_ours(data, block), _product(data, block), repetitions), block, block),
        ),
        ratios(
            f"a lone query, {count}, beside its product alone",
            _each(pairs(_ours(data, 1, 20), _product(data, 1, 20), repetitions), 20, 20),
        ),
        ratios(
            f"a lone query, {count}, hashed, times faster than not hashed",
            pairs(_ours(data, 1, 20, hashed=True), _ours(data, 1, 20), repetitions),
            faster=True,
            per=20,
        ),
        _memory(data, block, None if quick else Bound("at most", 1024.0)),
    ]


def _clustered(rows: int, rng: Generator) -> _Data:
    whole, labels = Clusters.draw(CLASSES, FEATURES, rng).rows(rows + QUERIES, rng)
    return _Data(whole[:rows], labels[:rows], whole[rows:])


def _predictor(data: _Data, *, hashed: bool = False) -> Predictor:
    hashing = Hashing.draw(FEATURES, np.random.default_rng(2)) if hashed else None
    parameters = FilterParameters(CLASSES, QUERIES, BUDGET, SIGMA2)
    made = Predictor(parameters, Kernel("cosine", TAU), FEATURES, hashing=hashing)
    count = len(data.rows)
    made.add(np.arange(count), data.rows, data.labels, np.full(count, int(BUDGET * UNITS)))
    return made


def _ours(data: _Data, block: int, count: int = BLOCK, *, hashed: bool = False) -> Timed:
    def answer() -> float:
        made, rng = _predictor(data, hashed=hashed), np.random.default_rng(3)
        made.answer_block(data.queries[-block:], rng)  # buffers are there from the first block on
        start = time.perf_counter()
        for first in range(0, count, block):
            made.answer_block(data.queries[first : first + block], rng)
        return time.perf_counter() - start

    return answer


def _product(data: _Data, block: int, count: int = BLOCK) -> Timed:
    def multiply() -> float:
        start = time.perf_counter()
        for first in range(0, count, block):
            inner_products(data.queries[first : first + block], data.rows)
        return time.perf_counter() - start

    return multiply


def _published(data: _Data, count: int) -> Timed:
    """Time the pattern of published code on a few queries."""
    unit = data.rows.astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    asked = data.queries[:count].astype(np.float64)
    asked /= np.linalg.norm(asked, axis=1, keepdims=True)
    sigma1 = np.sqrt(QUERIES / (6 * BUDGET))

    def answer() -> float:
        rng, budgets = np.random.default_rng(3), np.full(len(unit), BUDGET)
        start = time.perf_counter()
        for query in asked:
            mask = budgets > 0
            kept, labels, places = unit[mask], data.labels[mask], np.flatnonzero(mask)
            kernels = kept @ query
            chosen = [place for place in range(len(kernels)) if kernels[place] > TAU]
            noisy = max(len(chosen) + rng.normal(0, sigma1), 30)
            votes = np.zeros(CLASSES)
            for place in chosen:
                record = places[place]
                budgets[record] -= 1 / (2 * sigma1**2)
                left = max(budgets[record], 0)
                vote = min(kernels[place], SIGMA2 * np.sqrt(2 * noisy * left))
                votes[labels[place]] += vote
                budgets[record] -= vote**2 / (2 * SIGMA2**2 * noisy)
            votes += rng.normal(0, SIGMA2 * np.sqrt(noisy), CLASSES)
            votes.argmax()
        return time.perf_counter() - start

    return answer


def _each(timed: list[tuple[float, float]], ours: int, theirs: int) -> list[tuple[float, float]]:
    """Return the seconds of one query on either side."""
    return [(one / ours, other / theirs) for one, other in timed]


def _memory(data: _Data, block: int, bound: Bound | None) -> Measurement:
    """Measure the peak of what a predictor allocates, from its rows to a block's answers."""
    tracemalloc.start()
    made = _predictor(data)
    made.answer_block(data.queries[:block], np.random.default_rng(3))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    name = f"memory of a predictor with {len(data.rows):,} rows, and of a block of {block}"
    return Measurement(name, "MiB", (peak / 2**20,), bound)

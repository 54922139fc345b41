"""Figures of accuracy: over epsilon, over queries, with hashing, over rows, over the threshold."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.random import Generator

from veilring.data import Table
from veilring.protocols.prediction.algorithm import Hashing
from veilring.protocols.prediction.tuning import score
from veilring.scenarios.figures.claims import Evidence, Take
from veilring.scenarios.figures.measured import Key, Measured
from veilring.scenarios.figures.model import Observe
from veilring.scenarios.figures.prediction.dealt import Dealt, deal
from veilring.scenarios.figures.prediction.methods import (
    CLASS_MEANS,
    COSINE,
    GDP,
    NOISY_SGD,
    OPEN,
    PRIVATE_KNN,
    class_means,
    ind_knns,
    noisy_sgd,
    open_vote,
    private_vote,
    tuned,
)

ACCURACY: Final = "accuracy"
HASHED: Final = "hashed"

_Curves = dict[Key, list[float]]


def over_epsilon(table: Table, x: Sequence[float], rng: Generator) -> Mapping[Key, Sequence[float]]:
    """Measure all methods at each epsilon."""
    dealt, curves = deal(table, rng), _Curves()
    for epsilon in x:
        _add(curves, _all(dealt, epsilon, rng))
    return curves


def over_queries(epsilon: float) -> Observe:
    """Return what measures all methods on streams of each length."""

    def observe(table: Table, x: Sequence[float], rng: Generator) -> Mapping[Key, Sequence[float]]:
        dealt, curves = deal(table, rng), _Curves()
        for queries in x:
            _add(curves, _all(dealt.first(int(queries)), epsilon, rng))
        return curves

    return observe


def over_rows(epsilon: float) -> Observe:
    """Return what measures methods on more and more private rows, each of which may repeat."""

    def observe(table: Table, x: Sequence[float], rng: Generator) -> Mapping[Key, Sequence[float]]:
        dealt, curves = deal(table, rng), _Curves()
        for rows in x:
            _add(curves, _all(dealt.repeated(int(rows)), epsilon, rng))
        return curves

    return observe


def with_hashing(table: Table, x: Sequence[float], rng: Generator) -> Mapping[Key, Sequence[float]]:
    """Measure Ind-KNN with hashing and without at each epsilon, with the same parameters."""
    dealt, curves = deal(table, rng), _Curves()
    hashing = Hashing.draw(dealt.rows.shape[1], rng)
    for epsilon in x:
        chosen = tuned(dealt, epsilon, COSINE, rng)
        found = {
            GDP: score(dealt.stream, *chosen, rng),
            HASHED: score(dealt.stream, *chosen, rng, hashing),
        }
        _add(curves, found)
    return curves


def over_threshold(epsilons: Sequence[float]) -> Observe:
    """Return what measures Ind-KNN at each τ, with the σ2 that is best for each epsilon."""

    def observe(table: Table, x: Sequence[float], rng: Generator) -> Mapping[Key, Sequence[float]]:
        dealt, curves = deal(table, rng), _Curves()
        for epsilon in epsilons:
            parameters, kernel = tuned(dealt, epsilon, COSINE, rng)
            for tau in x:
                accuracy = score(dealt.stream, parameters, replace(kernel, tau=tau), rng)
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
        curves.setdefault(Key(ACCURACY, series), []).append(value)

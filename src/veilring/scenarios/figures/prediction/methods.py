"""Ind-KNN and its rivals, each tuned on validation queries and then asked the stream.

The grids are those of the paper, thinned out. Ind-KNN alone has more than six choices: its
two parameters depend on each other.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import product
from typing import Final, TypeVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.privacy.accounting import Accountant, individual_budget
from veilring.protocols.prediction.algorithm import IndKNN, Kernel
from veilring.protocols.prediction.rivals import (
    ClassMeans,
    NoisySGD,
    PrivateKNN,
    best_class,
    kernel_vote,
    private_knn,
    release_sums,
    train,
)
from veilring.protocols.prediction.tuning import Public, best_threshold, score, tune
from veilring.scenarios.figures.prediction.dealt import DELTA, Dealt

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
    best = tune(dealt.validation, parameters, kernel, rng, sigmas=_SIGMAS, step=_STEP)[0]
    return replace(parameters, sigma2=best.sigma2), replace(kernel, tau=best.tau)


def ind_knn(
    dealt: Dealt, chosen: tuple[IndKNN, Kernel], epsilon: float, by: Accountant, rng: Generator
) -> float:
    """Return the accuracy of Ind-KNN with parameters from `tuned`, under another accountant."""
    budget = individual_budget(epsilon, DELTA, by)
    return score(dealt.stream, replace(chosen[0], budget=budget), chosen[1], rng)


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

    def labels(option: tuple[int, float], on: Public) -> NDArray[np.int64]:
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
    kernel = replace(COSINE, tau=best_threshold(dealt.validation, COSINE, dealt.classes))
    on = dealt.stream
    return accuracy_of(kernel_vote(on.rows, on.labels, on.queries, kernel, dealt.classes), on)


def accuracy_of(labels: NDArray[np.int64], on: Public) -> float:
    """Return the share of right labels."""
    return float((labels == on.truth).mean())


def _best(
    dealt: Dealt,
    options: Iterable[_Option],
    labels: Callable[[_Option, Public], NDArray[np.int64]],
) -> float:
    """Return the accuracy of the option that does best on the validation queries."""
    tried, on = list(options), dealt.validation
    best = max(tried, key=lambda each: accuracy_of(labels(each, on), on))
    return accuracy_of(labels(best, dealt.stream), dealt.stream)

"""Choosing σ2 and τ on public rows, in the two rounds of the paper (its appendix C).

First, τ* is the best threshold of the vote without noise, among 0.05, 0.10, ..., 0.95. Then σ2 and
a τ near τ* are tried together under the target privacy. The paper stops there; here the search goes
on beyond its window as long as accuracy improves, because fewer rows need a lower threshold to get
enough neighbours for the noise. All rows here count as public: a choice based on private rows leaks
information that no budget accounts for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from papers.baselines import kernel_vote
from veilring.arrays import Ints
from veilring.errors import InputError
from veilring.privacy.budgets import budget_units
from veilring.protocols.prediction.algorithm.directions import Hashing, Kernel
from veilring.protocols.prediction.algorithm.filter import FilterParameters
from veilring.protocols.prediction.algorithm.predictor import Predictor

THRESHOLDS: Final = tuple(number / 20 for number in range(1, 20))
"""The candidates for τ*, in the first round."""
SIGMAS: Final = (*(number / 10 for number in range(1, 10)), 1.2, 1.6, 2.0)
"""The candidates for σ2 in the second round; the paper tried values up to 0.9, and used 1.3 for one
table."""
STEP: Final = 0.05
"""The step of τ in the second round: τ* and one step to either side, as in the paper."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PublicTable:
    """Quantised public rows, equal in number to the private ones, and labelled queries.

    Attributes:
        rows: The rows, shape (rows, features).
        labels: The label of each row, shape (rows,).
        queries: The queries, shape (queries, features).
        truth: The label of each query, shape (queries,).

    Raises:
        InputError: If there are no rows or no queries.
    """

    rows: NDArray[np.float32]
    labels: Ints
    queries: NDArray[np.float32]
    truth: Ints

    def __post_init__(self) -> None:
        for field in ("rows", "queries"):
            if not len(getattr(self, field)):
                raise InputError.because(f"{field} is empty; give at least one", field=field)


class TriedPair(NamedTuple):
    """The result of one pair of σ2 and τ.

    Attributes:
        sigma2: σ2.
        tau: τ.
        accuracy: The mean over the runs.
    """

    sigma2: float
    tau: float
    accuracy: float


def tune_parameters(
    public: PublicTable,
    parameters: FilterParameters,
    kernel: Kernel,
    rng: Generator,
    *,
    sigmas: Sequence[float] = SIGMAS,
    step: float = STEP,
    runs: int = 1,
) -> list[TriedPair]:
    """Return pairs of σ2 and τ with their accuracies, tried in two rounds.

    Args:
        public: The public table. All its queries are asked in one stream.
        parameters: The parameters of the future server, whose `sigma2` is ignored.
        kernel: The kernel of the future server, whose `tau` is ignored.
        rng: The source of the noise, which is equal for all pairs.
        sigmas: The candidates for σ2, at least one.
        step: The step of τ in the second round.
        runs: The number of runs with different noise, to average over.

    Returns:
        All pairs of the second round, the best one first.
    """
    seeds = rng.integers(2**62, size=runs)

    def at(tau: float) -> list[TriedPair]:
        return [
            TriedPair(sigma2, tau, _mean_score(public, parameters, kernel, (sigma2, tau), seeds))
            for sigma2 in sigmas
            if 0 < tau <= 1
        ]

    def best(found: list[TriedPair]) -> float:
        return max((each.accuracy for each in found), default=-1.0)

    start = best_tau(public, kernel, parameters.classes)
    tried = at(start)
    for direction in (-step, step):
        before, tau = best(tried), round(start + direction, 9)
        while found := at(tau):
            tried += found
            if best(found) <= before:
                break
            before, tau = best(found), round(tau + direction, 9)
    return sorted(tried, key=lambda each: -each.accuracy)


def best_tau(
    public: PublicTable, kernel: Kernel, classes: int, taus: Sequence[float] = THRESHOLDS
) -> float:
    """Return τ*, the least of the best thresholds of the vote without noise."""

    def accuracy(tau: float) -> float:
        nearer = replace(kernel, tau=tau)
        labels = kernel_vote(public.rows, public.labels, public.queries, nearer, classes)
        return float((labels == public.truth).mean())

    return max(sorted(taus), key=accuracy)


def _mean_score(
    public: PublicTable,
    parameters: FilterParameters,
    kernel: Kernel,
    pair: tuple[float, float],
    seeds: Ints,
) -> float:
    tried, nearer = replace(parameters, sigma2=pair[0]), replace(kernel, tau=pair[1])
    scores = [stream_accuracy(public, tried, nearer, np.random.default_rng(seed)) for seed in seeds]
    return float(np.mean(scores))


def stream_accuracy(
    public: PublicTable,
    parameters: FilterParameters,
    kernel: Kernel,
    rng: Generator,
    hashing: Hashing | None = None,
) -> float:
    """Return the accuracy of a fresh predictor on a stream of all queries."""
    made = Predictor(parameters, kernel, public.rows.shape[1], hashing=hashing)
    count = len(public.rows)
    units = np.full(count, budget_units(parameters.budget, field="budget"))
    made.add(np.arange(count), public.rows, public.labels, units)
    labels = [answer.label for answer in made.answer_block(public.queries, rng)]
    return float((np.array(labels) == public.truth).mean())

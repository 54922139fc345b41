"""Private-kNN (Zhu, Yu, Chandraker and Wang, CVPR 2020): a noisy vote of a Poisson sample's k.

Each query has a fresh sample, in which each row is by a coin of its own: a sample of a fixed number
of rows, or with replacement, is not what the account is for. One more row in a sample moves at most
one vote from a class to another, so that the L2 sensitivity of the counts is √2, and not 1. Rows at
the same distance are ranked by their place: any choice among them could change more than one vote.
"""

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.privacy.accounting import RenyiDP
from veilring.protocols.prediction.algorithm.features import lengths, products_by_query
from veilring.protocols.prediction.rivals.accounts import least_sigma, sampled_gaussians

SENSITIVITY: Final = math.sqrt(2)
"""L2, of the counts of the k nearest."""


@dataclass(frozen=True, slots=True)
class PrivateKNN:
    """The public parameters.

    Attributes:
        classes: How many there are.
        k: How many neighbours vote, or all of a smaller sample.
        rate: The probability that a row is in a query's sample, in (0, 1].
        sigma: Standard deviation of the noise of each class's count.

    Raises:
        InputError: If one is out of range.
    """

    classes: int
    k: int
    rate: float
    sigma: float

    def __post_init__(self) -> None:
        for name in ("classes", "k"):
            if getattr(self, name) < 1:
                raise InputError(name, getattr(self, name), "a whole number of at least 1")
        if not 0 < self.rate <= 1:
            raise InputError("rate", self.rate, "a probability above 0")
        if not 0 < self.sigma < math.inf:
            raise InputError("sigma", self.sigma, "a finite number above 0")

    @classmethod
    def calibrate(
        cls, classes: int, k: int, rate: float, *, queries: int, epsilon: float, delta: float
    ) -> Self:
        """Return the parameters with which so many queries are (epsilon, delta)-DP together."""
        sigma = least_sigma(epsilon, delta, rate=rate, count=queries, sensitivity=SENSITIVITY)
        return cls(classes, k, rate, sigma)

    def account(self, queries: int) -> RenyiDP:
        """Return what so many answers guarantee together."""
        return sampled_gaussians(self.sigma, self.rate, queries, SENSITIVITY)


def private_knn(
    parameters: PrivateKNN,
    rows: NDArray[np.float32],
    labels: NDArray[np.int64],
    queries: NDArray[np.float32],
    rng: Generator,
) -> NDArray[np.int64]:
    """Answer queries, each of which is paid for by the account.

    Args:
        parameters: Public.
        rows: Quantised, shape (rows, features).
        labels: Shape (rows,).
        queries: Quantised, shape (queries, features).
        rng: Secret.

    Returns:
        Shape (queries,).
    """
    found, row_lengths = np.empty(len(queries), np.int64), lengths(rows)
    for place, products in enumerate(products_by_query(queries, rows)):
        sample = np.flatnonzero(rng.random(len(rows)) < parameters.rate)
        cosines = products[sample] / row_lengths[sample]
        counts = nearest_counts(parameters, cosines, labels[sample])
        noise = rng.standard_normal(parameters.classes)
        found[place] = (counts + parameters.sigma * noise).argmax()
    return found


def nearest_counts(
    parameters: PrivateKNN, cosines: NDArray[np.float64], labels: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return how many of a sample's k nearest are of each class; of equals the first are nearer."""
    nearest = np.argsort(-cosines, kind="stable")[: parameters.k]
    return np.bincount(labels[nearest], minlength=parameters.classes)

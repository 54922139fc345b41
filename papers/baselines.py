"""Baselines of Ind-KNN in its paper's figures, each with its own (ε, δ) accounting.

Neighbouring tables differ by one added or removed row. Features are quantised, as for Ind-KNN. The
upper limit of accuracy is `kernel_vote`, a vote without noise or budget.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from papers.accounting import least_noise, subsampled_gaussian
from veilring.arrays import Floats, Ints
from veilring.errors import InputError
from veilring.privacy.accounting import GaussianDP, RenyiDP
from veilring.protocols.prediction.algorithm.directions import (
    LENGTH_MAX,
    Kernel,
    lengths,
    products_by_query,
)

SAMPLED_ORDERS: Final = (
    *map(float, range(2, 33)),
    *map(float, range(36, 65, 4)),
    *map(float, range(80, 257, 16)),
)
"""A few Rényi orders, because calibration tries each a hundred times; they lose a thousandth."""


def sampled_gaussians(sigma: float, rate: float, count: int, sensitivity: float = 1.0) -> RenyiDP:
    """Return the joint guarantee of Gaussian releases, each on its own Poisson sample.

    Args:
        sigma: The standard deviation of each noise.
        rate: The probability that a row is in a sample.
        count: The number of releases.
        sensitivity: The L2 sensitivity of the release of a sample.
    """
    return subsampled_gaussian(sigma, rate, sensitivity, SAMPLED_ORDERS).repeat(count)


@lru_cache(maxsize=1024)  # of numbers only; the same targets are asked for each split of a figure
def least_sigma(
    epsilon: float, delta: float, *, rate: float, count: int, sensitivity: float = 1.0
) -> float:
    """Return the smallest noise for which `sampled_gaussians` are together (epsilon, delta)-DP.

    Raises:
        InputError: If a target is out of range.
    """
    return least_noise(
        lambda sigma: sampled_gaussians(sigma, rate, count, sensitivity), epsilon, delta
    )


def best_class(queries: NDArray[np.float32], weights: Floats) -> Ints:
    """Return for each query the class with the largest inner product.

    Args:
        queries: Shape (queries, features).
        weights: Shape (classes, features), released already: any number of answers are free.
    """
    return np.asarray((queries @ weights.T).argmax(axis=1))


def _require(parameters: object, counts: tuple[str, ...], positive: tuple[str, ...]) -> None:
    """Refuse counts below 1, and numbers that are not positive and finite, by their names."""
    for name in counts:
        if getattr(parameters, name) < 1:
            raise InputError(name, getattr(parameters, name), "a whole number of at least 1")
    rate = getattr(parameters, "rate", 1.0)
    if not 0 < rate <= 1:
        raise InputError("rate", rate, "a probability above 0")
    for name in positive:
        if not 0 < getattr(parameters, name) < math.inf:
            raise InputError(name, getattr(parameters, name), "a finite number above 0")


COUNTS_SENSITIVITY: Final = math.sqrt(2)
"""L2, of the counts of the k nearest."""


@dataclass(frozen=True, slots=True)
class SampledKNN:
    """Private-kNN: a noisy vote of the k nearest in a fresh Poisson sample, for every query.

    Source: Zhu, Yu, Chandraker and Wang, CVPR 2020. Each row is in a sample by an independent coin:
    the accounting does not apply to a sample of a fixed number of rows, or with replacement. One
    more row in a sample moves at most one vote from one class to another, so the L2 sensitivity of
    the counts is √2, not 1. Rows at the same distance are ranked by their position: an arbitrary
    choice among them could change more than one vote.

    Attributes:
        classes: The number of classes.
        k: The number of neighbours that vote; in a smaller sample, all rows vote.
        rate: The probability that a row is in a query's sample, in (0, 1].
        sigma: Standard deviation of the noise of each class's count.

    Raises:
        InputError: If a parameter is out of range.
    """

    classes: int
    k: int
    rate: float
    sigma: float

    def __post_init__(self) -> None:
        _require(self, ("classes", "k"), ("sigma",))

    @classmethod
    def calibrate(
        cls, classes: int, k: int, rate: float, *, queries: int, epsilon: float, delta: float
    ) -> Self:
        """Return the parameters with which the given number of queries is (epsilon, delta)-DP."""
        sigma = least_sigma(
            epsilon, delta, rate=rate, count=queries, sensitivity=COUNTS_SENSITIVITY
        )
        return cls(classes, k, rate, sigma)

    def account(self, queries: int) -> RenyiDP:
        """Return the joint guarantee of the given number of answers."""
        return sampled_gaussians(self.sigma, self.rate, queries, COUNTS_SENSITIVITY)


def answer_by_private_knn(
    parameters: SampledKNN,
    rows: NDArray[np.float32],
    labels: Ints,
    queries: NDArray[np.float32],
    rng: Generator,
) -> Ints:
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


def nearest_counts(parameters: SampledKNN, cosines: Floats, labels: Ints) -> Ints:
    """Return the counts of classes among a sample's k nearest rows; ties favour the first row."""
    nearest = np.argsort(-cosines, kind="stable")[: parameters.k]
    return np.bincount(labels[nearest], minlength=parameters.classes)


@dataclass(frozen=True, slots=True)
class NoisySGD:
    """Linear NoisySGD: softmax regression, trained once with noisy gradients; answers are free.

    Source: Abadi et al. 2016 (DP-SGD), with Poisson samples and the account of Mironov, Talwar and
    Zhang 2019. The gradient of one row is an outer product of two vectors, so its norm is the
    product of theirs, and a step is two matrix products: no library is needed for gradients of
    each row.

    Attributes:
        classes: The number of classes.
        steps: The number of training steps.
        rate: The probability that a row is in a step's sample, in (0, 1].
        batch: The divisor of a sample's noisy sum: a public estimate of its size.
        clip: The greatest L2 norm of a row's gradient.
        learning_rate: The learning rate of each step.
        sigma: Standard deviation of the noise of the sum, in units of `clip`.

    Raises:
        InputError: If a parameter is out of range.
    """

    classes: int
    steps: int
    rate: float
    batch: float
    clip: float = 1.0
    learning_rate: float = 2.0
    sigma: float = 1.0

    def __post_init__(self) -> None:
        _require(self, ("classes", "steps"), ("batch", "clip", "learning_rate", "sigma"))

    def calibrate(self, epsilon: float, delta: float) -> Self:
        """Return the same parameters with the least noise that is (epsilon, delta)-DP."""
        sigma = least_sigma(epsilon, delta, rate=self.rate, count=self.steps)
        return replace(self, sigma=sigma)

    def account(self) -> RenyiDP:
        """Return the guarantee of the whole training."""
        return sampled_gaussians(self.sigma, self.rate, self.steps)


def train_noisy_sgd(
    parameters: NoisySGD, rows: NDArray[np.float32], labels: Ints, rng: Generator
) -> Floats:
    """Train, and return the weights, averaged over the later half of the steps.

    Args:
        parameters: Public.
        rows: Quantised, shape (rows, features).
        labels: Shape (rows,).
        rng: Secret.

    Returns:
        Shape (classes, features).
    """
    unit = rows / lengths(rows)[:, None]
    weights = np.zeros((parameters.classes, rows.shape[1]))
    average = np.zeros_like(weights)
    first = parameters.steps // 2
    for step in range(parameters.steps):
        sample = rng.random(len(rows)) < parameters.rate
        total = clipped_gradient(weights, unit[sample], labels[sample], parameters.clip)
        noise = parameters.sigma * parameters.clip * rng.standard_normal(weights.shape)
        weights -= parameters.learning_rate / parameters.batch * (total + noise)
        if step >= first:
            average += weights / (parameters.steps - first)
    return average


def clipped_gradient(weights: Floats, unit: Floats, labels: Ints, clip: float) -> Floats:
    """Return the sum of the rows' gradients of the cross-entropy, each clipped.

    Args:
        weights: Shape (classes, features).
        unit: Shape (rows, features).
        labels: Shape (rows,).
        clip: The maximum L2 norm of each.

    Returns:
        Shape (classes, features).
    """
    scores = unit @ weights.T
    errors = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
    errors /= errors.sum(axis=1, keepdims=True)
    errors[np.arange(len(labels)), labels] -= 1
    squares = np.square(errors).sum(axis=1) * np.square(unit).sum(axis=1)
    shrink = clip / np.maximum(np.sqrt(squares), clip)
    return np.asarray((errors * shrink[:, None]).T @ unit)


@dataclass(frozen=True, slots=True)
class ClassMeans:
    """DP class means: each class's sum of directions, released once; answers are free.

    A query gets the class with the nearest mean direction. One release of all sums is a Gaussian
    mechanism of L2 sensitivity 1: a row is a unit vector, and in only one sum.

    Attributes:
        classes: The number of classes.
        sigma: Standard deviation of the noise of each sum of unit vectors.

    Raises:
        InputError: If a parameter is out of range.
    """

    classes: int
    sigma: float

    def __post_init__(self) -> None:
        _require(self, ("classes",), ("sigma",))

    @classmethod
    def calibrate(cls, classes: int, epsilon: float, delta: float) -> Self:
        """Return the parameters with the smallest noise that is (epsilon, delta)-DP."""
        return cls(classes, GaussianDP.calibrate(epsilon, delta).sigma())

    def account(self) -> GaussianDP:
        """Return the guarantee of the release."""
        return GaussianDP.of_gaussian(self.sigma)


def release_sums(
    parameters: ClassMeans, rows: NDArray[np.float32], labels: Ints, rng: Generator
) -> Floats:
    """Release the sum of each class, scaled to length 1, shape (classes, features).

    The sums are exact whole numbers before the noise and rounded to whole numbers after it.

    Args:
        parameters: Public.
        rows: Quantised, shape (rows, features).
        labels: Shape (rows,).
        rng: Secret.
    """
    sums = np.zeros((parameters.classes, rows.shape[1]))
    np.add.at(sums, labels, rows)
    noise = rng.standard_normal(sums.shape)
    released = np.rint(sums + parameters.sigma * LENGTH_MAX * noise)
    norms = np.sqrt(np.square(released).sum(axis=1, keepdims=True))
    return np.asarray(released / np.maximum(norms, 1.0))


def kernel_vote(
    rows: NDArray[np.float32],
    labels: Ints,
    queries: NDArray[np.float32],
    kernel: Kernel,
    classes: int,
) -> Ints:
    """Return the class with the greatest sum of κ over rows with κ ≥ τ, without privacy.

    A query without a neighbour gets the label of the nearest row.
    """
    row_lengths, found = lengths(rows), np.empty(len(queries), np.int64)
    products = zip(products_by_query(queries, rows), lengths(queries).tolist(), strict=True)
    for place, (each, length) in enumerate(products):
        near, kappa = kernel.neighbours(each, row_lengths, length)
        if len(near):
            found[place] = np.bincount(labels[near], kappa, classes).argmax()
        else:
            found[place] = labels[(each / row_lengths).argmax()]
    return found

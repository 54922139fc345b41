"""Linear NoisySGD: softmax regression on features, trained with noisy gradients (DP-SGD).

Source: Abadi et al. 2016, with Poisson samples and the account of Mironov, Talwar and Zhang 2019.
The gradient of one row is an outer product of two vectors, so its norm is the product of theirs,
and a step is two matrix products. That needs no library for gradients of each row.
"""

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.privacy.accounting import RenyiDP
from veilring.protocols.prediction.algorithm.features import lengths
from veilring.protocols.prediction.rivals.accounts import least_sigma, sampled_gaussians


@dataclass(frozen=True, slots=True)
class NoisySGD:
    """The public parameters.

    Attributes:
        classes: How many there are.
        steps: Of training.
        rate: The probability that a row is in a step's sample, in (0, 1].
        batch: What the noisy sum of a sample is divided by: a public guess of its size.
        clip: The greatest L2 norm of a row's gradient.
        learning_rate: Of each step.
        sigma: Standard deviation of the noise of the sum, in units of `clip`.

    Raises:
        InputError: If one is out of range.
    """

    classes: int
    steps: int
    rate: float
    batch: float
    clip: float = 1.0
    learning_rate: float = 2.0
    sigma: float = 1.0

    def __post_init__(self) -> None:
        for name in ("classes", "steps"):
            if getattr(self, name) < 1:
                raise InputError(name, getattr(self, name), "a whole number of at least 1")
        if not 0 < self.rate <= 1:
            raise InputError("rate", self.rate, "a probability above 0")
        for name in ("batch", "clip", "learning_rate", "sigma"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(name, getattr(self, name), "a finite number above 0")

    def calibrate(self, epsilon: float, delta: float) -> Self:
        """Return the same with the least noise that is (epsilon, delta)-DP."""
        sigma = least_sigma(epsilon, delta, rate=self.rate, count=self.steps)
        return replace(self, sigma=sigma)

    def account(self) -> RenyiDP:
        """Return what the whole training guarantees."""
        return sampled_gaussians(self.sigma, self.rate, self.steps)


def train(
    parameters: NoisySGD, rows: NDArray[np.float32], labels: NDArray[np.int64], rng: Generator
) -> NDArray[np.float64]:
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


def clipped_gradient(
    weights: NDArray[np.float64], unit: NDArray[np.float64], labels: NDArray[np.int64], clip: float
) -> NDArray[np.float64]:
    """Return the sum of the rows' gradients of the cross-entropy, each clipped.

    Args:
        weights: Shape (classes, features).
        unit: Shape (rows, features).
        labels: Shape (rows,).
        clip: The greatest L2 norm of each.

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

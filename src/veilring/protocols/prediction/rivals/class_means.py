"""DP class means: each class's sum of directions, released once. Then all answers are free.

A query's class is the one whose mean direction is nearest. One release of all sums is a Gaussian
mechanism of L2 sensitivity 1: a row is a unit vector, and in one sum only.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.privacy.accounting import GaussianDP
from veilring.protocols.prediction.algorithm.features import LENGTH_MAX


@dataclass(frozen=True, slots=True)
class ClassMeans:
    """The public parameters.

    Attributes:
        classes: How many there are.
        sigma: Standard deviation of the noise of each sum of unit vectors.

    Raises:
        InputError: If one is out of range.
    """

    classes: int
    sigma: float

    def __post_init__(self) -> None:
        if self.classes < 1:
            raise InputError("classes", self.classes, "a whole number of at least 1")
        if not 0 < self.sigma < math.inf:
            raise InputError("sigma", self.sigma, "a finite number above 0")

    @classmethod
    def calibrate(cls, classes: int, epsilon: float, delta: float) -> Self:
        """Return the parameters with the least noise that is (epsilon, delta)-DP."""
        return cls(classes, GaussianDP.calibrate(epsilon, delta).sigma())

    def account(self) -> GaussianDP:
        """Return what the release guarantees."""
        return GaussianDP.of_gaussian(self.sigma)


def release_sums(
    parameters: ClassMeans, rows: NDArray[np.float32], labels: NDArray[np.int64], rng: Generator
) -> NDArray[np.float64]:
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

"""From joint log-probabilities to a decision: what both naive Bayes classifiers share."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

# Below every share that counts: so that a count of 0 is very unlikely, and not impossible.
_TINY: Final = 1e-300


class Posterior(ABC):
    """A classifier that knows the joint probability of a row and each class."""

    __slots__ = ()

    @abstractmethod
    def joint(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Return the logarithm of each class's probability with the row, up to a constant."""

    def log_probabilities(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Return the logarithms of the classes' probabilities given a row, (rows, classes)."""
        joint = self.joint(rows)
        highest = joint.max(axis=1, keepdims=True)
        total = np.log(np.exp(joint - highest).sum(axis=1, keepdims=True))
        return np.asarray(joint - highest - total)

    def classify(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """Return the most likely class of each row; of equally likely ones the first."""
        return np.asarray(self.joint(rows).argmax(axis=1), dtype=np.int64)


def log_of(
    log_priors: NDArray[np.float64], terms: Iterable[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return the sum of the priors and of each feature's term, shape (rows, classes)."""
    return np.asarray(sum(terms) + log_priors)


def log_shares(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logarithms of each count's share along the first axis; equal if all are 0."""
    totals = counts.sum(axis=0)
    is_known = totals > 0
    shares = np.where(is_known, counts / np.where(is_known, totals, 1.0), 1 / len(counts))
    return np.asarray(np.log(np.maximum(shares, _TINY)))

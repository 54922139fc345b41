"""Membership inference: is a record in the table? Guessed from the answers to a batch of queries.

The adversary can play the server, and so knows how often each answer comes up with the record and
without it. It guesses what makes its answers likelier. Gaussian DP bounds how well any guess does.
"""

import math

import numpy as np
from numpy.typing import NDArray


def label_laws(labels: NDArray[np.int64], classes: int) -> NDArray[np.float64]:
    """Return how often each query got each label, shape (queries, classes), never 0.

    Args:
        labels: Of runs that the adversary played itself, shape (runs, queries).
        classes: How many there are.
    """
    counts = (labels[..., None] == np.arange(classes)).sum(axis=0) + 0.5
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def guess_membership(
    labels: NDArray[np.int64], present: NDArray[np.float64], absent: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return whether each run's answers are likelier with the record, shape (runs,).

    Args:
        labels: Shape (runs, queries).
        present: `label_laws` with the record.
        absent: `label_laws` without it.
    """
    ratios = np.log(present) - np.log(absent)
    return np.asarray(ratios[np.arange(labels.shape[1]), labels].sum(axis=1) > 0)


def advantage(with_record: NDArray[np.bool_], without: NDArray[np.bool_]) -> float:
    """Return the rate of true alarms less that of false ones.

    Args:
        with_record: What was guessed where the record is there, shape (runs,).
        without: What was guessed where it is not.
    """
    return float(with_record.mean() - without.mean())


def advantage_bound(mu: float) -> float:
    """Return the greatest advantage that Gaussian DP allows: `2 Phi(mu / 2) - 1`."""
    return math.erf(mu / math.sqrt(8))

"""Membership inference: is a row in the table? By the best test that answers allow.

An adversary who knows all rows but one, and the batch, compares how likely the answers are with the
row and without it. No test of the same answers has a greater advantage, and differential privacy
bounds it.
"""

from itertools import product
from math import tanh

import numpy as np
from numpy.typing import NDArray


def guess_membership(
    answers: NDArray[np.int64], present: NDArray[np.float64], absent: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return whether each run's answers are likelier with the row, shape (runs,).

    Args:
        answers: Shape (runs, Q), the labels of a batch that was asked again and again.
        present: The law of each answer with the row, shape (Q, classes).
        absent: The same without it.
    """
    ratios = np.log(present) - np.log(absent)
    return np.asarray(ratios[np.arange(answers.shape[1]), answers].sum(axis=1) > 0)


def advantage(with_row: NDArray[np.bool_], without_row: NDArray[np.bool_]) -> float:
    """Return the rate of true alarms less that of false ones.

    Args:
        with_row: What was guessed where the row is there, shape (runs,).
        without_row: What was guessed where it is not.
    """
    return float(with_row.mean() - without_row.mean())


def exact_advantage(present: NDArray[np.float64], absent: NDArray[np.float64]) -> float:
    """Return the greatest advantage of any test: half the sum of differences over all answers.

    Args:
        present: The law of each answer with the row, shape (Q, classes); `classes ** Q` answers
            are enumerated.
        absent: The same without it.
    """
    queries, classes = present.shape
    answers = np.array(list(product(range(classes), repeat=queries)))
    places = np.arange(queries)
    one, other = (law[places, answers].prod(axis=1) for law in (present, absent))
    return float(np.abs(one - other).sum() / 2)


def advantage_bound(epsilon: float) -> float:
    """Return the greatest advantage that epsilon-DP allows: `(e^eps - 1) / (e^eps + 1)`.

    Args:
        epsilon: At least 0.
    """
    return tanh(epsilon / 2)

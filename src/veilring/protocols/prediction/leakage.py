"""Labels of a predictor with one record and without it, for an audit or a membership attack.

An adversary knows the mechanism and can run the server itself. `veilring.privacy.audits` turns such
labels into lower bounds of the privacy loss, and into guesses whether the record is there.
"""

from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.protocols.prediction.algorithm.predictor import Predictor

MakePredictor = Callable[[bool], Predictor]
"""Makes a fresh predictor, with the canary or without it."""


def canary_labels(
    make: MakePredictor, *, present: bool, queries: NDArray[np.float32], runs: int, rng: Generator
) -> NDArray[np.int64]:
    """Return the labels that independent servers answer, shape (runs, queries).

    The worst queries are the canary itself, repeatedly, with few other records nearby.

    Args:
        make: A function that makes a predictor with or without the canary.
        present: Whether the canary is in the table.
        queries: The quantised queries, shape (queries, features).
        runs: The number of servers.
        rng: The source of all their noise.
    """
    labels = np.empty((runs, len(queries)), np.int64)
    for run in range(runs):
        answers = make(present).answer_block(queries, rng)
        labels[run] = [answer.label for answer in answers]
    return labels


def label_laws(labels: NDArray[np.int64], classes: int) -> NDArray[np.float64]:
    """Return the frequency of each label at each query, shape (queries, classes), never 0.

    Args:
        labels: The labels of runs that the adversary played itself, shape (runs, queries).
        classes: The number of classes.
    """
    counts = (labels[..., None] == np.arange(classes)).sum(axis=0) + 0.5
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))

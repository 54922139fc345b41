"""Labels of a predictor with and without one record, for audits and membership attacks.

An adversary knows the mechanism and can run the server itself. `veilring.privacy.bounds` converts
such labels into lower bounds on the privacy loss, and into guesses of the record's presence.
"""

from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.arrays import Floats, Ints
from veilring.protocols.prediction.algorithm.predictor import Predictor

MakePredictor = Callable[[bool], Predictor]
"""A function that makes a fresh predictor, with or without the canary."""


def canary_labels(
    make: MakePredictor, *, present: bool, queries: NDArray[np.float32], runs: int, rng: Generator
) -> Ints:
    """Return the labels from independent servers, shape (runs, queries).

    The worst queries repeat the canary itself, if few other records are near.
    """
    labels = np.empty((runs, len(queries)), np.int64)
    for run in range(runs):
        answers = make(present).answer_block(queries, rng)
        labels[run] = [answer.label for answer in answers]
    return labels


def label_probabilities(labels: Ints, classes: int) -> Floats:
    """Return the frequency of each label at each query, shape (queries, classes), never 0."""
    counts = (labels[..., None] == np.arange(classes)).sum(axis=0) + 0.5
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))

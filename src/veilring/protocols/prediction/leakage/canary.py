"""A canary: one record of which an adversary asks, in a table with it and in one without."""

from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.protocols.prediction.algorithm import Predictor

Make = Callable[[bool], Predictor]
"""Makes a fresh predictor, with the canary or without it."""


def canary_labels(
    make: Make, *, present: bool, queries: NDArray[np.float32], runs: int, rng: Generator
) -> NDArray[np.int64]:
    """Return the labels that independent servers answer, shape (runs, queries).

    The worst queries are the canary itself, again and again, where few others are near.

    Args:
        make: See there.
        present: Whether the canary is in the table.
        queries: Quantised, shape (queries, features).
        runs: How many servers.
        rng: Of all their noise.
    """
    labels = np.empty((runs, len(queries)), np.int64)
    for run in range(runs):
        answers = make(present).answer_block(queries, rng)
        labels[run] = [answer.label for answer in answers]
    return labels

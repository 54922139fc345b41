"""The vote of all neighbours without noise or budget: what privacy is to be measured by."""

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.prediction.algorithm import Kernel, lengths
from veilring.protocols.prediction.algorithm.features import products_by_query


def kernel_vote(
    rows: NDArray[np.float32],
    labels: NDArray[np.int64],
    queries: NDArray[np.float32],
    kernel: Kernel,
    classes: int,
) -> NDArray[np.int64]:
    """Return the class with the greatest sum of κ over rows with κ ≥ τ. It is not private.

    A query that has no neighbour gets the label of the row that is nearest.

    Args:
        rows: Quantised, shape (rows, features), at least one.
        labels: Shape (rows,).
        queries: Quantised, shape (queries, features).
        kernel: And its τ.
        classes: How many there are.
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

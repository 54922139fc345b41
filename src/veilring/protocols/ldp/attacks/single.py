"""What one report says by itself: the sums that a collector would have of it alone."""

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.ldp.algorithm.randomiser import LocalRandomiser, Reports


def single_sums(randomiser: LocalRandomiser, reports: Reports) -> NDArray[np.int64]:
    """Return the sums of each report, shape (clients, cells).

    For a pure frequency oracle they say which values the report supports. Equal reports are looked
    at once.
    """
    different, which = np.unique(reports, axis=0, return_inverse=True)
    sums = np.empty((len(different), randomiser.cells), dtype=np.int64)
    for row in range(len(different)):
        sums[row] = randomiser.aggregate(different[row : row + 1])
    return np.asarray(sums[which.ravel()])

"""Prediction reuse: what was answered is public, and votes from then on without pay or noise."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.prediction.algorithm.features import inner_products
from veilring.protocols.prediction.algorithm.kernels import Kernel

REUSED_MAX: Final = 100_000
"""Later answers do not join: memory is bounded, and this many outvote any noise."""
_ROOM_MIN: Final = 256
# Kernels are summed in whole steps, so that their sum has no order; doubles hold 2**29 of them.
_STEPS: Final = 2.0**24


class Released:
    """Queries and their released labels, in the order in which they were answered.

    Args:
        features: Of a query.
        classes: How many there are.
    """

    def __init__(self, features: int, classes: int) -> None:
        self._count, self._classes = 0, classes
        self._queries = np.zeros((_ROOM_MIN, features), np.float32)
        self._lengths = np.zeros(_ROOM_MIN)
        self._labels = np.zeros(_ROOM_MIN, np.int64)

    def __len__(self) -> int:
        return self._count

    def products(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the exact inner products with all of them, then with each other."""
        earlier = inner_products(queries, self._queries[: self._count])
        return np.hstack([earlier, inner_products(queries, queries)])

    def votes(
        self, kernel: Kernel, products: NDArray[np.float32], length: float
    ) -> NDArray[np.float64]:
        """Return the kernels of neighbours, summed by class, with their number at the end.

        Args:
            kernel: The one of the records.
            products: Of this query with all that are released, and maybe more.
            length: Of this query.

        Returns:
            Shape (classes + 1,).
        """
        near, kappa = kernel.neighbours(
            products[: self._count], self._lengths[: self._count], length
        )
        steps = np.floor(kappa * _STEPS)
        sums = np.bincount(self._labels[near], weights=steps, minlength=self._classes)
        return np.append(sums / _STEPS, len(near))

    def join(self, query: NDArray[np.float32], length: float, label: int) -> None:
        """Let an answer vote from now on, unless there are `REUSED_MAX`."""
        if self._count == REUSED_MAX:
            return
        if self._count == len(self._labels):
            more = self._count
            self._queries = np.pad(self._queries, ((0, more), (0, 0)))
            self._lengths = np.pad(self._lengths, (0, more))
            self._labels = np.pad(self._labels, (0, more))
        self._queries[self._count] = query
        self._lengths[self._count], self._labels[self._count] = length, label
        self._count += 1

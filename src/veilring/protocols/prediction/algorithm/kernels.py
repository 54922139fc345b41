"""Kernels of unit vectors, from their exact inner products."""

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.prediction.algorithm.features import LENGTH_MAX

KernelName = Literal["cosine", "rbf"]

PAPER_WIDTH: Final = math.exp(1.5)
"""ν² of the paper's figures, which give its logarithm."""

WIDTH_MAX: Final = 1e6
"""The largest ν². With width 1e13, values of all cosines differ by so few floats that a row could
be a neighbour or not depending on other rows. With 1e6, floats are 1e-10 apart in the cosine."""

# By how much the cosine is lowered at which rows are sorted out, so that no rounding loses one.
_MARGIN: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Kernel:
    """How alike two unit vectors are: the cosine, or `exp(-|x - q|² / ν²)`.

    Attributes:
        name: Which.
        tau: τ, the least value at which a row is a neighbour; above 0 and up to 1.
        width: ν², for `rbf`; above 0 and up to `WIDTH_MAX`.

    Raises:
        InputError: If a parameter is not allowed.
    """

    name: KernelName = "cosine"
    tau: float = 0.5
    width: float = PAPER_WIDTH

    def __post_init__(self) -> None:
        if self.name not in {"cosine", "rbf"}:
            raise InputError("kernel", self.name, "cosine or rbf")
        if not 0 < self.tau <= 1:
            raise InputError("tau", self.tau, "a number above 0 and up to 1")
        if not 0 < self.width <= WIDTH_MAX:
            raise InputError("width", self.width, f"a number above 0 and up to {WIDTH_MAX:g}")

    @property
    def least_cosine(self) -> float:
        """The cosine at which a row begins to be a neighbour."""
        return self.tau if self.name == "cosine" else 1 + self.width * math.log(self.tau) / 2

    def neighbours(
        self,
        products: NDArray[np.float32],
        row_lengths: NDArray[np.float64],
        query_length: float,
    ) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Return which rows are neighbours of a query, and their kernels: κ ≥ τ.

        Args:
            products: Exact, shape (rows,).
            row_lengths: Shape (rows,).
            query_length: Of the query.

        Returns:
            Positions, ascending, and κ of each.
        """
        # One comparison with a number sorts out nearly all; the rest are judged one by one.
        least = (self.least_cosine - _MARGIN) * query_length
        extreme = row_lengths.min(initial=LENGTH_MAX) if least > 0 else LENGTH_MAX
        near = np.flatnonzero(products >= np.float32(least * extreme))
        cosines = products[near] / (row_lengths[near] * query_length)
        values = self._values(np.minimum(cosines, 1.0))  # rounding makes some larger
        kept = values >= self.tau
        return near[kept], values[kept]

    def _values(self, cosines: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.name == "cosine":
            return cosines
        # The exponential of a whole array may differ in its last bit with the place in the array.
        return np.array([math.exp(2 * (cosine - 1) / self.width) for cosine in cosines.tolist()])

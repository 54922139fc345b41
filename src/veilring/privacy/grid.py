"""Real statistics on a public grid, so that their noise can be whole numbers.

Mironov (CCS 2012): the low bits of a float tell which value a float noise was added to. On a grid
there are no low bits: a statistic is rounded to whole steps, the noise is a whole number of steps,
and the result is read as a real number by whoever likes.

Steps are powers of two, so that a float times or by a step is exact.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.privacy.checks import require

# Whole numbers up to here are floats, and their sums with any noise stay below 2**63.
_MOST_STEPS: Final = 2**53


@dataclass(frozen=True, slots=True)
class Grid:
    """The whole multiples of a step.

    Attributes:
        step: A power of two, such as 2**-16.

    Raises:
        InputError: If it is none.
    """

    step: float

    def __post_init__(self) -> None:
        power = math.isfinite(self.step) and math.frexp(self.step)[0] == 0.5  # noqa: PLR2004  (the mantissa of a power of two)
        require(power, "step", self.step, "a power of two")

    def nearest(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return values in whole steps, rounded to the nearest.

        Vectors that differ by D in a norm differ by at most `sensitivity(D, ...)` steps after it.

        Raises:
            InputError: If a value is not finite, or more than 2**53 steps from 0.
        """
        return self._whole(np.rint(self._in_steps(values)))

    def inward(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return values in whole steps, rounded toward 0.

        No entry grows, so a vector of norm D has a norm of at most `D / step` steps after it. Sums
        of vectors that are rounded one by one have the sensitivity `D / step` when one is added.

        Raises:
            InputError: If a value is not finite, or more than 2**53 steps from 0.
        """
        return self._whole(np.trunc(self._in_steps(values)))

    def values(self, steps: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return whole steps as real numbers; exact up to 2**53 steps."""
        return np.asarray(steps * self.step)

    def sensitivity(self, distance: float | Fraction, dimensions: int, norm: int) -> float:
        """Return by how many steps two vectors can differ after `nearest`, rounded up.

        Rounding moves each entry by at most half a step, so two of them by one step against each
        other: by a vector of ones, whose L1 norm is `dimensions` and L2 norm its square root.

        Args:
            distance: How far apart the vectors are at most, at least 0, in the same norm.
            dimensions: The number of entries, at least 1.
            norm: 1 or 2.

        Raises:
            InputError: If an argument is outside its range.
        """
        finite = math.isfinite(distance) and distance >= 0
        require(finite, "distance", distance, "a finite number of at least 0")
        require(dimensions >= 1, "dimensions", dimensions, "a whole number of at least 1")
        require(norm in {1, 2}, "norm", norm, "1 or 2")
        steps = Fraction(distance) / Fraction(self.step)
        ones = dimensions if norm == 1 else math.nextafter(math.sqrt(dimensions), math.inf)
        exact = steps + Fraction(ones)
        return float(exact) if float(exact) >= exact else math.nextafter(float(exact), math.inf)

    def _in_steps(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(over="ignore"):  # what is infinite is refused
            return np.asarray(values / self.step)

    def _whole(self, rounded: NDArray[np.float64]) -> NDArray[np.int64]:
        inside = bool((np.abs(rounded) <= _MOST_STEPS).all())
        require(inside, "values", "out of range", "finite, at most 2**53 steps from 0")
        return rounded.astype(np.int64)

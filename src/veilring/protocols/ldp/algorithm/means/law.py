"""`Law`: how one number from -1 to 1 becomes one code, by exactly known probabilities.

A number is first rounded to a public grid, up or down at random so that its mean stays what it is.
From there on all is integers. Rounding happens before the law, so that the law's loss bounds that
of both: a mixture of inputs is no easier to tell apart than the inputs.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.oracles.numerals import width_of
from veilring.protocols.ldp.algorithm.oracles.oracle import EPSILON_MAX

Codes = NDArray[np.int64]
"""What a law says, numbers from 0 to `Law.codes - 1`."""


@dataclass(frozen=True)
class Law(ABC):
    """A law of codes for each point of a grid on [-1, 1].

    Attributes:
        epsilon: The most that a code may spend.
        name: What configurations and tables call it.
        least_epsilon: Below it, the integers of the law can no longer show the number.
        levels: The grid's points are the multiples of `1 / levels`.
        parts: How many integers are summed of each code.
        covers_one_hot: Whether all entries of a vector may be perturbed for the price of one, if
            the vector is 0 but at one secret place.
    """

    epsilon: float | Fraction

    name: ClassVar[str]
    least_epsilon: ClassVar[float]
    levels: ClassVar[int] = 1
    parts: ClassVar[int] = 1
    covers_one_hot: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse an epsilon outside [least_epsilon, 20]."""
        if not self.least_epsilon <= self.epsilon <= EPSILON_MAX:
            allowed = f"from {self.least_epsilon} to {EPSILON_MAX:g}"
            raise InputError("epsilon", float(self.epsilon), allowed)

    @property
    @abstractmethod
    def exact_epsilon(self) -> float:
        """What a code really spends, rounded up; never more than `epsilon`."""

    @property
    def bias(self) -> float:
        """How far the mean of the reported value may be from the number, at most."""
        return 0.0

    @property
    def influence(self) -> float:
        """The greatest number that a code stands for, where no honest number is above 1."""
        ends = self.summed(np.array([0, self.codes - 1]))
        return float(np.abs(self.total(ends)).max())

    @property
    @abstractmethod
    def codes(self) -> int:
        """How many codes there are."""

    @property
    def bits(self) -> int:
        """How wide a code is on the wire: 1, or a multiple of 8."""
        return 1 if self.codes == 2 else 8 * width_of(self.codes)  # noqa: PLR2004  (a bit's)

    @property
    @abstractmethod
    def public(self) -> Mapping[str, int]:
        """The integers that its probabilities are made of."""

    @abstractmethod
    def sample(self, grid: NDArray[np.int64], rng: Generator) -> Codes:
        """Return a code for each grid point, of the same shape.

        Args:
            grid: Integers from `-levels` to `levels`.
            rng: The clients' secret randomness.
        """

    @abstractmethod
    def probability(self, codes: Codes, grid: int) -> NDArray[np.float64]:
        """Return the probability of each of some codes at a grid point, to float64's precision."""

    def plausible(self, codes: Codes, numbers: int) -> NDArray[np.bool_]:  # noqa: ARG002  (a subclass's)
        """Return which reports an honest client would ever make, shape (...).

        Args:
            codes: All codes of each report, shape (..., codes a report).
            numbers: How many of the codes stand for a number; the others stand for a 0.
        """
        return np.ones(codes.shape[:-1], dtype=np.bool_)

    @abstractmethod
    def summed(self, codes: Codes) -> NDArray[np.int64]:
        """Return what is summed of each code, shape (..., parts)."""

    @abstractmethod
    def total(self, sums: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the sum of unbiased values that belongs to sums of shape (..., parts)."""

    @abstractmethod
    def second_moment(self, x: float) -> float:
        """Return the mean square of the value reported for a number `x`; it grows with `|x|`."""

    def variance(self, x: float) -> float:
        """Return the variance of the value reported for `x`, rounding to the grid included."""
        return self.second_moment(x) - x * x

    @property
    def worst_variance(self) -> float:
        """The greatest variance for any number in [-1, 1]."""
        grid = np.linspace(-1.0, 1.0, 4 * self.levels + 1)
        return max(map(self.variance, grid.tolist()))


def rounded(values: NDArray[np.float64], levels: int, rng: Generator) -> NDArray[np.int64]:
    """Round numbers in [-1, 1] to multiples of `1 / levels`, up or down with the right mean.

    The levels are a power of two, so that scaling is exact, and the part behind the point is taken
    to 53 bits. So the mean is exact for every number that is a multiple of `2**-53 / levels`, and
    else off by less than that, which is less than what float64 resolves at 1.

    Raises:
        InputError: If a value is not a number in [-1, 1].
    """
    require_in_range(values)
    scaled = values * levels
    below = np.floor(scaled)
    return (below + (rng.random(values.shape) < scaled - below)).astype(np.int64)


def require_in_range(values: NDArray[np.float64]) -> None:
    """Refuse values of which one is no number in [-1, 1]; none is shown.

    Raises:
        InputError: If there is one.
    """
    if not np.all((values >= -1.0) & (values <= 1.0)):
        raise InputError("values", "out of range in some place", "numbers from -1 to 1")


def grid_square(x: float, levels: int) -> float:
    """Return the mean square of what `rounded` makes of a number."""
    below = floor(x * levels)
    part = x * levels - below
    return (below**2 * (1 - part) + (below + 1) ** 2 * part) / levels**2

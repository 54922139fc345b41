"""The Laplace mechanism on a grid: a number plus exact discrete Laplace noise."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, exp
from typing import ClassVar, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.privacy.laplace import (
    discrete_laplace,
    discrete_laplace_pmf,
    discrete_laplace_variance,
)
from veilring.privacy.loss import float_ceil
from veilring.privacy.tails import laplace_sum_max
from veilring.protocols.ldp.algorithm.means.law import Codes, Law, grid_square

# Rounding adds at most 1 / (4 levels^2), or 3.8e-6, to a variance that is 0.5 at epsilon = 4.
_LEVELS: Final = 256
# A report is cut this many scales beyond the grid, so that a lying client cannot weigh more. An
# honest report is cut with probability e^-20, or 2e-9, which leaves the mean off by e^-20 / epsilon
# at most: below the standard deviation of a mean over 10^17 clients.
_SCALES: Final = 20
_MOST_CODES: Final = 1 << 32  # a code has four bytes at most


@dataclass(frozen=True)
class Laplace(Law):
    """A number plus noise of scale `2 / epsilon`.

    For a vector that is 0 but at one place, all entries cost what one costs: two such vectors are
    at most 2 apart in the sum of absolute differences, as two numbers in [-1, 1] are.
    """

    name: ClassVar[str] = "laplace"
    # On each side the codes go beyond the grid by `_SCALES` times the scale, `2 _LEVELS / epsilon`.
    least_epsilon: ClassVar[float] = 4 * _LEVELS * _SCALES / (_MOST_CODES - 4 * _LEVELS)
    levels: ClassVar[int] = _LEVELS
    covers_one_hot: ClassVar[bool] = True

    @cached_property
    def scale(self) -> Fraction:
        """Of the noise, in steps of the grid: exactly the sensitivity divided by epsilon."""
        return 2 * _LEVELS / Fraction(self.epsilon)

    @cached_property
    def most(self) -> int:
        """The greatest outcome, in steps of the grid."""
        return _LEVELS + ceil(_SCALES * self.scale)

    @property
    @override
    def bias(self) -> float:
        # The mean of what is cut off one side, for a number at that end of the grid.
        return float(self.scale) * exp(-_SCALES) / (2 * _LEVELS)

    @property
    @override
    def exact_epsilon(self) -> float:
        return float_ceil(Fraction(self.epsilon))

    @property
    @override
    def codes(self) -> int:
        return 2 * self.most + 1

    @property
    @override
    def public(self) -> Mapping[str, int]:
        scale = {"scale": self.scale.numerator, "scale_divisor": self.scale.denominator}
        return {"levels": _LEVELS, **scale, "most": self.most}

    @override
    def sample(self, grid: NDArray[np.int64], rng: Generator) -> Codes:
        noisy = grid + discrete_laplace(self.scale, grid.shape, rng)
        return np.asarray(np.clip(noisy, -self.most, self.most) + self.most)

    @override
    def probability(self, codes: Codes, grid: int) -> NDArray[np.float64]:
        away = np.abs(codes - self.most - grid)
        ratio = exp(-1 / self.scale)
        is_end = (codes == 0) | (codes == 2 * self.most)
        # What is cut counts at the end: a geometric series.
        cut = np.exp(-away / float(self.scale)) / (1 + ratio)
        return np.where(is_end, cut, discrete_laplace_pmf(away, self.scale))

    @override
    def plausible(self, codes: Codes, numbers: int) -> NDArray[np.bool_]:
        most = numbers * _LEVELS + laplace_sum_max(self.scale, codes.shape[-1])
        return np.asarray(np.abs(codes - self.most).sum(axis=-1) <= most)

    @override
    def summed(self, codes: Codes) -> NDArray[np.int64]:
        return np.asarray((codes - self.most)[..., None])

    @override
    def total(self, sums: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(sums[..., 0] / _LEVELS)

    @override
    def second_moment(self, x: float) -> float:
        """Return the mean square as if nothing were cut; the cut takes less than 1e-7 of it."""
        return grid_square(x, _LEVELS) + discrete_laplace_variance(self.scale) / _LEVELS**2

"""The piecewise mechanism (Wang et al., ICDE 2019, Algorithm 2) on a grid.

The paper's law has density `a` on a window around the number and `b = a / e^epsilon` elsewhere on
`[-C, C]`. Here numbers, outcomes and weights are integers: outcome `j` in `-M .. M` has weight `a`
if `|j - g| <= h`, else `b`, with `h` near `levels / e^(epsilon/2)` as in the paper and
`M = levels + h`, so that the window is always inside. Its mean is exactly `g` times a constant.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import exp
from typing import ClassVar, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.privacy import exp_floor, log_ceil
from veilring.protocols.ldp.algorithm.means.law import Codes, Law, grid_square

# Rounding adds at most 1 / (4 levels^2), or 2.4e-7, to the variance of the number itself, and an
# outcome fits in two bytes.
LEVELS: Final = 1024
_LOW: Final = 1 << 32  # the weight outside the window; the ratio to it is exact to 2^-32


@dataclass(frozen=True)
class Piecewise(Law):
    """A number near the client's with high probability, any other with low."""

    name: ClassVar[str] = "piecewise"
    # The weight inside the window is greater by one at least: e^epsilon is above 1 + epsilon.
    least_epsilon: ClassVar[float] = 1 / _LOW
    levels: ClassVar[int] = LEVELS

    @cached_property
    def reach(self) -> int:
        """How far the window goes to each side, `h`."""
        return max(1, round(LEVELS * exp(-self.epsilon / 2)))

    @cached_property
    def high(self) -> int:
        """The weight of an outcome inside the window; `2**32` is that of others."""
        return int(exp_floor(self.epsilon) * _LOW)

    @property
    def most(self) -> int:
        """The greatest outcome, `M`."""
        return LEVELS + self.reach

    @cached_property
    def weight(self) -> int:
        """The sum of all weights."""
        return self.codes * _LOW + self._inside

    @property
    def _inside(self) -> int:
        """The weight that the window has beyond what every outcome has."""
        return (2 * self.reach + 1) * (self.high - _LOW)

    @cached_property
    def unit(self) -> Fraction:
        """The number that an outcome of 1 stands for."""
        return Fraction(self.weight, self._inside * LEVELS)

    @property
    @override
    def exact_epsilon(self) -> float:
        return min(float(self.epsilon), log_ceil(Fraction(self.high, _LOW)))

    @property
    @override
    def codes(self) -> int:
        return 2 * self.most + 1

    @property
    @override
    def public(self) -> Mapping[str, int]:
        return {"levels": LEVELS, "reach": self.reach, "high": self.high, "low": _LOW}

    @override
    def sample(self, grid: NDArray[np.int64], rng: Generator) -> Codes:
        draws = rng.integers(0, self.weight, size=grid.shape)
        anywhere = draws // _LOW
        window = grid + LEVELS + (draws - self.codes * _LOW) // (self.high - _LOW)
        return np.where(anywhere < self.codes, anywhere, window)

    @override
    def probability(self, codes: Codes, grid: int) -> NDArray[np.float64]:
        inside = np.abs(codes - self.most - grid) <= self.reach
        return np.where(inside, self.high / self.weight, _LOW / self.weight)

    @override
    def summed(self, codes: Codes) -> NDArray[np.int64]:
        return (codes - self.most)[..., None]

    @override
    def total(self, sums: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(sums[..., 0] * float(self.unit))

    @override
    def second_moment(self, x: float) -> float:
        anywhere = _mean_square(self.most) * self.codes * _LOW
        inside = (grid_square(x, LEVELS) * LEVELS**2 + _mean_square(self.reach)) * self._inside
        return float(self.unit) ** 2 * (anywhere + inside) / self.weight


def _mean_square(most: int) -> float:
    """Return the mean square of a uniform integer from `-most` to `most`."""
    return most * (most + 1) / 3

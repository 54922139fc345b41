"""The hybrid mechanism (Wang et al., ICDE 2019, Section III-C): piecewise or one bit, by a coin.

The coin does not look at the number, and whoever reads a code sees which of the two it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import expm1
from typing import ClassVar, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.privacy import Dyadic, bernoulli, log_ceil
from veilring.protocols.ldp.algorithm.means.law import Codes, Law
from veilring.protocols.ldp.algorithm.means.one_bit import COIN_BITS, lean
from veilring.protocols.ldp.algorithm.means.piecewise import LEVELS, Piecewise

# Below this epsilon one bit alone has the least variance at its worst (their Equation 6).
_ALL_ONE_BIT: Final = 0.6093
_COIN: Final = 32  # bits of the coin between the two


@dataclass(frozen=True)
class Hybrid(Law):
    """The less noisy of the two at their worst, at every epsilon."""

    name: ClassVar[str] = "hybrid"
    least_epsilon: ClassVar[float] = Piecewise.least_epsilon
    levels: ClassVar[int] = LEVELS
    parts: ClassVar[int] = 2

    @cached_property
    def piecewise(self) -> Piecewise:
        """What is drawn from with probability `share`."""
        return Piecewise(self.epsilon)

    @cached_property
    def share(self) -> Dyadic:
        """How often the piecewise mechanism answers, `alpha`: `1 - e^(-epsilon/2)`, or never."""
        if self.epsilon <= _ALL_ONE_BIT:
            return Dyadic(0, _COIN)
        return Dyadic.floor(-expm1(-self.epsilon / 2), _COIN)

    @cached_property
    def _lean(self) -> int:
        return lean(self.epsilon, LEVELS)

    @property
    def _slope(self) -> Fraction:
        return Fraction(self._lean * LEVELS, 2 ** (COIN_BITS - 1))

    @property
    @override
    def exact_epsilon(self) -> float:
        bit = min(float(self.epsilon), log_ceil((1 + self._slope) / (1 - self._slope)))
        return max(bit, self.piecewise.exact_epsilon) if self.share.numerator else bit

    @property
    @override
    def codes(self) -> int:
        """Those of the piecewise mechanism, unless it never answers, and two for the bit."""
        return self._near + 2

    @property
    def _near(self) -> int:
        return self.piecewise.codes if self.share.numerator else 0

    @property
    @override
    def public(self) -> Mapping[str, int]:
        bit = {"share": self.share.numerator, "share_bits": _COIN, "lean": self._lean}
        return {**self.piecewise.public, **bit, "coin_bits": COIN_BITS}

    @override
    def sample(self, grid: NDArray[np.int64], rng: Generator) -> Codes:
        near = self.piecewise.sample(grid, rng)
        draws = rng.integers(0, 1 << COIN_BITS, size=grid.shape)
        bit = draws < (1 << (COIN_BITS - 1)) + grid * self._lean
        return np.where(bernoulli(self.share, grid.shape, rng), near, self._near + bit)

    @override
    def probability(self, codes: Codes, grid: int) -> NDArray[np.float64]:
        share = float(self.share)
        sign = 2 * (codes - self._near) - 1
        bit = (1 + sign * float(self._slope) * grid / LEVELS) / 2
        near = self.piecewise.probability(codes, grid)
        return np.where(codes < self._near, share * near, (1 - share) * bit)

    @override
    def summed(self, codes: Codes) -> NDArray[np.int64]:
        sign = 2 * (codes - self._near) - 1
        is_bit = codes >= self._near
        near = np.where(is_bit, 0, codes - self.piecewise.most)
        return np.stack((near, np.where(is_bit, sign, 0)), axis=-1)

    @override
    def total(self, sums: NDArray[np.int64]) -> NDArray[np.float64]:
        near = sums[..., 0] * float(self.piecewise.unit)
        return np.asarray(near + sums[..., 1] / float(self._slope))

    @override
    def second_moment(self, x: float) -> float:
        share = float(self.share)
        return share * self.piecewise.second_moment(x) + (1 - share) / float(self._slope) ** 2

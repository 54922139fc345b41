"""One bit: the sign of what a client says, right more often than not (Duchi; Nguyên et al. 2016).

`P[u = 1] = 1/2 + x (e^epsilon - 1) / (2 e^epsilon + 2)` is affine in x. So a number may first be
rounded to -1, 0 or 1 and the bit still has this very law.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.privacy import exp_floor, log_ceil
from veilring.protocols.ldp.algorithm.means.law import Codes, Law

COIN_BITS: Final = 62  # as many as an int64 holds with room to double


def lean(epsilon: float | Fraction, levels: int = 1) -> int:
    """Return the greatest whole number by which one level may turn a coin out of `2**62`.

    At the ends of the grid the coin shows 1 with probability at most `e^eps / (e^eps + 1)`, and at
    least with `1 / (e^eps + 1)`: the ratio is at most `e^eps`.
    """
    power = exp_floor(epsilon)
    return int((power - 1) / (power + 1) * 2 ** (COIN_BITS - 1)) // levels


@dataclass(frozen=True)
class OneBit(Law):
    """One bit a number.

    For a vector that is 0 but at one place, all entries cost what one costs: two such vectors
    differ in two places at most, and `(1 + c) / 1 * 1 / (1 - c)`, with `c` of the bit's law, is the
    ratio `(1 + c) / (1 - c)` of one number.
    """

    name: ClassVar[str] = "one-bit"
    # A number leans the coin by epsilon / 4, and at least by one of its 2**62 faces.
    least_epsilon: ClassVar[float] = 2.0 ** (3 - COIN_BITS)
    covers_one_hot: ClassVar[bool] = True

    @cached_property
    def _lean(self) -> int:
        return lean(self.epsilon)

    @property
    def slope(self) -> Fraction:
        """The mean of the sign at x = 1, `c`: signs are divided by it."""
        return Fraction(self._lean, 2 ** (COIN_BITS - 1))

    @property
    @override
    def exact_epsilon(self) -> float:
        # The logarithm is rounded up, which may be above what was asked for.
        return min(float(self.epsilon), log_ceil((1 + self.slope) / (1 - self.slope)))

    @property
    @override
    def codes(self) -> int:
        return 2

    @property
    @override
    def public(self) -> Mapping[str, int]:
        return {"lean": self._lean, "coin_bits": COIN_BITS}

    @override
    def sample(self, grid: NDArray[np.int64], rng: Generator) -> Codes:
        draws = rng.integers(0, 1 << COIN_BITS, size=grid.shape)
        return (draws < (1 << (COIN_BITS - 1)) + grid * self._lean).astype(np.int64)

    @override
    def probability(self, codes: Codes, grid: int) -> NDArray[np.float64]:
        one = Fraction(1, 2) + grid * self.slope / 2
        return np.where(codes == 1, float(one), float(1 - one))

    @override
    def summed(self, codes: Codes) -> NDArray[np.int64]:
        return (2 * codes - 1)[..., None]

    @override
    def total(self, sums: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(sums[..., 0] / float(self.slope))

    @override
    def second_moment(self, x: float) -> float:
        return float(1 / self.slope**2)

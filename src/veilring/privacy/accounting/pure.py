"""Pure differential privacy."""

import math
from dataclasses import dataclass
from typing import Self

from veilring.privacy.accounting.checks import (
    require_count,
    require_delta,
    require_epsilon,
    require_loss,
    require_noise,
)
from veilring.privacy.accounting.zcdp import ZCDP

__all__ = ("PureDP",)


@dataclass(frozen=True, slots=True)
class PureDP:
    """The privacy loss is never above `bound`.

    Attributes:
        bound: Epsilon of pure DP; at least 0.

    Raises:
        InputError: If the bound is negative or no number.
    """

    bound: float

    def __post_init__(self) -> None:
        require_loss("bound", self.bound)

    @classmethod
    def calibrate(cls, epsilon: float, delta: float = 0.0) -> Self:
        """Return the weakest pure guarantee that implies (epsilon, delta)-DP.

        Raises:
            InputError: If epsilon is negative or infinite, or delta is outside [0, 1).
        """
        require_epsilon(epsilon)
        require_delta(delta, zero=True)
        return cls(epsilon + math.log1p(delta * math.exp(-epsilon)) - math.log1p(-delta))

    def compose(self, *others: Self) -> Self:
        """Return what all guarantee together: the losses add up."""
        return type(self)(math.fsum((self.bound, *(other.bound for other in others))))

    def repeat(self, count: int) -> Self:
        """Return what `count` releases like this guarantee together."""
        require_count(count)
        return type(self)(count * self.bound if count else 0.0)

    def delta(self, epsilon: float) -> float:
        """Return the least delta: that of randomised response, which no pure mechanism exceeds.

        It is `(e**bound - e**epsilon) / (1 + e**bound)` (Kairouz, Oh and Viswanath 2015).
        """
        require_epsilon(epsilon)
        if epsilon >= self.bound:
            return 0.0
        return -math.expm1(epsilon - self.bound) / (1 + math.exp(-self.bound))

    def epsilon(self, delta: float = 0.0) -> float:
        """Return the least epsilon for a delta in [0, 1); for 0 it is the bound."""
        require_delta(delta, zero=True)
        rest = -delta * (1 + math.exp(-self.bound))
        return max(0.0, self.bound + math.log1p(rest)) if rest > -1 else 0.0

    def zcdp(self) -> ZCDP:
        """Return the zCDP that follows: rho is `bound**2 / 2` (Bun and Steinke 2016, Prop. 1.4)."""
        return ZCDP(self.bound**2 / 2)

    def scale(self, sensitivity: float = 1.0) -> float:
        """Return the scale of Laplace noise for a function of this L1 sensitivity."""
        require_noise(1.0, sensitivity)
        return sensitivity / self.bound if self.bound else math.inf

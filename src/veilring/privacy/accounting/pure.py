"""Pure differential privacy."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

from veilring.privacy.accounting.checks import (
    require_count,
    require_delta,
    require_epsilon,
    require_loss,
    require_noise,
)
from veilring.privacy.accounting.zcdp import ZCDP
from veilring.privacy.loss import EXP_MAX, exp_ceil, exp_floor, float_ceil, log_ceil, log_floor

# More than three roundings can take off.
_UP: Final = 1 + 2.0**-50


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
        """Return the weakest pure guarantee that implies (epsilon, delta)-DP, rounded down.

        Raises:
            InputError: If epsilon is negative or infinite, or delta is outside [0, 1).
        """
        require_epsilon(epsilon)
        require_delta(delta, zero=True)
        if (
            delta == 0.0 or epsilon > EXP_MAX
        ):  # beyond which delta gains less than ln(1 / (1 - delta))
            return cls(epsilon)
        return cls(log_floor((exp_floor(epsilon) + Fraction(delta)) / (1 - Fraction(delta))))

    def compose(self, *others: Self) -> Self:
        """Return what all guarantee together: the losses add up."""
        return type(self)(math.fsum((self.bound, *(other.bound for other in others))))

    def repeat(self, count: int) -> Self:
        """Return what `count` releases like this guarantee together."""
        require_count(count)
        return type(self)(count * self.bound if count else 0.0)

    def delta(self, epsilon: float) -> float:
        """Return the least delta: that of randomised response, which no pure mechanism exceeds.

        It is `(e**bound - e**epsilon) / (1 + e**bound)` (Kairouz, Oh and Viswanath 2015), rounded
        up.
        """
        require_epsilon(epsilon)
        if epsilon >= self.bound:
            return 0.0
        if self.bound > EXP_MAX:
            return min(1.0, -math.expm1(epsilon - self.bound) * _UP)
        beyond = exp_ceil(self.bound) - exp_floor(epsilon)
        return float_ceil(beyond / (1 + exp_floor(self.bound)))

    def epsilon(self, delta: float = 0.0) -> float:
        """Return the least epsilon for a delta in [0, 1), rounded up; for 0 it is the bound."""
        require_delta(delta, zero=True)
        if delta == 0.0 or self.bound > EXP_MAX:
            return self.bound
        rest = exp_ceil(self.bound) * (1 - Fraction(delta)) - Fraction(delta)
        return min(self.bound, log_ceil(rest)) if rest > 1 else 0.0

    def zcdp(self) -> ZCDP:
        """Return the zCDP that follows: rho is `bound**2 / 2` (Bun and Steinke 2016, Prop. 1.4)."""
        return ZCDP(self.bound**2 / 2)

    def scale(self, sensitivity: float = 1.0) -> float:
        """Return the scale of Laplace noise for a function of this L1 sensitivity."""
        require_noise(1.0, sensitivity)
        return sensitivity / self.bound if self.bound else math.inf

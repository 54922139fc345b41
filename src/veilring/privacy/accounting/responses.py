"""Pure steps, composed exactly (Kairouz, Oh and Viswanath 2015, Theorem 3.3)."""

import math
from dataclasses import dataclass
from typing import Self

from veilring.errors import InputError
from veilring.privacy.accounting.checks import require_count, require_delta, require_epsilon
from veilring.privacy.accounting.search import least

__all__ = ("PureSteps",)


@dataclass(frozen=True, slots=True)
class PureSteps:
    """So many adaptively chosen steps, each of them `bound`-DP.

    No such steps tell more than as many randomised responses, and of these it is known exactly. For
    delta = 0 the losses add up; for any other delta they come to less.

    Attributes:
        bound: Epsilon of one step; at least 0 and finite.
        count: How many steps; at least 0.

    Raises:
        InputError: If one of them is outside its range.
    """

    bound: float
    count: int = 1

    def __post_init__(self) -> None:
        require_epsilon(self.bound, "bound")
        require_count(self.count)

    def compose(self, *others: Self) -> Self:
        """Return what all guarantee together.

        Raises:
            InputError: If their steps have other bounds than these.
        """
        if any(other.bound != self.bound for other in others):
            raise InputError("bound", [other.bound for other in others], f"{self.bound} for all")
        return type(self)(self.bound, sum((self.count, *(other.count for other in others))))

    def repeat(self, count: int) -> Self:
        """Return what `count` times these steps guarantee together."""
        require_count(count)
        return type(self)(self.bound, count * self.count)

    def epsilon(self, delta: float = 0.0) -> float:
        """Return the least epsilon for a delta in [0, 1)."""
        require_delta(delta, zero=True)
        total = self.bound * self.count
        if delta == 0.0 or total == 0.0:
            return total
        if self.delta(0.0) <= delta:
            return 0.0
        return min(total, least(lambda epsilon: self.delta(epsilon) <= delta))

    def delta(self, epsilon: float) -> float:
        """Return the least delta: the mass of losses above epsilon, less what that bounds."""
        require_epsilon(epsilon)
        parts = []
        for lies in range((self.count + 1) // 2):
            beyond = epsilon - (self.count - 2 * lies) * self.bound
            if beyond >= 0:
                break
            parts.append(-math.expm1(beyond) * math.exp(self._log_mass(lies)))
        return min(1.0, math.fsum(parts))

    def _log_mass(self, lies: int) -> float:
        """Return ln of the probability that exactly so many of the responses are lies."""
        n = self.count
        ways = math.lgamma(n + 1) - math.lgamma(lies + 1) - math.lgamma(n - lies + 1)
        return ways - lies * self.bound - n * math.log1p(math.exp(-self.bound))

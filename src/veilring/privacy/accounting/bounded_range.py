"""Bounded range: the exponential mechanism, composed (Dong, Durfee and Rogers 2020)."""

import math
from dataclasses import dataclass
from typing import Final, Self

from veilring.privacy.accounting.checks import require_count, require_delta, require_epsilon
from veilring.privacy.accounting.search import greatest
from veilring.privacy.accounting.zcdp import ZCDP
from veilring.privacy.checks import require

# Below it `epsilon**2 / 8`, which is never less (Hoeffding's lemma), agrees to 9 digits.
_SMALL: Final = 1e-4


@dataclass(frozen=True, slots=True)
class BoundedRange:
    """Steps whose privacy losses each lie in an interval of length `epsilon_i`.

    Every epsilon-DP exponential mechanism (with its factor 2) is epsilon-bounded-range, which is
    stronger than epsilon-DP. Only three sums over the steps matter; make one with `step`.

    Attributes:
        linear: The sum of epsilon_i.
        divergence: The sum of the largest Kullback-Leibler divergence of each step.
        squares: The sum of epsilon_i squared.
    """

    linear: float
    divergence: float
    squares: float

    @classmethod
    def step(cls, epsilon: float) -> Self:
        """Return the guarantee of one epsilon-bounded-range step.

        Raises:
            InputError: If epsilon is negative, infinite or no number.
        """
        require_epsilon(epsilon)
        return cls(epsilon, _divergence(epsilon), epsilon**2)

    @classmethod
    def calibrate(cls, epsilon: float, delta: float, steps: int) -> float:
        """Return the epsilon of each of so many equal steps that are (epsilon, delta)-DP together.

        Raises:
            InputError: If epsilon is negative or infinite, delta is outside (0, 1), or there is
                no step.
        """
        require_epsilon(epsilon)
        require_delta(delta)
        require(steps >= 1, "steps", steps, "a whole number of at least 1")
        return greatest(lambda each: cls.step(each).repeat(steps).epsilon(delta) <= epsilon)

    def compose(self, *others: Self) -> Self:
        """Return what all steps guarantee together."""
        every = (self, *others)
        return type(self)(
            math.fsum(each.linear for each in every),
            math.fsum(each.divergence for each in every),
            math.fsum(each.squares for each in every),
        )

    def repeat(self, count: int) -> Self:
        """Return what `count` times these steps guarantee together."""
        require_count(count)
        return type(self)(count * self.linear, count * self.divergence, count * self.squares)

    def epsilon(self, delta: float) -> float:
        """Return the least of three valid bounds, for a delta in (0, 1).

        They are the sum of epsilon_i; Theorem 3 of Dong, Durfee and Rogers; and zCDP, converted.
        """
        return min(self.linear, self.epsilon_2020(delta), self.zcdp().epsilon(delta))

    def epsilon_2020(self, delta: float) -> float:
        """Return the epsilon of Theorem 3 by itself, to compare with papers."""
        require_delta(delta)
        return self.divergence + math.sqrt(-math.log(delta) * self.squares / 2)

    def zcdp(self) -> ZCDP:
        """Return the zCDP that follows: `epsilon_i**2 / 8` a step (Cesar and Rogers 2021)."""
        return ZCDP(self.squares / 8)


def _divergence(epsilon: float) -> float:
    """Return `x - 1 - ln x` for `x = epsilon / (1 - e**-epsilon)`, without cancellation near 0."""
    if epsilon < _SMALL:
        return epsilon**2 / 8
    excess = epsilon / -math.expm1(-epsilon) - 1
    return excess - math.log1p(excess)

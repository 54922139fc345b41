"""Pure steps, composed exactly (Kairouz, Oh and Viswanath 2015, Theorem 3.3)."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.privacy.accounting.checks import require_count, require_delta, require_epsilon
from veilring.privacy.accounting.search import least
from veilring.privacy.checks import require
from veilring.privacy.loss import float_ceil

# An epsilon of so many takes some seconds. Nothing takes more of them.
STEPS_MAX: Final = 1_000_000_000
# What is beyond e**-_FAR of the peak of a law is left out, and counted as if it were all there.
_FAR: Final = 64.0
_ULP: Final = 2.0**-52


@dataclass(frozen=True, slots=True)
class PureSteps:
    """So many adaptively chosen steps, each of them `bound`-DP.

    No such steps tell more than as many randomised responses, and of these it is known exactly. For
    delta = 0 the losses add up; for any other delta they come to less.

    Attributes:
        bound: Epsilon of one step; at least 0 and finite.
        count: How many steps; from 0 to `STEPS_MAX`.

    Raises:
        InputError: If one of them is outside its range, as of several that are composed.
    """

    bound: float
    count: int = 1

    def __post_init__(self) -> None:
        require_epsilon(self.bound, "bound")
        require(0 <= self.count <= STEPS_MAX, "count", self.count, f"from 0 to {STEPS_MAX:,}")

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
        """Return the least epsilon for a delta in [0, 1), rounded up as `delta` is."""
        require_delta(delta, zero=True)
        total = float_ceil(Fraction(self.bound) * self.count)
        if delta == 0.0 or total == 0.0:
            return total
        if self.delta(0.0) <= delta:
            return 0.0
        return min(total, least(lambda epsilon: self.delta(epsilon) <= delta))

    def delta(self, epsilon: float) -> float:
        """Return the least delta: the mass of losses above epsilon, less what that bounds.

        It is rounded up: by 1e-9 of itself for 10,000 steps, and by 1e-4 at most for `STEPS_MAX`.
        Time and memory grow with the square root of `count`.
        """
        require_epsilon(epsilon)
        top = self._lies_at_most(epsilon)
        if top < 0:
            return 0.0
        lies, log_mass, slack = self._masses(top)
        losses = (self.count - 2.0 * lies) * self.bound
        beyond = np.maximum(0.0, -np.expm1(epsilon - losses * (1 + _ULP)))
        mass = np.exp(log_mass)
        left_out = float(lies[0] * mass[0] + (top - lies[-1]) * mass[-1])
        return min(1.0, (math.fsum(beyond * mass) + left_out) * math.exp(slack))

    def _lies_at_most(self, epsilon: float) -> int:
        """Return the most lies whose loss may be above epsilon; -1 if none is."""
        if Fraction(self.bound) * self.count <= Fraction(epsilon):
            return -1
        # One more than it may be: its part is 0 then.
        return min(self.count // 2, int((self.count - epsilon / self.bound) / 2) + 1)

    def _masses(self, top: int) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """Return numbers of lies from 0 to `top`, and ln of the probability of each.

        Those that are left out on either side are less likely than the nearest of them by `_FAR`.
        The law of the lies is log-concave: s lies from its peak m the logarithm has fallen by at
        least s**2 / (2 (m + s)).

        Returns:
            The numbers, the logarithms, and by how much these may be too small.
        """
        n, shrunk = self.count, math.log1p(math.exp(-self.bound))
        peak = min(top, int((n + 1) / (1 + math.exp(self.bound))))
        reach = math.ceil(_FAR + math.sqrt(_FAR * (_FAR + 2 * peak)))
        low, high = max(0, peak - reach), min(top, peak + reach)
        terms = (
            math.lgamma(n + 1),
            -math.lgamma(low + 1),
            -math.lgamma(n - low + 1),
            -low * self.bound,
            -n * shrunk,
        )
        lies = np.arange(low, high + 1, dtype=np.float64)
        ratios = np.log((n - lies[:-1]) / lies[1:])
        rises = np.concatenate([[0.0], np.cumsum(ratios - self.bound)])
        # What was rounded: each term, each sum so far, and each summand.
        rounded = float(np.abs(rises).sum() + (np.abs(ratios) + self.bound + 1).sum())
        slack = 4 * _ULP * (math.fsum(map(abs, terms)) + rounded + 2)
        return lies, math.fsum(terms) + rises, slack

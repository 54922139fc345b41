"""Accounts of mechanisms that only the papers' figures use: bounded range, and Poisson samples.

They compose and convert as those of `veilring.privacy.accounting`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from veilring.privacy.accounting import (
    WHOLE_ORDERS,
    ZCDP,
    Additive,
    Guarantee,
    RenyiDP,
    find_greatest,
    find_least,
)
from veilring.privacy.checks import (
    require,
    require_delta,
    require_epsilon,
    require_noise,
    require_that,
)

# Below it, `epsilon**2 / 8`, which is an upper bound (Hoeffding's lemma), agrees to 9 digits.
_SMALL: Final = 1e-4


@dataclass(frozen=True, slots=True)
class BoundedRange(Additive):
    """Steps, each with its privacy loss in an interval of length `epsilon_i`.

    Every epsilon-DP exponential mechanism (with its factor 2) is epsilon-bounded-range, which is
    stronger than epsilon-DP. Only three sums over the steps matter; create one with `step`.
    """

    linear: float
    divergence: float
    squares: float

    @classmethod
    def step(cls, epsilon: float) -> Self:
        """Return the guarantee of one epsilon-bounded-range step."""
        require_epsilon(epsilon)
        return cls(epsilon, _divergence(epsilon), epsilon**2)

    @classmethod
    def calibrate(cls, epsilon: float, delta: float, steps: int) -> float:
        """Return the ε of each of `steps` equal steps that are together (epsilon, delta)-DP."""
        require_epsilon(epsilon)
        require_delta(delta)
        require(steps >= 1, "steps", steps, "a whole number of at least 1")
        return find_greatest(lambda each: cls.step(each).repeat(steps).epsilon(delta) <= epsilon)

    def epsilon(self, delta: float) -> float:
        """Return the smallest of three valid bounds, for a delta in (0, 1).

        They are the sum of epsilon_i; Theorem 3 of Dong, Durfee and Rogers; and zCDP, converted.
        """
        return min(self.linear, self.epsilon_2020(delta), self.zcdp().epsilon(delta))

    def epsilon_2020(self, delta: float) -> float:
        """Return the epsilon of Theorem 3 alone, for comparison with papers."""
        require_delta(delta)
        return self.divergence + math.sqrt(-math.log(delta) * self.squares / 2)

    def zcdp(self) -> ZCDP:
        """Return the implied zCDP: `epsilon_i**2 / 8` per step (Cesar and Rogers 2021)."""
        return ZCDP(self.squares / 8)


def _divergence(epsilon: float) -> float:
    """Return `x - 1 - ln x` for `x = epsilon / (1 - e**-epsilon)`, without cancellation near 0."""
    if epsilon < _SMALL:
        return epsilon**2 / 8
    excess = epsilon / -math.expm1(-epsilon) - 1
    return excess - math.log1p(excess)


def least_noise(of: Callable[[float], Guarantee], epsilon: float, delta: float) -> float:
    """Return the smallest noise with which everything together is (epsilon, delta)-DP.

    Use it to calibrate guarantees without a closed form, such as many steps of a subsampled
    mechanism: `least_noise(lambda sigma: subsampled_gaussian(sigma, 0.01).repeat(1000),
    1.0, 1e-5)`. More noise must not give a weaker guarantee.
    """
    require_epsilon(epsilon)
    require_delta(delta)
    return find_least(lambda noise: of(noise).epsilon(delta) <= epsilon)


def subsampled_gaussian(
    sigma: float, rate: float, sensitivity: float = 1.0, orders: tuple[float, ...] = WHOLE_ORDERS
) -> RenyiDP:
    """Return the guarantee of Gaussian noise on a Poisson sample (Mironov et al. 2019).

    Neighbours differ by one row added or removed, and each row is included in the sample
    independently. Section 3.3 covers no other way to sample, such as drawing a fixed number of
    rows. The formula is finite only for whole orders.
    """
    require_noise(sigma, sensitivity)
    require(0 <= rate <= 1, "rate", rate, "a probability")
    whole = all(order.is_integer() for order in map(float, orders))
    require_that(whole, "orders", "orders must be whole numbers above 1")
    return RenyiDP(orders, tuple(_subsampled(sigma / sensitivity, rate, int(a)) for a in orders))


def _subsampled(noise: float, rate: float, order: int) -> float:
    """Return the divergence at a whole order: the binomial sum, in logarithms."""
    from scipy.special import gammaln, logsumexp, xlog1py, xlogy

    chosen = np.arange(order + 1)
    ways = gammaln(order + 1) - gammaln(chosen + 1) - gammaln(order - chosen + 1)
    weight = ways + xlogy(chosen, rate) + xlog1py(order - chosen, -rate)
    total = logsumexp(weight + chosen * (chosen - 1) / (2 * noise**2))
    return max(0.0, float(total)) / (order - 1)

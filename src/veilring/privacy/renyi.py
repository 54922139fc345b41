"""Renyi differential privacy at a grid of orders (Mironov 2017)."""

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from veilring.privacy.checks import (
    require,
    require_count,
    require_delta,
    require_noise,
    require_that,
)

# Dense around the best orders for epsilon in 0.1 … 20, sparse up to those for tiny epsilons.
ORDERS: Final = (
    *(1 + x / 10 for x in range(1, 100)),
    *map(float, range(11, 65)),
    *(64.0 * 2 ** (x / 4) for x in range(1, 17) if x % 4),
    *(64.0 * 2**x for x in range(1, 5)),
)
# They suffice down to an epsilon of 0.1 at delta = 1e-5; a smaller one needs higher orders.
WHOLE_ORDERS: Final = tuple(float(order) for order in range(2, 257))


@dataclass(frozen=True, slots=True)
class RenyiDP:
    """The Renyi divergence of order `orders[i]` is at most `divergences[i]`.

    Attributes:
        orders: The orders, above 1, once each, in any order.
        divergences: The divergence of each order, at least 0; infinite if unknown.
    """

    orders: tuple[float, ...]
    divergences: tuple[float, ...]

    def __post_init__(self) -> None:
        orders, divergences = np.array(self.orders), np.array(self.divergences)
        one_each = 0 < len(orders) == len(divergences) == len(set(self.orders))
        require_that(
            one_each,
            "divergences",
            f"there are {len(divergences)} divergences for {len(orders)} orders",
        )
        require(bool((orders > 1).all()), "orders", min(self.orders), "above 1")
        valid = bool((divergences >= 0).all())
        require(valid, "divergences", min(self.divergences), "at least 0")

    @classmethod
    def of_gaussian(
        cls, sigma: float, sensitivity: float = 1.0, orders: tuple[float, ...] = ORDERS
    ) -> Self:
        """Return the guarantee of Gaussian noise at this L2 sensitivity (Mironov 2017, Prop. 7)."""
        require_noise(sigma, sensitivity)
        return cls(orders, tuple(a * (sensitivity / sigma) ** 2 / 2 for a in orders))

    @classmethod
    def subsampled_gaussian(
        cls,
        sigma: float,
        rate: float,
        sensitivity: float = 1.0,
        orders: tuple[float, ...] = WHOLE_ORDERS,
    ) -> Self:
        """Return the guarantee of Gaussian noise on a Poisson sample (Mironov et al. 2019).

        Neighbours differ by one row added or removed, and each row is included in the
        sample independently. Section 3.3 covers no other way to sample, such as drawing a fixed
        number of rows.

        Args:
            rate: The probability that a row is in the sample, in [0, 1].
            sensitivity: The L2 sensitivity of the release on a sample.
            orders: Whole numbers: the formula is finite only for these.
        """
        require_noise(sigma, sensitivity)
        require(0 <= rate <= 1, "rate", rate, "a probability")
        whole = all(order.is_integer() for order in map(float, orders))
        require_that(whole, "orders", "orders must be whole numbers above 1")
        return cls(orders, tuple(_subsampled(sigma / sensitivity, rate, int(a)) for a in orders))

    def compose(self, *others: Self) -> Self:
        """Return the combined guarantee: divergences add up, order by order (Prop. 1)."""
        for other in others:
            require_that(
                other.orders == self.orders,
                "orders",
                "the curves have different orders; they must have the same",
            )
        columns = zip(self.divergences, *(other.divergences for other in others), strict=True)
        return type(self)(self.orders, tuple(map(math.fsum, columns)))

    def repeat(self, count: int) -> Self:
        """Return the guarantee of `count` releases like this together."""
        require_count(count)
        return type(self)(
            self.orders, tuple(count * each if count else 0.0 for each in self.divergences)
        )

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon over the orders (Canonne, Kamath and Steinke 2020, Prop. 12).

        It is 0 if the divergence alone keeps the total variation within delta (Bretagnolle and
        Huber 1979).
        """
        require_delta(delta)
        orders, divergences = np.array(self.orders), np.array(self.divergences)
        if -math.expm1(-min(self.divergences)) <= delta**2:
            return 0.0
        bounds = divergences + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
        return max(0.0, float(np.min(bounds)))


def _subsampled(noise: float, rate: float, order: int) -> float:
    """Return the divergence at a whole order: the binomial sum, in logarithms."""
    from scipy.special import gammaln, logsumexp, xlog1py, xlogy

    chosen = np.arange(order + 1)
    ways = gammaln(order + 1) - gammaln(chosen + 1) - gammaln(order - chosen + 1)
    weight = ways + xlogy(chosen, rate) + xlog1py(order - chosen, -rate)
    total = logsumexp(weight + chosen * (chosen - 1) / (2 * noise**2))
    return max(0.0, float(total)) / (order - 1)

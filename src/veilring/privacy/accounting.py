"""Composition and calibration: the total cost of several releases, and the noise for a target.

There are six kinds of guarantee, each a small frozen class that composes, converts to (epsilon,
delta), and is calibrated from it.

Rényi differential privacy is kept at a grid of orders (Mironov 2017).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal, Protocol, Self, assert_never

import numpy as np

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.privacy.checks import (
    require,
    require_count,
    require_delta,
    require_epsilon,
    require_loss,
    require_noise,
    require_that,
)
from veilring.privacy.exact import EXP_MAX, exp_ceil, exp_floor, float_ceil, log_ceil, log_floor

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
    """The Renyi divergence of order `orders[i]` is at most `divergences[i]`, infinite if unknown.

    Orders are above 1, once each, in any order.
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


# The epsilon of this many steps takes some seconds; nothing uses more.
STEPS_MAX: Final = 1_000_000_000
# The best order for delta is closer to 1 than e to minus this: in floats it equals 1, and no larger
# order exists nearby.
_NEAR: Final = 700.0
# Below this mu, eight points of Gauss and Legendre integrate the difference of the two terms of a
# Gaussian delta to 13 digits, while the terms themselves lose digits as mu falls.
_CLOSE: Final = 1.0
_POINTS, _WEIGHTS = (np.polynomial.legendre.leggauss(8) + np.array([[1.0], [0.0]])) / 2
# more than three roundings can lose
_UP: Final = 1 + 2.0**-50
# The part of a distribution below e**-_FAR of its peak is left out of sums, but counted in full.
_FAR: Final = 64.0
_ULP: Final = 2.0**-52


class Guarantee(Protocol):
    """A bound on the privacy loss of one release, or of several together."""

    def compose(self, *others: Self) -> Self:
        """Return the guarantee of this and the others together, chosen adaptively in any order."""
        ...

    def repeat(self, count: int) -> Self:
        """Return the guarantee of `count` releases like this together."""
        ...

    def epsilon(self, delta: float) -> float:
        """Return the smallest known epsilon for which (epsilon, delta)-DP holds."""
        ...


class Additive:
    """A guarantee whose fields add up under composition."""

    __slots__ = ()
    __match_args__: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in self.__match_args__:
            require_loss(name, getattr(self, name))

    def compose(self, *others: Self) -> Self:
        """Return the guarantee of all together: each field is the sum of theirs."""
        every = (self, *others)
        return type(self)(
            *(math.fsum(getattr(each, name) for each in every) for name in self.__match_args__)
        )

    def repeat(self, count: int) -> Self:
        """Return the guarantee of `count` releases like this together."""
        require_count(count)
        fields = (getattr(self, name) for name in self.__match_args__)
        return type(self)(*(count * each if count else 0.0 for each in fields))


@dataclass(frozen=True, slots=True)
class ZCDP(Additive):
    """The Renyi divergence of every order alpha > 1 is at most `alpha * rho`, with rho >= 0.

    Under composition rho adds up (Bun and Steinke, Lemma 1.7).
    """

    rho: float

    @classmethod
    def of_gaussian(cls, sigma: float, sensitivity: float = 1.0) -> Self:
        """Return the zCDP of Gaussian noise at this L2 sensitivity (Bun and Steinke, Prop. 1.6)."""
        require_noise(sigma, sensitivity)
        return cls((sensitivity / sigma) ** 2 / 2)

    @classmethod
    def calibrate(cls, epsilon: float, delta: float) -> Self:
        """Return the weakest zCDP whose tight conversion gives (epsilon, delta)-DP."""
        require_epsilon(epsilon)
        require_delta(delta)
        return cls(find_greatest(lambda rho: cls(rho).epsilon(delta) <= epsilon))

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon over all orders, by the tight conversion.

        It is the minimum of `alpha rho + ln(1 - 1/alpha) - ln(delta alpha) / (alpha - 1)` (Canonne,
        Kamath and Steinke 2020, Prop. 12; Balle et al. 2020). Its derivative vanishes only where
        `rho (alpha - 1)**2 = -ln(delta alpha)`. Every order gives a valid bound, so rounding costs
        only a last digit.
        """
        require_delta(delta)
        if self.rho in {0.0, math.inf}:
            return self.rho
        above = find_least(lambda x: self.rho * x * x >= -math.log(delta) - math.log1p(x))
        log_order = math.log1p(above)
        bound = self.rho * (1 + above) + math.log(above) - log_order
        return max(0.0, bound - (math.log(delta) + log_order) / above)

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta over all orders, by the tight conversion (Cor. 13 there).

        It is the minimum of `exp((alpha - 1)(alpha rho - epsilon)) (1 - 1/alpha)**alpha / (alpha -
        1)`.
        """
        require_epsilon(epsilon)
        if self.rho == 0 or epsilon / self.rho == math.inf:
            return 0.0
        if self.rho - epsilon > _NEAR:
            return 1.0
        above = find_least(
            lambda x: (2 * x + 1) * self.rho - epsilon + math.log(x) - math.log1p(x) >= 0
        )
        ratio = math.log(above) - math.log1p(above)
        log_delta = above * ((1 + above) * self.rho - epsilon + ratio) - math.log1p(above)
        return min(1.0, math.exp(log_delta))

    def epsilon_2016(self, delta: float) -> float:
        """Return the looser epsilon of Bun and Steinke's Prop. 1.3, for comparison with papers."""
        require_delta(delta)
        return self.rho + 2 * math.sqrt(self.rho * -math.log(delta))

    def sigma(self, sensitivity: float = 1.0) -> float:
        """Return the standard deviation of Gaussian noise at this L2 sensitivity."""
        require_noise(1.0, sensitivity)
        return sensitivity / math.sqrt(2 * self.rho) if self.rho else math.inf


@dataclass(frozen=True, slots=True)
class PureDP(Additive):
    """A privacy loss of at most `bound`, the epsilon of pure DP, at least 0."""

    bound: float

    @classmethod
    def calibrate(cls, epsilon: float, delta: float = 0.0) -> Self:
        """Return the weakest pure guarantee that implies (epsilon, delta)-DP, rounded down."""
        require_epsilon(epsilon)
        require_delta(delta, zero=True)
        if (
            delta == 0.0 or epsilon > EXP_MAX
        ):  # beyond which delta gains less than ln(1 / (1 - delta))
            return cls(epsilon)
        return cls(log_floor((exp_floor(epsilon) + Fraction(delta)) / (1 - Fraction(delta))))

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta: that of randomised response, an upper bound for all.

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
        """Return the smallest epsilon for a delta in [0, 1), rounded up; for 0 it is the bound."""
        require_delta(delta, zero=True)
        if delta == 0.0 or self.bound > EXP_MAX:
            return self.bound
        rest = exp_ceil(self.bound) * (1 - Fraction(delta)) - Fraction(delta)
        return min(self.bound, log_ceil(rest)) if rest > 1 else 0.0

    def zcdp(self) -> ZCDP:
        """Return the implied zCDP: rho is `bound**2 / 2` (Bun and Steinke 2016, Prop. 1.4)."""
        return ZCDP(self.bound**2 / 2)

    def scale(self, sensitivity: float = 1.0) -> float:
        """Return the scale of Laplace noise for a function of this L1 sensitivity."""
        require_noise(1.0, sensitivity)
        return sensitivity / self.bound if self.bound else math.inf


@dataclass(frozen=True, slots=True)
class PureSteps:
    """A number of adaptively chosen steps, each of them `bound`-DP.

    Such steps leak at most as much as the same number of randomised responses, whose loss is known
    exactly. For delta = 0 the losses add up; for any other delta the total is smaller.
    """

    bound: float
    count: int = 1

    def __post_init__(self) -> None:
        require_epsilon(self.bound, "bound")
        require(0 <= self.count <= STEPS_MAX, "count", self.count, f"from 0 to {STEPS_MAX:,}")

    def compose(self, *others: Self) -> Self:
        """Return the combined guarantee."""
        if any(other.bound != self.bound for other in others):
            raise InputError.because(
                "only steps with the same bound compose; the others have "
                f"{[other.bound for other in others]}, these have {self.bound}",
                field="bound",
            )
        return type(self)(self.bound, sum((self.count, *(other.count for other in others))))

    def repeat(self, count: int) -> Self:
        """Return the guarantee of `count` times these steps together."""
        require_count(count)
        return type(self)(self.bound, count * self.count)

    def epsilon(self, delta: float = 0.0) -> float:
        """Return the smallest epsilon for a delta in [0, 1), rounded up like `delta`."""
        require_delta(delta, zero=True)
        total = float_ceil(Fraction(self.bound) * self.count)
        if delta == 0.0 or total == 0.0:
            return total
        if self.delta(0.0) <= delta:
            return 0.0
        return min(total, find_least(lambda epsilon: self.delta(epsilon) <= delta))

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta: the mass of losses above epsilon, less its bounded part.

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
        """Return the largest number of lies whose loss may exceed epsilon; -1 if no loss can."""
        if Fraction(self.bound) * self.count <= Fraction(epsilon):
            return -1
        # One more than possible: its part is 0 then.
        return min(self.count // 2, int((self.count - epsilon / self.bound) / 2) + 1)

    def _masses(self, top: int) -> tuple[Floats, Floats, float]:
        """Return numbers of lies from 0 to `top`, and the log probability of each.

        Numbers omitted on either side are less likely than the nearest included one by `_FAR`. The
        distribution of the lies is log-concave: s lies from its peak m the logarithm has fallen by
        at least s**2 / (2 (m + s)). The last result is the maximum error of the logarithms.
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
        # The roundings: each term, each partial sum, and each summand.
        rounded = float(np.abs(rises).sum() + (np.abs(ratios) + self.bound + 1).sum())
        slack = 4 * _ULP * (math.fsum(map(abs, terms)) + rounded + 2)
        return lies, math.fsum(terms) + rises, slack


@dataclass(frozen=True, slots=True)
class GaussianDP:
    """Neighbours are at least as hard to distinguish as N(0, 1) and N(mu, 1), with mu >= 0.

    For Gaussian noise this is exact: composition and conversion lose nothing.
    """

    mu: float

    def __post_init__(self) -> None:
        require_loss("mu", self.mu)

    @classmethod
    def of_gaussian(cls, sigma: float, sensitivity: float = 1.0) -> Self:
        """Return the guarantee of Gaussian noise at this L2 sensitivity (Theorem 1)."""
        require_noise(sigma, sensitivity)
        return cls(sensitivity / sigma)

    @classmethod
    def calibrate(cls, epsilon: float, delta: float) -> Self:
        """Return the weakest Gaussian guarantee that implies (epsilon, delta)-DP."""
        require_epsilon(epsilon)
        require_delta(delta)
        return cls(find_greatest(lambda mu: cls(mu).delta(epsilon) <= delta))

    def compose(self, *others: Self) -> Self:
        """Return the combined guarantee: the squares of mu add up (Corollary 2)."""
        return type(self)(math.hypot(self.mu, *(other.mu for other in others)))

    def repeat(self, count: int) -> Self:
        """Return the guarantee of `count` releases like this together."""
        require_count(count)
        return type(self)(math.sqrt(count) * self.mu if count else 0.0)

    def delta(self, epsilon: float) -> float:
        """Return the exact delta (Corollary 1; Balle and Wang 2018, Theorem 8).

        With `a = epsilon/mu - mu/2` and `b = epsilon/mu + mu/2` it is `Phi(-a) - e**epsilon
        Phi(-b)`, and `e**epsilon phi(b) = phi(a)` gives the second term without overflow. Below
        `_CLOSE` the two terms cancel; then it is `phi(a)` times the integral of `1 - t M(t)` from a
        to b, where M is Mills' ratio.
        """
        from scipy.special import erfcx

        require_epsilon(epsilon)
        if self.mu in {0.0, math.inf}:
            return float(self.mu > 0)
        a, b = epsilon / self.mu - self.mu / 2, epsilon / self.mu + self.mu / 2
        if self.mu < _CLOSE:
            t = a + self.mu * _POINTS
            slope = 1 - t * math.sqrt(math.pi / 2) * erfcx(t / math.sqrt(2))
            density = math.exp(-a * a / 2) / math.sqrt(2 * math.pi)
            return density * self.mu * float(_WEIGHTS @ slope)
        second = math.exp(-a * a / 2) * float(erfcx(b / math.sqrt(2)))
        return max(0.0, (math.erfc(a / math.sqrt(2)) - second) / 2)

    def epsilon(self, delta: float) -> float:
        """Return the exact epsilon for a delta in (0, 1)."""
        require_delta(delta)
        if self.mu == math.inf:
            return math.inf
        return 0.0 if self.delta(0) <= delta else find_least(lambda eps: self.delta(eps) <= delta)

    def zcdp(self) -> ZCDP:
        """Return the implied zCDP: rho is `mu**2 / 2` (its Renyi divergences are equal)."""
        return ZCDP(self.mu**2 / 2)

    def sigma(self, sensitivity: float = 1.0) -> float:
        """Return the standard deviation of Gaussian noise at this L2 sensitivity."""
        require_noise(1.0, sensitivity)
        return sensitivity / self.mu if self.mu else math.inf


Accountant = Literal["rdp", "gdp"]


# A server needs it for each stream, and a search takes a millisecond.
@lru_cache(maxsize=256)
def individual_budget(epsilon: float, delta: float, accountant: Accountant = "rdp") -> float:
    """Return the budget B of each record, in the unit of zCDP.

    A record pays `(its own sensitivity)**2 / (2 sigma**2)` for each Gaussian release that it takes
    part in, and stops taking part before it could exceed B. All answers together are then (epsilon,
    delta)-DP.

    Args:
        accountant: `"rdp"`: (alpha, alpha B)-Renyi DP for all alpha, converted as by Balle et al.
            2020 (the accounting of Individual Kernelized Nearest Neighbor; filters: Feldman and
            Zrnic 2021). `"gdp"`: exact Gaussian DP with mu = sqrt(2 B), which is larger and
            requires every charged release to be exactly Gaussian: neither subsampled nor discrete
            (fully adaptive filters: Smith and Thakurta 2022; individual ones: Koskela et al. 2023).
    """
    match accountant:
        case "rdp":
            return ZCDP.calibrate(epsilon, delta).rho
        case "gdp":
            return GaussianDP.calibrate(epsilon, delta).mu ** 2 / 2
        case _:
            assert_never(accountant)


def find_least(holds: Callable[[float], bool]) -> float:
    """Return the smallest positive number at and above which the condition holds.

    The result fulfils the condition; the float before it does not.
    """
    return _edge(holds, 2.0)


def find_greatest(holds: Callable[[float], bool]) -> float:
    """Return the greatest number up to which the condition holds.

    The result fulfils the condition; the float after it does not.
    """
    return _edge(holds, 0.5)


def _edge(holds: Callable[[float], bool], factor: float) -> float:
    """Return the float at the edge of a condition, to which multiplying by the factor leads."""
    good = _walk(holds, 1.0, factor)
    bad = _walk(lambda x: not holds(x), good, 1 / factor)
    while (middle := good + (bad - good) / 2) not in {good, bad}:
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good


def _walk(holds: Callable[[float], bool], start: float, factor: float) -> float:
    """Multiply until the condition holds."""
    x = start
    while not holds(x):
        x *= factor
        if x in {0.0, float("inf")}:
            raise InputError.because("no positive finite number reaches the target", field="target")
    return x

"""The privacy of a sum with distributed noise, of which some shares may be missing.

Parties that add distributed noise each draw a noise share independently. An observer knows the
shares of its coalition, and those of lost parties are missing. A row is therefore protected by the
sum of the remaining shares, and each account here is for that sum: further shares are
post-processing.

Discrete Gaussian shares
    The sum of m shares of parameter sigma is nearly continuous Gaussian noise of the variance
    `m sigma**2 - R`, rounded to whole numbers at random, with `R = ROUNDING_VARIANCE`. Rounding is
    post-processing. A row that changes the sum by a vector of whole numbers of L2 norm S therefore
    has the guarantee `GaussianDP(S / sqrt(m sigma**2 - R))`, except that in D coordinates each
    probability may differ by a factor of up to `e**slack`, with

        slack = 5 D (e(R) + sum over j = 1 ... m - 1 of e(sigma**2 j / (j + 1))),
        e(v) = e**(-2 pi**2 v).

    Proof. Let `g(x, v) = e**(-x**2 / (2 v))`. For any real y the sum of `g(k - y, v)` over all
    whole k is `sqrt(2 pi v)` times a number within r(v) of 1, with
    `r(v) = 2 (e(v) + e(4 v) + e(9 v) + ...)` (Poisson summation).

    Rounding: replace y by k with a probability proportional to `g(k - y, R)`. If y is Gaussian of
    variance `v - R` around a whole number c, then k has a weight of `g(k - c, v)`, times a number
    from `1 / (1 + r)` to `1 / (1 - r)` with `r = r(R)`. Without these numbers the weights are those
    of discrete Gaussian noise around c. Each probability is that of this noise, up to a factor of
    `(1 + r) / (1 - r)`.

    Shares: the sum of discrete Gaussians of squared parameters a and b has a weight of
    `g(k, a + b)`, times a number within r of 1 with `r = r(a b / (a + b))`. Each probability is
    that of one discrete Gaussian, up to the same factor (Kairouz, Liu and Steinke, ICML 2021,
    Theorem 11). The sum over j adds one share after the other.

    For v >= 1 the logarithm of the factor is below `5 e(v)`, and independent coordinates multiply
    their factors.

Skellam shares
    Their sum is Skellam noise, exactly. With variance v and a shift of norms S1 and S2 its Rényi
    divergence at a whole order a is at most

        a S2**2 / (2 v) + min(((2 a - 1) S2**2 + 6 S1) / (4 v**2), 3 S1 / (2 v))

    (Agarwal, Kairouz and Liu, NeurIPS 2021, Corollary 4.1, with whole numbers as they are).

Pólya shares of discrete Laplace noise
    With total exponent A and `q = e**-epsilon`, the noise is the difference of two independent
    draws with weights `w[j] = c[j] q**j`, `c[j] = A (A + 1) ... (A + j - 1) / j!`, so that for
    d >= 0

        p(d) = sum over j of w[j] w[j + d],  up to a factor, and p(-d) = p(d).

    For A < 1 the ratios `w[j + 1] / w[j] = q (j + A) / (j + 1)` rise with j: w is log-convex. So is
    each `w[j + d]` as a function of d, and so are sums of log-convex sequences, by Cauchy and
    Schwarz. Hence `p(d) / p(d + 1)` falls as d rises, and of all pairs that are u apart 0 and u
    have the greatest ratio: a count that changes by u loses

        g(epsilon, u) = ln(p(0) / p(u))
                      = u epsilon + ln(sum c[j]**2 x**j / sum c[j] c[j + u] x**j),

    with `x = e**(-2 epsilon)`. For u = 1 that is at most `epsilon + ln(1 / A)`, since
    `c[j + 1] / c[j] >= A`. Each further unit adds less, so that a vector of an L1 norm loses most
    when its units are spread evenly over the coordinates. For A >= 1 the noise is that of exponent
    1 and more on top of it, which is post-processing: each unit loses epsilon.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Final, Self

import numpy as np

from veilring.privacy.accounting import WHOLE_ORDERS, GaussianDP, RenyiDP, find_greatest
from veilring.privacy.checks import (
    require,
    require_delta,
    require_epsilon,
    require_loss,
    require_noise,
)
from veilring.privacy.divisible import POLYA_SCALE_MAX
from veilring.privacy.exact import float_ceil

ROUNDING_VARIANCE: Final = 1.5
"""The part of the variance of a sum of Gaussian shares that rounds the rest to whole numbers.

It is small beside the variance of useful sums, and costs an epsilon of 1.4e-12 a coordinate."""
GAUSSIAN_SIGMA_MIN: Final = 2
"""The minimum sigma of a share, so that most of one share's variance is left after rounding."""
EPSILON_MAX: Final = 1000
"""A meaninglessly large epsilon, still below the point where the accountants lose digits."""
DELTA_MAX: Final = 0.01
"""Above this, the failure that delta allows would affect too many people."""
# a guarantee must also hold after the few roundings of its formula
_UP: Final = 1 + 2.0**-48
# All parties compute the same sigma, even if the last bits of their logarithms differ.
_SIGMA_STEPS: Final = 2**16
# beyond 256 for small epsilons, which need high orders
SKELLAM_ORDERS: Final = (*WHOLE_ORDERS, *(float(2**power) for power in range(9, 17)))
_UNIT: Final = 2.0**-53
# Terms fall as e**(-2 j / scale): the rest beyond this many scales is below 1e-21 of the sum.
_REACH: Final = 26


@dataclass(frozen=True, slots=True)
class NearGaussian:
    """The guarantee of Gaussian noise, but that probabilities may differ by up to `e**slack`."""

    gaussian: GaussianDP
    slack: float

    def __post_init__(self) -> None:
        require_loss("slack", self.slack)

    @classmethod
    def calibrate(cls, epsilon: float, delta: float, slack: float) -> Self:
        """Return the weakest guarantee of this slack that implies (epsilon, delta)-DP."""
        of = partial(cls, slack=slack)
        mu = find_greatest(lambda mu: of(GaussianDP(mu)).delta(epsilon) <= delta)
        return of(GaussianDP(mu))

    def compose(self, *others: Self) -> Self:
        """Return the combined guarantee: the squares of mu add up, and so do the slacks."""
        gaussian = self.gaussian.compose(*(other.gaussian for other in others))
        return type(self)(gaussian, math.fsum((self.slack, *(other.slack for other in others))))

    def repeat(self, count: int) -> Self:
        """Return the guarantee of `count` releases like this together."""
        return type(self)(self.gaussian.repeat(count), count * self.slack)

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on delta that exceeds the Gaussian one by the slack only.

        With `P <= e**slack P'` and `Q >= e**-slack Q'` for any set of outcomes, `P - e**epsilon Q`
        is at most `e**slack (P' - e**rest Q')` with `rest = epsilon - 2 slack`.
        """
        require_epsilon(epsilon)
        rest = epsilon - 2 * self.slack
        # P' - e**rest Q' is at most P' - Q' and the difference.
        ideal = self.gaussian.delta(max(rest, 0.0)) - math.expm1(min(rest, 0.0))
        return min(1.0, ideal * math.exp(self.slack)) if self.slack < 1 else 1.0

    def epsilon(self, delta: float) -> float:
        """Return the epsilon for a delta in (0, 1), with twice the slack added."""
        require_delta(delta)
        return self.gaussian.epsilon(delta * math.exp(-self.slack)) + 2 * self.slack


def gaussian_shares(sigma: float, shares: int, sensitivity: float, dimensions: int) -> NearGaussian:
    """Return the guarantee of a sum of m unknown discrete Gaussian shares, proved above.

    `sensitivity` is the L2 norm of the whole numbers by which a row may change the sum.
    """
    require_noise(sigma, sensitivity)
    allowed = f"at least {GAUSSIAN_SIGMA_MIN}"
    require(sigma >= GAUSSIAN_SIGMA_MIN, "sigma", sigma, allowed)
    require(shares >= 1, "shares", shares, "a whole number of at least 1")
    require(dimensions >= 1, "dimensions", dimensions, "a whole number of at least 1")
    deviation = math.sqrt(shares * sigma**2 - ROUNDING_VARIANCE)
    slack = 5 * dimensions * (math.exp(-2 * math.pi**2 * ROUNDING_VARIANCE) + _apart(sigma, shares))
    return NearGaussian(GaussianDP(sensitivity / deviation * _UP), slack * _UP)


def gaussian_share_sigma(mu: float, shares: int, sensitivity: float) -> Fraction:
    """Return the least sigma at which `gaussian_shares` has at most this mu, rounded up."""
    variance = (sensitivity / mu * _UP**2) ** 2 + ROUNDING_VARIANCE
    return sigma_ceil(max(math.sqrt(variance / shares), GAUSSIAN_SIGMA_MIN))


def sigma_ceil(sigma: float) -> Fraction:
    """Round a share's sigma up to a number that all parties compute alike."""
    return Fraction(math.ceil(sigma * _SIGMA_STEPS), _SIGMA_STEPS)


@lru_cache(maxsize=1024)
def _apart(sigma: float, shares: int) -> float:
    """Return the sum over j in the slack of a sum of shares."""
    j = np.arange(1, shares)
    return float(np.exp(-2 * math.pi**2 * sigma**2 * j / (j + 1)).sum())


def skellam_noise(
    variance: float,
    sensitivity: float,
    sensitivity_l1: float,
    orders: tuple[float, ...] = SKELLAM_ORDERS,
) -> RenyiDP:
    """Return the guarantee of Skellam noise, of one party or as a sum of shares.

    The sensitivities are the L2 and the L1 norm of the whole numbers by which a row may change the
    sum. The formula is proved only for whole orders.
    """
    require_noise(variance, sensitivity)
    require_noise(variance, sensitivity_l1)
    whole = all(float(order).is_integer() for order in orders)
    require(whole, "orders", orders, "whole numbers above 1")
    a, square = np.array(orders), sensitivity**2
    fourth = ((2 * a - 1) * square + 6 * sensitivity_l1) / (4 * variance**2)
    more = np.minimum(fourth, 3 * sensitivity_l1 / (2 * variance))
    curve = (a * square / (2 * variance) + more) * _UP
    return RenyiDP(orders, tuple(map(float, curve)))


@lru_cache(maxsize=4096)
def count_loss(epsilon: float | Fraction, exponent: Fraction, units: int = 1) -> float:
    """Return the loss of a count whose noise has this total exponent, rounded up: g of epsilon.

    Args:
        epsilon: The loss of a unit if the exponent is 1; at least `1 / POLYA_SCALE_MAX`.
        exponent: A, at least 0: infinite loss for 0, and `epsilon` a unit from 1 on.
        units: The maximum change of the count by a row, at least 0.
    """
    allowed = f"a finite number of at least 1/{POLYA_SCALE_MAX}"
    finite = 1 <= epsilon * POLYA_SCALE_MAX < math.inf
    require(finite, "epsilon", epsilon, allowed)
    require(exponent >= 0, "exponent", exponent, "at least 0")
    require(units >= 0, "units", units, "a whole number of at least 0")
    if exponent >= 1 or units == 0:
        return float_ceil(Fraction(epsilon) * units)
    if exponent == 0:
        return math.inf
    terms = math.ceil(_REACH / epsilon) + 2
    j = np.arange(terms + units)
    factors = (j + float(exponent)) / (j + 1)  # c[j + 1] / c[j]
    c = np.cumprod(np.concatenate([[1.0], factors[:-1]]))
    weights = c[:terms] * np.exp(-2 * float(epsilon) * j[:terms])
    ratio = (weights * c[:terms]).sum() / (weights * c[units:]).sum()
    # A term has an error of some 10 roundings per index; sums are no worse than their worst term.
    slack = 32 * (len(j) + 32) * _UNIT * (1 + units * epsilon)
    return float(units * epsilon + math.log(ratio) + slack)


def vector_loss(
    epsilon: float | Fraction, exponent: Fraction, sensitivity: int, dimensions: int
) -> float:
    """Return the loss of a vector of counts whose noise has this total exponent, rounded up.

    `sensitivity` is the maximum L1 norm of a row's change, `epsilon` that of `count_loss`.
    """
    require(sensitivity >= 1, "sensitivity", sensitivity, "a whole number of at least 1")
    require(dimensions >= 1, "dimensions", dimensions, "a whole number of at least 1")
    if exponent >= 1:
        return count_loss(epsilon, exponent, sensitivity)
    if exponent == 0:
        return math.inf
    each, more = divmod(sensitivity, dimensions)
    losses = (
        more * Fraction(count_loss(epsilon, exponent, each + 1)) if more else Fraction(),
        (dimensions - more) * Fraction(count_loss(epsilon, exponent, each)),
    )
    return float_ceil(sum(losses, Fraction()))

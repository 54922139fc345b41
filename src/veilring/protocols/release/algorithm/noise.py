"""Distributed noise for released sums: each party's share, the privacy cost and the size.

Of n parties c may collude, the observer of the result included, and l may be lost. Each party draws
its share as one of m = n - c - l, so the honest shares that are certainly present make up all of
the noise; the shares beyond these are post-processing. An owner is n = 1.

Neighbouring data sets differ by one row of one party, added or removed. A sum adds vectors of whole
numbers: a row's real vector times a public scale S, truncated toward zero, so its L1 norm is at
most S L1, or its squared L2 norm at most S**2 L2**2. All values here are in these whole numbers;
divide by S for the units of the statistic.

A release may consist of two sums, the second one of rows around a centre from the first. The noise
of both is fixed before the first: their guarantees compose, whatever the first sum was.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np

from veilring.arrays import Ints
from veilring.privacy.accounting import GaussianDP, PureDP, RenyiDP, find_least
from veilring.privacy.checks import require, require_choice, require_that
from veilring.privacy.divisible import (
    POLYA_SCALE_MAX,
    SKELLAM_VARIANCE_MAX,
    polya_difference,
    skellam,
)
from veilring.privacy.noise import (
    discrete_gaussian,
    discrete_laplace_kurtosis,
    discrete_laplace_variance,
)
from veilring.privacy.shares import (
    EPSILON_MAX,
    NearGaussian,
    gaussian_shares,
    sigma_ceil,
    skellam_noise,
    vector_loss,
)

ApproximateNoise = Literal["gaussian", "skellam"]
"""The distributions of shares whose guarantee needs a δ: discrete Gaussian and Skellam."""
NoiseDistribution = Literal[ApproximateNoise, "laplace"]
"""The distributions of shares: also Pólya shares of discrete Laplace noise, which is pure."""
Account = NearGaussian | RenyiDP | PureDP

Norm = Literal["l1", "l2"]

SIGMA_MIN: Final = 3
"""The minimum standard deviation of a share: the account of a sum then needs at most 8 % more noise
than continuous noise would."""
CENTRE_SHARE: Final = Fraction(3, 20)
"""The part of the budget for a first sum: more harms the second, and less misplaces the centre."""
ROOM_DEVIATIONS: Final = 40
"""The space reserved for noise in a word, in standard deviations of the noise."""

# Words are added modulo 2**64, and read with a sign.
_WORD_MAX: Final = 2**63 - 1
# The widest share; a draw may be many times as wide, and still fits into a word.
_SIGMA_MAX: Final[dict[NoiseDistribution, float]] = {
    "gaussian": 2.0**39,
    "skellam": math.sqrt(SKELLAM_VARIANCE_MAX),
}
# The allowance for rounding up, and for a distribution's accounting relative to the ideal.
_SPARE: Final = 2.0
_WHOLE: Final = (Fraction(1),)


def tolerated_default(parties: int) -> int:
    """Return the default number of colluders that a release tolerates, less than half."""
    return (parties - 1) // 2


@dataclass(frozen=True, slots=True)
class Trust:
    """The parties whose shares of the noise count.

    Attributes:
        parties: n, at least 1.
        tolerated: c, the number of parties that may collude, including the observer unless it is an
            outsider.
        lost: l, the number of further parties that may be missing when the sum is opened.
    """

    parties: int
    tolerated: int
    lost: int = 0

    def __post_init__(self) -> None:
        require(self.parties >= 1, "parties", self.parties, "a whole number of at least 1")
        require(self.tolerated >= 0, "tolerated", self.tolerated, "a whole number of at least 0")
        require(self.lost >= 0, "lost", self.lost, "a whole number of at least 0")
        require_that(
            self.shares >= 1,
            "tolerated",
            f"with {self.tolerated} colluding and {self.lost} lost of {self.parties} parties,"
            " there is no share of the noise left; tolerate fewer, or release with more parties",
        )

    @property
    def shares(self) -> int:
        """The number of shares that make up all of the noise, m."""
        return self.parties - self.tolerated - self.lost

    @property
    def present(self) -> int:
        """The minimum number of parties whose rows and shares are in an opened sum, n - l."""
        return self.parties - self.lost

    @property
    def factor(self) -> Fraction:
        """The variance of all shares relative to that of an owner's noise, f = n / m."""
        return Fraction(self.parties, self.shares)


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The largest vector of whole numbers by which one row changes a sum.

    Attributes:
        most: The maximum sum of absolute values (`"l1"`) or of squares (`"l2"`), at least 1.
        dimensions: D, the number of coordinates, at least 1.
    """

    norm: Norm
    most: int
    dimensions: int

    def __post_init__(self) -> None:
        require_choice("norm", self.norm, Norm)
        require(self.most >= 1, "most", self.most, "a whole number of at least 1")
        require(self.dimensions >= 1, "dimensions", self.dimensions, "a whole number of at least 1")

    @property
    def absolute(self) -> int:
        """The maximum sum of absolute values; for whole numbers, squares bound it."""
        if self.norm == "l1":
            return self.most
        return min(self.most, math.isqrt(self.most * self.dimensions))

    @property
    def squares(self) -> int:
        """The maximum sum of squares."""
        return self.most if self.norm == "l2" else self.most**2

    @property
    def length(self) -> float:
        """The maximum L2 norm, rounded up."""
        root = math.sqrt(self.squares)
        return root if Fraction(root) ** 2 >= self.squares else math.nextafter(root, math.inf)

    @property
    def entry(self) -> int:
        """The maximum absolute value of a coordinate."""
        return math.isqrt(self.squares)


@dataclass(frozen=True, slots=True)
class SumNoise:
    """The noise of one sum, of which each party draws a share. Create it with `plan_noise`.

    Attributes:
        spread: A share's sigma; for Skellam the root of its variance, and for Laplace the scale b
            of the noise of m shares.
    """

    distribution: NoiseDistribution
    spread: Fraction
    sensitivity: Sensitivity
    trust: Trust

    def share(self, rng: np.random.Generator) -> Ints:
        """Draw a party's share, shape (dimensions,), from its own secret randomness."""
        shape = self.sensitivity.dimensions
        if self.distribution == "gaussian":
            return discrete_gaussian(self.spread, shape, rng)
        if self.distribution == "skellam":
            return skellam(self.spread**2, shape, rng)
        return polya_difference(Fraction(1, self.trust.shares), self.spread, shape, rng)

    def account(self, missing: int | None = None) -> Account:
        """Return the guarantee of the sum for an observer with some noise shares missing.

        From 0 to n - 1 shares are absent or known to the observer's coalition; by default c + l.
        """
        n, m = self.trust.parties, self.trust.shares
        there = m if missing is None else n - missing
        require(1 <= there <= n, "missing", missing, f"from 0 to {n - 1}")
        row = self.sensitivity
        if self.distribution == "laplace":
            exponent = Fraction(there, m)
            return PureDP(vector_loss(1 / self.spread, exponent, row.absolute, row.dimensions))
        if self.distribution == "skellam":
            return skellam_noise(float(there * self.spread**2), row.length, row.absolute)
        return gaussian_shares(float(self.spread), there, row.length, row.dimensions)

    def deviation(self, shares: int | None = None) -> float:
        """Return the standard deviation of a coordinate if n, or some, parties added shares."""
        added = self.trust.parties if shares is None else shares
        if self.distribution == "laplace":
            return math.sqrt(added * discrete_laplace_variance(self.spread) / self.trust.shares)
        return math.sqrt(added) * float(self.spread)

    @property
    def kurtosis(self) -> float:
        """The maximum kurtosis of a coordinate's noise, for any number of shares that suffices."""
        if self.distribution == "laplace":
            return discrete_laplace_kurtosis(self.spread)
        return 3 + 1 / float(self.spread) ** 2  # that of Skellam; a discrete Gaussian has less

    def require_room(self, rows: int) -> None:
        """Reject a sum that may not fit into 64-bit words."""
        require(rows >= 0, "rows", rows, "a whole number of at least 0")
        noise = math.ceil(ROOM_DEVIATIONS * self.deviation())
        most = rows * self.sensitivity.entry + noise
        require_that(
            most <= _WORD_MAX,
            "rows",
            f"a sum of {rows:,} rows and its noise may reach {most:.2g}, and a word of 64 bits "
            f"holds {_WORD_MAX:.2g}: use fewer rows, or a smaller scale of the statistic",
        )


def plan_noise(
    distribution: NoiseDistribution,
    epsilon: float,
    delta: float,
    trust: Trust,
    sums: Sequence[Sensitivity],
    *,
    weights: Sequence[Fraction] = _WHOLE,
) -> tuple[SumNoise, ...]:
    """Return the smallest noise with which several sums together are (epsilon, delta)-DP.

    Args:
        distribution: The distribution of a share; `"laplace"` is pure.
        epsilon: The target, above 0 and at most `EPSILON_MAX`.
        delta: The target, in (0, 1); 0 for `"laplace"`.
        weights: The part of the budget for each sum, of 1 / sigma**2 or of epsilon; they add up
            to 1.
    """
    require_choice("distribution", distribution, NoiseDistribution)
    require(0 < epsilon <= EPSILON_MAX, "epsilon", epsilon, f"above 0 and at most {EPSILON_MAX}")
    require_that(
        0 < len(sums) == len(weights) and min(weights) > 0 and sum(weights) == 1,
        "weights",
        f"each of {len(sums)} sums needs a part of the budget; the parts must be above 0 and add"
        " up to 1",
    )
    if distribution == "laplace":
        require(
            delta == 0,
            "delta",
            delta,
            "0, because Laplace noise is pure; or use another distribution",
        )
        parts = _parts(epsilon, weights)
        return tuple(_laplace(part, trust, row) for part, row in zip(parts, sums, strict=True))
    weighted = tuple(zip(sums, weights, strict=True))
    return _calibrated(distribution, epsilon, delta, trust, weighted)


def scale_for(
    distribution: NoiseDistribution,
    epsilon: float,
    delta: float,
    trust: Trust,
    bound: Fraction,
    *,
    most: int,
    weight: Fraction = _WHOLE[0],
) -> int:
    """Return the largest power of two by which a statistic may be scaled for a distribution.

    Args:
        bound: The maximum for a row's real vector: the L1 norm for `"laplace"`, otherwise the
            squared L2 norm.
        most: The largest useful scale, at least 1.
    """
    require(most >= 1, "most", most, "a whole number of at least 1")
    require(bound > 0, "bound", bound, "above 0")
    if distribution == "laplace":
        limit = Fraction(epsilon) * weight * POLYA_SCALE_MAX / bound
    else:
        sigma = _ideal_sigma(epsilon, delta, trust, weight) * math.sqrt(bound)
        limit = Fraction(_SIGMA_MAX[distribution] / (_SPARE * sigma))
    whole = min(math.floor(limit), most)
    require_that(
        whole >= 1,
        "epsilon",
        f"epsilon = {epsilon:g} needs wider noise than {distribution} shares support: use a larger "
        "epsilon, or a statistic whose rows are bounded more closely",
    )
    return 1 << (whole.bit_length() - 1)


def account_of(noises: Sequence[SumNoise]) -> Account:
    """Return the combined guarantee of sums, the later of which may depend on the earlier."""
    accounts: list[Any] = [each.account() for each in noises]
    first, *others = accounts
    total: Account = first.compose(*others)
    return total


def rule_deviation(epsilon: float, delta: float, trust: Trust) -> float:
    """Return s, the noise at L2 = 1 by which public rules choose a statistic.

    It is the noise of the analytic Gaussian mechanism times the root of f, for comparison only; it
    is not an account.
    """
    return _analytic_sigma(epsilon, delta) * math.sqrt(trust.factor)


# Each party of a release needs both several times, and a search takes milliseconds.
@lru_cache(maxsize=256)
def _calibrated(
    distribution: NoiseDistribution,
    epsilon: float,
    delta: float,
    trust: Trust,
    weighted: tuple[tuple[Sensitivity, Fraction], ...],
) -> tuple[SumNoise, ...]:
    """Return the noise of sums with their weights, if shares are not pure."""
    ideals = [(row, _ideal_sigma(epsilon, delta, trust, weight)) for row, weight in weighted]
    for row, ideal in ideals:
        _require_fine(ideal * row.length)

    def noises(factor: float) -> tuple[SumNoise, ...]:
        return tuple(
            SumNoise(distribution, sigma_ceil(factor * ideal * row.length), row, trust)
            for row, ideal in ideals
        )

    def meets(factor: float) -> bool:
        account = account_of(noises(factor))
        if isinstance(account, NearGaussian):
            return account.delta(epsilon) <= delta  # a hundred times as fast as its epsilon
        return account.epsilon(delta) <= epsilon

    found = noises(find_least(meets))
    for noise in found:
        _require_drawn(noise)
    return found


@lru_cache(maxsize=256)
def _analytic_sigma(epsilon: float, delta: float) -> float:
    """Return the noise of the analytic Gaussian mechanism at L2 = 1."""
    return GaussianDP.calibrate(epsilon, delta).sigma()


def _parts(epsilon: float, weights: Sequence[Fraction]) -> list[Fraction]:
    """Divide epsilon into fractions that add up to it exactly."""
    unit = Fraction(math.ulp(epsilon))
    parts = [math.floor(weight * Fraction(epsilon) / unit) * unit for weight in weights[:-1]]
    return [*parts, Fraction(epsilon) - sum(parts)]


def _laplace(epsilon: Fraction, trust: Trust, row: Sensitivity) -> SumNoise:
    require_that(
        row.norm == "l1", "distribution", "pure noise needs a bound on the L1 norm of a row"
    )
    spread = row.most / epsilon
    require_that(
        spread <= POLYA_SCALE_MAX,
        "scale",
        f"rows of L1 norm {row.most:,} need noise of scale {float(spread):,.0f} for epsilon ="
        f" {float(epsilon):.3g}, and shares support a scale of up to {POLYA_SCALE_MAX:,}: use a"
        " smaller scale of the statistic, or a greater epsilon",
    )
    return SumNoise("laplace", spread, row, trust)


def _ideal_sigma(epsilon: float, delta: float, trust: Trust, weight: Fraction) -> float:
    """Return a share's sigma at L2 = 1 for continuous noise; the real one is slightly larger."""
    return _analytic_sigma(epsilon, delta) / math.sqrt(weight * trust.shares)


def _require_fine(sigma: float) -> None:
    """Reject whole numbers that are too coarse for the account of a sum of shares."""
    times = 1 << max(0, math.ceil(math.log2(SIGMA_MIN / sigma)))
    require_that(
        sigma >= SIGMA_MIN,
        "scale",
        f"a share of the noise has a standard deviation of {sigma:.2g} whole numbers, and the "
        f"accounting of a sum of shares needs {SIGMA_MIN}: use {times} times the scale of the "
        "statistic, or a smaller epsilon",
    )


def _require_drawn(noise: SumNoise) -> None:
    """Reject noise that is too wide for its distribution."""
    most = _SIGMA_MAX[noise.distribution]
    require_that(
        noise.spread <= most,
        "scale",
        f"a share of the noise has a standard deviation of {float(noise.spread):.3g} whole "
        f"numbers, and {noise.distribution} shares support at most {most:.3g}: use a smaller scale"
        " of the statistic, or a greater epsilon",
    )

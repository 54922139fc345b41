"""Mechanisms for means that the package leaves out: it has one bit of one feature.

- `Laplace`: a number plus exact discrete Laplace noise.
- `Piecewise`: a number near the client's (Wang et al., ICDE 2019, Algorithm 2).
- `Hybrid`: one bit or the piecewise mechanism, chosen by a coin (the same paper, Section III-C).
- `SignVector` reports one sign per feature, all in one report: Duchi's mechanism as Nguyên et al.
  corrected it. As published it exceeds epsilon for an even number of features: with half of the
  signs agreeing a report is in both half-spaces, and so the loss is `ln(e^epsilon + 1)`, 1.313 at
  epsilon = 1.
- `make_means` has the three approaches to many features of Yilmaz et al. (Section 2.2.3).

Sources: Yilmaz, Al-Rubaie and Chang 2019; Duchi, Jordan and Wainwright, "Minimax optimal procedures
for locally private estimation", 2018, Section 4.2; Nguyên et al., arXiv:1606.05053; Wang et al.,
ICDE 2019.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, comb, exp, expm1, floor, inf, log
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from papers.oracles import laplace_sum_max
from veilring.arrays import Bools, Floats, Ints
from veilring.errors import InputError
from veilring.privacy.draws import bernoulli
from veilring.privacy.exact import Dyadic, exp_floor, float_ceil, log_ceil
from veilring.privacy.noise import discrete_laplace, discrete_laplace_pmf, discrete_laplace_variance
from veilring.protocols.ldp.algorithm.means import (
    COIN_BITS,
    CodeDistribution,
    Codes,
    EachFeature,
    Means,
    SampledFeature,
    coin_lean,
    require_normalised,
    rounded,
)
from veilring.protocols.ldp.algorithm.means import make_means as one_bit_means
from veilring.protocols.ldp.algorithm.packing import bitmap_bytes, column_sums, is_padded
from veilring.protocols.ldp.algorithm.randomiser import (
    RAREST_MIN,
    REPORT_EPSILON_MAX,
    LocalRandomiser,
    Reports,
    Sums,
    SurveyEstimate,
    normal_estimate,
)

# Rounding adds at most 1 / (4 levels^2), or 3.8e-6, to a variance that is 0.5 at epsilon = 4.
_LAPLACE_LEVELS: Final = 256
# A report is clipped this number of scales beyond the grid, to limit a malicious client's weight.
# An honest report is clipped with probability e^-20, or 2e-9, which shifts the mean by at most
# e^-20 / epsilon: below the standard deviation of a mean over 10^17 clients.
_SCALES_MAX: Final = 20
_CODES_MAX: Final = 1 << 32  # a code has four bytes at most


@dataclass(frozen=True)
class Laplace(CodeDistribution):
    """A number plus noise of scale `2 / epsilon`.

    For a vector that is 0 except at one position, all entries cost the ε of one: two such vectors
    differ by at most 2 in the sum of absolute differences, like two numbers in [-1, 1].
    """

    name: ClassVar[str] = "laplace"
    # On each side the codes go beyond the grid by `_SCALES_MAX` times `scale`.
    least_epsilon: ClassVar[float] = (
        4 * _LAPLACE_LEVELS * _SCALES_MAX / (_CODES_MAX - 4 * _LAPLACE_LEVELS)
    )
    levels: ClassVar[int] = _LAPLACE_LEVELS
    covers_one_hot: ClassVar[bool] = True

    @cached_property
    def scale(self) -> Fraction:
        """The scale of the noise in steps of the grid: exactly the sensitivity over epsilon."""
        return 2 * _LAPLACE_LEVELS / Fraction(self.epsilon)

    @cached_property
    def most(self) -> int:
        """The largest outcome, in steps of the grid."""
        return _LAPLACE_LEVELS + ceil(_SCALES_MAX * self.scale)

    @property
    def bias(self) -> float:
        """The maximum distance of the reported value's mean from the number."""
        # The mean of the part clipped on one side, for a number at that end of the grid
        return float(self.scale) * exp(-_SCALES_MAX) / (2 * _LAPLACE_LEVELS)

    @property
    @override
    def exact_epsilon(self) -> float:
        return float_ceil(Fraction(self.epsilon))

    @property
    @override
    def codes(self) -> int:
        return 2 * self.most + 1

    @property
    @override
    def public(self) -> Mapping[str, int]:
        scale = {"scale": self.scale.numerator, "scale_divisor": self.scale.denominator}
        return {"levels": _LAPLACE_LEVELS, **scale, "most": self.most}

    @override
    def sample(self, grid: Ints, rng: Generator) -> Codes:
        noisy = grid + discrete_laplace(self.scale, grid.shape, rng)
        return np.asarray(np.clip(noisy, -self.most, self.most) + self.most)

    @override
    def probability(self, codes: Codes, grid: int) -> Floats:
        away = np.abs(codes - self.most - grid)
        ratio = exp(-1 / self.scale)
        is_end = (codes == 0) | (codes == 2 * self.most)
        # The clipped tail counts at the end: a geometric series.
        cut = np.exp(-away / float(self.scale)) / (1 + ratio)
        return np.where(is_end, cut, discrete_laplace_pmf(away, self.scale))

    @override
    def plausible(self, codes: Codes, numbers: int) -> Bools:
        most = numbers * _LAPLACE_LEVELS + laplace_sum_max(self.scale, codes.shape[-1])
        return np.asarray(np.abs(codes - self.most).sum(axis=-1) <= most)

    @override
    def summed(self, codes: Codes) -> Ints:
        return np.asarray((codes - self.most)[..., None])

    @override
    def total(self, sums: Ints) -> Floats:
        return np.asarray(sums[..., 0] / _LAPLACE_LEVELS)

    @override
    def second_moment(self, x: float) -> float:
        """Return the mean square without clipping; the error is less than 1e-7 of it."""
        return (
            grid_square(x, _LAPLACE_LEVELS)
            + discrete_laplace_variance(self.scale) / _LAPLACE_LEVELS**2
        )


def grid_square(x: float, levels: int) -> float:
    """Return the mean square of a rounded number."""
    below = floor(x * levels)
    part = x * levels - below
    return (below**2 * (1 - part) + (below + 1) ** 2 * part) / levels**2


# Rounding adds at most 1 / (4 levels^2), or 2.4e-7, to the variance of the number itself, and an
# outcome fits in two bytes.
_PIECEWISE_LEVELS: Final = 1024
_LOW: Final = 1 << 32  # the weight outside the window; the ratio to it is exact to 2^-32


@dataclass(frozen=True)
class Piecewise(CodeDistribution):
    """A number near the client's with high probability, any other with low probability."""

    name: ClassVar[str] = "piecewise"
    # The weight inside the window is larger by at least one: e^epsilon is above 1 + epsilon.
    least_epsilon: ClassVar[float] = 1 / _LOW
    levels: ClassVar[int] = _PIECEWISE_LEVELS

    @cached_property
    def reach(self) -> int:
        """The width of the window to each side, `h`."""
        return max(1, round(_PIECEWISE_LEVELS * exp(-self.epsilon / 2)))

    @cached_property
    def high(self) -> int:
        """The weight of an outcome inside the window; other outcomes have weight `2**32`."""
        return int(exp_floor(self.epsilon) * _LOW)

    @property
    def most(self) -> int:
        """The largest outcome, `M`."""
        return _PIECEWISE_LEVELS + self.reach

    @cached_property
    def weight(self) -> int:
        """The sum of all weights."""
        return self.codes * _LOW + self._inside

    @property
    def _inside(self) -> int:
        """The window's extra weight over that of other outcomes."""
        return (2 * self.reach + 1) * (self.high - _LOW)

    @cached_property
    def unit(self) -> Fraction:
        """The number represented by an outcome of 1."""
        return Fraction(self.weight, self._inside * _PIECEWISE_LEVELS)

    @property
    @override
    def exact_epsilon(self) -> float:
        return min(float(self.epsilon), log_ceil(Fraction(self.high, _LOW)))

    @property
    @override
    def codes(self) -> int:
        return 2 * self.most + 1

    @property
    @override
    def public(self) -> Mapping[str, int]:
        return {"levels": _PIECEWISE_LEVELS, "reach": self.reach, "high": self.high, "low": _LOW}

    @override
    def sample(self, grid: Ints, rng: Generator) -> Codes:
        draws = rng.integers(0, self.weight, size=grid.shape)
        anywhere = draws // _LOW
        window = grid + _PIECEWISE_LEVELS + (draws - self.codes * _LOW) // (self.high - _LOW)
        return np.where(anywhere < self.codes, anywhere, window)

    @override
    def probability(self, codes: Codes, grid: int) -> Floats:
        inside = np.abs(codes - self.most - grid) <= self.reach
        return np.where(inside, self.high / self.weight, _LOW / self.weight)

    @override
    def summed(self, codes: Codes) -> Ints:
        return (codes - self.most)[..., None]

    @override
    def total(self, sums: Ints) -> Floats:
        return np.asarray(sums[..., 0] * float(self.unit))

    @override
    def second_moment(self, x: float) -> float:
        anywhere = _mean_square(self.most) * self.codes * _LOW
        inside = (
            grid_square(x, _PIECEWISE_LEVELS) * _PIECEWISE_LEVELS**2 + _mean_square(self.reach)
        ) * self._inside
        return float(self.unit) ** 2 * (anywhere + inside) / self.weight


def _mean_square(most: int) -> float:
    """Return the mean square of a uniform integer from `-most` to `most`."""
    return most * (most + 1) / 3


# Below this epsilon, one bit alone has the smallest worst-case variance (Equation 6 of the paper).
_ALL_ONE_BIT: Final = 0.6093
_SHARE_BITS: Final = 32  # bits of the coin that chooses a distribution


@dataclass(frozen=True)
class Hybrid(CodeDistribution):
    """The mixture of the two with the smallest worst-case variance at every epsilon."""

    name: ClassVar[str] = "hybrid"
    least_epsilon: ClassVar[float] = Piecewise.least_epsilon
    levels: ClassVar[int] = _PIECEWISE_LEVELS
    parts: ClassVar[int] = 2

    @cached_property
    def piecewise(self) -> Piecewise:
        """The distribution used with probability `share`."""
        return Piecewise(self.epsilon)

    @cached_property
    def share(self) -> Dyadic:
        """The probability of the piecewise mechanism, `alpha`: `1 - e^(-epsilon/2)`, or 0."""
        if self.epsilon <= _ALL_ONE_BIT:
            return Dyadic(0, _SHARE_BITS)
        return Dyadic.floor(-expm1(-self.epsilon / 2), _SHARE_BITS)

    @cached_property
    def _lean(self) -> int:
        return coin_lean(self.epsilon, _PIECEWISE_LEVELS)

    @property
    def _slope(self) -> Fraction:
        return Fraction(self._lean * _PIECEWISE_LEVELS, 2 ** (COIN_BITS - 1))

    @property
    @override
    def exact_epsilon(self) -> float:
        bit = min(float(self.epsilon), log_ceil((1 + self._slope) / (1 - self._slope)))
        return max(bit, self.piecewise.exact_epsilon) if self.share.numerator else bit

    @property
    @override
    def codes(self) -> int:
        """The number of codes: two for the bit, plus the piecewise mechanism's if it is used."""
        return self._near + 2

    @property
    def _near(self) -> int:
        return self.piecewise.codes if self.share.numerator else 0

    @property
    @override
    def public(self) -> Mapping[str, int]:
        bit = {"share": self.share.numerator, "share_bits": _SHARE_BITS, "lean": self._lean}
        return {**self.piecewise.public, **bit, "coin_bits": COIN_BITS}

    @override
    def sample(self, grid: Ints, rng: Generator) -> Codes:
        near = self.piecewise.sample(grid, rng)
        draws = rng.integers(0, 1 << COIN_BITS, size=grid.shape)
        bit = draws < (1 << (COIN_BITS - 1)) + grid * self._lean
        return np.where(bernoulli(self.share, grid.shape, rng), near, self._near + bit)

    @override
    def probability(self, codes: Codes, grid: int) -> Floats:
        share = float(self.share)
        sign = 2 * (codes - self._near) - 1
        bit = (1 + sign * float(self._slope) * grid / _PIECEWISE_LEVELS) / 2
        near = self.piecewise.probability(codes, grid)
        return np.where(codes < self._near, share * near, (1 - share) * bit)

    @override
    def summed(self, codes: Codes) -> Ints:
        sign = 2 * (codes - self._near) - 1
        is_bit = codes >= self._near
        near = np.where(is_bit, 0, codes - self.piecewise.most)
        return np.stack((near, np.where(is_bit, sign, 0)), axis=-1)

    @override
    def total(self, sums: Ints) -> Floats:
        near = sums[..., 0] * float(self.piecewise.unit)
        return np.asarray(near + sums[..., 1] / float(self._slope))

    @override
    def second_moment(self, x: float) -> float:
        share = float(self.share)
        return share * self.piecewise.second_moment(x) + (1 - share) / float(self._slope) ** 2


_WORD_BITS: Final = 62  # the sum of all weights stays below 2^63
_LEAST_BITS: Final = 16  # the ratio of two weights is exact to at least 2^-16
_SIGN_BYTES: Final = 32  # per feature: its rounding, its position in a permutation, and its sign


@dataclass(frozen=True)
class SignVector(LocalRandomiser):
    """Each number becomes a random sign with that mean; the report tends to agree with most signs.

    A vector of signs has one weight if more than half of its signs agree, and otherwise a weight
    smaller by the factor `e^epsilon`: ties count as disagreement. A report is the signs as bits, 1
    for plus, in the order of `numpy.packbits`.

    Attributes:
        epsilon: The greatest ε of a report, above 0 and at most 20. It must be large enough for
            different weights; 2**-15 always suffices.
        features: The number of features, at least 1; `features + epsilon / ln(2)` is at most 46.
    """

    epsilon: float
    features: int

    name: ClassVar[str] = "sign-vector"

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= REPORT_EPSILON_MAX:
            raise InputError("epsilon", self.epsilon, f"in (0, {REPORT_EPSILON_MAX:g}]")
        if self.features < 1 or self._low_bits < _LEAST_BITS:
            most = _WORD_BITS - _LEAST_BITS - ceil(self.epsilon / log(2))
            raise InputError("features", self.features, f"an integer from 1 to {most}")
        low, high = self.weights
        if low == high:
            # The weights differ by at least one unless epsilon is too small: e^epsilon is above 1 +
            # epsilon.
            allowed = f"from {1 / low} to {REPORT_EPSILON_MAX:g} for {self.features} features"
            raise InputError("epsilon", self.epsilon, allowed)

    @property
    def _low_bits(self) -> int:
        return _WORD_BITS - self.features - ceil(self.epsilon / log(2))

    @cached_property
    def weights(self) -> tuple[int, int]:
        """The weights of a vector with at most half of the signs agreeing, and of any other."""
        low = 1 << self._low_bits
        return low, int(exp_floor(self.epsilon) * low)

    @cached_property
    def _agreements(self) -> tuple[int, ...]:
        """The total weight of all vectors with each number of agreeing signs."""
        low, high = self.weights
        n = self.features
        return tuple(comb(n, a) * (high if 2 * a > n else low) for a in range(n + 1))

    @cached_property
    def slope(self) -> Fraction:
        """The mean of a sign whose number is 1: signs are divided by it."""
        n = self.features
        lead = sum((2 * a - n) * weight for a, weight in enumerate(self._agreements))
        return Fraction(lead, n * sum(self._agreements))

    @property
    @override
    def exact_epsilon(self) -> float:
        low, high = self.weights
        return min(self.epsilon, log_ceil(Fraction(high, low)))

    @property
    @override
    def report_bytes(self) -> int:
        return bitmap_bytes(self.features)

    @property
    @override
    def cells(self) -> int:
        return self.features

    @property
    @override
    def public(self) -> Mapping[str, int | str]:
        low, high = self.weights
        return {"means": self.name, "features": self.features, "low": low, "high": high}

    @property
    @override
    def _work_bytes(self) -> int:
        return self.features * _SIGN_BYTES

    @override
    def _checked(self, values: NDArray[Any]) -> Floats:
        if values.shape[1:] != (self.features,):
            raise InputError.because(
                f"values has the shape {values.shape}; it must be (clients, {self.features})",
                field="values",
            )
        require_normalised(values)
        return values

    @override
    def _draw(self, values: Floats, rng: Generator) -> Reports:
        ends = np.cumsum(self._agreements)
        # On [0, 1], the grid of one level consists of the two signs.
        plus = rounded((values + 1) / 2, 1, rng)
        draws = rng.integers(ends[-1], size=len(plus))
        agreeing = np.searchsorted(ends, draws, side="right")
        order = rng.permuted(np.tile(np.arange(self.features), (len(plus), 1)), axis=1)
        agrees = order < agreeing[:, None]
        return np.packbits((plus == agrees).astype(np.uint8), axis=1)

    @override
    def _fits(self, reports: Reports) -> Bools:
        return is_padded(reports, self.features)

    @override
    def aggregate(self, reports: Reports) -> Sums:
        """Return the number of reports with plus for each feature."""
        return column_sums(reports, self.features)

    @override
    def rough(self, sums: Sums, clients: int) -> Bools:
        return np.full(self.entries, clients * float(1 - self.slope) / 2 < RAREST_MIN)

    @override
    def _estimate(self, sums: Sums, clients: int, z: float) -> SurveyEstimate:
        values = (2 * sums - clients) / (clients * float(self.slope))
        variance = (float(1 / self.slope**2) - np.clip(values, -1.0, 1.0) ** 2) / clients
        return normal_estimate(values, variance, clients, z)


Approach = Literal["all-features", "one-bit", "one-feature"]
"""All features with noise scaled by their number; one bit of one; one with Laplace noise."""
APPROACHES: Final[tuple[Approach, ...]] = ("all-features", "one-bit", "one-feature")


def make_means(approach: Approach, epsilon: float, features: int, classes: int = 1) -> Means:
    """Return the randomiser of an approach; without noise if epsilon is infinite.

    Args:
        approach: 1, 2 or 3 of the paper's Section 2.2.3, in the order of `APPROACHES`.
        epsilon: The maximum ε of a report, above 0.
        classes: The number of classes among which to hide a client's class, or 1.
    """
    bits = one_bit_means(epsilon, features, classes)
    if epsilon == inf or approach == "one-bit":
        return bits
    if approach == "all-features":
        return EachFeature(Laplace(Fraction(epsilon) / features), features, classes)
    return SampledFeature(Laplace(epsilon), features, classes)

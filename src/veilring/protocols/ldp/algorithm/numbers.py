"""Distributions of codes that are numbers: more accurate than one bit at a large epsilon.

- `Laplace`: the number plus exact discrete Laplace noise.
- `Piecewise`: a number near the client's (Algorithm 2 of the paper).
- `Hybrid`: one bit or the piecewise mechanism, chosen by a coin (its Section III-C).

Sources: Yilmaz, Al-Rubaie and Chang 2019; Wang et al., "Collecting and analyzing multidimensional
data with local differential privacy", ICDE 2019.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, exp, expm1, floor
from typing import ClassVar, Final

import numpy as np
from numpy.random import Generator
from typing_extensions import override

from veilring.arrays import Bools, Floats, Ints
from veilring.privacy.bounds import laplace_sum_max
from veilring.privacy.draws import bernoulli
from veilring.privacy.exact import Dyadic, exp_floor, float_ceil, log_ceil
from veilring.privacy.noise import discrete_laplace, discrete_laplace_pmf, discrete_laplace_variance
from veilring.protocols.ldp.algorithm.codes import COIN_BITS, CodeDistribution, Codes, coin_lean

# Rounding adds at most 1 / (4 levels^2), or 3.8e-6, to a variance that is 0.5 at epsilon = 4.
_LAPLACE_LEVELS: Final = 256
# A report is clipped this number of scales beyond the grid, to limit a malicious client's weight.
# An honest report is clipped with probability e^-20, or 2e-9, which shifts the mean by at most
# e^-20 / epsilon: below the standard deviation of a mean over 10^17 clients.
_SCALES_MAX: Final = 20
_CODES_MAX: Final = 1 << 32  # a code has four bytes at most


@dataclass(frozen=True)
class _Steps(CodeDistribution):
    """A distribution whose outcomes are whole steps: code 0 is the lowest, `-most`."""

    @property
    @abstractmethod
    def most(self) -> int:
        """The largest outcome, in steps."""

    @property
    @abstractmethod
    def unit(self) -> Fraction:
        """The number represented by an outcome of 1."""

    @property
    @override
    def influence(self) -> float:
        return self.most * float(self.unit)

    @property
    @override
    def codes(self) -> int:
        return 2 * self.most + 1

    @override
    def total(self, sums: Ints) -> Floats:
        return np.asarray(sums[..., 0] * float(self.unit))


@dataclass(frozen=True)
class Laplace(_Steps):
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
    parts: ClassVar[int] = 2
    covers_one_hot: ClassVar[bool] = True

    @cached_property
    def scale(self) -> Fraction:
        """The scale of the noise in steps of the grid: exactly the sensitivity over epsilon."""
        return 2 * _LAPLACE_LEVELS / Fraction(self.epsilon)

    @cached_property
    @override
    def most(self) -> int:
        return _LAPLACE_LEVELS + ceil(_SCALES_MAX * self.scale)

    @property
    @override
    def unit(self) -> Fraction:
        return Fraction(1, _LAPLACE_LEVELS)

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
        steps = codes - self.most
        return np.stack((steps, self._squared(steps / _LAPLACE_LEVELS)), axis=-1)

    @override
    def squares(self, sums: Ints, counts: Ints) -> Floats:
        return self._unsquared(sums[..., 1])

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
class Piecewise(_Steps):
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
    @override
    def most(self) -> int:
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
    @override
    def unit(self) -> Fraction:
        return Fraction(self.weight, self._inside * _PIECEWISE_LEVELS)

    @property
    @override
    def exact_epsilon(self) -> float:
        return min(float(self.epsilon), log_ceil(Fraction(self.high, _LOW)))

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
    parts: ClassVar[int] = 3

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

    @cached_property
    @override
    def influence(self) -> float:
        near = self.piecewise.influence if self.share.numerator else 0.0
        return max(near, 1 / float(self._slope))

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
        both = np.stack((near, np.where(is_bit, sign, 0)), axis=-1)
        return np.concatenate((both, self._squared(self.total(both))[..., None]), axis=-1)

    @override
    def total(self, sums: Ints) -> Floats:
        near = sums[..., 0] * float(self.piecewise.unit)
        return np.asarray(near + sums[..., 1] / float(self._slope))

    @override
    def squares(self, sums: Ints, counts: Ints) -> Floats:
        return self._unsquared(sums[..., 2])

    @override
    def second_moment(self, x: float) -> float:
        share = float(self.share)
        return share * self.piecewise.second_moment(x) + (1 - share) / float(self._slope) ** 2

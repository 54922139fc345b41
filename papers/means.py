"""Duchi's mechanism for vectors, which the package leaves out, and the paper's three approaches.

- `SignVector` reports one sign per feature, all in one report: Duchi's mechanism as Nguyên et al.
  corrected it. As published it exceeds epsilon for an even number of features: with half of the
  signs agreeing a report is in both half-spaces, and so the loss is `ln(e^epsilon + 1)`, 1.313 at
  epsilon = 1.
- `make_means` has the three approaches to many features of Yilmaz et al. (Section 2.2.3).

Sources: Yilmaz, Al-Rubaie and Chang 2019; Duchi, Jordan and Wainwright, "Minimax optimal procedures
for locally private estimation", 2018, Section 4.2; Nguyên et al., arXiv:1606.05053.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, comb, inf, log
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.arrays import Bools, Floats
from veilring.errors import InputError
from veilring.privacy.checks import require
from veilring.privacy.exact import exp_floor, log_ceil
from veilring.protocols.ldp.algorithm.codes import OneBit, Plain, require_normalised, rounded
from veilring.protocols.ldp.algorithm.means import EachFeature, Means, SampledFeature
from veilring.protocols.ldp.algorithm.numbers import Laplace
from veilring.protocols.ldp.algorithm.packing import bitmap_bytes, column_sums, is_padded
from veilring.protocols.ldp.algorithm.randomiser import (
    REPORT_EPSILON_MAX,
    LocalRandomiser,
    Reports,
    Sums,
)

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
    def _moments(self, sums: Sums, clients: int) -> tuple[Floats, Floats]:
        values = (2 * sums - clients) / (clients * float(self.slope))
        return values, (float(1 / self.slope**2) - np.clip(values, -1.0, 1.0) ** 2) / clients


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
    require(epsilon > 0, "epsilon", epsilon, "a number above 0")
    if epsilon == inf:
        return EachFeature(Plain(), features, classes)
    if approach == "one-bit":
        return SampledFeature(OneBit(epsilon), features, classes)
    if approach == "all-features":
        return EachFeature(Laplace(Fraction(epsilon) / features), features, classes)
    return SampledFeature(Laplace(epsilon), features, classes)

"""One sign a feature, all in one report: Duchi's mechanism as Nguyên et al. corrected it.

Source: Duchi, Jordan and Wainwright, "Minimax optimal procedures for locally private estimation",
2018, Section 4.2; Nguyên et al., arXiv:1606.05053; Wang et al., ICDE 2019, Algorithm 3.

As published it exceeds epsilon for an even number of features: with half of the signs agreeing a
report is in both half-spaces, and so the loss is `ln(e^epsilon + 1)`, 1.313 at epsilon = 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, comb, log
from typing import Any, ClassVar, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.errors import InputError
from veilring.privacy import exp_floor, log_ceil
from veilring.protocols.ldp.algorithm.chunks import chunks
from veilring.protocols.ldp.algorithm.means.law import require_in_range, rounded
from veilring.protocols.ldp.algorithm.oracles.bitmaps import bitmap_bytes, is_padded
from veilring.protocols.ldp.algorithm.oracles.columns import column_sums
from veilring.protocols.ldp.algorithm.oracles.oracle import EPSILON_MAX
from veilring.protocols.ldp.algorithm.randomiser import (
    CONFIDENCE,
    RAREST_MIN,
    Estimate,
    LocalRandomiser,
    Reports,
    Sums,
    normal_estimate,
    require_sums,
)

_WORD_BITS: Final = 62  # all weights together stay below 2^63
_LEAST_BITS: Final = 16  # the ratio of two weights is exact to 2^-16 at least
_WORK_BYTES: Final = 32  # of a feature: its rounding, its place in a permutation, and its sign


@dataclass(frozen=True)
class SignVector(LocalRandomiser):
    """Each number becomes a random sign with its mean; the report agrees with most of these.

    A vector of signs has one weight if more than half of its signs agree, and one that is smaller
    by `e^epsilon` else: ties count as disagreement. A report is the signs as bits, 1 for plus, in
    the order of `numpy.packbits`.

    Attributes:
        epsilon: The most that a report may spend, above 0 and at most 20; so much that the weights
            differ, 2**-15 at the most.
        features: How many, at least 1; `features + epsilon / ln(2)` is at most 46.

    Raises:
        InputError: If a field is outside its range.
    """

    epsilon: float
    features: int

    name: ClassVar[str] = "sign-vector"

    def __post_init__(self) -> None:
        """Refuse what is outside the documented ranges."""
        if not 0 < self.epsilon <= EPSILON_MAX:
            raise InputError("epsilon", self.epsilon, f"in (0, {EPSILON_MAX:g}]")
        if self.features < 1 or self._low_bits < _LEAST_BITS:
            most = _WORD_BITS - _LEAST_BITS - ceil(self.epsilon / log(2))
            raise InputError("features", self.features, f"an integer from 1 to {most}")
        low, high = self.weights
        if low == high:
            # They differ by one if epsilon does not drown: e^epsilon is above 1 + epsilon.
            allowed = f"from {1 / low} to {EPSILON_MAX:g} for {self.features} features"
            raise InputError("epsilon", self.epsilon, allowed)

    @property
    def _low_bits(self) -> int:
        return _WORD_BITS - self.features - ceil(self.epsilon / log(2))

    @cached_property
    def weights(self) -> tuple[int, int]:
        """The weight of a vector of which half of the signs agree, or fewer, and of the others."""
        low = 1 << self._low_bits
        return low, int(exp_floor(self.epsilon) * low)

    @cached_property
    def _agreements(self) -> tuple[int, ...]:
        """The weight of all vectors of which so many signs agree, from none to all."""
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
    def entries(self) -> int:
        return self.features

    @property
    @override
    def public(self) -> Mapping[str, int | str]:
        low, high = self.weights
        return {"means": self.name, "features": self.features, "low": low, "high": high}

    @override
    def perturb(self, values: NDArray[Any], rng: Generator) -> Reports:
        if values.ndim != 2 or values.shape[1] != self.features:  # noqa: PLR2004  (by features)
            allowed = f"of shape (clients, {self.features})"
            raise InputError("values", f"of shape {values.shape}", allowed)
        require_in_range(values)
        reports = np.empty((len(values), self.report_bytes), dtype=np.uint8)
        ends = np.cumsum(self._agreements)
        for chunk in chunks(len(values), self.features * _WORK_BYTES):
            # On [0, 1] the grid of one level is the two signs.
            plus = rounded((values[chunk] + 1) / 2, 1, rng)
            draws = rng.integers(ends[-1], size=len(plus))
            agreeing = np.searchsorted(ends, draws, side="right")
            order = rng.permuted(np.tile(np.arange(self.features), (len(plus), 1)), axis=1)
            agrees = order < agreeing[:, None]
            reports[chunk] = np.packbits((plus == agrees).astype(np.uint8), axis=1)
        return reports

    @override
    def _fits(self, reports: Reports) -> NDArray[np.bool_]:
        return is_padded(reports, self.features)

    @override
    def aggregate(self, reports: Reports) -> Sums:
        """Return how many reports say plus of each feature."""
        return column_sums(reports, self.features)

    @override
    def rough(self, sums: Sums, clients: int) -> NDArray[np.bool_]:
        return np.full(self.entries, clients * float(1 - self.slope) / 2 < RAREST_MIN)

    @override
    def estimate(self, sums: Sums, clients: int, *, confidence: float = CONFIDENCE) -> Estimate:
        require_sums(sums, self.features, clients, low=0, high=clients)
        values = (2 * sums - clients) / (clients * float(self.slope))
        variance = (float(1 / self.slope**2) - np.clip(values, -1.0, 1.0) ** 2) / clients
        return normal_estimate(values, variance, clients, confidence)

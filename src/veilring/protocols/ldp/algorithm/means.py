"""Means of many features: every feature with a part of epsilon, or one feature with all of it.

`make_means` is the paper's second approach (Section 2.2.3): `SampledFeature` of one bit. The client
draws the feature, from a distribution that does not depend on its row.

With `classes` above 1, the perturbed vector has the number at the position of the client's class
and 0 elsewhere (Section 3.2), so neither the number nor the class is revealed.

`SignVector` reports one sign per feature, all in one report: Duchi's mechanism as Nguyên et al.
corrected it. As published it exceeds epsilon for an even number of features: with half of the signs
agreeing a report is in both half-spaces, and so the loss is `ln(e^epsilon + 1)`, 1.313 at epsilon =
1.

Sources: Yilmaz, Al-Rubaie and Chang 2019; Duchi, Jordan and Wainwright, "Minimax optimal procedures
for locally private estimation", 2018, Section 4.2; Nguyên et al., arXiv:1606.05053; Wang et al.,
ICDE 2019, Algorithm 3.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, comb, inf, log
from typing import Any, ClassVar, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.arrays import Bools, Floats, Ints
from veilring.errors import InputError
from veilring.privacy.exact import exp_floor, float_ceil, log_ceil
from veilring.protocols.ldp.algorithm.distributions import (
    CodeDistribution,
    Codes,
    OneBit,
    Plain,
    require_normalised,
    rounded,
)
from veilring.protocols.ldp.algorithm.packing import (
    bitmap_bytes,
    client_slices,
    column_sums,
    decoded,
    encoded,
    is_padded,
    width_of,
)
from veilring.protocols.ldp.algorithm.randomiser import (
    INTERVAL_CONFIDENCE,
    RAREST_MIN,
    REPORT_EPSILON_MAX,
    LocalRandomiser,
    Reports,
    Sums,
    SurveyEstimate,
    normal_estimate,
    require_sums,
    z_score,
)

_BYTE: Final = 8
_WORK_BYTES: Final = 64  # per code: its input, its draws and its summands


@dataclass(frozen=True)
class Means(LocalRandomiser):
    """Means of features, or of features within classes.

    Values have shape (clients, features), each in [-1, 1]; with classes there is one more column,
    the class. Estimates are of `mean(x_i)`, or of `mean(x_i [class = c])` over all clients of any
    class: shape (features * classes,), classes innermost.

    Attributes:
        classes: The number of classes, `k` of the paper; 1 if there is no class to hide.
    """

    distribution: CodeDistribution
    features: int
    classes: int = 1

    def __post_init__(self) -> None:
        if self.features < 1:
            raise InputError("features", self.features, "an integer of at least 1")
        if self.classes < 1:
            raise InputError("classes", self.classes, "an integer of at least 1")
        if self.classes > 1 and not self.distribution.covers_one_hot:
            raise InputError.because(
                f"the distribution {self.distribution.name} reveals which entries of a vector are"
                " nonzero, and thus the class; use one-bit",
                field="distribution",
            )

    @property
    @abstractmethod
    def _code_count(self) -> int:
        """The number of codes in a report."""

    @property
    def _code_bytes(self) -> int:
        return -(-self._code_count * self.distribution.bits // _BYTE)

    @property
    @override
    def entries(self) -> int:
        return self.features * self.classes

    @property
    @override
    def public(self) -> Mapping[str, int | str]:
        shape = {"features": self.features, "classes": self.classes}
        return {
            "means": self.name,
            "distribution": self.distribution.name,
            **shape,
            **self.distribution.public,
        }

    def _grid(self, values: NDArray[Any], rng: Generator) -> Ints:
        """Return the rounded vectors, shape (clients, features of `values`, classes)."""
        numbers, labels = values, np.zeros(len(values), dtype=np.int64)
        if self.classes > 1:
            numbers, labels = values[:, :-1], values[:, -1].astype(np.int64)
        grid = rounded(numbers, self.distribution.levels, rng)
        is_there = labels[:, None, None] == np.arange(self.classes)
        return np.where(is_there, grid[:, :, None], 0)

    def _require(self, values: NDArray[Any]) -> Floats:
        columns = self.features + (self.classes > 1)
        if values.shape[1:] != (columns,):
            raise InputError.because(
                f"values has the shape {values.shape}; it must be (clients, {columns})",
                field="values",
            )
        if self.classes > 1 and not np.isin(values[:, -1], np.arange(self.classes)).all():
            raise InputError.because(
                "the last column of values must hold classes: integers from 0 to "
                f"{self.classes - 1}",
                field="values",
            )
        return values.astype(np.float64, copy=False)

    def _packed(self, codes: Codes) -> Reports:
        if self.distribution.bits == 1:
            return np.packbits(codes.astype(np.uint8), axis=1)
        return encoded(codes, self.distribution.bits // _BYTE).reshape(len(codes), -1)

    def _unpacked(self, packed: Reports) -> Codes:
        if self.distribution.bits == 1:
            return np.unpackbits(packed, axis=1, count=self._code_count).astype(np.int64)
        return decoded(packed.reshape(len(packed), self._code_count, -1))

    def _codes_fit(self, packed: Reports) -> Bools:
        codes = self._unpacked(packed)
        same = self._packed(codes) == packed  # padding bits are 0
        exist = (codes < self.distribution.codes).all(axis=1) & same.all(axis=1)
        return np.asarray(
            exist & self.distribution.plausible(codes, self._code_count // self.classes)
        )

    @property
    @override
    def _judging_bytes(self) -> int:
        return self._code_count * _WORK_BYTES

    def _chunks(self, clients: int) -> Iterator[slice]:
        return client_slices(clients, self._code_count * _WORK_BYTES)

    def _rough(self, counts: Ints) -> Bools:
        """Return whether each mean is based on too few reports, given its number of reports."""
        # The probability of the rarer of the two extreme reports, one for and one against.
        rarest = (1 - 1 / self.distribution.influence) / 2
        few = counts * rarest < RAREST_MIN if np.isfinite(self.exact_epsilon) else counts < 1
        return np.repeat(few, self.classes)

    def _estimate(
        self, sums: Ints, counts: Ints, clients: int, confidence: float
    ) -> SurveyEstimate:
        """Return means from sums of shape (features, classes, parts).

        `counts` is the number of clients that reported each feature.

        The variance is the maximum that the distribution allows with this mean: the variance at the
        ends of [-1, 1], where the clients' values also differ most.
        """
        counted = counts[:, None]
        known = np.broadcast_to(counted > 0, sums.shape[:2])
        least = np.maximum(counted, 1)
        values = np.where(known, self.distribution.total(sums) / least, 0.0)
        spread = self.distribution.second_moment(1.0) - np.clip(values, -1.0, 1.0) ** 2
        variance = np.where(known, spread / least, np.inf)
        reach = z_score(confidence) * np.sqrt(variance)
        low = np.where(known, values - reach, -1.0)
        high = np.where(known, values + reach, 1.0)
        flat = (values.ravel(), variance.ravel(), low.ravel(), high.ravel())
        return SurveyEstimate(*flat, clients)


@dataclass(frozen=True)
class EachFeature(Means):
    """All features of a client in one report; its loss is the sum of the features' losses."""

    name: ClassVar[str] = "each-feature"

    @property
    @override
    def exact_epsilon(self) -> float:
        if not self._is_private:
            return np.inf
        exact = self.features * min(
            Fraction(self.distribution.epsilon), Fraction(self.distribution.exact_epsilon)
        )
        return float_ceil(exact)

    @property
    def _is_private(self) -> bool:
        return bool(np.isfinite(self.distribution.exact_epsilon))

    @property
    @override
    def report_bytes(self) -> int:
        return self._code_bytes

    @property
    @override
    def cells(self) -> int:
        return self.features * self.classes * self.distribution.parts

    @property
    @override
    def _code_count(self) -> int:
        return self.features * self.classes

    @override
    def perturb(self, values: NDArray[Any], rng: Generator) -> Reports:
        numbers = self._require(values)
        reports = np.empty((len(numbers), self.report_bytes), dtype=np.uint8)
        for chunk in self._chunks(len(numbers)):
            codes = self.distribution.sample(self._grid(numbers[chunk], rng), rng)
            reports[chunk] = self._packed(codes.reshape(len(codes), -1))
        return reports

    @override
    def _fits(self, reports: Reports) -> Bools:
        return self._codes_fit(reports)

    @override
    def aggregate(self, reports: Reports) -> Sums:
        sums = np.zeros((self._code_count, self.distribution.parts), dtype=np.int64)
        for chunk in self._chunks(len(reports)):
            sums += self.distribution.summed(self._unpacked(reports[chunk])).sum(axis=0)
        return sums.ravel()

    @override
    def rough(self, sums: Sums, clients: int) -> Bools:
        return self._rough(np.full(self.features, clients))

    @override
    def estimate(
        self, sums: Sums, clients: int, *, confidence: float = INTERVAL_CONFIDENCE
    ) -> SurveyEstimate:
        require_sums(sums, self.cells, clients)
        shaped = sums.reshape(self.features, self.classes, self.distribution.parts)
        return self._estimate(shaped, np.full(self.features, clients), clients, confidence)


@dataclass(frozen=True)
class SampledFeature(Means):
    """One feature per client, drawn by the client; its number precedes the report.

    Each mean is over the clients that drew its feature. It is unbiased if there are any, and has a
    smaller variance than the paper's sum over all clients times `n / m`. A feature that no client
    drew gets 0 with an infinite variance and the interval [-1, 1].
    """

    name: ClassVar[str] = "sampled-feature"

    @property
    @override
    def exact_epsilon(self) -> float:
        return self.distribution.exact_epsilon

    @property
    def _index_bytes(self) -> int:
        return width_of(self.features)

    @property
    @override
    def report_bytes(self) -> int:
        return self._index_bytes + self._code_bytes

    @property
    @override
    def cells(self) -> int:
        """A count for each feature, then its sums."""
        return self.features * (1 + self.classes * self.distribution.parts)

    @property
    @override
    def _code_count(self) -> int:
        return self.classes

    @override
    def perturb(self, values: NDArray[Any], rng: Generator) -> Reports:
        numbers = self._require(values)
        # All numbers are checked before a feature is drawn: an error must not reveal the drawn
        # feature.
        require_normalised(numbers[:, : self.features])
        reports = np.empty((len(numbers), self.report_bytes), dtype=np.uint8)
        for chunk in self._chunks(len(numbers)):
            drawn = rng.integers(self.features, size=len(numbers[chunk]))
            only = np.take_along_axis(numbers[chunk], drawn[:, None], axis=1)
            chosen = np.hstack((only, numbers[chunk, self.features :]))
            codes = self.distribution.sample(self._grid(chosen, rng), rng)[:, 0]
            index = encoded(drawn, self._index_bytes)
            reports[chunk] = np.hstack((index, self._packed(codes)))
        return reports

    @override
    def _fits(self, reports: Reports) -> Bools:
        drawn = decoded(reports[:, : self._index_bytes])
        return (drawn < self.features) & self._codes_fit(reports[:, self._index_bytes :])

    @override
    def aggregate(self, reports: Reports) -> Sums:
        sums = np.zeros((self.features, 1 + self.classes * self.distribution.parts), dtype=np.int64)
        for chunk in self._chunks(len(reports)):
            drawn = decoded(reports[chunk, : self._index_bytes])
            codes = self._unpacked(reports[chunk, self._index_bytes :])
            ones = np.ones((len(drawn), 1), dtype=np.int64)
            summed = self.distribution.summed(codes).reshape(len(drawn), -1)
            np.add.at(sums, drawn, np.hstack((ones, summed)))
        return sums.ravel()

    @override
    def rough(self, sums: Sums, clients: int) -> Bools:
        return self._rough(sums.reshape(self.features, -1)[:, 0])

    @override
    def estimate(
        self, sums: Sums, clients: int, *, confidence: float = INTERVAL_CONFIDENCE
    ) -> SurveyEstimate:
        require_sums(sums, self.cells, clients)
        table = sums.reshape(self.features, -1)
        counts = table[:, 0]
        if counts.min() < 0 or counts.sum() != clients:
            raise InputError.because(
                f"the counts of features do not add up: each of the {clients} clients must "
                "be in one of them",
                field="sums",
            )
        shaped = table[:, 1:].reshape(self.features, self.classes, self.distribution.parts)
        return self._estimate(shaped, counts, clients, confidence)


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

    @override
    def perturb(self, values: NDArray[Any], rng: Generator) -> Reports:
        if values.shape[1:] != (self.features,):
            raise InputError.because(
                f"values has the shape {values.shape}; it must be (clients, {self.features})",
                field="values",
            )
        require_normalised(values)
        reports = np.empty((len(values), self.report_bytes), dtype=np.uint8)
        ends = np.cumsum(self._agreements)
        for chunk in client_slices(len(values), self.features * _SIGN_BYTES):
            # On [0, 1], the grid of one level consists of the two signs.
            plus = rounded((values[chunk] + 1) / 2, 1, rng)
            draws = rng.integers(ends[-1], size=len(plus))
            agreeing = np.searchsorted(ends, draws, side="right")
            order = rng.permuted(np.tile(np.arange(self.features), (len(plus), 1)), axis=1)
            agrees = order < agreeing[:, None]
            reports[chunk] = np.packbits((plus == agrees).astype(np.uint8), axis=1)
        return reports

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
    def estimate(
        self, sums: Sums, clients: int, *, confidence: float = INTERVAL_CONFIDENCE
    ) -> SurveyEstimate:
        require_sums(sums, self.features, clients, low=0, high=clients)
        values = (2 * sums - clients) / (clients * float(self.slope))
        variance = (float(1 / self.slope**2) - np.clip(values, -1.0, 1.0) ** 2) / clients
        return normal_estimate(values, variance, clients, confidence)


def make_means(epsilon: float, features: int, classes: int = 1) -> Means:
    """Return the randomiser of one bit of a feature per client; no noise if epsilon is infinite.

    Args:
        epsilon: The maximum ε of a report, above 0.
        classes: The number of classes among which to hide a client's class, or 1.
    """
    if features < 1:
        raise InputError("features", features, "an integer of at least 1")
    if not epsilon > 0:
        raise InputError("epsilon", epsilon, "a number above 0")
    if epsilon == inf:
        return EachFeature(Plain(), features, classes)
    return SampledFeature(OneBit(epsilon), features, classes)

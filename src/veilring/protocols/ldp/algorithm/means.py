"""Means of many features: each client tells some of them, at an equal part of epsilon.

`make_means` chooses the number of features and the distribution of their codes by the least
worst-case variance of a feature. The client draws the features, from a distribution that does not
depend on its row.

With `classes` above 1, the perturbed vector has the number at the position of the client's class
and 0 elsewhere (Yilmaz, Al-Rubaie and Chang 2019, Section 3.2), so neither the number nor the class
is revealed.

Sources: Yilmaz et al. 2019; Wang et al., ICDE 2019, Section IV (several features of a client).
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import floor, inf
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.arrays import Bools, Floats, Ints
from veilring.errors import InputError
from veilring.privacy.checks import require
from veilring.privacy.exact import float_ceil
from veilring.protocols.ldp.algorithm.codes import (
    CodeDistribution,
    Codes,
    OneBit,
    Plain,
    require_normalised,
    rounded,
)
from veilring.protocols.ldp.algorithm.intervals import normal_quantile
from veilring.protocols.ldp.algorithm.numbers import Hybrid, Laplace
from veilring.protocols.ldp.algorithm.packing import client_slices, decoded, encoded, width_of
from veilring.protocols.ldp.algorithm.randomiser import Interval, LocalRandomiser, Reports, Sums

_BYTE: Final = 8
_CODE_BYTES: Final = 64  # per code: its input, its draws and its summands


@dataclass(frozen=True)
class Means(LocalRandomiser):
    """Means of features, or of features within classes.

    Values have shape (clients, features), each in [-1, 1]; with classes there is one more column,
    the class. Estimates are of `mean(x_i)`, or of `mean(x_i [class = c])` over all clients of any
    class: shape (features * classes,), classes innermost.

    Attributes:
        classes: The number of classes, `k` of the paper; 1 if there is no class to hide.
    """

    _summands: ClassVar[None] = None  # the sums of codes are not checked

    distribution: CodeDistribution
    features: int
    classes: int = 1

    def __post_init__(self) -> None:
        require(self.features >= 1, "features", self.features, "an integer of at least 1")
        require(self.classes >= 1, "classes", self.classes, "an integer of at least 1")
        if self.classes > 1 and not self.distribution.covers_one_hot:
            raise InputError.because(
                f"the distribution {self.distribution.name} reveals which entries of a vector are"
                " nonzero, and thus the class; use one-bit",
                field="distribution",
            )

    @property
    @abstractmethod
    def _codes_told(self) -> int:
        """The number of features in a report."""

    @property
    def _code_count(self) -> int:
        """The number of codes in a report."""
        return self._codes_told * self.classes

    @property
    @override
    def exact_epsilon(self) -> float:
        """The sum of the losses of the features in a report."""
        if not np.isfinite(self.distribution.exact_epsilon):
            return inf
        exact = self._codes_told * min(
            Fraction(self.distribution.epsilon), Fraction(self.distribution.exact_epsilon)
        )
        return float_ceil(exact)

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

    @override
    def _checked(self, values: NDArray[Any]) -> Floats:
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
        # All numbers are checked before any draw: an error must not reveal a drawn feature.
        require_normalised(values[:, : self.features])
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
        return np.asarray(exist & self.distribution.plausible(codes, self._codes_told))

    @property
    @override
    def _work_bytes(self) -> int:
        return self._code_count * _CODE_BYTES

    @abstractmethod
    def _split(self, sums: Sums, clients: int) -> tuple[Ints, Ints]:
        """Return the number of reports about each feature, and its sums, one row per feature."""

    def _read(self, sums: Sums, clients: int) -> "_Read":
        counts, table = self._split(sums, clients)
        each = np.repeat(counts, self.classes)
        return _Read(each, each / clients, table.reshape(self.entries, self.distribution.parts))

    @override
    def _moments(self, sums: Sums, clients: int) -> tuple[Floats, Floats]:
        """Return means and variances, with 0 and an infinite variance for those without reports.

        The clients that tell a feature are drawn from all of them. The mean square of the clients'
        numbers is estimated; if all reports of the distribution have one square, it is at least the
        square of the mean, which gives the greatest variance.
        """
        read = self._read(sums, clients)
        known, least = read.counts > 0, np.maximum(read.counts, 1)
        values = np.where(known, self.distribution.total(read.sums) / least, 0.0)
        at_zero, shrinking = self._spread(read)
        spread = np.maximum(at_zero - shrinking * np.clip(values, -1.0, 1.0) ** 2, 0.0)
        return values, np.where(known, spread / least, np.inf)

    def _spread(self, read: "_Read") -> tuple[Floats, Floats]:
        """Return the `a` and `b` of the variance `a - b mu**2` of one report, if the mean is mu."""
        least = self.distribution.second_moment(0.0)
        if self.distribution.is_sign:
            return np.full(self.entries, least), np.ones(self.entries)
        slope = self.distribution.second_moment(1.0) - least
        told = np.maximum(read.counts, 1)
        squares = self.distribution.squares(read.sums, told) / told
        # few reports tell little of their spread
        squares = np.where(told < _FEW, np.inf, squares)
        numbers = np.clip((squares - least) / slope, 0.0, 1.0)
        return least + (slope - read.shares) * numbers, 1 - read.shares

    @override
    def _intervals(self, sums: Sums, clients: int, confidence: float) -> Interval:
        """Return score intervals, exact ones of few reports, and [-1, 1] without reports.

        A score interval contains all means from which the estimate is within `z` standard
        deviations, taken at that mean.
        """
        read, (values, _) = self._read(sums, clients), self._moments(sums, clients)
        at_zero, shrinking = self._spread(read)
        part = normal_quantile(confidence) ** 2 / np.maximum(read.counts, 1)
        whole = 1 + part * shrinking
        inside = part * (at_zero * whole - shrinking * values**2)
        reach = np.sqrt(np.maximum(inside, 0.0)) / whole
        low, high = values / whole - reach, values / whole + reach
        for entry in np.flatnonzero(read.counts > 0).tolist():
            ends = self.distribution.exact_interval(
                read.sums[entry],
                int(read.counts[entry]),
                confidence,
                is_sample=bool(read.shares[entry] < 1),
            )
            if ends is not None:
                low[entry], high[entry] = ends
        known = read.counts > 0
        return np.where(known, low, -1.0), np.where(known, high, 1.0)


# Below this number of reports, the clients' numbers are taken to differ as much as possible.
_FEW: Final = 30


class _Read(NamedTuple):
    """The sums of entries; the reports that they are of; and these as shares of the clients."""

    counts: Ints
    shares: Floats
    sums: Ints


@dataclass(frozen=True)
class EachFeature(Means):
    """All features of a client in one report."""

    name: ClassVar[str] = "each-feature"

    @property
    @override
    def _codes_told(self) -> int:
        return self.features

    @property
    @override
    def report_bytes(self) -> int:
        return self._code_bytes

    @property
    @override
    def cells(self) -> int:
        return self.features * self.classes * self.distribution.parts

    @override
    def _draw(self, values: Floats, rng: Generator) -> Reports:
        codes = self.distribution.sample(self._grid(values, rng), rng)
        return self._packed(codes.reshape(len(codes), -1))

    @override
    def _fits(self, reports: Reports) -> Bools:
        return self._codes_fit(reports)

    @override
    def aggregate(self, reports: Reports) -> Sums:
        sums = np.zeros((self._code_count, self.distribution.parts), dtype=np.int64)
        for chunk in client_slices(len(reports), self._work_bytes):
            sums += self.distribution.summed(self._unpacked(reports[chunk])).sum(axis=0)
        return sums.ravel()

    @override
    def _split(self, sums: Sums, clients: int) -> tuple[Ints, Ints]:
        return np.full(self.features, clients), sums.reshape(self.features, -1)


@dataclass(frozen=True)
class SampledFeature(Means):
    """Some features of a client, drawn by the client; their numbers precede the codes.

    Each mean is over the clients that drew its feature. It is unbiased if there are any, and has a
    smaller variance than the paper's sum over all clients times `n / m`.

    Attributes:
        told: The number of features that a client tells, `k`, each with the loss of the
            distribution; below `features`, or 1.
    """

    told: int = 1

    name: ClassVar[str] = "sampled-feature"

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = f"an integer from 1 to {max(1, self.features - 1)}"
        require(1 <= self.told <= max(1, self.features - 1), "told", self.told, allowed)

    @property
    @override
    def public(self) -> Mapping[str, int | str]:
        return super().public if self.told == 1 else {**super().public, "told": self.told}

    @property
    @override
    def _codes_told(self) -> int:
        return self.told

    @property
    def _index_bytes(self) -> int:
        return width_of(self.features)

    @property
    @override
    def report_bytes(self) -> int:
        return self.told * self._index_bytes + self._code_bytes

    @property
    @override
    def cells(self) -> int:
        """A count for each feature, then its sums."""
        return self.features * (1 + self.classes * self.distribution.parts)

    @override
    def _draw(self, values: Floats, rng: Generator) -> Reports:
        drawn = self._drawn(len(values), rng)
        only = np.take_along_axis(values, drawn, axis=1)
        chosen = np.hstack((only, values[:, self.features :]))
        codes = self.distribution.sample(self._grid(chosen, rng), rng)
        indices = encoded(drawn, self._index_bytes).reshape(len(drawn), -1)
        return np.hstack((indices, self._packed(codes.reshape(len(codes), -1))))

    def _drawn(self, clients: int, rng: Generator) -> Ints:
        """Return the features that each client tells, ascending, shape (clients, told)."""
        if self.told == 1:
            return rng.integers(self.features, size=(clients, 1))
        every = np.tile(np.arange(self.features), (clients, 1))
        return np.sort(rng.permuted(every, axis=1)[:, : self.told], axis=1)

    def _indices(self, reports: Reports) -> Ints:
        packed = np.ascontiguousarray(reports[:, : self.told * self._index_bytes])
        return decoded(packed.reshape(len(reports), self.told, self._index_bytes))

    @override
    def _fits(self, reports: Reports) -> Bools:
        drawn = self._indices(reports)
        ascending = (drawn[:, 1:] > drawn[:, :-1]).all(axis=1) & (drawn[:, -1] < self.features)
        return ascending & self._codes_fit(reports[:, self.told * self._index_bytes :])

    @override
    def aggregate(self, reports: Reports) -> Sums:
        sums = np.zeros((self.features, 1 + self.classes * self.distribution.parts), dtype=np.int64)
        for chunk in client_slices(len(reports), self._work_bytes):
            drawn = self._indices(reports[chunk]).reshape(-1)
            codes = self._unpacked(reports[chunk, self.told * self._index_bytes :])
            ones = np.ones((len(drawn), 1), dtype=np.int64)
            summed = self.distribution.summed(codes).reshape(len(drawn), -1)
            np.add.at(sums, drawn, np.hstack((ones, summed)))
        return sums.ravel()

    @override
    def _split(self, sums: Sums, clients: int) -> tuple[Ints, Ints]:
        table = sums.reshape(self.features, -1)
        counts = table[:, 0]
        if counts.min() < 0 or counts.max() > clients or counts.sum() != self.told * clients:
            raise InputError.because(
                f"the counts of features do not add up: each of the {clients} clients must "
                f"be in {self.told} of them",
                field="sums",
            )
        return counts, table[:, 1:]


@lru_cache(maxsize=64)
def make_means(epsilon: float, features: int, classes: int = 1) -> Means:
    """Return the randomiser of the least worst-case variance; no noise if epsilon is infinite.

    Without classes, a number is told by the hybrid mechanism, or by one bit where that is as good;
    within classes by one bit or Laplace noise. The number k of features that a client tells has the
    least `(d/k)(V(epsilon/k) + 1) - 1`, where V is the worst-case variance of one number.

    Args:
        epsilon: The maximum ε of a report, above 0.
        classes: The number of classes among which to hide a client's class, or 1.
    """
    require(features >= 1, "features", features, "an integer of at least 1")
    require(epsilon > 0, "epsilon", epsilon, "a number above 0")
    if epsilon == inf:
        return EachFeature(Plain(), features, classes)
    # Two features at an epsilon below 1 each are worse than one at twice that.
    most = min(features, max(1, floor(epsilon)))
    options = [(told, _best(epsilon, told, classes)) for told in range(1, most + 1)]
    told, distribution = min(options, key=lambda each: worst_variance(each[1], features / each[0]))
    if told == features:
        return EachFeature(distribution, features, classes)
    return SampledFeature(distribution, features, classes, told)


def _best(epsilon: float, told: int, classes: int) -> CodeDistribution:
    """Return the distribution of least worst-case variance for one of some features."""
    part = epsilon if told == 1 else Fraction(epsilon) / told
    other = Laplace if classes > 1 else Hybrid
    kinds = (OneBit, other) if part >= other.least_epsilon else (OneBit,)
    return min((kind(part) for kind in kinds), key=worst_variance)


def worst_variance(distribution: CodeDistribution, clients: float = 1) -> float:
    """Return the greatest variance of a mean, times all clients, of which one in some tells it.

    It is affine in the square of a number, and so the greatest at 0 or 1.

    Args:
        clients: The number of clients for each that tells the mean's number; at least 1.
    """
    ends = ((0.0, 0.0), (1.0, 1.0))
    return max(clients * distribution.second_moment(x) - square for x, square in ends)

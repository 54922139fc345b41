"""Means of many features: every feature with a part of epsilon, or one feature with all of it.

`make_means` is the paper's second approach (Section 2.2.3): `SampledFeature` of one bit. The client
draws the feature, from a distribution that does not depend on its row.

With `classes` above 1, the perturbed vector has the number at the position of the client's class
and 0 elsewhere (Section 3.2), so neither the number nor the class is revealed.

Sources: Yilmaz, Al-Rubaie and Chang 2019; Nguyên et al., arXiv:1606.05053 (one bit).
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import Any, ClassVar, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.arrays import Bools, Floats, Ints
from veilring.errors import InputError
from veilring.privacy.exact import float_ceil
from veilring.protocols.ldp.algorithm.distributions import (
    CodeDistribution,
    Codes,
    OneBit,
    Plain,
    require_normalised,
    rounded,
)
from veilring.protocols.ldp.algorithm.packing import client_slices, decoded, encoded, width_of
from veilring.protocols.ldp.algorithm.randomiser import (
    RAREST_MIN,
    LocalRandomiser,
    Reports,
    Sums,
    SurveyEstimate,
)

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
        return np.asarray(
            exist & self.distribution.plausible(codes, self._code_count // self.classes)
        )

    @property
    @override
    def _work_bytes(self) -> int:
        return self._code_count * _CODE_BYTES

    @property
    @override
    def _summands(self) -> None:
        return None  # the sums of codes are not checked

    @abstractmethod
    def _split(self, sums: Sums, clients: int) -> tuple[Ints, Ints]:
        """Return the number of reports about each feature, and its sums, one row per feature."""

    @override
    def rough(self, sums: Sums, clients: int) -> Bools:
        counts, _ = self._split(sums, clients)
        # The probability of the rarer of the two extreme reports, one for and one against.
        rarest = (1 - 1 / self.distribution.influence) / 2
        few = counts * rarest < RAREST_MIN if np.isfinite(self.exact_epsilon) else counts < 1
        return np.repeat(few, self.classes)

    @override
    def _estimate(self, sums: Sums, clients: int, z: float) -> SurveyEstimate:
        """Return means, with 0, an infinite variance and [-1, 1] for those without reports.

        The variance is the maximum that the distribution allows with this mean: the variance at the
        ends of [-1, 1], where the clients' values also differ most.
        """
        counts, table = self._split(sums, clients)
        shape = (self.features, self.classes)
        known = np.broadcast_to(counts[:, None] > 0, shape)
        least = np.maximum(counts[:, None], 1)
        total = self.distribution.total(table.reshape(*shape, self.distribution.parts))
        values = np.where(known, total / least, 0.0)
        spread = self.distribution.second_moment(1.0) - np.clip(values, -1.0, 1.0) ** 2
        variance = np.where(known, spread / least, np.inf)
        reach = z * np.sqrt(variance)
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
        if not np.isfinite(self.distribution.exact_epsilon):
            return inf
        exact = self.features * min(
            Fraction(self.distribution.epsilon), Fraction(self.distribution.exact_epsilon)
        )
        return float_ceil(exact)

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
    """One feature per client, drawn by the client; its number precedes the report.

    Each mean is over the clients that drew its feature. It is unbiased if there are any, and has a
    smaller variance than the paper's sum over all clients times `n / m`.
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
    def _draw(self, values: Floats, rng: Generator) -> Reports:
        drawn = rng.integers(self.features, size=len(values))
        only = np.take_along_axis(values, drawn[:, None], axis=1)
        chosen = np.hstack((only, values[:, self.features :]))
        codes = self.distribution.sample(self._grid(chosen, rng), rng)[:, 0]
        return np.hstack((encoded(drawn, self._index_bytes), self._packed(codes)))

    @override
    def _fits(self, reports: Reports) -> Bools:
        drawn = decoded(reports[:, : self._index_bytes])
        return (drawn < self.features) & self._codes_fit(reports[:, self._index_bytes :])

    @override
    def aggregate(self, reports: Reports) -> Sums:
        sums = np.zeros((self.features, 1 + self.classes * self.distribution.parts), dtype=np.int64)
        for chunk in client_slices(len(reports), self._work_bytes):
            drawn = decoded(reports[chunk, : self._index_bytes])
            codes = self._unpacked(reports[chunk, self._index_bytes :])
            ones = np.ones((len(drawn), 1), dtype=np.int64)
            summed = self.distribution.summed(codes).reshape(len(drawn), -1)
            np.add.at(sums, drawn, np.hstack((ones, summed)))
        return sums.ravel()

    @override
    def _split(self, sums: Sums, clients: int) -> tuple[Ints, Ints]:
        table = sums.reshape(self.features, -1)
        counts = table[:, 0]
        if counts.min() < 0 or counts.sum() != clients:
            raise InputError.because(
                f"the counts of features do not add up: each of the {clients} clients must "
                "be in one of them",
                field="sums",
            )
        return counts, table[:, 1:]


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

"""Rows of numbers instead of one: every feature at a share of epsilon, or one feature at all of it.

These are the paper's three approaches to many features (Section 2.2.3). The first is `EachFeature`
of the Laplace law. The second is `SampledFeature` of one bit: the report says which feature it is
about. The third, one feature a client, is `SampledFeature` of any other law: which feature is drawn
by the client, from a law that does not see its row.

With `classes` above 1, what is perturbed is a vector that holds the number at the place of the
client's class and 0 elsewhere (Section 3.2), so that neither number nor class is told.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.chunks import chunks
from veilring.protocols.ldp.algorithm.means.law import Codes, Law, rounded
from veilring.protocols.ldp.algorithm.oracles.numerals import decoded, encoded
from veilring.protocols.ldp.algorithm.randomiser import (
    RAREST_MIN,
    Estimate,
    LocalRandomiser,
    Reports,
    z_score,
)

_BYTE: Final = 8
_WORK_BYTES: Final = 64  # of a code: what it was, its draws and what is summed of it


@dataclass(frozen=True)
class Means(LocalRandomiser):
    """Means of features, or of features within classes.

    Values have shape (clients, features), each in [-1, 1]; with classes there is one more column,
    the number of the class. Estimates are of `mean(x_i)`, or of `mean(x_i [class = c])` over all
    clients, whatever their class: shape (features * classes,), classes innermost.

    Attributes:
        law: Of each number.
        features: How many, `n` of the paper.
        classes: How many, `k` of the paper; 1 if there is no class to hide.

    Raises:
        InputError: If there are no features or classes, or the law cannot hide a class.
    """

    law: Law
    features: int
    classes: int = 1

    def __post_init__(self) -> None:
        """Refuse what the law cannot do."""
        if self.features < 1:
            raise InputError("features", self.features, "an integer of at least 1")
        if self.classes < 1:
            raise InputError("classes", self.classes, "an integer of at least 1")
        if self.classes > 1 and not self.law.covers_one_hot:
            allowed = "a law that hides at which place a vector is not 0: laplace or one-bit"
            raise InputError("law", self.law.name, allowed)

    @property
    @abstractmethod
    def _told(self) -> int:
        """How many codes a report has."""

    @property
    def _code_bytes(self) -> int:
        return -(-self._told * self.law.bits // _BYTE)

    @property
    @override
    def entries(self) -> int:
        return self.features * self.classes

    @property
    @override
    def public(self) -> Mapping[str, int | str]:
        shape = {"features": self.features, "classes": self.classes}
        return {"means": self.name, "law": self.law.name, **shape, **self.law.public}

    def _grid(self, values: NDArray[Any], rng: Generator) -> NDArray[np.int64]:
        """Return the rounded vectors, shape (clients, features of `values`, classes)."""
        numbers, labels = values, np.zeros(len(values), dtype=np.int64)
        if self.classes > 1:
            numbers, labels = values[:, :-1], values[:, -1].astype(np.int64)
        grid = rounded(numbers, self.law.levels, rng)
        is_there = labels[:, None, None] == np.arange(self.classes)
        return np.where(is_there, grid[:, :, None], 0)

    def _require(self, values: NDArray[Any]) -> NDArray[np.float64]:
        columns = self.features + (self.classes > 1)
        if values.ndim != 2 or values.shape[1] != columns:  # noqa: PLR2004  (clients by columns)
            given = f"of shape {values.shape}"
            raise InputError("values", given, f"of shape (clients, {columns})")
        if self.classes > 1 and not np.isin(values[:, -1], np.arange(self.classes)).all():
            allowed = f"integers from 0 to {self.classes - 1} in the last column"
            raise InputError("values", "with a class that is not one in some place", allowed)
        return values.astype(np.float64, copy=False)

    def _packed(self, codes: Codes) -> Reports:
        if self.law.bits == 1:
            return np.packbits(codes.astype(np.uint8), axis=1)
        return encoded(codes, self.law.bits // _BYTE).reshape(len(codes), -1)

    def _unpacked(self, packed: Reports) -> Codes:
        if self.law.bits == 1:
            return np.unpackbits(packed, axis=1, count=self._told).astype(np.int64)
        return decoded(packed.reshape(len(packed), self._told, -1))

    def _codes_fit(self, packed: Reports) -> NDArray[np.bool_]:
        codes = self._unpacked(packed)
        same = self._packed(codes) == packed  # padding bits are 0
        exist = (codes < self.law.codes).all(axis=1) & same.all(axis=1)
        return np.asarray(exist & self.law.plausible(codes, self._told // self.classes))

    @property
    @override
    def _judging_bytes(self) -> int:
        return self._told * _WORK_BYTES

    def _chunks(self, clients: int) -> Iterator[slice]:
        return chunks(clients, self._told * _WORK_BYTES)

    def _rough(self, counts: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which means rest on too few reports; `counts` says how many told each feature."""
        # Of two reports that say the most, one for and one against, the chance of the rarer one.
        rarest = (1 - 1 / self.law.influence) / 2
        few = counts * rarest < RAREST_MIN if np.isfinite(self.exact_epsilon) else counts < 1
        return np.repeat(few, self.classes)

    def _estimate(
        self,
        sums: NDArray[np.int64],
        counts: NDArray[np.int64],
        clients: int,
        confidence: float,
    ) -> Estimate:
        """Return means from sums of shape (features, classes, parts).

        `counts` says how many of the clients told each feature.

        The variance is the greatest that the law allows with this mean: what it does at the ends of
        [-1, 1], where the client's values are farthest apart too.
        """
        told = counts[:, None]
        known = np.broadcast_to(told > 0, sums.shape[:2])
        least = np.maximum(told, 1)
        values = np.where(known, self.law.total(sums) / least, 0.0)
        spread = self.law.second_moment(1.0) - np.clip(values, -1.0, 1.0) ** 2
        variance = np.where(known, spread / least, np.inf)
        reach = z_score(confidence) * np.sqrt(variance)
        low = np.where(known, values - reach, -1.0)
        high = np.where(known, values + reach, 1.0)
        flat = (values.ravel(), variance.ravel(), low.ravel(), high.ravel())
        return Estimate(*flat, clients)

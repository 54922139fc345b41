"""`SampledFeature`: one feature of a client, which the client draws, at all of epsilon."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.means.law import require_in_range
from veilring.protocols.ldp.algorithm.means.vectors import Means
from veilring.protocols.ldp.algorithm.oracles.numerals import decoded, encoded, width_of
from veilring.protocols.ldp.algorithm.randomiser import (
    CONFIDENCE,
    Estimate,
    Reports,
    Sums,
    require_sums,
)


@dataclass(frozen=True)
class SampledFeature(Means):
    """One feature a client, which it draws itself; its number stands in front of the report.

    Each mean is over the clients that drew its feature. That is unbiased whenever there are any,
    and varies less than the paper's sum over all clients times `n / m`. A feature that nobody drew
    gets 0 with an infinite variance and the interval [-1, 1].
    """

    name: ClassVar[str] = "sampled-feature"

    @property
    @override
    def exact_epsilon(self) -> float:
        return self.law.exact_epsilon

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
        return self.features * (1 + self.classes * self.law.parts)

    @property
    @override
    def _told(self) -> int:
        return self.classes

    @override
    def perturb(self, values: NDArray[Any], rng: Generator) -> Reports:
        numbers = self._require(values)
        # Every number is judged before a feature is drawn: a refusal must not tell which it was.
        require_in_range(numbers[:, : self.features])
        reports = np.empty((len(numbers), self.report_bytes), dtype=np.uint8)
        for chunk in self._chunks(len(numbers)):
            drawn = rng.integers(self.features, size=len(numbers[chunk]))
            only = np.take_along_axis(numbers[chunk], drawn[:, None], axis=1)
            told = np.hstack((only, numbers[chunk, self.features :]))
            codes = self.law.sample(self._grid(told, rng), rng)[:, 0]
            index = encoded(drawn, self._index_bytes)
            reports[chunk] = np.hstack((index, self._packed(codes)))
        return reports

    @override
    def _fits(self, reports: Reports) -> NDArray[np.bool_]:
        drawn = decoded(reports[:, : self._index_bytes])
        return (drawn < self.features) & self._codes_fit(reports[:, self._index_bytes :])

    @override
    def aggregate(self, reports: Reports) -> Sums:
        sums = np.zeros((self.features, 1 + self.classes * self.law.parts), dtype=np.int64)
        for chunk in self._chunks(len(reports)):
            drawn = decoded(reports[chunk, : self._index_bytes])
            codes = self._unpacked(reports[chunk, self._index_bytes :])
            ones = np.ones((len(drawn), 1), dtype=np.int64)
            summed = self.law.summed(codes).reshape(len(drawn), -1)
            np.add.at(sums, drawn, np.hstack((ones, summed)))
        return sums.ravel()

    @override
    def rough(self, sums: Sums, clients: int) -> NDArray[np.bool_]:
        return self._rough(sums.reshape(self.features, -1)[:, 0])

    @override
    def estimate(self, sums: Sums, clients: int, *, confidence: float = CONFIDENCE) -> Estimate:
        require_sums(sums, self.cells, clients)
        table = sums.reshape(self.features, -1)
        counts = table[:, 0]
        if counts.min() < 0 or counts.sum() != clients:
            given = "with counts of features that do not add up"
            raise InputError("sums", given, f"each of {clients} clients in one of the counts")
        shaped = table[:, 1:].reshape(self.features, self.classes, self.law.parts)
        return self._estimate(shaped, counts, clients, confidence)

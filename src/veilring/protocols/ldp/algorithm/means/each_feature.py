"""`EachFeature`: all features of a client, each at a share of epsilon."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.privacy.loss import float_ceil
from veilring.protocols.ldp.algorithm.means.vectors import Means
from veilring.protocols.ldp.algorithm.randomiser import (
    CONFIDENCE,
    Estimate,
    Reports,
    Sums,
    require_sums,
)


@dataclass(frozen=True)
class EachFeature(Means):
    """All features of a client in one report; the loss is the sum of theirs."""

    name: ClassVar[str] = "each-feature"

    @property
    @override
    def exact_epsilon(self) -> float:
        if not self._is_private:
            return np.inf
        exact = self.features * min(Fraction(self.law.epsilon), Fraction(self.law.exact_epsilon))
        return float_ceil(exact)

    @property
    def _is_private(self) -> bool:
        return bool(np.isfinite(self.law.exact_epsilon))

    @property
    @override
    def report_bytes(self) -> int:
        return self._code_bytes

    @property
    @override
    def cells(self) -> int:
        return self.features * self.classes * self.law.parts

    @property
    @override
    def _told(self) -> int:
        return self.features * self.classes

    @override
    def perturb(self, values: NDArray[Any], rng: Generator) -> Reports:
        numbers = self._require(values)
        reports = np.empty((len(numbers), self.report_bytes), dtype=np.uint8)
        for chunk in self._chunks(len(numbers)):
            codes = self.law.sample(self._grid(numbers[chunk], rng), rng)
            reports[chunk] = self._packed(codes.reshape(len(codes), -1))
        return reports

    @override
    def _fits(self, reports: Reports) -> NDArray[np.bool_]:
        return self._codes_fit(reports)

    @override
    def aggregate(self, reports: Reports) -> Sums:
        sums = np.zeros((self._told, self.law.parts), dtype=np.int64)
        for chunk in self._chunks(len(reports)):
            sums += self.law.summed(self._unpacked(reports[chunk])).sum(axis=0)
        return sums.ravel()

    @override
    def rough(self, sums: Sums, clients: int) -> NDArray[np.bool_]:
        return self._rough(np.full(self.features, clients))

    @override
    def estimate(self, sums: Sums, clients: int, *, confidence: float = CONFIDENCE) -> Estimate:
        require_sums(sums, self.cells, clients)
        shaped = sums.reshape(self.features, self.classes, self.law.parts)
        return self._estimate(shaped, np.full(self.features, clients), clients, confidence)

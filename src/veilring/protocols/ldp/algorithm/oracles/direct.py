"""`DirectEncoding`: the client says its value, or another one (k-ary randomised response).

Source: Wang et al., USENIX Security 2017, Section 4.1; Kairouz, Oh and Viswanath, NeurIPS 2014.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.privacy.response import ResponseLaw, randomised_response
from veilring.protocols.ldp.algorithm.chunks import chunks
from veilring.protocols.ldp.algorithm.oracles.numerals import counted, decoded, encoded, width_of
from veilring.protocols.ldp.algorithm.oracles.oracle import PureOracle
from veilring.protocols.ldp.algorithm.randomiser import Reports, Sums

_WORK_BYTES: Final = 32  # a value, a draw, another value and the answer


@dataclass(frozen=True)
class DirectEncoding(PureOracle):
    """The client's value with probability `p`, else one of the others, each with `q`.

    A report is the number of a value, in as few bytes as hold all numbers, little-endian. The best
    oracle for small domains: better than `OptimisedUnary` if `domain < 3 e^epsilon + 2`.
    """

    name: ClassVar[str] = "de"

    @cached_property
    def _response(self) -> ResponseLaw:
        return ResponseLaw.spending(self.epsilon, self.domain)

    @property
    @override
    def p(self) -> Fraction:
        return self._response.p

    @property
    @override
    def q(self) -> Fraction:
        return self._response.q

    @property
    @override
    def _loss(self) -> float:
        return self._response.epsilon

    @property
    @override
    def law(self) -> Mapping[str, int]:
        return {"own": self._response.own, "other": self._response.other}

    @property
    @override
    def report_bytes(self) -> int:
        return width_of(self.domain)

    @override
    def perturb(self, values: NDArray[Any], rng: Generator) -> Reports:
        own = self._require_values(values)
        reports = np.empty((len(own), self.report_bytes), dtype=np.uint8)
        for chunk in chunks(len(own), _WORK_BYTES):
            said = randomised_response(own[chunk], self._response, rng)
            reports[chunk] = encoded(said, self.report_bytes)
        return reports

    @override
    def _fits(self, reports: Reports) -> NDArray[np.bool_]:
        return decoded(reports) < self.domain

    @override
    def aggregate(self, reports: Reports) -> Sums:
        return counted(reports, self.domain)

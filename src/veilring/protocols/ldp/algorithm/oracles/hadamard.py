"""`HadamardResponse`: one random entry of the value's row of a Hadamard matrix, with a lying sign.

Source: Acharya, Sun and Zhang, "Hadamard response", AISTATS 2019, Section 4 (the high-privacy
regime, which is one bit a client); Bassily and Smith, STOC 2015, for one random row a client.
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

from veilring.privacy.coins import bernoulli
from veilring.privacy.dyadic import Dyadic
from veilring.privacy.loss import epsilon_of, exp_floor
from veilring.protocols.ldp.algorithm.chunks import chunks
from veilring.protocols.ldp.algorithm.oracles.numerals import counted, decoded, encoded, width_of
from veilring.protocols.ldp.algorithm.oracles.oracle import BITS, PureOracle
from veilring.protocols.ldp.algorithm.randomiser import Reports, Sums

_WORK_BYTES: Final = 32  # a row, its sign, a coin and the code


@dataclass(frozen=True)
class HadamardResponse(PureOracle):
    """A row of the matrix that the client draws, and the sign at its value, or the other sign.

    The matrix has `order = 2^ceil(log2(domain + 1))` rows, and value v has column v + 1, since
    column 0 tells nothing. In any other column the signs agree with v's in half of the rows, so
    that `q` is exactly 1/2. A report is `2 * row + (sign is plus)` in as few bytes as hold it,
    little-endian. The collector's work hardly depends on the domain.
    """

    name: ClassVar[str] = "hr"

    @property
    def order(self) -> int:
        """How many rows the matrix has, `K`."""
        return 1 << self.domain.bit_length()

    @cached_property
    def _keep(self) -> Dyadic:
        weight = exp_floor(self.epsilon)
        return Dyadic.floor(weight / (weight + 1), BITS)

    @property
    @override
    def p(self) -> Fraction:
        return self._keep.fraction

    @property
    @override
    def q(self) -> Fraction:
        return Fraction(1, 2)

    @property
    @override
    def _loss(self) -> float:
        return epsilon_of(self.p, 1 - self.p)

    @property
    @override
    def law(self) -> Mapping[str, int]:
        return {"bits": BITS, "p": self._keep.numerator, "order": self.order}

    @property
    @override
    def report_bytes(self) -> int:
        return width_of(2 * self.order)

    @override
    def perturb(self, values: NDArray[Any], rng: Generator) -> Reports:
        own = self._require_values(values)
        reports = np.empty((len(own), self.report_bytes), dtype=np.uint8)
        for chunk in chunks(len(own), _WORK_BYTES):
            rows = rng.integers(self.order, size=len(own[chunk]), dtype=np.uint32)
            minus = np.bitwise_count(rows & (own[chunk] + 1).astype(np.uint32)) & 1
            plus = minus != bernoulli(self._keep, len(rows), rng)
            reports[chunk] = encoded(rows << 1 | plus, self.report_bytes)
        return reports

    @override
    def _fits(self, reports: Reports) -> NDArray[np.bool_]:
        return decoded(reports) < 2 * self.order

    @override
    def aggregate(self, reports: Reports) -> Sums:
        counts = counted(reports, 2 * self.order)
        agreements = walsh_hadamard(counts[1::2] - counts[::2])
        return (len(reports) + agreements[1 : self.domain + 1]) // 2


def walsh_hadamard(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the product of the Sylvester Hadamard matrix and a vector, in `K log K` steps.

    Args:
        numbers: Shape (K,), where K is a power of two.
    """
    product = numbers
    for half in (1 << place for place in range(len(numbers).bit_length() - 1)):
        pairs = product.reshape(-1, 2, half)
        both = (pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1])
        product = np.stack(both, axis=1).reshape(-1)
    return product

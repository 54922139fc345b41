"""The form of a report: what a row adds to a statistic, as a measurement that can be proved.

A statistic that counts rows takes a measurement of zeros and ones. Its proof allows as many ones as
a row has, so that a forged report moves the totals no further than an honest one. Any other
statistic takes numbers of some bits, with an offset that makes them positive. Its proof bounds each
number, but not their norm: a forged report may have the largest number everywhere.

An empty report adds nothing, and cannot be told from another one. It equals the absence of a row.
"""

from dataclasses import dataclass
from functools import cached_property
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from veilring.arrays import Ints
from veilring.data.table import Rows
from veilring.protocols.release.algorithm.statistic import Statistic
from veilring.protocols.release.algorithm.tallies import Tally

if TYPE_CHECKING:
    from veilring.protocols.prio.algorithm.prio3 import Prio3

# A client knows the joint randomness of its report, so it may try forgeries offline. With the field
# of 64 bits, one proof leaves it a chance of about 2^-50 an attempt, with some thousand bits.
_PROOFS: Final = 2


def choose_chunk(elements: int) -> int:
    """Return the chunk length with the shortest proof of a measurement of some field elements.

    A proof has two elements for each wire of a chunk, and about two for each call of the gadget,
    whose number plus 1 is rounded up to a power of two.
    """
    sizes = (1 << power for power in range(1, elements.bit_length() + 2))
    found = ((ceil(elements / (size - 1)), size) for size in sizes)
    return min(found, key=lambda each: (sum(each), each))[0]


@dataclass(frozen=True, eq=False)
class ReportForm:
    """The form of all reports about a statistic.

    Attributes:
        bits: The bits of each number, one of which is for the sign, unless the statistic counts.
    """

    statistic: Statistic[Any]
    bits: int

    @property
    def scale(self) -> int:
        """The factor by which aggregators multiply totals: what a row adds for a one."""
        return self.statistic.scale if isinstance(self.statistic, Tally) else 1

    @property
    def offset(self) -> int:
        """The number that is added to each entry, so that none is negative."""
        return 0 if isinstance(self.statistic, Tally) else (1 << self.bits - 1) - 1

    @property
    def longest(self) -> float:
        """The greatest norm of a report with a valid proof, in that of the statistic's bound."""
        bound, length = self.statistic.bound, self.statistic.length
        if isinstance(self.statistic, Tally):
            return bound.value
        return (self.offset + 1) * (length if bound.norm == "l1" else sqrt(length))

    @cached_property
    def scheme(self) -> "Prio3":
        """The scheme that shares, proves and verifies reports."""
        from veilring.protocols.prio.algorithm.prio3 import Prio3  # noqa: PLC0415  (an extra)

        length = self.statistic.length
        if isinstance(self.statistic, Tally):
            ones = self.statistic.support
            chunk = choose_chunk(length + ones.bit_length())
            return Prio3.multi_hot_histogram(length, ones, chunk)
        return Prio3.sum_vec_multiproof(
            length, self.bits, choose_chunk(length * self.bits), _PROOFS
        )

    def measure(self, rows: Rows, empty: int = 0) -> Ints:
        """Return the measurements of rows, and of empty reports after them. Secret.

        Returns:
            Numbers of at least 0, shape (reports, entries).
        """
        found = np.full((len(rows) + empty, self.statistic.length), self.offset)
        entries = self.statistic.entries(rows.features, rows.labels)
        found[np.arange(len(rows))[:, None], entries.positions] += entries.values // self.scale
        return found

"""`SubsetSelection`: a random set of values that is likely to contain the client's.

Source: Ye and Barg, "Optimal schemes for discrete distribution estimation under locally
differential privacy", IEEE Transactions on Information Theory 2018; Wang et al. 2016 (omega-SS).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.privacy.draws import bernoulli, packed_bernoulli
from veilring.privacy.exact import Dyadic, exp_floor, log_ceil
from veilring.protocols.ldp.algorithm.oracle import BITS, PureOracle, require_values
from veilring.protocols.ldp.algorithm.packing import (
    bit_of,
    bitmap_bytes,
    client_slices,
    column_sums,
    counted,
    decoded,
    encoded,
    is_padded,
    width_of,
)
from veilring.protocols.ldp.algorithm.randomiser import Reports, Sums

_START_BITS: Final = 16  # bits of the coins for an initial set, which need not be exact


@dataclass(frozen=True)
class SubsetSelection(PureOracle):
    """A set of about `w = d / (e^epsilon + 1)` values; the smallest variance of all pure oracles.

    Of the two neighbouring whole numbers, the better one is computed (Ye and Barg, Section IV):
    with the nearest one the variance may be 17 % above the minimum. A set of one value is
    `DirectEncoding`. The set contains the client's value with probability `p`; the rest of it is a
    uniform choice among the other values. A report is a bitmap in the order of `numpy.packbits`,
    or, if that is shorter, the ascending list of the members, each in the minimum number of bytes,
    little-endian.
    """

    name: ClassVar[str] = "ss"

    @cached_property
    def size(self) -> int:
        """The number of values in a set, `w`."""
        below = int(self.domain / (math.exp(self.epsilon) + 1))
        # For a domain of two, rounding may give two; a set of all values carries no information.
        return max((max(1, below), min(below + 1, self.domain - 1)), key=self._information)

    def _information(self, size: int) -> float:
        """Return the information in sets of this size: a constant over the variance at frequency 0.

        The constant, `(e^epsilon - 1)^2 / (d - 1)^2`, is omitted: for a small epsilon it would be a
        difference of nearly equal numbers.
        """
        weight = math.exp(self.epsilon)
        others = self.domain - size
        total = weight * size + others
        q = size * (weight * (size - 1) + others) / ((self.domain - 1) * total)
        return (size * others / total) ** 2 / (q * (1 - q))

    @cached_property
    def _keep(self) -> Dyadic:
        weight = exp_floor(self.epsilon) * self.size
        return Dyadic.floor(weight / (weight + self.domain - self.size), BITS)

    @property
    @override
    def p(self) -> Fraction:
        return self._keep.fraction

    @property
    @override
    def q(self) -> Fraction:
        return (self.size - self.p) / (self.domain - 1)

    @property
    @override
    def _loss(self) -> float:
        # C(d-1, w-1) sets contain v, and C(d-1, w) sets do not.
        return log_ceil(self.p / (1 - self.p) * Fraction(self.domain - self.size, self.size))

    @property
    @override
    def exact_parameters(self) -> Mapping[str, int]:
        return {"bits": BITS, "p": self._keep.numerator, "size": self.size}

    @property
    def _listed(self) -> bool:
        return self._list_bytes < bitmap_bytes(self.domain)

    @property
    def _list_bytes(self) -> int:
        return self.size * width_of(self.domain)

    @property
    @override
    def report_bytes(self) -> int:
        return self._list_bytes if self._listed else bitmap_bytes(self.domain)

    @override
    def perturb(self, values: NDArray[Any], rng: Generator) -> Reports:
        own = require_values(values, self.domain)
        reports = np.empty((len(own), self.report_bytes), dtype=np.uint8)
        for chunk in client_slices(len(own), self._work_bytes):
            bitmaps = self._bitmaps(own[chunk], rng)
            reports[chunk] = self._list(bitmaps) if self._listed else bitmaps
        return reports

    @property
    def _work_bytes(self) -> int:
        # A list is built from bytes with one bit each.
        return 32 + (self.domain if self._listed else bitmap_bytes(self.domain))

    def _bitmaps(self, own: NDArray[np.int64], rng: Generator) -> NDArray[np.uint8]:
        """Return one set per client.

        All other values are initially in the set with the same probability; then single values,
        drawn uniformly, are added or removed until the size is right. By symmetry, all sets of the
        right size are exactly equally probable.
        """
        bitmaps = packed_bernoulli(self._start, len(own), self.domain, rng)
        clients, (place, bit) = np.arange(len(own)), bit_of(own)
        bitmaps[clients, place] &= ~bit
        keep = bernoulli(self._keep, len(own), rng)
        sizes = np.bitwise_count(bitmaps).sum(axis=1, dtype=np.int64)
        self._resize(bitmaps, own, self.size - keep - sizes, rng)
        bitmaps[clients, place] |= bit * keep
        return bitmaps

    @property
    def _start(self) -> Dyadic:
        """The probability for initial sets, most of which are then slightly too small.

        A uniform draw seldom hits one of few members, so removing is slow if there are few.
        """
        share = self.size / self.domain
        deviations = 1 if share > 1 / 8 else 4
        spread = math.sqrt(self.size * (1 - share))
        return Dyadic.floor(max(0.0, share - deviations * spread / self.domain), _START_BITS)

    def _resize(
        self,
        bitmaps: NDArray[np.uint8],
        own: NDArray[np.int64],
        missing: NDArray[np.int64],
        rng: Generator,
    ) -> None:
        """Add missing members, drawn uniformly, or remove some; never the client's own value."""
        left = np.flatnonzero(missing)
        missing, own = missing[left], own[left]
        while left.size:  # then no set lacks members
            drawn = rng.integers(self.domain, size=left.size)
            place, bit = bit_of(drawn)
            member = (bitmaps[left, place] & bit) != 0
            change = (member == (missing < 0)) & (drawn != own)
            bitmaps[left, place] ^= bit * change
            missing -= np.sign(missing) * change
            unfinished = np.flatnonzero(missing)
            if unfinished.size < left.size:  # otherwise the copies would be equal
                left, missing, own = left[unfinished], missing[unfinished], own[unfinished]

    def _list(self, bitmaps: NDArray[np.uint8]) -> Reports:
        members = np.nonzero(np.unpackbits(bitmaps, axis=1))[1].reshape(-1, self.size)
        return encoded(members, width_of(self.domain)).reshape(len(bitmaps), -1)

    def _members(self, reports: Reports) -> NDArray[np.int64]:
        return decoded(reports.reshape(len(reports), self.size, -1))

    @override
    def _fits(self, reports: Reports) -> NDArray[np.bool_]:
        if self._listed:
            members = self._members(reports)
            ascending = (members[:, 1:] > members[:, :-1]).all(axis=1)
            return np.asarray(ascending & (members[:, -1] < self.domain))
        sizes = np.bitwise_count(reports).sum(axis=1, dtype=np.int64)
        return np.asarray((sizes == self.size) & is_padded(reports, self.domain))

    @override
    def aggregate(self, reports: Reports) -> Sums:
        if not self._listed:
            return column_sums(reports, self.domain)
        return counted(reports.reshape(-1, width_of(self.domain)), self.domain)

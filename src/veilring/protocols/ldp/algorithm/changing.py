"""Oracles for answers that are asked for again and may change: noise on two levels.

A client draws *permanent* answers once, one for each true answer that it may ever have, and keeps
them secret. Each round it looks up the permanent answer to its present true one, and adds fresh
noise to it. Averaging many rounds reveals the permanent answers at most, never the true one.

- `Loloha`: permanent answers to hashed values (Arcolezi, Pinzón, Palamidessi and Gambs, "Frequency
  estimation of evolving data under local differential privacy", EDBT 2023). With two buckets there
  are only two of them, for a domain of any size.
- `MemoisedUnary`: L-OSUE, a permanent bitmap for each value (Arcolezi et al., "Improving the
  utility of locally differentially private protocols for longitudinal and multidimensional
  frequency estimates", Digital Communications and Networks 2022).

**What is bounded.** One report alone spends `epsilon`. All reports of all rounds together spend at
most `permanent` for each permanent answer that was used, and thus `lifetime_epsilon` for any number
of changes: a true answer affects the reports only by its permanent answer, and permanent answers
are independent. This compares clients whose permanent answers change at the same times. It does not
hide *when* an answer changes: over many rounds an observer can see that.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.arrays import Ints
from veilring.privacy.checks import require
from veilring.privacy.draws import bernoulli, packed_bernoulli
from veilring.privacy.exact import Dyadic, exp_floor, float_ceil, log_ceil, unary_epsilon
from veilring.privacy.selection import ResponseDistribution, randomised_response
from veilring.protocols.ldp.algorithm.oracles import (
    HashFamily,
    LocalHashing,
    OptimisedUnary,
    hash_family,
)
from veilring.protocols.ldp.algorithm.packing import bitmap_bytes, decoded, encoded
from veilring.protocols.ldp.algorithm.randomiser import (
    BITS,
    REPORT_EPSILON_MAX,
    PureOracle,
    Reports,
)

Memos = NDArray[np.uint8]
"""The permanent answers of clients as bytes, shape (clients, `memo_bytes`)."""


@dataclass(frozen=True)
class MemoisedOracle(PureOracle):
    """An oracle whose clients keep permanent answers.

    Attributes:
        permanent: The maximum ε of a permanent answer; above `epsilon`, which is that of the first
            report.
    """

    permanent: float

    @override
    def __post_init__(self) -> None:
        allowed = f"above epsilon ({self.epsilon:g}) and at most {REPORT_EPSILON_MAX:g}"
        fits = self.epsilon < self.permanent <= REPORT_EPSILON_MAX
        require(fits, "permanent", self.permanent, allowed)
        super().__post_init__()

    @property
    @abstractmethod
    def answers(self) -> int:
        """The number of permanent answers of a client."""

    @property
    @abstractmethod
    def permanent_loss(self) -> float:
        """The exact loss of one permanent answer, at most `permanent`."""

    @property
    def lifetime_epsilon(self) -> float:
        """The loss of all reports in all rounds; see the module for what it bounds."""
        return float_ceil(self.answers * Fraction(self.permanent_loss))

    @property
    @abstractmethod
    def memo_bytes(self) -> int:
        """The size of a client's permanent answers."""

    @abstractmethod
    def draw_permanent(self, clients: int, rng: Generator) -> Memos:
        """Return new permanent answers, which do not depend on any true answer."""

    @abstractmethod
    def again(self, memos: Memos, values: Ints, rng: Generator) -> Reports:
        """Return reports of a round, one per client, with fresh noise on permanent answers."""

    @override
    def perturb(self, values: NDArray[np.int64], rng: Generator) -> Reports:
        """Return the first reports of new clients."""
        own = self._checked(values)
        return self.again(self.draw_permanent(len(own), rng), own, rng)


@dataclass(frozen=True)
class Loloha(MemoisedOracle, LocalHashing):
    """A permanent hash function with two buckets, and a permanent answer to each bucket."""

    name: ClassVar[str] = "loloha"
    answers: ClassVar[int] = 2

    @cached_property
    @override
    def family(self) -> HashFamily:
        return hash_family(self.domain, self.answers)

    @cached_property
    def first(self) -> ResponseDistribution:
        """The distribution of a permanent answer to a bucket."""
        return ResponseDistribution.spending(self.permanent, self.answers)

    @cached_property
    def _keep(self) -> Dyadic:
        """The probability that a report has the permanent answer."""
        weight = exp_floor(self.epsilon)
        others = self.answers - 1
        # Solved for the probability of the own bucket that spends epsilon.
        wanted = weight / (weight + others)
        return Dyadic.floor((wanted - self.first.q) / (self.first.p - self.first.q), BITS)

    @property
    @override
    def p(self) -> Fraction:
        keep = self._keep.fraction
        return self.first.p * keep + self.first.q * (1 - keep)

    @property
    @override
    def q(self) -> Fraction:
        lie = (1 - self.p) / (self.answers - 1)
        return lie + (self.p - lie) * self.family.collision

    @property
    @override
    def _loss(self) -> float:
        return log_ceil(self.p * (self.answers - 1) / (1 - self.p))

    @property
    @override
    def permanent_loss(self) -> float:
        return self.first.epsilon

    @property
    @override
    def exact_parameters(self) -> Mapping[str, int]:
        return {
            "permanent_own": self.first.own,
            "permanent_other": self.first.other,
            "bits": BITS,
            "keep": self._keep.numerator,
            "buckets": self.family.buckets,
            "word_bits": self.family.word_bits,
            "high_bits": self.family.high_bits,
        }

    @property
    @override
    def memo_bytes(self) -> int:
        return self._seed_bytes + self.answers

    @override
    def draw_permanent(self, clients: int, rng: Generator) -> Memos:
        seeds = self._seeds(clients, rng).view(np.uint8)
        buckets = np.tile(np.arange(self.answers), (clients, 1))
        said = randomised_response(buckets.reshape(-1), self.first, rng)
        return np.hstack((seeds, said.reshape(clients, self.answers).astype(np.uint8)))

    @override
    def again(self, memos: Memos, values: Ints, rng: Generator) -> Reports:
        seeds = np.ascontiguousarray(memos[:, : self._seed_bytes])
        a, b = seeds.view(self.family.word).T
        buckets = self.family.bucket(a, b, values)
        own = decoded(memos[:, self._seed_bytes :, None])
        kept = np.take_along_axis(own, buckets[:, None], axis=1)[:, 0]
        said = kept ^ ~bernoulli(self._keep, len(kept), rng)
        return np.hstack((seeds, encoded(said, 1)))


# A permanent bitmap for each value: 8 KiB for this number of values.
_UNARY_MAX: Final = 256


@dataclass(frozen=True)
class MemoisedUnary(MemoisedOracle, OptimisedUnary):
    """A permanent bitmap for each value, by `OptimisedUnary`; a report flips some of its bits."""

    name: ClassVar[str] = "l-osue"
    domain_max: ClassVar[int] = _UNARY_MAX

    @cached_property
    def first(self) -> OptimisedUnary:
        """The oracle of permanent bitmaps."""
        return OptimisedUnary(self.domain, self.permanent)

    @cached_property
    def _flip(self) -> Dyadic:
        """The probability that a report has the opposite of a permanent bit."""
        wanted = 1 / (exp_floor(self.epsilon) + 1)
        return Dyadic.ceil((wanted - self.first.q) / (1 - 2 * self.first.q), BITS)

    @property
    @override
    def q(self) -> Fraction:
        flip = self._flip.fraction
        return self.first.q * (1 - flip) + (1 - self.first.q) * flip

    @property
    @override
    def _loss(self) -> float:
        return unary_epsilon(self.p, self.q)

    @property
    @override
    def permanent_loss(self) -> float:
        return self.first.exact_epsilon

    @property
    @override
    def answers(self) -> int:
        return self.domain

    @property
    @override
    def exact_parameters(self) -> Mapping[str, int]:
        permanent = self.first.exact_parameters
        return {"bits": BITS, "permanent_q": permanent["q"], "flip": self._flip.numerator}

    @property
    @override
    def memo_bytes(self) -> int:
        return self.domain * bitmap_bytes(self.domain)

    @override
    def draw_permanent(self, clients: int, rng: Generator) -> Memos:
        values = np.tile(np.arange(self.domain), clients)
        return self.first.perturb(values, rng).reshape(clients, self.memo_bytes)

    @override
    def again(self, memos: Memos, values: Ints, rng: Generator) -> Reports:
        bitmaps = memos.reshape(len(memos), self.domain, self.report_bytes)[
            np.arange(len(memos)), values
        ]
        return bitmaps ^ packed_bernoulli(self._flip, len(memos), self.domain, rng)


MEMOISED: Final[Mapping[str, type[MemoisedOracle]]] = {
    oracle.name: oracle for oracle in (Loloha, MemoisedUnary)
}
"""The oracles for answers that change, by name."""

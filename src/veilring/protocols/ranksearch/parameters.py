"""The public parameters of rank search."""

import math
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np

from veilring.arrays import Floats
from veilring.data.table import Rows
from veilring.errors import InputError
from veilring.nodes.ring import PARTIES_MIN
from veilring.protocols.batches import check_queries, check_rows
from veilring.protocols.ranksearch.algorithm.argmax import WORDS_A_CLASS, label_scheme
from veilring.protocols.ranksearch.algorithm.comparing import levels_of
from veilring.protocols.ranksearch.algorithm.search import (
    ARITY_MAX,
    ARITY_MIN,
    IntervalSearch,
    TotalsSearch,
)
from veilring.protocols.ranksearch.algorithm.shares import PRIMES, Scheme, prime_above
from veilring.protocols.ranksearch.algorithm.votes import TIED_ROWS, word_for
from veilring.protocols.ring.algorithm.classify import Weights
from veilring.transport.frames import CONTENT_BYTES_MAX

Reveal = Literal["totals", "votes", "label"]
"""The totals that all parties learn: of counts and votes, of votes only, or none."""
Adding = Literal["all-to-all", "star"]
"""The way to add up: each party does, or the client does and sends the totals to the others."""

# Counts are added up in words of at most 32 bits, and a batch with more neighbours than this has no
# room for its own votes.
K_MAX: Final = 2**16 - 2
# The data that a party deals at once, 8 bytes for each party and word: 64 MB with 8 parties.
SHARED_WORDS_MAX: Final = 2**20

_CHOICES: Final = {
    "reveal": get_args(Reveal),
    "sum": get_args(Adding),
    "weights": get_args(Weights),
}
_FLOAT_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class SearchParameters:
    """The public parameters of rank search, equal for all parties.

    Attributes:
        features: The number of features of a row, each in [0, 1].
        sum: The way to add up totals; messages after shared counts go to all parties.
        weights: `uniform`, or `distance` for votes in proportion to 1/distance.
        again: Whether queries may be repeated with other parties, which reveals the difference of
            two totals.
    """

    features: int
    classes: int
    k: int
    arity: int
    reveal: Reveal
    sum: Adding
    weights: Weights
    again: bool

    def __post_init__(self) -> None:
        if self.features < 1:
            raise InputError("features", self.features, "at least 1")
        if self.classes < 1:
            raise InputError("classes", self.classes, "at least 1")
        if not 1 <= self.k <= self._k_max:
            raise InputError("k", self.k, f'1 to {self._k_max:,} with reveal = "{self.reveal}"')
        if self.reveal == "label" and self.weights == "distance":
            raise InputError.because(
                'weights = "distance" needs reveal = "totals" or "votes": only whole votes can be'
                " compared without revealing them",
                field="weights",
            )
        if not ARITY_MIN <= self.arity <= ARITY_MAX:
            raise InputError("arity", self.arity, f"{ARITY_MIN} to {ARITY_MAX}")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise InputError(name, getattr(self, name), " or ".join(known))

    @property
    def _k_max(self) -> int:
        """The maximum k: totals of counts must fit into a word, or into their field."""
        return K_MAX if self.reveal == "totals" else self._total_max // PARTIES_MIN - 1

    @property
    def _total_max(self) -> int:
        return 2**32 - 1 if self.reveal == "totals" else PRIMES[-1] - 1

    @property
    def upper(self) -> float:
        """The bound on a distance: none in the unit cube exceeds the root of its dimension."""
        return math.sqrt(self.features)

    @property
    def has_adder(self) -> bool:
        """Whether the client adds up the totals.

        It does not after shared counts: the last opened value would be confirmed only to the
        client, and a client that lied to one party could make the others blame that party.
        """
        return self.sum == "star" and self.reveal == "totals"

    @property
    def queries_max(self) -> int:
        """The maximum number of queries with which every message of a batch fits into a frame."""
        votes = self.classes * (4 if self.weights == "uniform" else 4 + 8)
        widest = max(_FLOAT_BYTES * self.features, 4 * self.arity, votes)
        most = CONTENT_BYTES_MAX // widest
        if self.reveal == "totals":
            return most
        words = self.arity * max(1, *levels_of(self.k))
        if self.reveal == "label":
            words = max(words, self.classes * WORDS_A_CLASS)
        return max(1, min(most, SHARED_WORDS_MAX // words))

    def check_parties(self, parties: int) -> None:
        """Reject a number of parties that hides nothing, or whose totals do not fit into a word."""
        most = self._total_max // (self.k + 1)
        if not PARTIES_MIN <= parties <= most:
            raise InputError("parties", parties, f"{PARTIES_MIN} to {most:,}")
        if self.reveal == "label":
            label_scheme(parties, self.classes, self.k)

    def check_queries(self, queries: Floats) -> None:
        """Reject queries that cannot be answered."""
        check_queries(queries, self.features, self.queries_max)

    def check_rows(self, rows: Rows, parties: int) -> None:
        """Reject rows of another schema, or more rows than may tie."""
        check_rows(rows, self.features, self.classes)
        most = TIED_ROWS // parties
        if len(rows) > most:
            raise InputError("rows", len(rows), f"at most {most:,} among {parties} parties")

    def count_word(self, parties: int) -> np.dtype[Any]:
        """Return the word type for adding up counts: n(k + 1) is the maximum total."""
        return word_for(parties * (self.k + 1))

    def scheme(self, parties: int) -> Scheme:
        """Return the sharing scheme for counts, with a prime above all totals."""
        return Scheme(prime_above(parties * (self.k + 1)), parties)

    def interval_search(self, queries: int) -> IntervalSearch:
        """Return the search for the radii of a batch with shared counts."""
        return IntervalSearch(queries, self.upper, self.arity)

    def search(self, queries: int, parties: int) -> TotalsSearch:
        """Return the search for the radii of a batch, before its first step."""
        return TotalsSearch(queries, k=self.k, upper=self.upper, arity=self.arity, parties=parties)

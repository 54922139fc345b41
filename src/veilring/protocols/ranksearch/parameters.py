"""The public parameters of rank search."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from veilring.arrays import Floats
from veilring.data.table import Rows, check_rows
from veilring.errors import InputError
from veilring.nodes.ring import PARTIES_MIN
from veilring.privacy.checks import require
from veilring.protocols.batches import check_queries
from veilring.protocols.digests import written
from veilring.protocols.promise import Facts
from veilring.protocols.ranksearch.algorithm.argmax import WORDS_A_CLASS, has_masks, label_scheme
from veilring.protocols.ranksearch.algorithm.comparing import levels_of
from veilring.protocols.ranksearch.algorithm.search import (
    Found,
    IntervalSearch,
    Spacing,
    TotalsSearch,
    run_search,
)
from veilring.protocols.ranksearch.algorithm.shares import PRIMES, Scheme, prime_above
from veilring.protocols.ranksearch.algorithm.votes import (
    TIED_ROWS,
    Nearest,
    Ranked,
    Votes,
    count_rows,
    nearest_rows,
    no_votes,
    own_votes,
    word_for,
)
from veilring.transport.frames import CONTENT_BYTES_MAX

if TYPE_CHECKING:
    from veilring.protocols.ranksearch.system import RankSearch

# Counts are added up in words of at most 32 bits, and a batch with more neighbours than this has no
# room for its own votes.
K_MAX: Final = 2**16 - 2
# The words that a party deals at once, of at most 2 bytes for each party: 16 MB with 8 parties.
SHARED_WORDS_MAX: Final = 2**20

_FLOAT_BYTES: Final = 8


@dataclass(frozen=True)
class SearchParameters:
    """Rank search and the public facts that it is bound to, equal for all parties."""

    system: "RankSearch"
    facts: Facts

    def __post_init__(self) -> None:
        require(self.facts.features >= 1, "features", self.facts.features, "at least 1")
        require(self.facts.classes >= 1, "classes", self.facts.classes, "at least 1")
        k, reveal, most = self.system.k, self.system.reveal, self._k_max
        require(k <= most, "k", k, f'1 to {most:,} with reveal = "{reveal}"')
        if reveal == "label" and self.system.weights == "distance":
            raise InputError.because(
                'weights = "distance" needs reveal = "totals" or "votes": only whole votes can be'
                " compared without revealing them",
                field="weights",
            )
        if self.steps and (reveal == "label" or self.system.weights == "distance"):
            field = "reveal" if reveal == "label" else "weights"
            raise InputError.because(
                'a number is predicted with weights = "uniform" and reveal = "totals" or "votes":'
                " the mean of the targets is their sum, divided by their number",
                field=field,
            )

    @property
    def steps(self) -> int:
        """The largest target, in steps; 0 if the label is a class."""
        return 0 if self.facts.target is None else self.facts.target.steps

    @property
    def vote_columns(self) -> int:
        """The number of counts of a query: one for each class, or one of all rows."""
        return 1 if self.steps else self.facts.classes

    @cached_property
    def written(self) -> str:
        """The parameters as text for the digest of public inputs."""
        own = self.system
        chosen = own.k, own.arity, own.reveal, own.sum, own.weights, own.again
        values = (
            self.facts.features,
            self.facts.classes,
            *chosen,
            *(["steps"] if self.steps else []),
        )
        return f"SearchParameters({', '.join(map(written, values))})"

    @property
    def _k_max(self) -> int:
        """The maximum k: totals of counts must fit into a word, or into their field."""
        opens = self.system.reveal == "totals"
        return K_MAX if opens else self._total_max // PARTIES_MIN - 1

    @property
    def _total_max(self) -> int:
        return 2**32 - 1 if self.system.reveal == "totals" else PRIMES[-1] - 1

    @property
    def upper(self) -> float:
        """The bound on a distance: none in the unit cube exceeds the root of its dimension."""
        return math.sqrt(self.facts.features)

    @property
    def spacing(self) -> Spacing:
        """The thresholds of a search; the first step leaves some out if counts are shared."""
        return Spacing(self.upper, self.system.arity, is_sparse=self.system.reveal != "totals")

    @property
    def has_adder(self) -> bool:
        """Whether the client adds up the totals.

        It does not after shared counts: the last opened value would be confirmed only to the
        client, and a client that lied to one party could make the others blame that party.
        """
        return self.system.sum == "star" and self.system.reveal == "totals"

    @property
    def queries_max(self) -> int:
        """The maximum number of queries with which every message of a batch fits into a frame."""
        system, classes = self.system, self.vote_columns
        votes = classes * (4 + 8 if system.weights == "distance" or self.steps else 4)
        widest = max(_FLOAT_BYTES * self.facts.features, 4 * system.arity, votes)
        most = CONTENT_BYTES_MAX // widest
        if system.reveal == "totals":
            return most
        words = system.arity * max(1, *levels_of(system.k))
        if system.reveal == "label":
            words += classes * WORDS_A_CLASS
        return max(1, min(most, SHARED_WORDS_MAX // words))

    def check_parties(self, parties: int) -> None:
        """Reject a number of parties that hides nothing, or whose totals do not fit into a word."""
        most = self._total_max // (self.system.k + 1)
        require(PARTIES_MIN <= parties <= most, "parties", parties, f"{PARTIES_MIN} to {most:,}")
        if self.system.reveal == "label":
            label_scheme(parties, self.facts.classes, self.system.k)

    def check_queries(self, queries: Floats) -> None:
        """Reject queries that cannot be answered."""
        check_queries(queries, self.facts.features, self.queries_max)

    def check_rows(self, rows: Rows, parties: int) -> None:
        """Reject rows of another schema, or more rows than may tie."""
        check_rows(rows, self.facts.features, self.facts.classes)
        most = TIED_ROWS // parties
        require(len(rows) <= most, "rows", len(rows), f"at most {most:,} among {parties} parties")

    def count_word(self, parties: int) -> np.dtype[Any]:
        """Return the word type for adding up counts: n(k + 1) is the maximum total."""
        return word_for(parties * (self.system.k + 1))

    def scheme(self, parties: int) -> Scheme:
        """Return the sharing scheme for counts, with a prime above all totals.

        Masks that are drawn during the search share it, so its prime is above the number of classes
        as well.
        """
        most = parties * (self.system.k + 1)
        drawn = self.facts.classes if self.draws_masks(self.system.k) else 0
        return Scheme(prime_above(max(most, drawn)), parties)

    def draws_masks(self, most: int) -> bool:
        """Return whether masks of up to `most` votes on a query are drawn during the search."""
        is_known = self.system.reveal == "label" and most == self.system.k
        return is_known and has_masks(self.facts.classes, most)

    def vote_scheme(self, parties: int, most: int) -> Scheme:
        """Return the sharing scheme for up to `most` votes on a query."""
        if self.draws_masks(most):
            return self.scheme(parties)
        return label_scheme(parties, self.facts.classes, most)

    def interval_search(self, queries: int) -> IntervalSearch:
        """Return the search for the radii of a batch with shared counts."""
        return IntervalSearch(queries, self.spacing)

    def search(self, queries: int, parties: int) -> TotalsSearch:
        """Return the search for the radii of a batch, before its first step."""
        return TotalsSearch(queries, self.spacing, k=self.system.k, parties=parties)

    def answer(self, queries: Floats, parts: Sequence[Rows]) -> Ranked:
        """Search the rows of all parties in this process, with the parties' own steps.

        With one party it is the pooled classifier: whether T is below, equal to or above k does not
        depend on the partition of the rows, so neither does any result.
        """
        k = self.system.k
        near = [nearest_rows(queries, rows, k) for rows in parts]
        found = run_search(self.search(len(queries), len(parts)), partial(count_rows, near))
        votes = [
            self.votes_of(queries, rows, own, found) for rows, own in zip(parts, near, strict=True)
        ]
        arrays = zip(*(each.arrays(found.tied, k) for each in votes), strict=True)
        totals = [np.add.reduce(each) for each in arrays]
        return Ranked(found, Votes.of(totals, found.tied, self.steps))

    def votes_of(self, queries: Floats, rows: Rows, nearest: Nearest, found: Found) -> Votes:
        """Return the votes of a party's rows on queries with these radii."""
        return own_votes(
            queries,
            rows,
            nearest,
            found,
            classes=self.vote_columns,
            weights=self.system.weights,
            steps=self.steps,
        )

    def no_votes(self, queries: int) -> Votes:
        """Return the votes of a party without rows."""
        return no_votes(queries, self.vote_columns, self.system.weights, self.steps)

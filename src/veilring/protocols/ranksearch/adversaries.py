"""Adversaries of rank search: a coalition that reads totals, and parties that add false counts.

A semi-honest coalition knows every total and subtracts its members' own counts. The rest is the sum
over the parties outside it, which is the count of one party if only one is left. The view does not
depend on how rows are divided among the parties outside, so the owner of a row cannot be named
better than by guessing.

Masks do not authenticate: a malicious party that adds to its masked words adds to the total. The
documentation reports each adversary's gain and the check that detects it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows, pairwise_distances
from veilring.nodes.adversary import Adversary, Lines, Silent
from veilring.nodes.journal import View
from veilring.privacy.checks import require
from veilring.protocols.batches import Queries
from veilring.protocols.claims import Batch, Findings, SummaryLine, expected_of, share_of
from veilring.protocols.masks import MaskedTotals, MaskedWords
from veilring.protocols.ranksearch.algorithm.search import Asked
from veilring.protocols.ranksearch.algorithm.votes import count_rows, nearest_rows
from veilring.protocols.ranksearch.parameters import SearchParameters
from veilring.protocols.ring.adversaries import InputSubstitution, with_rows
from veilring.transport.messages import Message

if TYPE_CHECKING:
    from veilring.protocols.ranksearch.system import SearchSetup

_Unsigned = NDArray[np.unsignedinteger[Any]]
_Words = tuple[_Unsigned, ...]
_Masked = MaskedWords | MaskedTotals


@dataclass(frozen=True, slots=True)
class TotalsFindings(Findings):
    """The findings of a semi-honest coalition in the totals of a search, compared with the truth.

    Attributes:
        totals: The number of totals of the parties outside that the coalition knows, over all
            batches.
        guessed: The expected number of owners named correctly by guessing; no view helps more.
    """

    outside: int
    totals: int
    right: int
    alone: int
    nearest: int
    guessed: float

    @override
    def lines(self, *, retried: bool) -> Iterator[SummaryLine]:
        yield self.line_of_members()
        whose = (
            "the one party outside it"
            if self.outside == 1
            else f"the {self.outside} parties outside it"
        )
        meaning = f"exact sums of the counts of {whose} that it computed, one per threshold"
        yield SummaryLine("totals read", share_of(self.right, self.totals), meaning)
        meaning = "totals read that are the count of a single party"
        yield SummaryLine("counts exposed", share_of(self.alone, self.totals), meaning)
        meaning = "owners of nearest rows that a guess is expected to hit; the view does not help"
        yield SummaryLine("owners named", expected_of(self.guessed, self.nearest), meaning)


def find_in_totals(
    setup: "SearchSetup", batches: Iterable[Batch], members: tuple[str, ...]
) -> TotalsFindings:
    """Compute the totals of the parties outside from the coalition's views of some batches."""
    public, alone, guessed = setup.parameters, 0, 0.0
    totals = right = nearest = 0
    outside = list[int]()
    for batch in batches:
        own = [setup.parts[name] for name in batch.seen.views]
        others = [setup.parts[name] for name in batch.others]
        view = next(iter(batch.seen.views.values()))
        near = [nearest_rows(batch.queries, rows, public.system.k) for rows in others]
        read = 0
        for asked, counts in read_others(view, batch.queries, own, public, len(batch.parties)):
            right += int((counts == count_rows(near, asked)).sum())
            read += len(counts)
        nearer = int((_nearest(batch.queries, others) < _nearest(batch.queries, own)).sum())
        totals, nearest, guessed = totals + read, nearest + nearer, guessed + nearer / len(others)
        alone += read * (len(others) == 1)
        outside.append(len(others))
    return TotalsFindings(members, outside[0], totals, right, alone, nearest, guessed)


def read_others(
    view: View, queries: Floats, members: Sequence[Rows], public: SearchParameters, parties: int
) -> Iterator[tuple[Asked, Ints]]:
    """Yield the thresholds of each step, with the totals of the counts of parties outside.

    Args:
        queries: The batch, shape (Q, features).
    """
    own = [nearest_rows(queries, rows, public.system.k) for rows in members]
    search, opened = public.search(len(queries), parties), read_totals(view)
    while (asked := search.ask()) is not None:
        totals = next(opened)[0].astype(np.int64)
        yield asked, totals - count_rows(own, asked)
        search.take(asked, totals)


def read_totals(view: View) -> Iterator[tuple[NDArray[Any], ...]]:
    """Yield the totals of the masked sums that a party took part in, one after the other.

    If one party adds up, it announces the totals. Otherwise they are the sums of the words of all
    parties: the received ones, and the party's own, which it sent to every other.
    """
    told: dict[int, tuple[NDArray[Any], ...]] = {}
    words: dict[int, dict[str, tuple[NDArray[Any], ...]]] = {}
    for seen in (*view.received, *view.sent):
        if isinstance(seen.message, MaskedTotals):
            told[seen.round] = seen.message.words
    for own, messages in ((False, view.received), (True, view.sent)):
        for seen in messages:
            if isinstance(seen.message, MaskedWords):
                sender = view.party if own else seen.sender
                words.setdefault(seen.round, {})[sender] = seen.message.words
    if told:
        yield from (told[number] for number in sorted(told))
        return
    for number in sorted(words):
        arrays = zip(*words[number].values(), strict=True)
        yield tuple(np.add.reduce(each, dtype=each[0].dtype.type) for each in arrays)


def _nearest(queries: Floats, parts: Sequence[Rows]) -> Floats:
    rows = np.concatenate([rows.features for rows in parts])
    return np.asarray(pairwise_distances(queries, rows).min(axis=1, initial=np.inf))


class _Liar(Adversary):
    """Adds values to sums; a subclass defines them, for counts and for votes.

    The party's own role must continue with the same total as the others. It therefore receives the
    false words from a peer as well, unless it lies only to a victim.
    """

    victim: str = ""

    def counts(self, words: _Unsigned) -> _Unsigned:
        """Return the falsified words of a search step, in the order of thresholds."""
        return words

    def votes(self, words: _Unsigned) -> _Unsigned:
        """Return the falsified words of votes, shape (queries, classes)."""
        return words

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        lies = self.victim == to or (not self.victim and isinstance(message, MaskedWords))
        if lies and isinstance(message, _Masked):
            message = self._changed(message)
        return [(to, message)]

    @override
    async def received(self, sender: str, message: Message) -> Message:
        echoes = not self.victim and sender == self.party.peers[0]
        return self._changed(message) if echoes and isinstance(message, MaskedWords) else message

    def _changed(self, message: _Masked) -> _Masked:
        if len(message.words) == 1:
            words: _Words = (self.counts(message.words[0].copy()),)
        else:
            few, many, *others = message.words
            words = self._voted(few), self._voted(many), *others
        return type(message)(digest=message.digest, words=words)

    def _voted(self, words: _Unsigned) -> _Unsigned:
        columns = cast("SearchParameters", self.arguments["parameters"]).vote_columns
        return self.votes(words.reshape(-1, columns).copy()).ravel()


@dataclass
class WrongCounts(_Liar):
    """Claims rows at distance 0 from each query, in place of its own, that cast no votes.

    Attributes:
        by: The number of rows; with up to k + 1 of them the totals are those of honest parties.
        victim: The only party that receives false words; by default all do.
    """

    by: int = 1
    victim: str = ""

    def __post_init__(self) -> None:
        require(self.by >= 0, "by", self.by, "a number of rows from 0")

    @override
    def own(self, own: Any) -> Any:
        return own if self.victim else with_rows(own, lambda r: Rows(r.features[:0], r.labels[:0]))

    @override
    def counts(self, words: _Unsigned) -> _Unsigned:
        return words + words.dtype.type(self.by)


@dataclass
class TakeOver(WrongCounts):
    """Claims rows at distance 0 from each query, all of one class: k of them decide every label."""

    by: int = 5
    entry: int = 0

    @override
    def votes(self, words: _Unsigned) -> _Unsigned:
        words[:, self.entry] += words.dtype.type(self.by)
        return words


@dataclass
class UnevenCounts(_Liar):
    """Adds to every second threshold, so that totals decrease from one to the next."""

    by: int = 1

    @override
    def counts(self, words: _Unsigned) -> _Unsigned:
        words[::2] += words.dtype.type(self.by)
        return words


@dataclass
class WrongVotes(_Liar):
    """Adds votes for a class to its own votes, and may remove the same number from another class.

    Attributes:
        entry: The class that gains votes; weighted votes are added as rows at distance 0.
        taken: The class that loses votes; no class does if the number is negative.
        victim: The only party that receives false words; by default all do.
    """

    by: int = 1
    entry: int = 0
    taken: int = -1
    victim: str = ""

    def __post_init__(self) -> None:
        require(self.by >= 1, "by", self.by, "a number of votes from 1")
        require(self.entry >= 0, "entry", self.entry, "a class from 0")

    @override
    def votes(self, words: _Unsigned) -> _Unsigned:
        words[:, self.entry] += words.dtype.type(self.by)
        if self.taken >= 0:
            words[:, self.taken] -= words.dtype.type(self.by)
        return words


@dataclass
class Replayer(Adversary):
    """Sends its first masked words again in each later sum, repeated to the expected length."""

    _first: _Unsigned | None = field(default=None, init=False)

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        if isinstance(message, MaskedWords):
            self._first = message.words[0] if self._first is None else self._first
            first = self._first
            words = (np.resize(first, each.shape).astype(each.dtype) for each in message.words)
            message = MaskedWords(digest=message.digest, words=tuple(words))
        return [(to, message)]


@dataclass
class AskTwice(Adversary):
    """Sends a victim different queries than all other parties: their mirror images."""

    victim: str

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        if to == self.victim and isinstance(message, Queries):
            message = Queries(features=1.0 - message.features)
        return [(to, message)]


@dataclass
class MadeUpTotals(Adversary):
    """Computes the totals, and announces only a fraction of the rows within each threshold."""

    factor: float = 0.5

    def __post_init__(self) -> None:
        require(0 <= self.factor <= 1, "factor", self.factor, "a number from 0 to 1")

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        is_first = to == self.party.peers[0]
        if is_first and isinstance(message, MaskedTotals) and len(message.words) == 1:
            (totals,) = message.words
            totals[:] = totals * self.factor  # its role continues with this array
        return [(to, message)]


ADVERSARIES: Final[Mapping[str, type[Adversary]]] = {
    "ask-twice": AskTwice,
    "made-up-totals": MadeUpTotals,
    "replayer": Replayer,
    "silent": Silent,
    "substitute-input": InputSubstitution,
    "take-over": TakeOver,
    "uneven-counts": UnevenCounts,
    "wrong-counts": WrongCounts,
    "wrong-votes": WrongVotes,
}
"""The adversaries by their names in scenarios."""

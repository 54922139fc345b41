"""Malicious parties of rank search, which add false counts to masked sums.

Masks do not authenticate: a party that adds to its masked words adds to the total. The
documentation reports each adversary's gain and the check that detects it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from veilring.data.table import Rows
from veilring.nodes.adversary import Adversary, Lines, Silent
from veilring.privacy.checks import require
from veilring.protocols.batches import Queries
from veilring.protocols.masks import MaskedTotals, MaskedWords
from veilring.protocols.ranksearch.parameters import SearchParameters
from veilring.protocols.ring.adversaries import InputSubstitution, with_rows
from veilring.transport.messages import Message

_Unsigned = NDArray[np.unsignedinteger[Any]]
_Words = tuple[_Unsigned, ...]
_Masked = MaskedWords | MaskedTotals


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
            few, many, *weighted = message.words
            words = self._voted(few), self._voted(many), *weighted
        return type(message)(digest=message.digest, words=words)

    def _voted(self, words: _Unsigned) -> _Unsigned:
        classes = cast("SearchParameters", self.arguments["parameters"]).facts.classes
        return self.votes(words.reshape(-1, classes).copy()).ravel()


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


ADVERSARIES: Final[Mapping[str, type[Adversary]]] = MappingProxyType(
    {
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
)
"""The adversaries by their names in scenarios."""

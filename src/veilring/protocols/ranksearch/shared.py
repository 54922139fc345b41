"""The search with secret-shared counts: parties deal Shamir shares and open only comparisons.

Every message carries the hash of its sender's public inputs: parties, parameters, queries and all
opened values. If two honest parties have different hashes, at least one of them notices it with the
other's next message, and ends the session for all. Until then others may send further words.

In each round, two parties share streams that are bound to this hash. One gives the masks of
products that are opened, and another one the shares that one of them deals to the other, if it
`draws` them: they are not sent. Masks of parties with different hashes do not cancel.

A party checks opened values against its own rows, and all exchange the outcome. A party that
aborted when its own check failed would reveal its rows: a peer that falsifies a total a little more
in each batch would learn the exact count of every party from who aborts when. A failed check
therefore changes nothing that a party sends until the batch ends. Then each party adds to a masked
sum: zeros if all its checks passed, random words otherwise. If the sum is not 0, all parties reject
the batch. The sum reveals that a check failed, and nothing about whose it was: random words of one
party have the same distribution as those of several.

The exchange takes two rounds. First each party commits to its masked words by their hash, and then
it sends them, so that no party can choose its own after seeing those of others and make the sum 0.
Both messages go to all parties, even if the client adds up totals: it could otherwise report a sum
of 0. They carry the hash of all public inputs, so parties that were told different totals or labels
notice it here.

The cost of a batch has a closed form, exact given the steps of its search. The steps depend on the
rows. Before a run the cost is a range: from a search that ends in its first
step to one that divides the widest interval down to single floats, with ties everywhere.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, product
from typing import Annotated, Any, Final, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.arrays import Bools, Ints
from veilring.errors import ProtocolViolation
from veilring.nodes.journal import Traffic
from veilring.nodes.party import Party, broadcast
from veilring.protocols.batches import Queries
from veilring.protocols.digests import DIGEST_BYTES, Digest, digest_of
from veilring.protocols.masks import (
    KEY_BYTES,
    Bound,
    PairwiseKeys,
    Public,
    Words,
    continued_stream,
    keys_cost,
    masked_cost,
    receive_bound,
)
from veilring.protocols.promise import Forecast, repeated, total_cost
from veilring.protocols.ranksearch.algorithm.argmax import (
    NO_LABEL,
    ONE_HOT_MAX,
    VOTES_MAX,
    label_play,
    label_rounds,
    label_scheme,
    vote_bounds,
)
from veilring.protocols.ranksearch.algorithm.comparing import shared_search, step_rounds
from veilring.protocols.ranksearch.algorithm.search import (
    Found,
    StepSizes,
    clipped_counts,
    steps_at_most,
)
from veilring.protocols.ranksearch.algorithm.shares import (
    NOTHING,
    ByteStream,
    Dealer,
    Elements,
    Part,
    Play,
    Scheme,
    Sizes,
    heard_words,
    reduced,
    sent_words,
    split_sums,
    uniform_elements,
    words_from,
    zero_sums,
)
from veilring.protocols.ranksearch.algorithm.votes import Nearest, Votes
from veilring.protocols.ranksearch.parameters import SearchParameters
from veilring.transport.frames import CONTENT_BYTES_MAX
from veilring.transport.messages import Array

# Random words are 0, and a failed check unnoticed, with probability 2^-256. Nobody can find masked
# words of this size from their hash.
CHECK_BYTES: Final = 32
CHECK_ROUNDS: Final = 2
"""The number of communication rounds of `Checks.passed`."""


class Commitment(Bound, kind="ranksearch.commitment"):
    """The hash of a party's name and masked words, sent to each peer before the words."""

    commitment: Digest


class CheckWords(Bound, kind="ranksearch.check"):
    """A party's masked words about its checks, little-endian of 64 bits, sent to each peer."""

    words: Annotated[bytes, Field(min_length=CHECK_BYTES, max_length=CHECK_BYTES)]


class Checks:
    """One party's checks of a batch."""

    def __init__(self, party: Party, keys: PairwiseKeys) -> None:
        self._party, self._keys, self._failed = party, keys, False

    def fail(self) -> None:
        """Record that opened values contradict the party's own rows, and go on."""
        self._failed = not self._party.ignores_checks

    async def passed(self, public: Public, first_round: int) -> bool:
        """Return whether the checks of all parties passed, equally at all parties."""
        party = self._party
        drawn = np.frombuffer(party.rng.bytes(CHECK_BYTES), "<u8")  # in any case: in equal time
        (total,) = self._keys.mask((drawn * np.uint64(self._failed),), public.digest)
        words = total.tobytes()
        party.round(first_round)
        await broadcast(
            party, Commitment(digest=public.digest, commitment=_commit(party.me, words))
        )
        commitments = {
            peer: await receive_bound(
                party, Commitment, sender=peer, public=public, due=first_round
            )
            for peer in party.peers
        }
        party.round(first_round + 1)
        await broadcast(party, CheckWords(digest=public.digest, words=words))
        for peer, promised in commitments.items():
            message = await receive_bound(
                party, CheckWords, sender=peer, public=public, due=first_round + 1
            )
            if _commit(peer, message.words) != promised.commitment:
                party.accuse(ProtocolViolation(peer, "sent other words than it had committed to"))
            total += np.frombuffer(message.words, "<u8")
        return not total.any()


def checks_cost(parties: int) -> Forecast:
    """Forecast the exchange of the checks' outcome: two rounds of n(n - 1) messages."""
    digest = bytes(DIGEST_BYTES)
    each = parties * (parties - 1)
    sent = repeated(each, Commitment(digest=digest, commitment=digest))
    opened = repeated(each, CheckWords(digest=digest, words=bytes(CHECK_BYTES)))
    return Forecast(CHECK_ROUNDS, sent.plus(opened))


def _commit(sender: str, words: bytes) -> bytes:
    return digest_of(sender.encode(), words)


_R = TypeVar("_R")
_Words = Annotated[NDArray[np.unsignedinteger[Any]], Array("|u1 <u2", 1)]


class Shares(Bound, kind="ranksearch.shares"):
    """Shares that a party deals, and words that it opens, part by part, to each other party."""

    words: _Words


class SharedRounds:
    """The consecutive rounds in which the parties of a session deal and open shares."""

    def __init__(
        self, party: Party, keys: PairwiseKeys, public: Public, first_round: int = 1
    ) -> None:
        self._party, self._keys = party, keys
        self.public, self.next_round = public, first_round
        self._me = party.parties.position(party.me)
        self._others = [
            (place, peer) for place, peer in enumerate(party.parties) if peer != party.me
        ]
        self._streams = dict[tuple[str, bytes], ByteStream]()  # of this round

    def dealer(self, scheme: Scheme) -> Dealer:
        """Return the dealer whose plays take place in these rounds."""
        own = continued_stream(self._party.rng.bytes(KEY_BYTES), b"veilring shares")
        given, masks = partial(self._given, scheme), partial(self._masks, scheme)
        return Dealer(scheme, self._me, partial(uniform_elements, scheme, own), given, masks)

    def _given(self, scheme: Scheme, count: int) -> Elements:
        places = scheme.drawing_with(self._me)
        return np.array([self._drawn(scheme, place, count) for place in places])

    def _drawn(self, scheme: Scheme, place: int, count: int) -> Elements:
        """Draw shares that this party deals to another one, or the other one to it, not both."""
        return uniform_elements(scheme, self._stream(b"shares", place), count)

    def _masks(self, scheme: Scheme, count: int) -> Elements:
        places = (place for place, _ in self._others if place < scheme.multiplying)
        drawn = {
            place: partial(uniform_elements, scheme, self._stream(b"masks", place))
            for place in places
        }
        return zero_sums(scheme, self._me, drawn, count)

    def _stream(self, use: bytes, place: int) -> ByteStream:
        """Return the stream for a use in this round that this party shares with another one."""
        shared = self._party.parties[place], use + self.public.digest
        if shared not in self._streams:
            self._streams[shared] = self._keys.stream(*shared)
        return self._streams[shared]

    async def play(self, play: Play[_R], scheme: Scheme) -> _R:
        """Run a party's actions to the end, and return their result."""
        try:
            parts = next(play)
            while True:
                parts = play.send(await self._exchange(parts, scheme))
        except StopIteration as end:
            result: _R = end.value
            return result

    async def _exchange(self, parts: Sequence[Part], scheme: Scheme) -> list[Elements]:
        self._party.round(self.next_round)
        await self._send(parts, scheme)
        own = sent_words(parts, self._me, drawn=False)
        sums = np.zeros(sum(part.size.words for part in parts), scheme.wide)
        sums[: len(own)] += own
        for place, _ in self._others:
            words = await self._receive(parts, place, scheme)
            sums[: len(words)] += words
        totals = split_sums(parts, reduced(sums, scheme.p))
        of_parts = zip(parts, totals, strict=True)
        opened = (total.tobytes() for part, total in of_parts if part.size.is_public)
        digest = digest_of(self.public.digest, *opened)
        self.public = self.public.sent_by(self._party.parties)._replace(digest=digest)
        self._streams.clear()
        self.next_round += 1
        return totals

    async def _send(self, parts: Sequence[Part], scheme: Scheme) -> None:
        """Send words to each other party: the same message to all if it only opens values."""
        if all(part.size.is_public for part in parts):
            words = sent_words(parts, self._me, drawn=False)
            await self._send_to(self._party.peers, words, scheme)
            return
        drawing = scheme.drawing_with(self._me)
        for place, peer in self._others:
            words = sent_words(parts, place, drawn=place in drawing)
            await self._send_to((peer,), words, scheme)

    async def _send_to(self, peers: Sequence[str], words: Elements, scheme: Scheme) -> None:
        for chunk in _chunks(len(words), scheme):
            shares = Shares(digest=self.public.digest, words=cast("_Words", words[chunk]))
            await broadcast(self._party, shares, peers)

    async def _receive(self, parts: Sequence[Part], place: int, scheme: Scheme) -> Elements:
        """Return all words of another party in this round, received or drawn."""
        sender, received = self._party.parties[place], list[Elements]()
        drawn = self._me in scheme.drawing_with(place)
        sizes = [part.size for part in parts]
        for chunk in _chunks(words_from(place, sizes, drawn=drawn), scheme):
            message = await receive_bound(
                self._party, Shares, sender=sender, public=self.public, due=self.next_round
            )
            words = message.words
            is_alike = words.dtype == scheme.word and len(words) == chunk.stop - chunk.start
            if not is_alike or words.max() >= scheme.p:
                raise ProtocolViolation(sender, "sent the wrong shares")
            received.append(words)
        whole = received[0] if len(received) == 1 else np.concatenate([NOTHING, *received])
        if not drawn:
            return whole
        return heard_words(parts, place, whole, partial(self._drawn, scheme, place))


def _chunks(count: int, scheme: Scheme) -> list[slice]:
    """Return the words of each message that fits a frame; none if there are no words."""
    most = CONTENT_BYTES_MAX // scheme.word.itemsize
    return [slice(start, min(start + most, count)) for start in range(0, count, most)]


async def find_radii(
    party: Party,
    rounds: SharedRounds,
    nearest: Nearest,
    parameters: SearchParameters,
    checks: Checks,
) -> Found:
    """Return the radii of a batch, opening only comparisons."""
    count = partial(clipped_counts, nearest.distances)
    scheme = parameters.scheme(len(party.parties))
    dealer = rounds.dealer(scheme)
    search = parameters.interval_search(len(nearest.distances))
    return await rounds.play(
        shared_search(dealer, count, search, parameters.system.k, checks.fail), scheme
    )


async def find_labels(
    rounds: SharedRounds, party: Party, votes: Votes, most: Ints, checks: Checks
) -> Ints:
    """Return the labels of a batch of votes of weight 1, opening nothing else.

    `most` is a public bound on all parties' votes on each query, shape (Q,), at least 1; queries
    with one bound are labelled together. The checks fail if a query has no label.
    """
    labels = np.empty(len(most), dtype=np.int64)
    parties, classes = party.parties, votes.counts.shape[1]
    for bound in np.unique(most).tolist():
        scheme = label_scheme(len(parties), classes, bound)
        dealer = rounds.dealer(scheme)
        play = label_play(dealer, votes.counts[most == bound], bound)
        labels[most == bound] = await rounds.play(play, scheme)
    if (labels == NO_LABEL).any():
        checks.fail()
    return labels


def find_labels_cost(parties: int, classes: int, queries_by_most: Mapping[int, int]) -> Forecast:
    """Forecast the labels of queries."""
    costs = []
    for most, queries in queries_by_most.items():
        scheme = label_scheme(parties, classes, most)
        costs.append(_rounds_cost(label_rounds(queries, classes, most, scheme), scheme))
    return total_cost(*costs)


def _rounds_cost(rounds: Sequence[Sizes], scheme: Scheme) -> Forecast:
    """Forecast rounds with parts of the given sizes."""
    traffic = Traffic()
    drawing = scheme.threshold
    receivers = (True, drawing), (False, scheme.parties - 1 - drawing)
    for sizes in rounds:
        counts = Counter[int]()
        for sender, (drawn, messages) in product(range(scheme.parties), receivers):
            counts[words_from(sender, sizes, drawn=drawn)] += messages
        for count, messages in counts.items():
            for chunk in _chunks(count, scheme):
                words = np.zeros(chunk.stop - chunk.start, scheme.word)
                shares = Shares(digest=bytes(DIGEST_BYTES), words=words)
                traffic = traffic.plus(repeated(messages, shares))
    return Forecast(len(rounds), traffic)


def search_cost(parties: int, queries: int, parameters: SearchParameters) -> Forecast:
    """Forecast a batch with unknown steps: the minimum and the maximum cost."""
    k, arity = parameters.system.k, parameters.system.arity
    thresholds = [queries * each for each in steps_at_most(parameters.upper, arity)]
    first, *others = (StepSizes(queries, each, queries, each) for each in thresholds)
    first = first._replace(equalities=0)
    longest = [first, *others, StepSizes(queries, 0, 0, 0)]
    tied = np.ones(queries, dtype=np.bool_)
    most_tied = {VOTES_MAX: queries, **dict.fromkeys({k, max(k, ONE_HOT_MAX)}, 1)}
    least = _Searched(~tied, thresholds[:1], [first], {k: queries})
    most = _Searched(tied, thresholds, longest, most_tied)
    return replace(_cost(parties, least, parameters), most=_cost(parties, most, parameters))


def found_cost(
    parties: int, found: Found, parameters: SearchParameters, tied_rows: Ints | None = None
) -> Forecast:
    """Return the exact cost of a batch, given the result of its search.

    With s steps, all-to-all takes s + 3 rounds of n(n - 1) messages, and a star, for totals only,
    2(s + 1) rounds of n - 1 and 2 of n(n - 1). A step with shared counts takes ⌈log2(k + 1)⌉ + 1
    rounds, one more if k + 1 is a power of 2; and the last is followed by one more, unless no query
    has k rows. Only the cost of `label` depends on the number of rows that vote on each tied query.
    """
    rows = np.empty(0, dtype=np.int64) if tied_rows is None else tied_rows
    system = parameters.system
    bounds = vote_bounds(found.tied, rows, system.k) if system.reveal == "label" else rows
    each, queries = np.unique(bounds, return_counts=True)
    by_most = dict(zip(each.tolist(), queries.tolist(), strict=True))
    return _cost(parties, _Searched(found.tied, found.steps, found.shared, by_most), parameters)


class _Searched(NamedTuple):
    """The inputs to the cost of a batch: the steps of its search, and bounds on the votes."""

    tied: Bools
    steps: Sequence[int]
    shared: Sequence[StepSizes]
    queries_by_most: Mapping[int, int]


def _cost(parties: int, searched: _Searched, parameters: SearchParameters) -> Forecast:
    system, facts = parameters.system, parameters.facts
    handed = Queries(features=np.zeros((len(searched.tied), facts.features)))
    setup = repeated(parties - 1, handed).plus(keys_cost(parties))

    def masked(*arrays: Words) -> Forecast:
        return masked_cost(parties, arrays, star=parameters.has_adder)

    if system.reveal == "totals":
        word = parameters.count_word(parties)
        search = total_cost(*(masked(np.zeros(count, word)) for count in searched.steps))
    else:
        scheme = parameters.scheme(parties)
        steps = (step_rounds(sizes, system.k, scheme) for sizes in searched.shared)
        search = _rounds_cost([*chain.from_iterable(steps)], scheme)
    if system.reveal == "label":
        tied = int(searched.tied.sum())
        counted = [masked(np.zeros(tied, np.uint32))] if tied else []
        voted = [*counted, find_labels_cost(parties, facts.classes, searched.queries_by_most)]
    else:
        votes = parameters.no_votes(len(searched.tied))
        voted = [masked(*votes.arrays(searched.tied, system.k))]
    return replace(total_cost(search, *voted, checks_cost(parties)), setup=setup)

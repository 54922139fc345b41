"""The search with secret-shared counts: parties deal Shamir shares and open only comparisons.

Every message carries the hash of its sender's public inputs: parties, parameters, queries and all
opened values. If two honest parties have different hashes, at least one of them notices it with the
other's next message, and ends the session for all. Until then others may send further words.

In each round, two parties share a stream that is bound to this hash. It gives the masks of products
that are opened, and then the shares that one of them deals to the other, if it `draws` them: they
are not sent. Masks of parties with different hashes do not cancel.

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
from itertools import chain, product, zip_longest
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
    VoteMasks,
    draw_masks,
    label_play,
    label_rounds,
    mask_rounds,
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
    Dealer,
    Elements,
    Part,
    Play,
    RoundWords,
    Scheme,
    Sides,
    Sizes,
    alongside,
    joined,
    reduced,
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

    def dealer(self, scheme: Scheme) -> Dealer:
        """Return the dealer whose plays take place in these rounds."""
        own = continued_stream(self._party.rng.bytes(KEY_BYTES), b"veilring shares")
        return Dealer(scheme, self._me, partial(uniform_elements, scheme, own))

    async def play(self, play: Play[_R], dealer: Dealer) -> _R:
        """Run a party's actions to the end, and return their result."""
        try:
            parts = next(play)
            while True:
                parts = play.send(await self._exchange(parts, dealer))
        except StopIteration as end:
            result: _R = end.value
            return result

    async def _exchange(self, parts: Sequence[Part], dealer: Dealer) -> list[Elements]:
        scheme, sides = dealer.scheme, Sides.of(parts)
        dealt, opened = ([part.size for part in side] for side in sides)
        self._party.round(self.next_round)
        masks, shares = self._draw(sides, scheme)
        given = np.array([shares[place] for place in scheme.drawing_with(self._me)])
        own = dealer.words(sides, given, masks)
        await self._send(own, scheme)
        start = sum(size.words for size in dealt)
        sums = np.zeros(start + sum(size.words for size in opened), scheme.wide)

        def add(of_dealt: Elements, of_opened: Elements) -> None:
            sums[: len(of_dealt)] += of_dealt
            sums[start : start + len(of_opened)] += of_opened

        add(own.dealt[self._me], own.opened)
        drawn = scheme.dealing_to(self._me)
        for place, _ in self._others:
            sent = 0 if place in drawn else words_from(place, dealt)
            words = await self._receive(place, sent + words_from(place, opened), scheme)
            add(shares[place] if place in drawn else words[:sent], words[sent:])
        totals = reduced(sums, scheme.p)
        digest = digest_of(self.public.digest, totals[start:].tobytes())
        self.public = self.public.sent_by(self._party.parties)._replace(digest=digest)
        self.next_round += 1
        return sides.split(parts, totals)

    def _draw(self, sides: Sides, scheme: Scheme) -> tuple[Elements, dict[int, Elements]]:
        """Draw the masks of a round, and shares that this party deals to another one or is dealt.

        They come from one stream with each other party, whose place is the key of the shares.
        """
        dealt = [part.size for part in sides.dealt]
        masked = sum(part.size.words for part in sides.opened if part.is_masked)
        masked *= self._me < scheme.multiplying
        counts = dict.fromkeys(scheme.drawing_with(self._me), words_from(self._me, dealt))
        counts |= {place: words_from(place, dealt) for place in scheme.dealing_to(self._me)}
        masks, shares = dict[int, Elements](), dict[int, Elements]()
        for place, peer in self._others:
            both, count = masked * (place < scheme.multiplying), counts.get(place, 0)
            elements: Elements = NOTHING
            if both + count:
                stream = self._keys.stream(peer, self.public.digest)
                elements = uniform_elements(scheme, stream, both + count)
            if both:
                masks[place] = elements[:both]
            shares[place] = elements[both:]
        return zero_sums(scheme, self._me, masks, masked), shares

    async def _send(self, own: RoundWords, scheme: Scheme) -> None:
        """Send words to each other party: only opened ones to those that draw their shares."""
        places = {place for place, _ in self._others} if own.dealt.size else set[int]()
        dealt_to = places.difference(scheme.drawing_with(self._me))
        alike = [peer for place, peer in self._others if place not in dealt_to]
        await self._send_to(alike, own.opened, scheme)
        for place in sorted(dealt_to):
            words = np.concatenate([own.dealt[place], own.opened])
            await self._send_to((self._party.parties[place],), words, scheme)

    async def _send_to(self, peers: Sequence[str], words: Elements, scheme: Scheme) -> None:
        for chunk in _chunks(len(words), scheme):
            shares = Shares(digest=self.public.digest, words=cast("_Words", words[chunk]))
            await broadcast(self._party, shares, peers)

    async def _receive(self, place: int, count: int, scheme: Scheme) -> Elements:
        """Return the words that another party sends in this round."""
        sender, received = self._party.parties[place], list[Elements]()
        for chunk in _chunks(count, scheme):
            message = await receive_bound(
                self._party, Shares, sender=sender, public=self.public, due=self.next_round
            )
            words = message.words
            is_alike = words.dtype == scheme.word and len(words) == chunk.stop - chunk.start
            if not is_alike or words.max() >= scheme.p:
                raise ProtocolViolation(sender, "sent the wrong shares")
            received.append(words)
        return received[0] if len(received) == 1 else joined(received)


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
) -> tuple[Found, VoteMasks | None]:
    """Return the radii of a batch, opening only comparisons.

    If they are needed, masks of votes on queries without ties are drawn in the same rounds.
    """
    k, queries = parameters.system.k, len(nearest.distances)
    dealer = rounds.dealer(parameters.scheme(len(party.parties)))
    count = partial(clipped_counts, nearest.distances)
    search = parameters.interval_search(queries)
    searching = shared_search(dealer, count, search, k, checks.fail)
    if not parameters.draws_masks(k):
        return await rounds.play(searching, dealer), None
    drawing = draw_masks(dealer, (queries, parameters.facts.classes), k)
    return await rounds.play(alongside(searching, drawing), dealer)


async def find_labels(  # noqa: PLR0917  (own votes, and what was found before)
    rounds: SharedRounds,
    party: Party,
    votes: Votes,
    most: Ints,
    masks: VoteMasks | None,
    parameters: SearchParameters,
    checks: Checks,
) -> Ints:
    """Return the labels of a batch of votes of weight 1, opening nothing else.

    `most` is a public bound on all parties' votes on each query, shape (Q,), at least 1; queries
    with one bound are labelled together. The checks fail if a query has no label.

    Args:
        masks: The masks that were drawn during the search, if any; they are used here only.
    """
    labels = np.empty(len(most), dtype=np.int64)
    for bound in np.unique(most).tolist():
        chosen = most == bound
        dealer = rounds.dealer(parameters.vote_scheme(len(party.parties), bound))
        drawn = masks.only(chosen) if masks and parameters.draws_masks(bound) else None
        play = label_play(dealer, votes.counts[chosen], bound, drawn)
        labels[chosen] = await rounds.play(play, dealer)
    if (labels == NO_LABEL).any():
        checks.fail()
    return labels


def find_labels_cost(
    parties: int, queries_by_most: Mapping[int, int], parameters: SearchParameters
) -> Forecast:
    """Forecast the labels of queries, without masks drawn during the search."""
    costs, classes = list[Forecast](), parameters.facts.classes
    for most, queries in queries_by_most.items():
        scheme, has_drawn = parameters.vote_scheme(parties, most), parameters.draws_masks(most)
        rounds = label_rounds(queries, classes, most, scheme, has_drawn=has_drawn)
        costs.append(_rounds_cost(rounds, scheme))
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
    k = parameters.system.k
    thresholds = [queries * each for each in steps_at_most(parameters.spacing)]
    following = (each + queries for each in thresholds[1:])
    first, *others = (
        StepSizes(queries, each, queries, each, ahead)
        for each, ahead in zip_longest(thresholds, following, fillvalue=1)
    )
    first = first._replace(equalities=0)
    longest = [first, *others, StepSizes(queries, 0, 0, 0, 0)]
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
        scheme, queries = parameters.scheme(parties), len(searched.tied)
        steps = (
            step_rounds(sizes, system.k, scheme, is_first=number == 0)
            for number, sizes in enumerate(searched.shared)
        )
        drawing = list[Sizes]()
        if parameters.draws_masks(system.k):
            drawing = mask_rounds(queries * facts.classes, system.k, scheme)
        together = zip_longest(chain.from_iterable(steps), drawing, fillvalue=())
        search = _rounds_cost([[*search, *masks] for search, masks in together], scheme)
    if system.reveal == "label":
        tied = int(searched.tied.sum())
        counted = [masked(np.zeros(tied, np.uint32))] if tied else []
        voted = [*counted, find_labels_cost(parties, searched.queries_by_most, parameters)]
    else:
        votes = parameters.no_votes(len(searched.tied))
        voted = [masked(*votes.arrays(searched.tied, system.k))]
    return replace(total_cost(search, *voted, checks_cost(parties)), setup=setup)

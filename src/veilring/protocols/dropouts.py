"""Masked sums that survive dropouts: the others open the sum of the values that arrived.

Party i sends `value_i + PRG(b_i) + Σ_{j>i} PRG(k_ij) - Σ_{j<i} PRG(k_ij)`. The keys k_ij follow
from each party's private key of X25519, and b_i is a seed of its own. Both are drawn *for one sum*,
and shared by Shamir among all parties in set-up, so that any t of them can reconstruct either:

1. *Vectors.* Each party sends its masked words to all, to the coordinator last; in a star only to
   the coordinator.
2. *Set.* The coordinator names the parties whose words it has: the parties in the sum.
3. *Echo.* Each sends the hash of that set to all parties in the sum, and names the parties whose
   words it lacks.
4. *Shares.* After t equal echoes, including its own if it received a set, each reveals its shares:
   of b_i for a party in the sum, lost later or not; of the private key for any other. The
   coordinator passes on missing words.
5. In a star, the coordinator sends the *totals*. After the last sum, all compare their hashes.

A party reveals shares for only one set per sum, so both seeds of a party are never reconstructed. A
self-mask protects the words of a party that was given up too early, and pairwise masks protect the
words of each party in the sum. With t > c, the shares of c colluders alone reconstruct nothing. If
2t > n + c, no two sets have t echoes each, whatever the coordinator and its colluders send;
otherwise the coordinator has to be honest about the set. (Without echoes, sets of different parties
could be combined to a total of fewer than n - l parties.)

If too few parties are in the sum, or the coordinator is lost before t parties have the set, the sum
fails at all parties and no total is revealed. In a star it also fails if the coordinator is lost
later. A party that is lost in set-up, before the coordinator names the dealers of seeds, is in no
sum, and no masks are agreed with it. Messages of a party that was given up are dropped.

Source: Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", CCS
2017. There a server relays everything; here parties are connected with each other.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, NamedTuple, TypeVar

import numpy as np

from veilring.errors import ProtocolViolation, Tampered
from veilring.nodes.journal import Traffic
from veilring.nodes.party import Party
from veilring.protocols.digests import DIGEST_BYTES, Digest, digest_of
from veilring.protocols.masks import (
    Bound,
    Confirmed,
    KeyPair,
    MaskedTotals,
    MaskedWords,
    PairwiseKeys,
    Public,
    Stream,
    Unsigned,
    Words,
    as_words,
    chacha20_stream,
    derive_secret,
    flat_words,
    put_mask,
    receive_bound,
    receive_words,
)
from veilring.protocols.promise import Forecast, repeated
from veilring.protocols.seeding import (
    OWN,
    PAIRS,
    SILENCE_SECONDS,
    SharedSeeds,
    Steps,
    SumSeeds,
    bits_of,
    names_of,
    split_hashes,
)
from veilring.protocols.seedshares import (
    SEED_BYTES,
    Branch,
    join_shares,
    leaf_place,
    seed_bytes,
    tree_depth,
)
from veilring.reached import sometimes

_NOTHING: Final = bytes(DIGEST_BYTES)  # the echo of a party that received no set
_STEPS: Final = 4  # rounds of a sum; a star has one more

_B = TypeVar("_B", bound=Bound)


class NamedSet(Bound, kind="dropouts.set"):
    """The parties in the sum, as named by the coordinator.

    Attributes:
        members: A bit for each party in the order of the roster.
        vectors: The hash of each member's words; none in a star, where no other party has them.
    """

    members: bytes
    vectors: tuple[Digest, ...]


class Echo(Bound, kind="dropouts.echo"):
    """A party's report of the coordinator's set, to all parties in the sum.

    Attributes:
        named: The hash of the set, or zeros if the coordinator was lost before.
        members: A bit for each party: the set, for parties that did not receive it.
        missing: A bit for each party in the sum whose words it lacks; empty in a star.
    """

    named: Digest
    members: bytes
    missing: bytes


class OpeningShares(Bound, kind="dropouts.shares"):
    """A party's shares, which open the sum of a set.

    Attributes:
        shares: Its share of one secret of each dealer, in the order of the roster: the self-mask's
            seed of a party in the sum, the private key of any other. Each share comes with the
            hashes that lead to its dealer's root.
    """

    shares: tuple[bytes, ...]


def hide(
    words: Sequence[Unsigned], pairs: PairwiseKeys, own: bytes, digest: bytes, stream: Stream
) -> tuple[Unsigned, ...]:
    """Return a party's words under its masks.

    Args:
        words: Unsigned words of any shapes, in the byte order of the wire.
    """
    masked = pairs.mask(words, digest)
    _put_self_mask(masked, own, digest, stream, np.add)
    return masked


def uncover(
    vectors: Iterable[Sequence[Unsigned]],
    owns: Iterable[bytes],
    lost: Iterable[PairwiseKeys],
    digest: bytes,
    stream: Stream,
) -> tuple[Unsigned, ...]:
    """Return the totals of a set of parties from their masked words.

    A party outside the set is added with words of 0: then all pairwise masks cancel.

    Args:
        lost: For each other party, the keys that it shares with the parties in the sum.
    """
    first, *others = vectors
    totals = tuple(array.copy() for array in first)
    for vector in others:
        for total, words in zip(totals, vector, strict=True):
            np.add(total, words, out=total)
    for own in owns:
        _put_self_mask(totals, own, digest, stream, np.subtract)
    for pairs in lost:
        totals = pairs.mask(totals, digest)
    return totals


def _put_self_mask(
    arrays: Sequence[Unsigned], own: bytes, digest: bytes, stream: Stream, add: np.ufunc
) -> None:
    size = sum(array.nbytes for array in arrays)
    put_mask(arrays, stream(own, b"veilring self mask" + digest, size), add)


class SurvivingSums:
    """Successive masked sums that survive dropouts: the counterpart of `MaskedSums`.

    Args:
        seeds: The result of `share_seeds`, for the same number of sums. Its coordinator names the
            parties in each sum.
        first_round: The communication round of the first sum.
        star: Whether words go only to the coordinator, which opens the sum and sends it to all
            others.
        public: The public inputs so far; none by default.
        silence: The time to wait for a silent connected peer in each step, in seconds.
        stream: The generator of masks. Proofs replace it by random functions.
    """

    def __init__(
        self,
        party: Party,
        seeds: SharedSeeds,
        first_round: int = 1,
        *,
        star: bool = False,
        public: Public | None = None,
        silence: float = SILENCE_SECONDS,
        stream: Stream = chacha20_stream,
    ) -> None:
        self._party, self._seeds, self._round = party, seeds, first_round
        self._coordinator, self._star = seeds.coordinator, star
        self._silence, self._stream = silence, stream
        self._late = 0
        self._parties_in: tuple[str, ...] = party.parties
        self._public = (public or Public(bytes(DIGEST_BYTES), ())).sent_by(party.parties)
        self.bind(seeds.digest)

    @property
    def public(self) -> Public:
        """The public inputs to which the next sum is bound."""
        return self._public

    @property
    def next_round(self) -> int:
        """The communication round in which the next sum begins."""
        return self._round

    @property
    def parties_in(self) -> tuple[str, ...]:
        """The parties whose values are in the last totals, in the order of the roster."""
        return self._parties_in

    def bind(self, *public: bytes) -> None:
        """Bind all further sums to public inputs, equal at all parties."""
        self._public = self._public._replace(digest=digest_of(self._public.digest, *public))

    async def add(self, own: Sequence[Words]) -> tuple[Words, ...]:
        """Add up arrays of the parties in the sum, and bind later sums to their totals.

        Args:
            own: This party's summands: whole numbers of 8, 16, 32 or 64 bits, of any shapes.

        Returns:
            The totals over `parties_in`, modulo 2 to the number of bits, in the same shapes and
            types, equal at all remaining parties.

        Raises:
            InputError: If `own` has another type, or no seeds are left. Nothing was sent then.
            TooManyLost: If fewer than n - l are left.
            PeerLost: If the coordinator is lost and the sum needs it.
            SessionAborted: If the coordinator gives up.
            ProtocolViolation: If a peer sent something that no honest party sends, such as a wrong
                share.
            Tampered: If parties have different public inputs, or received different sets.
        """
        words = tuple(as_words(array) for array in own)
        one = _Sum(
            self._party,
            self._seeds.take(),
            self._seeds.quorum.threshold,
            self._coordinator,
            self._star,
            self._public,
            self._round,
            Steps(self._party, self._silence, late=self._late),
            self._stream,
            words,
        )
        totals = await one.play()
        self._late = surviving_rounds(star=self._star)
        self._parties_in = one.members
        self._round += surviving_rounds(star=self._star)
        self.bind(bits_of(self._party.parties, one.members), *(t.tobytes() for t in totals))
        return tuple(
            total.reshape(array.shape).astype(array.dtype)
            for total, array in zip(totals, own, strict=True)
        )

    async def confirm(self) -> None:
        """In a star, compare all totals with those of the other parties in the last sum.

        The coordinator could have sent different totals to different parties. Any two honest
        parties that are connected compare theirs. Otherwise nothing is sent: each party opens the
        sum itself, from words whose hashes are part of the agreed set.

        Raises:
            Tampered: If a peer has other totals: it or the coordinator is malicious.
            ProtocolViolation: If only the peer can be.
        """
        if not self._star:
            return
        due, party, steps = (
            self._round,
            self._party,
            Steps(self._party, self._silence, late=self._late),
        )
        public = self._public._replace(tellers=(self._coordinator,))

        async def receive(peer: str) -> Confirmed:
            return await receive_bound(party, Confirmed, sender=peer, public=public, due=due)

        party.round(due)
        await steps.send(Confirmed(digest=public.digest), self._parties_in, step=1)
        await steps.gather(self._parties_in, receive, step=2)
        self._round += 1


@dataclass(eq=False, repr=False)
class _Sum:
    """One sum at one party; see the steps at the top of this module."""

    party: Party
    seeds: SumSeeds
    threshold: int
    coordinator: str
    star: bool
    public: Public
    first: int
    steps: Steps
    stream: Stream
    words: tuple[Unsigned, ...]

    def __post_init__(self) -> None:
        self.members: tuple[str, ...] = ()
        self._vectors: dict[str, Sequence[Unsigned]] = {}
        self._hashes: dict[str, bytes] = {}

    async def play(self) -> tuple[Unsigned, ...]:
        """Return the totals, flattened; `members` then names the parties in the sum."""
        await self._show()
        named = await self._learn_set()
        self.steps.begin()
        missing = () if self.star else await self._take_vectors(named)
        if not self.star:
            sometimes(
                "a party did not receive the masked words of a party in the sum", bool(missing)
            )
            sometimes(
                "a party learned the set from parties other than the coordinator", named is None
            )
        own = _NOTHING if named is None else digest_of(named.members, *named.vectors)
        echoes = await self._echo(own, missing)
        agreed = self._agreed(own, echoes)
        if named is None:
            self._believe(agreed, echoes)
        told = await self._exchange_shares(agreed, echoes, missing)
        if self.star and self.party.me != self.coordinator:
            return await self._totals()
        totals = self._open(told)
        without = len(self.members) < len(self.party.parties)
        sometimes("a sum completed without a party, whose masks were removed", without)
        if self.star:
            await self._send_totals(totals)
        return totals

    async def _show(self) -> None:
        """Send the own masked words, to the coordinator last: words that it has, all have."""
        me, peers = self.party.me, self.party.peers
        pairs = PairwiseKeys(me, self.seeds.pairs, stream=self.stream)
        masked = hide(self.words, pairs, self.seeds.own, self.public.digest, self.stream)
        self._vectors = {me: flat_words(masked)}
        message = MaskedWords(digest=self.public.digest, words=flat_words(masked))
        first = () if self.star else [peer for peer in peers if peer != self.coordinator]
        last = () if me == self.coordinator else (self.coordinator,)
        self.party.round(self.first)
        await self.steps.send(message, (*first, *last), step=1)

    async def _learn_set(self) -> NamedSet | None:
        """Return the set named by this party or by the coordinator; `None` if that is lost."""
        party, due = self.party, self.first + 1
        if party.me != self.coordinator:
            party.round(due)
            heard = await self.steps.gather((self.coordinator,), self._receive_set, step=2)
            named = heard.get(self.coordinator)
            if named is not None:
                self._check_set(named)
            elif self.star:
                raise self.steps.error(self.coordinator)
            return named
        self._vectors |= await self.steps.gather(party.peers, self._receive_vector, step=1)
        self._take_members([name for name in party.parties if name in self._vectors])
        if len(self.members) < self.threshold:
            sometimes("too few parties took part in the sum")
            raise self.steps.too_few(len(self.members), self.threshold)
        hashes = () if self.star else [_hash_words(self._vectors[name]) for name in self.members]
        bits = bits_of(party.parties, self.members)
        named = NamedSet(digest=self.public.digest, members=bits, vectors=tuple(hashes))
        party.round(due)
        await self.steps.send(named, self.members, step=2)
        return named

    async def _receive_set(self, coordinator: str) -> NamedSet:
        if not self.star:
            self._vectors[coordinator] = await self._receive_vector(coordinator)
        return await self._receive(NamedSet, self.first + 1)(coordinator)

    def _check_set(self, named: NamedSet) -> None:
        members = names_of(self.party.parties, named.members, self.coordinator)
        if not {self.party.me, self.coordinator} <= set(members):
            raise ProtocolViolation(
                self.coordinator, "named a set without the parties that it had confirmed"
            )
        if not set(members) <= set(self.seeds.heads):
            raise ProtocolViolation(self.coordinator, "named a party that dealt no seeds")
        if len(members) < self.threshold:
            raise ProtocolViolation(self.coordinator, "named fewer parties than the sum needs")
        if len(named.vectors) != (0 if self.star else len(members)):
            raise ProtocolViolation(
                self.coordinator, "did not send one hash for each party in the sum"
            )
        self._take_members(members)

    def _take_members(self, members: Sequence[str]) -> None:
        """Accept the set: a party outside it is lost, and its messages are dropped."""
        self.members = tuple(members)
        self.steps.exclude(name for name in self.party.peers if name not in members)

    async def _take_vectors(self, named: NamedSet | None) -> tuple[str, ...]:
        """Receive the words of the parties in the sum; return the parties with missing words."""
        waited = [name for name in self.members or self.party.parties if name not in self._vectors]
        self._vectors |= await self.steps.gather(waited, self._receive_vector, step=1)
        if named is None:
            return ()
        self._hashes = dict(zip(self.members, named.vectors, strict=True))
        for name, digest in self._hashes.items():
            if name in self._vectors and _hash_words(self._vectors[name]) != digest:
                self._accuse(
                    {name, self.coordinator}, "showed different words to different parties"
                )
        return tuple(name for name in self.members if name not in self._vectors)

    async def _echo(self, own: bytes, missing: Collection[str]) -> dict[str, Echo]:
        """Report the coordinator's set to all parties in it, and receive their reports."""
        due = self.first + 2
        among, parties = self.members or self.party.parties, self.party.parties
        echo = Echo(
            digest=self.public.digest,
            named=own,
            members=bits_of(parties, self.members),
            missing=b"" if self.star else bits_of(parties, missing),
        )
        self.party.round(due)
        await self.steps.send(echo, among, step=2)
        peers = [name for name in among if name != self.party.me]
        return await self.steps.gather(peers, self._receive(Echo, due), step=2)

    def _agreed(self, own: bytes, echoes: Mapping[str, Echo]) -> bytes:
        """Return the hash of the set that enough parties received, including this one.

        If it received none, t others did: then no other set has t echoes.
        """
        counts = Counter([own, *(echo.named for echo in echoes.values())])
        del counts[_NOTHING]
        agreed = own if own != _NOTHING else max(counts, key=counts.__getitem__, default=own)
        if counts[agreed] >= self.threshold:
            return agreed
        others = {peer for peer, echo in echoes.items() if echo.named not in {agreed, _NOTHING}}
        if others:
            self._accuse(
                {self.coordinator, *others},
                "made parties disagree on the set of parties in the sum",
            )
        if own == _NOTHING:
            raise self.steps.error(self.coordinator)
        raise self.steps.too_few(counts[agreed], self.threshold)

    async def _exchange_shares(
        self, agreed: bytes, echoes: Mapping[str, Echo], missing: Collection[str]
    ) -> dict[str, OpeningShares]:
        """Send own shares, once, and return the shares of each party."""
        self.party.round(self.first + 3)
        told = {self.party.me: self._own_shares()}
        if self.party.me == self.coordinator:
            await self._pass_on(echoes, agreed)
        # A party that received no set accepts this one, or leaves.
        tellers = [peer for peer, echo in echoes.items() if echo.named in {agreed, _NOTHING}]
        hearers = [self.coordinator] if self.star else tellers
        await self.steps.send(told[self.party.me], hearers, step=3)
        if self.star and self.party.me != self.coordinator:
            return told

        async def receive(teller: str) -> OpeningShares:
            if teller == self.coordinator:
                await self._receive_missing(missing)
            return await self._receive(OpeningShares, self.first + 3)(teller)

        return told | await self.steps.gather(tellers, receive, step=3)

    def _own_shares(self) -> OpeningShares:
        held = self.seeds.held
        branches = [held[name].branch(self._seed_of(name)) for name in held]
        shares = tuple(b"".join((each.share, *each.siblings)) for each in branches)
        return OpeningShares(digest=self.public.digest, shares=shares)

    def _seed_of(self, name: str) -> int:
        """Return the seed to open: of the self-mask if the party is in the sum, or of its key."""
        return OWN if name in self.members else PAIRS

    async def _pass_on(self, echoes: Mapping[str, Echo], agreed: bytes) -> None:
        """Send words to parties in the sum that lack them."""
        for peer, echo in echoes.items():
            if self.star or echo.named != agreed:
                continue
            for name in names_of(self.party.parties, echo.missing, peer):
                if name not in self._vectors:
                    raise ProtocolViolation(
                        peer, "asked for the words of a party that is not in the sum"
                    )
                words = tuple(self._vectors[name])
                await self.steps.send(
                    MaskedWords(digest=self.public.digest, words=words), (peer,), step=3
                )

    async def _receive_missing(self, missing: Iterable[str]) -> None:
        for name in missing:
            words = await self._receive_words(MaskedWords, self.coordinator, self.first + 3)
            if _hash_words(words) != self._hashes[name]:
                reason = "passed on words other than those whose hash it had announced"
                self._accuse({self.coordinator}, reason)
            self._vectors[name] = words

    def _believe(self, agreed: bytes, echoes: Mapping[str, Echo]) -> None:
        """Adopt the set of the parties that received it, at a party that did not."""
        tellers = {peer: echo for peer, echo in echoes.items() if echo.named == agreed}
        for teller, echo in tellers.items():
            members = names_of(self.party.parties, echo.members, teller)
            if not {self.party.me, *members} <= set(self._vectors) & set(members):
                continue
            hashes = [_hash_words(self._vectors[name]) for name in members]
            if digest_of(echo.members, *hashes) == agreed:
                self._take_members(members)
                return
        raise self.steps.error(self.coordinator)  # which alone would have passed on the words

    def _open(self, told: Mapping[str, OpeningShares]) -> tuple[Unsigned, ...]:
        """Open the sum from the shares that parties revealed."""
        if not set(self.members) <= set(self._vectors):
            raise self.steps.error(self.coordinator)
        seeds = self._join(told)
        lost = [name for name in self.seeds.heads if name not in self.members]
        return uncover(
            [self._vectors[name] for name in self.members],
            [seeds[name] for name in self.members],
            [self._pairs_of(name, seeds[name]) for name in lost],
            self.public.digest,
            self.stream,
        )

    def _pairs_of(self, name: str, seed: bytes) -> PairwiseKeys:
        """Return the keys that a lost party shares with the parties in the sum."""
        keys = KeyPair.of(seed)
        heads, session = self.seeds.heads, self.party.session
        secrets = {
            peer: derive_secret(session, (name, keys), (peer, heads[peer].public))
            for peer in self.members
        }
        return PairwiseKeys(name, secrets, stream=self.stream)

    def _join(self, told: Mapping[str, OpeningShares]) -> dict[str, bytes]:
        """Return one seed of each dealer, reconstructed from enough shares."""
        dealers, place_of = self.seeds.heads, self.party.parties.position
        for teller, message in told.items():
            if len(message.shares) != len(dealers) or not all(message.shares):
                raise ProtocolViolation(teller, "revealed shares of the wrong number of parties")
        if len(told) < self.threshold:
            raise self.steps.too_few(len(told), self.threshold)
        used = {
            teller: [split_hashes(share) for share in message.shares]
            for teller, message in list(told.items())[: self.threshold]
        }
        by_place = {
            place_of(teller): [int.from_bytes(share[0], "little") for share in shares]
            for teller, shares in used.items()
        }
        seeds = dict(zip(dealers, map(seed_bytes, join_shares(by_place)), strict=True))
        for place, (name, seed) in enumerate(seeds.items()):
            if not self._is_committed(name, seed):
                self._blame({teller: shares[place] for teller, shares in used.items()}, name)
        return seeds

    def _is_committed(self, name: str, seed: bytes) -> bool:
        head = self.seeds.heads[name]
        if self._seed_of(name) == OWN:
            return digest_of(seed) == head.commitment
        return KeyPair.of(seed).public == head.public

    def _blame(self, used: Mapping[str, Sequence[bytes]], dealer: str) -> None:
        """Blame the sender of a wrong share, or the dealer if all shares are as dealt."""
        root = self.seeds.heads[dealer].root
        for teller, (share, *siblings) in used.items():
            place = leaf_place(self.party.parties.position(teller), self._seed_of(dealer))
            if Branch(share, tuple(siblings)).root(place) != root:
                raise ProtocolViolation(teller, f"revealed a wrong share of a seed of {dealer}")
        raise ProtocolViolation(dealer, "dealt shares that do not match its commitment")

    async def _send_totals(self, totals: tuple[Unsigned, ...]) -> None:
        self.party.round(self.first + 4)
        message = MaskedTotals(digest=self.public.digest, words=totals)
        await self.steps.send(message, self.members, step=4)

    async def _totals(self) -> tuple[Unsigned, ...]:
        due = self.first + 4
        self.party.round(due)

        async def receive(coordinator: str) -> tuple[Unsigned, ...]:
            return await self._receive_words(MaskedTotals, coordinator, due)

        heard = await self.steps.gather((self.coordinator,), receive, step=4)
        if not heard:
            raise self.steps.error(self.coordinator)
        return heard[self.coordinator]

    def _receive(self, kind: type[_B], due: int) -> "Callable[[str], Awaitable[_B]]":
        async def receive(sender: str) -> _B:
            return await receive_bound(self.party, kind, sender=sender, public=self.public, due=due)

        return receive

    async def _receive_vector(self, sender: str) -> tuple[Unsigned, ...]:
        return await self._receive_words(MaskedWords, sender, self.first)

    async def _receive_words(
        self, kind: type[MaskedWords | MaskedTotals], sender: str, due: int
    ) -> tuple[Unsigned, ...]:
        return await receive_words(self.party, kind, sender, self.words, self.public, due)

    def _accuse(self, suspects: Collection[str], reason: str) -> None:
        """End the session because one of several other parties is malicious."""
        listed = tuple(peer for peer in self.party.peers if peer in suspects)
        is_known = len(listed) == 1
        error = ProtocolViolation(listed[0], reason) if is_known else Tampered(listed, reason)
        self.party.accuse(error)


def _hash_words(words: Iterable[Unsigned]) -> bytes:
    return digest_of(*(array.tobytes() for array in words))


def surviving_rounds(*, star: bool) -> int:
    """Return the number of communication rounds of a sum that survives dropouts."""
    return _STEPS + star


class Losses(NamedTuple):
    """The number of parties lost at each step, before they send its first message.

    The others learn of a loss before their next step, but only after they have sent the current
    one's messages.
    """

    before: int = 0
    """Lost after set-up, before the sum."""
    vectors: int = 0
    echoes: int = 0
    shares: int = 0


NO_LOSSES: Final = Losses()


def surviving_cost(
    parties: int, arrays: Sequence[Words], *, star: bool, losses: Losses = NO_LOSSES
) -> Forecast:
    """Forecast a sum that survives dropouts, without its set-up.

    The coordinator is not one of the lost parties.

    Args:
        arrays: Arrays of the shapes and types of the summands.
        star: Whether words go only to the coordinator.
    """
    digest, bits = bytes(DIGEST_BYTES), bytes((parties + 7) // 8)
    words = flat_words([as_words(array) for array in arrays])
    inside = parties - losses.before - losses.vectors
    heard = inside - losses.echoes
    left = heard - losses.shares
    share = bytes(SEED_BYTES + DIGEST_BYTES * tree_depth(parties))
    vector = MaskedWords(digest=digest, words=words)
    named = NamedSet(digest=digest, members=bits, vectors=() if star else (digest,) * inside)
    echo = Echo(digest=digest, named=digest, members=bits, missing=b"" if star else bits)
    told = OpeningShares(digest=digest, shares=(share,) * parties)
    sent = [
        repeated(inside - 1 if star else inside * (parties - losses.before - 1), vector),
        repeated(inside - 1, named),
        repeated(heard * (inside - 1), echo),
        repeated(left - 1 if star else left * (heard - 1), told),
    ]
    if star:
        sent.append(repeated(left - 1, MaskedTotals(digest=digest, words=words)))
    return Forecast(surviving_rounds(star=star), reduce(Traffic.plus, sent))

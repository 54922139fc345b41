"""The set-up of sums that survive dropouts: fresh seeds of each sum, shared among all parties.

For each sum a party draws a private key of X25519, from which its pairwise masks follow, and the
seed of its self-mask. Set-up has three steps:

1. *Seeds.* Each party sends all parties the public key and commitments to both, and deals each its
   shares.
2. *Held.* Each reports to the coordinator whose seeds it has.
3. *Dealers.* The coordinator names the parties that all have each other's seeds: the dealers.

A party that is lost meanwhile is no dealer: no masks are agreed with it, and the others continue.
`veilring.protocols.dropouts` describes the use of the seeds, and which shares are revealed when.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple, TypeVar

import numpy as np
from pydantic import Field

from veilring.errors import (
    InputError,
    PeerGivenUp,
    PeerLost,
    ProtocolViolation,
    SessionAborted,
    TooManyLost,
    VeilringError,
)
from veilring.nodes.journal import Traffic
from veilring.nodes.party import Parties, Party
from veilring.nodes.ring import PARTIES_MIN
from veilring.privacy.checks import require
from veilring.protocols.digests import DIGEST_BYTES, Digest, digest_of
from veilring.protocols.masks import KeyPair, derive_secret
from veilring.protocols.promise import repeated
from veilring.protocols.seedshares import (
    SEED_BYTES,
    SEEDS,
    HeldShares,
    draw_seed,
    hash_tree,
    leaf_place,
    seed_bytes,
    share_seed,
    siblings_above,
    tree_depth,
)
from veilring.transport.messages import Message

# How long a party waits for a silent connected peer, per step. Set-up takes at most three times as
# long, a sum six times, and a further one up to eleven times if parties become silent in both: with
# one silent party, two sums end before the limit of a session.
SILENCE_SECONDS: Final = 10.0
PAIRS, OWN = range(SEEDS)
"""The two seeds of a party: its private key, and that of its self-mask."""
_Seed = Annotated[bytes, Field(min_length=SEED_BYTES, max_length=SEED_BYTES)]

_T = TypeVar("_T")


class SeedShares(Message, kind="dropouts.seeds"):
    """The shares that a party deals to another for each sum of the session, in set-up.

    Attributes:
        publics: The public key that belongs to its private key.
        commitments: The hash of its self-mask's seed.
        roots: The root of the hash tree over the shares of both.
        pairs: The receiver's share of the private key.
        owns: The receiver's share of the self-mask's seed.
        above: The hashes on the path from these two to the root, one after another.
    """

    publics: tuple[_Seed, ...]
    commitments: tuple[Digest, ...]
    roots: tuple[Digest, ...]
    pairs: tuple[_Seed, ...]
    owns: tuple[_Seed, ...]
    above: tuple[bytes, ...]


class SeedsHeld(Message, kind="dropouts.held"):
    """Reports to the coordinator whose seeds a party has, in set-up.

    Attributes:
        dealers: A bit for each party in the order of the roster.
    """

    dealers: bytes


class SeedsDealt(Message, kind="dropouts.dealers"):
    """Names the dealers, from the coordinator, in set-up; fields as in `SeedsHeld`."""

    dealers: bytes


@dataclass(frozen=True, slots=True)
class Quorum:
    """The numbers of parties that may be lost and may collude, and the resulting threshold.

    Attributes:
        tolerated: The number of colluders, c, including the coordinator if it may be one.
    """

    parties: int
    tolerated: int
    lost: int

    def __post_init__(self) -> None:
        require(self.parties >= PARTIES_MIN, "parties", self.parties, f"at least {PARTIES_MIN}")
        for name, count in (("tolerated", self.tolerated), ("lost", self.lost)):
            require(count >= 0, name, count, "at least 0")
        if self.tolerated >= self.threshold:
            raise InputError.because(
                f"if {self.lost} are lost, {self.threshold} of {self.parties} parties are left, and"
                f" {self.tolerated} colluders would be enough to reveal the input of each party;"
                " tolerate fewer colluders or fewer losses",
                field="lost",
            )

    @property
    def threshold(self) -> int:
        """The number t of shares that reconstruct a seed, and of parties that a sum needs: n - l.

        It is the largest that allows the losses, and therefore the safest: fewer shares reveal
        nothing.
        """
        return self.parties - self.lost

    @property
    def withstands_lies(self) -> bool:
        """Whether 2t > n + c: only a total is revealed even if the coordinator colludes."""
        return 2 * self.threshold > self.parties + self.tolerated


class Head(NamedTuple):
    """A party's public announcement about its seeds for a sum."""

    public: bytes
    commitment: bytes
    root: bytes


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SumSeeds:
    """The knowledge of a party about all dealers' seeds for one sum.

    Attributes:
        heads: The announcement of each dealer, in the order of the roster.
    """

    pairs: Mapping[str, bytes]
    own: bytes
    heads: Mapping[str, Head]
    held: Mapping[str, HeldShares]


class SharedSeeds:
    """The seeds of all sums of a session at one party; see `share_seeds`."""

    def __init__(self, quorum: Quorum, coordinator: str, seeds: Iterable[SumSeeds]) -> None:
        self.quorum, self.coordinator = quorum, coordinator
        self._seeds = deque(seeds)
        said = [item for one in self._seeds for item in one.heads.items()]
        self.digest = digest_of(*(part for name, head in said for part in (name.encode(), *head)))
        """The hash of all dealers' names and announcements."""

    def take(self) -> SumSeeds:
        """Return the seeds of the next sum, once: shares are revealed for only one set."""
        if not self._seeds:
            raise InputError.because(
                "no seeds are left for another sum; share seeds for all sums during set-up",
                field="sums",
            )
        return self._seeds.popleft()


class Steps:
    """Steps of a protocol that continues without peers that are lost, or silent in a step."""

    def __init__(self, party: Party, silence: float, *, late: int = 0) -> None:
        self._party, self._silence = party, silence
        self.lost: dict[str, PeerLost | SessionAborted] = {}
        """The reason for the loss of each lost peer."""
        self.begin(late)

    def begin(self, late: int = 0) -> None:
        """Count the time of steps from now on, or from as many steps later."""
        self._began = asyncio.get_running_loop().time() + late * self._silence

    def exclude(self, peers: Iterable[str]) -> None:
        """Treat peers as lost; their messages are dropped."""
        for peer in peers:
            self._party.give_up(peer)
            self.lost.setdefault(peer, PeerGivenUp(peer))

    def error(self, peer: str) -> VeilringError:
        """Return the error of a party that needs a lost peer."""
        return self.lost.get(peer) or PeerLost(peer)

    def too_few(self, left: int, needed: int) -> TooManyLost:
        """Return the error of a sum without enough parties.

        It omits parties that left only because others were lost.
        """
        lost = [name for name in self._party.parties if name in self.lost]
        causes = [name for name in lost if not self._has_followed(name)]
        return TooManyLost(tuple(causes or lost), left, needed)

    def _has_followed(self, peer: str) -> bool:
        error = self.lost[peer]
        return isinstance(error, SessionAborted) and error.culprit != peer

    async def send(self, message: Message, receivers: Iterable[str], *, step: int) -> None:
        """Send a message to all parties that are not lost; give up one that does not read it."""
        for peer in receivers:
            if peer != self._party.me:
                await self._unless_lost(peer, self._party.send(peer, message), step)

    async def gather(
        self, senders: Iterable[str], receive: Callable[[str], Awaitable[_T]], *, step: int
    ) -> dict[str, _T]:
        """Receive from each party, until it is lost or silent for too long."""
        got: dict[str, _T] = {}

        async def put(sender: str) -> None:
            got[sender] = await receive(sender)

        for sender in senders:
            if sender != self._party.me:
                await self._unless_lost(sender, put(sender), step)
        return got

    async def _unless_lost(self, peer: str, done: Awaitable[None], step: int) -> None:
        # Others may have waited equally long for a silent peer in the previous step, so each step
        # waits longer by one. Messages that have arrived are read even when time is up.
        try:
            async with asyncio.timeout_at(self._began + step * self._silence):
                await done
        except (PeerLost, SessionAborted) as lost:
            self.lost[peer] = lost
        except TimeoutError:
            self.exclude([peer])


async def share_seeds(
    party: Party,
    quorum: Quorum,
    coordinator: str,
    *,
    sums: int = 1,
    due: int = 0,
    silence: float = SILENCE_SECONDS,
) -> SharedSeeds:
    """Share fresh seeds for a number of sums in set-up; see the steps at the top of this module.

    From here on the session tolerates the loss of peers. A party that is lost before it has dealt
    its seeds to the others takes part in no sum, and no value of it is in any total.

    Args:
        due: The last step of set-up, from 0 backwards.
        silence: The time to wait for a silent connected peer in each step, in seconds.

    Raises:
        TooManyLost: If fewer than n - l parties are left.
        PeerLost: If the coordinator is lost, or this party lost the connection to a dealer.
        SessionAborted: If the coordinator gives up.
        ProtocolViolation: If a peer's shares do not match its commitment, or the coordinator names
            a set of dealers that no honest party names.
    """
    if quorum.parties != len(party.parties):
        raise InputError("quorum", quorum.parties, f"of {len(party.parties)} parties")
    if coordinator not in party.parties:
        raise InputError("coordinator", coordinator, f"one of {', '.join(party.parties)}")
    party.tolerate_losses()
    dealt = [_Dealt.draw(party, quorum.threshold) for _ in range(sums)]
    place = party.parties.position
    steps = Steps(party, silence)

    async def receive(peer: str) -> SeedShares:
        return await party.receive(SeedShares, sender=peer, due=due - 2)

    for peer in party.peers:
        await steps.send(_seed_shares(dealt, place(peer)), (peer,), step=1)
    given = await steps.gather(party.peers, receive, step=1)
    for peer, shares in given.items():
        _check_seed_shares(peer, shares, place(party.me), sums, quorum.parties)
    given[party.me] = _seed_shares(dealt, place(party.me))
    dealers = await _agree_on_dealers(party, steps, quorum, coordinator, given, due)
    steps.exclude(peer for peer in party.peers if peer not in dealers)
    heard = {name: given[name] for name in dealers}
    return SharedSeeds(
        quorum,
        coordinator,
        (_sum_seeds(party, one, heard, number) for number, one in enumerate(dealt)),
    )


async def _agree_on_dealers(  # noqa: PLR0917  (one step of `share_seeds`, with all it knows)
    party: Party, steps: Steps, quorum: Quorum, coordinator: str, held: Collection[str], due: int
) -> tuple[str, ...]:
    """Return the parties that all have each other's seeds, as named by the coordinator."""
    parties = party.parties
    if party.me == coordinator:

        async def hear(peer: str) -> SeedsHeld:
            return await party.receive(SeedsHeld, sender=peer, due=due - 1)

        told = await steps.gather(party.peers, hear, step=2)
        reports = {peer: set(names_of(parties, each.dealers, peer)) for peer, each in told.items()}
        dealers = _choose_dealers(parties, coordinator, {coordinator: set(held), **reports})
        if len(dealers) < quorum.threshold:
            raise steps.too_few(len(dealers), quorum.threshold)
        await steps.send(SeedsDealt(dealers=bits_of(parties, dealers)), reports, step=3)
        return dealers

    async def learn(peer: str) -> SeedsDealt:
        return await party.receive(SeedsDealt, sender=peer, due=due)

    await steps.send(SeedsHeld(dealers=bits_of(parties, held)), (coordinator,), step=2)
    named = (await steps.gather((coordinator,), learn, step=3)).get(coordinator)
    if named is None:
        raise steps.error(coordinator)
    dealers = names_of(parties, named.dealers, coordinator)
    if len(dealers) < quorum.threshold or coordinator not in dealers:
        raise ProtocolViolation(coordinator, "named fewer dealers than the sum needs")
    if party.me not in dealers:
        raise steps.error(next(iter(steps.lost), coordinator))
    if not set(dealers) <= set(held):
        raise ProtocolViolation(coordinator, "named a dealer whose seeds this party lacks")
    return dealers


def _choose_dealers(
    parties: Parties, coordinator: str, reports: Mapping[str, Collection[str]]
) -> tuple[str, ...]:
    """Return parties that have each other's seeds: all that reported, if no connection broke.

    Otherwise those that lack the most connections are left out first, and never the coordinator.
    """
    chosen = [name for name in parties if name in reports]
    while True:
        apart = Counter(
            name
            for one in chosen
            for other in chosen
            if other not in reports[one]
            for name in (one, other)
            if name != coordinator
        )
        if not apart:
            return tuple(chosen)
        chosen.remove(max(reversed(chosen), key=apart.__getitem__))


def bits_of(parties: Parties, names: Collection[str]) -> bytes:
    """Return a bit for each party, set for the named ones."""
    return np.packbits([name in names for name in parties]).tobytes()


def names_of(parties: Parties, bits: bytes, sender: str) -> tuple[str, ...]:
    """Return the parties whose bits are set; the sender is accused of bits without a party."""
    flags = np.unpackbits(np.frombuffer(bits, np.uint8)).astype(bool)
    names = tuple(name for name, flag in zip(parties, flags, strict=False) if flag)
    if bits_of(parties, names) != bits:
        raise ProtocolViolation(sender, "named a set with unknown parties")
    return names


class _Dealt(NamedTuple):
    """A dealer's keys and own seed for one sum, and the shares of all parties."""

    keys: KeyPair
    own: bytes
    shares: Sequence[Sequence[int]]
    tree: Sequence[Sequence[bytes]]
    head: Head

    @classmethod
    def draw(cls, party: Party, threshold: int) -> "_Dealt":
        seeds = [draw_seed(party.rng) for _ in range(SEEDS)]
        shares = [share_seed(seed, threshold, len(party.parties), party.rng) for seed in seeds]
        keys, own = KeyPair.of(seed_bytes(seeds[PAIRS])), seed_bytes(seeds[OWN])
        tree = hash_tree(shares)
        head = Head(keys.public, digest_of(own), tree[-1][0])
        return cls(keys, own, shares, tree, head)


def _seed_shares(dealt: Sequence[_Dealt], holder: int) -> SeedShares:
    heads = [one.head for one in dealt]
    return SeedShares(
        publics=tuple(head.public for head in heads),
        commitments=tuple(head.commitment for head in heads),
        roots=tuple(head.root for head in heads),
        pairs=tuple(seed_bytes(one.shares[PAIRS][holder]) for one in dealt),
        owns=tuple(seed_bytes(one.shares[OWN][holder]) for one in dealt),
        above=tuple(b"".join(siblings_above(one.tree, holder)) for one in dealt),
    )


def _held(given: SeedShares, number: int) -> HeldShares:
    return HeldShares((given.pairs[number], given.owns[number]), split_hashes(given.above[number]))


def split_hashes(hashes: bytes) -> tuple[bytes, ...]:
    """Split the hashes of a message."""
    starts = range(0, len(hashes), DIGEST_BYTES)
    return tuple(hashes[start : start + DIGEST_BYTES] for start in starts)


def _check_seed_shares(
    dealer: str, given: SeedShares, holder: int, sums: int, parties: int
) -> None:
    """Check a dealer's shares against its root, so that nobody else is blamed for them later."""
    if {len(field) for field in given.fields() if isinstance(field, tuple)} != {sums}:
        raise ProtocolViolation(dealer, "shared seeds for the wrong number of sums")
    for number, root in enumerate(given.roots):
        held = _held(given, number)
        branches = [held.branch(seed) for seed in range(SEEDS)]
        roots = {branch.root(leaf_place(holder, seed)) for seed, branch in enumerate(branches)}
        if roots != {root} or len(branches[0].siblings) != tree_depth(parties):
            raise ProtocolViolation(dealer, "dealt shares of a seed that it has not committed to")


def _sum_seeds(
    party: Party, dealt: _Dealt, given: Mapping[str, SeedShares], number: int
) -> SumSeeds:
    heads = {
        name: Head(said.publics[number], said.commitments[number], said.roots[number])
        for name, said in given.items()
    }
    pairs = {}
    for peer, head in heads.items():
        if peer == party.me:
            continue
        try:
            end = peer, head.public
            pairs[peer] = derive_secret(party.session, (party.me, dealt.keys), end)
        except ValueError as error:
            raise ProtocolViolation(peer, "sent a key that makes no shared secret") from error
    held = {name: _held(said, number) for name, said in given.items()}
    return SumSeeds(pairs, dealt.own, heads, held)


def seeds_cost(parties: int, *, sums: int = 1) -> Traffic:
    """Forecast the sharing of seeds: (n + 2)(n - 1) messages of set-up."""
    seeds, above = (bytes(SEED_BYTES),) * sums, bytes(DIGEST_BYTES * (tree_depth(parties) - 1))
    message = SeedShares(
        publics=seeds,
        commitments=seeds,
        roots=seeds,
        pairs=seeds,
        owns=seeds,
        above=(above,) * sums,
    )
    bits = bytes((parties + 7) // 8)
    sent = repeated(parties * (parties - 1), message)
    held = repeated(parties - 1, SeedsHeld(dealers=bits))
    return sent.plus(held).plus(repeated(parties - 1, SeedsDealt(dealers=bits)))

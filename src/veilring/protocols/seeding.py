"""The set-up of sums that survive dropouts: fresh seeds of each sum, shared among all parties.

For each sum a party draws a private key of X25519, from which its pairwise masks follow, and the
seed of its self-mask. It sends all parties the public key and commitments to both, and deals each
its shares. `veilring.protocols.dropouts` describes their use, and which shares are revealed when.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from pydantic import Field

from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.cost import Traffic
from veilring.nodes.party import Party
from veilring.nodes.ring import PARTIES_MIN
from veilring.protocols.digests import DIGEST_BYTES, Digest, digest_of
from veilring.protocols.forecast import repeated
from veilring.protocols.masks import derive_secret
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

PAIRS, OWN = range(SEEDS)
"""The two seeds of a party: its private key, and that of its self-mask."""
_Seed = Annotated[bytes, Field(min_length=SEED_BYTES, max_length=SEED_BYTES)]


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


@dataclass(frozen=True, slots=True)
class Quorum:
    """The numbers of parties that may be lost and may collude, and the resulting threshold.

    Attributes:
        parties: The number of parties, n.
        tolerated: The number of colluders, c, including the coordinator if it may be one.
        lost: The number of parties, l, that a sum can lose.

    Raises:
        InputError: If no threshold t has c < t <= n - l, or there are fewer than three parties.
    """

    parties: int
    tolerated: int
    lost: int

    def __post_init__(self) -> None:
        if self.parties < PARTIES_MIN:
            raise InputError("parties", self.parties, f"at least {PARTIES_MIN}")
        for name, count in (("tolerated", self.tolerated), ("lost", self.lost)):
            if count < 0:
                raise InputError(name, count, "at least 0")
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
    """The knowledge of a party about all parties' seeds for one sum.

    Attributes:
        pairs: The keys that it shares with each other party, by its name.
        own: The seed of its self-mask.
        heads: The announcement of each party.
        held: Its shares of each party's seeds.
    """

    pairs: Mapping[str, bytes]
    own: bytes
    heads: Mapping[str, Head]
    held: Mapping[str, HeldShares]


class SharedSeeds:
    """The seeds of all sums of a session at one party; see `share_seeds`.

    Args:
        quorum: The threshold of the sharing.
        seeds: The seeds of each sum.
    """

    def __init__(self, quorum: Quorum, seeds: Iterable[SumSeeds]) -> None:
        self.quorum = quorum
        self._seeds = deque(seeds)
        heads = [b"".join(head) for one in self._seeds for head in one.heads.values()]
        self.digest = digest_of(*heads)
        """The hash of all parties' announcements."""

    def take(self) -> SumSeeds:
        """Return the seeds of the next sum, once: shares are revealed for only one set.

        Raises:
            InputError: If no seeds are left.
        """
        if not self._seeds:
            raise InputError.because(
                "no seeds are left for another sum; share seeds for all sums during set-up",
                field="sums",
            )
        return self._seeds.popleft()


async def share_seeds(party: Party, quorum: Quorum, *, sums: int = 1, due: int = 0) -> SharedSeeds:
    """Share fresh seeds for a number of sums, in one step of set-up: n(n - 1) messages.

    From here on the session tolerates the loss of peers. A party that lacks the shares of a lost
    one leaves, without having sent anything that depends on a value; the others may continue
    without both.

    Args:
        party: This participant.
        quorum: The numbers of parties that may be lost and collude.
        sums: The number of sums.
        due: The step of set-up in which the seeds are sent, from 0 backwards.

    Raises:
        InputError: If the quorum is for another number of parties. Nothing was sent then.
        PeerLost: If a peer is lost.
        ProtocolViolation: If a peer's shares do not match its commitment.
    """
    if quorum.parties != len(party.parties):
        raise InputError("quorum", quorum.parties, f"of {len(party.parties)} parties")
    party.tolerate_losses()
    dealt = [_Dealt.draw(party, quorum.threshold) for _ in range(sums)]
    place = party.parties.position
    for peer in party.peers:
        await party.send(peer, _seed_shares(dealt, place(peer)))
    given = {party.me: _seed_shares(dealt, place(party.me))}
    for peer in party.peers:
        given[peer] = await party.receive(SeedShares, sender=peer, due=due)
        _check_seed_shares(peer, given[peer], place(party.me), sums, quorum.parties)
    return SharedSeeds(
        quorum, (_sum_seeds(party, one, given, number) for number, one in enumerate(dealt))
    )


class _Dealt(NamedTuple):
    """A dealer's seeds for one sum, and the shares of all parties."""

    seeds: tuple[bytes, bytes]
    shares: Sequence[Sequence[int]]
    tree: Sequence[Sequence[bytes]]
    head: Head

    @classmethod
    def draw(cls, party: Party, threshold: int) -> "_Dealt":
        seeds = [draw_seed(party.rng) for _ in range(SEEDS)]
        shares = [share_seed(seed, threshold, len(party.parties), party.rng) for seed in seeds]
        pairs, own = seed_bytes(seeds[PAIRS]), seed_bytes(seeds[OWN])
        public = X25519PrivateKey.from_private_bytes(pairs).public_key().public_bytes_raw()
        tree = hash_tree(shares)
        return cls((pairs, own), shares, tree, Head(public, digest_of(own), tree[-1][0]))


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
    private = X25519PrivateKey.from_private_bytes(dealt.seeds[PAIRS])
    heads = {
        name: Head(said.publics[number], said.commitments[number], said.roots[number])
        for name, said in ((name, given[name]) for name in party.parties)
    }
    pairs = {}
    for peer in party.peers:
        try:
            end = peer, heads[peer].public
            pairs[peer] = derive_secret(party.session, (party.me, private), end)
        except ValueError as error:
            raise ProtocolViolation(peer, "sent a key that makes no shared secret") from error
    held = {name: _held(given[name], number) for name in party.parties}
    return SumSeeds(pairs, dealt.seeds[OWN], heads, held)


def seeds_cost(parties: int, *, sums: int = 1, lost: int = 0) -> Traffic:
    """Forecast the sharing of seeds: n(n - 1) messages of set-up.

    Args:
        parties: The number of parties, n.
        sums: The number of sums.
        lost: The number of parties lost later, whose messages are not counted.
    """
    seeds, above = (bytes(SEED_BYTES),) * sums, bytes(DIGEST_BYTES * (tree_depth(parties) - 1))
    message = SeedShares(
        publics=seeds,
        commitments=seeds,
        roots=seeds,
        pairs=seeds,
        owns=seeds,
        above=(above,) * sums,
    )
    return repeated((parties - lost) * (parties - 1), message)

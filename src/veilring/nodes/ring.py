"""A ring: an order of parties that no single party chose.

Each party of a committee commits to a random nonce, and reveals it after it has received all
commitments; the order is drawn from the hash of all nonces. One honest member of the committee is
enough for an order that nobody could steer, except that the last member to reveal may abort if it
dislikes the result: that ends the session and names it.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Final

from numpy.random import PCG64DXSM, Generator, SeedSequence
from pydantic import Field

from veilring.errors import InputError, ProtocolViolation, Tampered, VeilringError
from veilring.nodes.party import Parties, Party, broadcast
from veilring.randomness import hash_parts
from veilring.transport.messages import Message

PARTIES_MIN: Final = 3  # with two parties, each learns the other's input from the sum
# With all parties in it, a ring of n takes 2n(n - 1) messages: 180,000 for 300. A larger ring is
# drawn by this many: a coalition would need all of them to steer it.
COMMITTEE_SIZE: Final = 64
# Parties of one process draw the same ring, a few at a time, and check the same commitments.
_RINGS_MAX: Final = 16
_COMMITMENTS_MAX: Final = _RINGS_MAX * COMMITTEE_SIZE
_NONCE_BYTES: Final = 32
_Nonce = Annotated[bytes, Field(min_length=_NONCE_BYTES, max_length=_NONCE_BYTES)]


class RingCommit(Message, kind="ring.commit"):
    """A party's commitment to the nonce that it will reveal."""

    commitment: _Nonce


class RingReveal(Message, kind="ring.reveal"):
    """The nonce, and a hash of all the commitments and public data that its sender received."""

    nonce: _Nonce
    heard: _Nonce


class Ring:
    """A cyclic order of parties; the first is the starter.

    Args:
        order: The parties, once each, at least `PARTIES_MIN`.
    """

    def __init__(self, order: Sequence[str]) -> None:
        self.order = Parties(order)
        if len(self.order) < PARTIES_MIN:
            raise InputError("parties", len(self.order), f"at least {PARTIES_MIN} in a ring")

    def __len__(self) -> int:
        return len(self.order)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ring) and self.order == other.order

    def __hash__(self) -> int:
        return hash(self.order)

    @property
    def starter(self) -> str:
        """The party that begins, and that sends the result to the others."""
        return self.order[0]

    def position(self, party: str) -> int:
        """Return the number of hops from the starter to a party."""
        return self.order.position(party)

    def successor(self, party: str) -> str:
        """Return the party that `party` sends to."""
        return self.order[(self.position(party) + 1) % len(self)]

    def predecessor(self, party: str) -> str:
        """Return the party that sends to `party`."""
        return self.order[self.position(party) - 1]


def deal_ring(parties: Sequence[str], rng: Generator) -> Ring:
    """Return a ring chosen by one generator, for experiments, which need no proof."""
    return Ring([parties[position] for position in rng.permutation(len(parties))])


def committee_for(parties: Parties, session: bytes) -> tuple[str, ...]:
    """Return the parties that draw the ring: all, or `COMMITTEE_SIZE` picked by the session."""
    if len(parties) <= COMMITTEE_SIZE:
        return parties
    by_lot = sorted(parties, key=lambda name: hash_parts(session, name.encode()))
    chosen = frozenset(by_lot[:COMMITTEE_SIZE])
    return tuple(name for name in parties if name in chosen)


def draw_ring_messages(parties: int) -> int:
    """Return the number of messages of `draw_ring`: two from each member to every other party."""
    return 2 * min(parties, COMMITTEE_SIZE) * (parties - 1)


async def draw_ring(party: Party, public: bytes = b"", sent_by: Sequence[str] = ()) -> Ring:
    """Draw a ring together with all other parties of the session.

    Args:
        public: The public data that all parties should hold, such as a batch of queries; the
            parties compare its hash.
        sent_by: The parties that sent the public data to the others.

    Raises:
        ProtocolViolation: If a nonce does not match its commitment.
        Tampered: If a member received other commitments or other public data than this party, so
            either it lies, or another party sent different data to different parties.
    """
    committee = committee_for(party.parties, party.session)
    nonce = party.rng.bytes(_NONCE_BYTES)
    commitments = {party.me: _commit(party.session, party.me, nonce)}
    if party.me in committee:
        await broadcast(party, RingCommit(commitment=commitments[party.me]))
    for member in committee:
        if member != party.me:
            commit = await party.receive(RingCommit, sender=member, due=-1)
            commitments[member] = commit.commitment
    heard = hash_parts(
        *(commitments[member] for member in committee), *([public] if public else [])
    )
    if party.me in committee:
        await broadcast(party, RingReveal(nonce=nonce, heard=heard))
    nonces = {party.me: nonce}
    for member in committee:
        if member != party.me:
            reveal = await party.receive(RingReveal, sender=member, due=0)
            _check_reveal(party, member, reveal, commitments[member], heard, sent_by)
            nonces[member] = reveal.nonce
    return ring_of(party.parties, party.session, nonces)


def ring_of(parties: Parties, session: bytes, nonces: Mapping[str, bytes]) -> Ring:
    """Return the ring that nonces determine; each party that has received them can compute it.

    Args:
        nonces: The revealed nonce of each member of the committee, by name; others are ignored.
    """
    lot = hash_parts(session, *(nonces[member] for member in committee_for(parties, session)))
    return _ring_by(parties, lot)


@lru_cache(_RINGS_MAX)
def _ring_by(parties: Parties, lot: bytes) -> Ring:
    return deal_ring(parties, Generator(PCG64DXSM(SeedSequence(int.from_bytes(lot, "big")))))


def _check_reveal(  # noqa: PLR0917  (a reveal, and what it has to fit)
    party: Party,
    member: str,
    reveal: RingReveal,
    commitment: bytes,
    heard: bytes,
    sent_by: Sequence[str],
) -> None:
    if _commit(party.session, member, reveal.nonce) != commitment:
        broken = "revealed a nonce different from its commitment"
        party.accuse(ProtocolViolation(member, broken))
    if reveal.heard != heard:
        party.accuse(_inconsistent_reports(party, member, sent_by))


def _inconsistent_reports(party: Party, member: str, sent_by: Sequence[str]) -> VeilringError:
    """Return the error for a member that reports other data than ours.

    Either it lies, or another member or a sender of public data sent it something else.
    """
    others = dict.fromkeys([*committee_for(party.parties, party.session), *sent_by])
    suspects = tuple(name for name in others if name != party.me)
    what = "was told other commitments or other public data than we were"
    if len(suspects) == 1:
        return ProtocolViolation(member, what)
    return Tampered(suspects, f"{member} {what}")


@lru_cache(_COMMITMENTS_MAX)
def _commit(session: bytes, member: str, nonce: bytes) -> bytes:
    return hash_parts(session, member.encode(), nonce)

"""`Party`: all that a role sees of the world, of the whole session or of a part of it."""

from collections.abc import Iterable
from typing import Protocol, Self, TypeVar

from numpy.random import Generator
from typing_extensions import override

from veilring.errors import InputError, VeilringError
from veilring.transport.messages import Message

_M = TypeVar("_M", bound=Message)


class Parties(tuple[str, ...]):  # noqa: SLOT001 (CPython allows no slots on subtypes of tuple)
    """The participants of a run, in the order of the roster, with constant-time membership.

    A run with 10,000 parties has 10,000 sessions that all ask who belongs to it; they share one of
    these.

    Args:
        names: Each participant once.

    Raises:
        InputError: If a name occurs twice.
    """

    _positions: dict[str, int]

    def __new__(cls, names: Iterable[str]) -> Self:
        """Build the tuple and its index."""
        parties = super().__new__(cls, names)
        parties._positions = {name: position for position, name in enumerate(parties)}
        if len(parties._positions) != len(parties):
            raise InputError.because("a party is named twice", field="parties")
        return parties

    @override
    def __contains__(self, name: object) -> bool:
        return name in self._positions

    def position(self, name: str) -> int:
        """Return where a party stands, from 0."""
        return self._positions[name]


class Party(Protocol):
    """One participant of one protocol run. A role is a coroutine over it and touches nothing else.

    Messages of one sender are received in the order in which they were sent. When a peer is lost,
    breaks the protocol or aborts, `send` and `receive` raise the error that says so, in every
    party, and go on raising it; see `tolerate_losses` for roles that go on.
    """

    @property
    def me(self) -> str:
        """This party's name."""

    @property
    def parties(self) -> Parties:
        """All participants in the order of the roster, this one among them."""

    @property
    def peers(self) -> tuple[str, ...]:
        """All participants but this one, in the order of the roster."""

    @property
    def session(self) -> bytes:
        """The public name of this run, never used twice."""

    @property
    def rng(self) -> Generator:
        """This party's own randomness for this run: secret, and cryptographic unless seeded."""

    def round(self, number: int) -> None:
        """Begin a communication round: messages sent from here on belong to it.

        A message of round r may depend only on messages of rounds before r. What is sent before the
        first call is set-up and is counted apart.
        """

    async def send(self, to: str, message: Message) -> None:
        """Send a message to one peer."""

    async def receive(self, message_type: type[_M], *, sender: str, due: int | None = None) -> _M:
        """Wait for the next message of a peer, which must be of the given type.

        Args:
            message_type: The type of the message.
            sender: The peer.
            due: The round in which the peer sends it. Set-up counts backwards: its last step is
                round 0, the step before is round -1. Given by all roles of a protocol, it names
                the party at fault if a run stands still; see `veilring.nodes.blame`.

        Raises:
            ProtocolViolation: If it is of another type.
        """

    def accuse(self, error: VeilringError) -> None:
        """End the session because peers have sent something impossible.

        Raises:
            VeilringError: The error. Only a party in an adversary's hands lets it pass.
        """

    def tolerate_losses(self) -> None:
        """Go on without the peers that are lost or abort from now on, until the session ends.

        Of such a peer all that it sent before is still received. Then `receive` from it and `send`
        to it raise the `PeerLost` or `SessionAborted` that says so. What it may send later is
        dropped: it does not come back to this session.
        """

    def give_up(self, peer: str) -> None:
        """Treat a peer as lost that is silent; what it has sent and was not received is dropped.

        Raises:
            InputError: If the role has not called `tolerate_losses`.
        """


async def broadcast(party: Party, message: Message, to: Iterable[str] | None = None) -> None:
    """Send one message to several peers in order; by default to all."""
    for peer in party.peers if to is None else to:
        await party.send(peer, message)


class ForwardingParty(Party):
    """A party that passes everything on to another; a subclass overrides what it changes.

    Args:
        party: The party underneath.
    """

    def __init__(self, party: Party) -> None:
        self._party = party

    @property
    @override
    def me(self) -> str:
        return self._party.me

    @property
    @override
    def parties(self) -> Parties:
        return self._party.parties

    @property
    @override
    def peers(self) -> tuple[str, ...]:
        return self._party.peers

    @property
    @override
    def session(self) -> bytes:
        return self._party.session

    @property
    @override
    def rng(self) -> Generator:
        return self._party.rng

    @override
    def round(self, number: int) -> None:
        self._party.round(number)

    @override
    async def send(self, to: str, message: Message) -> None:
        await self._party.send(to, message)

    @override
    async def receive(self, message_type: type[_M], *, sender: str, due: int | None = None) -> _M:
        return await self._party.receive(message_type, sender=sender, due=due)

    @override
    def accuse(self, error: VeilringError) -> None:
        self._party.accuse(error)

    @override
    def tolerate_losses(self) -> None:
        self._party.tolerate_losses()

    @override
    def give_up(self, peer: str) -> None:
        self._party.give_up(peer)


class SubParty(ForwardingParty):
    """A participant of a part of the session; rounds and randomness are the session's.

    A role for all parties can so be composed of roles for some of them. Messages of the part are
    not marked as such: two parties may be together in several parts only if what they say there
    cannot be mixed up.

    Args:
        party: The participant.
        parties: Some of the session's, the participant among them.

    Raises:
        InputError: If it is not.
    """

    def __init__(self, party: Party, parties: Parties) -> None:
        if party.me not in parties:
            raise InputError.because(
                f"{party.me} is not among the parties of its own part", field="parties"
            )
        super().__init__(party)
        self._parties = parties

    @property
    @override
    def parties(self) -> Parties:
        return self._parties

    @property
    @override
    def peers(self) -> tuple[str, ...]:
        return tuple(name for name in self._parties if name != self.me)

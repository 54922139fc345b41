"""`Party`: the only interface of a role, to the whole session or to a part of it."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol, Self, TypeVar

from numpy.random import Generator
from typing_extensions import override

from veilring.errors import InputError, PeerLost, SessionAborted, VeilringError
from veilring.transport.messages import Message

_M = TypeVar("_M", bound=Message)


class Parties(tuple[str, ...]):  # noqa: SLOT001  (CPython allows no slots on subtypes of tuple)
    """The participants of a run, in the order of the roster, with constant-time membership.

    A run with 10,000 parties has 10,000 sessions that all look up participants; they share one
    instance.

    Args:
        names: The participants, once each.

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
        """Return the position of a party, from 0."""
        return self._positions[name]


class Party(Protocol):
    """One participant of one protocol run. A role is a coroutine that uses nothing else.

    Messages of one sender are received in the order in which they were sent. If a peer is lost,
    breaks the protocol or aborts, `send` and `receive` raise the corresponding error, at every
    party, and keep raising it; for roles that continue, see `tolerate_losses`.
    """

    @property
    def me(self) -> str:
        """This party's name."""

    @property
    def parties(self) -> Parties:
        """All participants in the order of the roster, including this one."""

    @property
    def peers(self) -> tuple[str, ...]:
        """All participants except this one, in the order of the roster."""
        return tuple(name for name in self.parties if name != self.me)

    @property
    def session(self) -> bytes:
        """The public name of this run, never used twice."""

    @property
    def rng(self) -> Generator:
        """This party's own randomness for this run: secret, and cryptographic unless seeded."""

    @property
    def ignores_checks(self) -> bool:
        """Whether this party ignores its own checks, as one controlled by an adversary does."""
        return False

    def round(self, number: int) -> None:
        """Begin a communication round: messages sent from here on belong to it.

        A message of round r may depend only on messages of earlier rounds. Messages before the
        first call are set-up and are counted separately.
        """

    async def send(self, to: str, message: Message) -> None:
        """Send a message to one peer."""

    async def receive(self, message_type: type[_M], *, sender: str, due: int | None = None) -> _M:
        """Wait for the next message of a peer, which must be of the given type.

        Args:
            sender: The peer.
            due: The round in which the peer sends it. Set-up counts backwards: its last step is
                round 0, the one before is round -1. If all roles of a protocol pass it, the culprit
                of a stalled run can be named; see `veilring.nodes.blame`.

        Raises:
            ProtocolViolation: If the message has another type.
        """

    def accuse(self, error: VeilringError) -> None:
        """End the session because peers sent something impossible.

        Raises:
            VeilringError: The error. Only a party controlled by an adversary ignores it.
        """

    def tolerate_losses(self) -> None:
        """Continue without peers that are lost or abort from now on, until the session ends.

        Everything that such a peer sent earlier is still received. Then `receive` from it and
        `send` to it raise the corresponding `PeerLost` or `SessionAborted`. Anything it sends later
        is dropped: it does not return to this session.
        """

    def give_up(self, peer: str) -> None:
        """Treat a silent peer as lost; messages not yet received from it are dropped.

        Raises:
            InputError: If the role has not called `tolerate_losses`.
        """


async def broadcast(party: Party, message: Message, to: Iterable[str] | None = None) -> None:
    """Send one message to several peers in order; by default to all."""
    for peer in party.peers if to is None else to:
        await party.send(peer, message)


async def broadcast_to_rest(party: Party, message: Message) -> None:
    """Send one message to all peers that are not lost, in a session that tolerates losses."""
    for peer in party.peers:
        with suppress(PeerLost, SessionAborted):
            await party.send(peer, message)


class ForwardingParty(Party):
    """A party that passes everything on to another one; a subclass overrides parts of it.

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
    def session(self) -> bytes:
        return self._party.session

    @property
    @override
    def rng(self) -> Generator:
        return self._party.rng

    @property
    @override
    def ignores_checks(self) -> bool:
        return self._party.ignores_checks

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

    It composes a role for all parties from roles for some of them. Messages of the part are not
    marked: two parties may be together in several parts only if messages of these cannot be
    confused.

    Args:
        party: The participant.
        parties: Some of the session's parties, including the participant.

    Raises:
        InputError: If the participant is not among them.
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

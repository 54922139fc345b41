"""`Party`: the only interface of a role, to the whole session or to a part of it.

The culprit of a stalled run is the sender of the earliest missing message. A message of round r
depends only on messages of earlier rounds. An honest party that is waiting for a message of round r
has therefore sent everything it owes up to round r. Let r be the round of the earliest message that
any party is waiting for. If its sender is waiting at all, then for a message of round r or later,
and it needs nothing more to send the missing one: it has sent it, or it is at fault. If the counts
at both ends show that it was sent, the network or either end may have lost it, and nobody can be
blamed.

The rule never blames an honest party as long as all parties report their state truthfully. A
launcher observes the states itself. A party that relies on reports of its peers knows only its own
state: it blames the sender of a message that it is itself waiting for. If a peer is waiting for the
message, both ends are suspects.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from numpy.random import Generator
from typing_extensions import override

from veilring.errors import InputError, PeerLost, SessionAborted, VeilringError
from veilring.transport.messages import Message

_UNORDERED: Final = (
    "the order of the missing messages is unknown, since the role does not give the round of each"
    " (`receive(..., due=ROUND)`)"
)


ANYBODY: Final = "*"
"""The sender of a message that several peers may send; not the name of a party."""


class Wait(NamedTuple):
    """A message that a party is waiting for."""

    sender: str
    """The peer, or `ANYBODY`."""
    kind: str
    due: int | None
    """The round in which its sender sends it, if the role declares it."""

    @property
    def said(self) -> str:
        """The message in words."""
        return f"{self.kind} from {'anybody' if self.sender == ANYBODY else self.sender}"


_NONE: Final[Mapping[str, int]] = {}


class Standing(NamedTuple):
    """The state of one party in a session: names, kinds, rounds and counts, never data."""

    party: str
    waits: tuple[Wait, ...] = ()
    blocked: tuple[str, ...] = ()
    """The peers that do not read its messages."""
    over: bool = False
    sent: Mapping[str, int] = _NONE
    received: Mapping[str, int] = _NONE
    without: tuple[str, ...] | None = None
    """The peers that it continued without; `None` if its role tolerates no loss."""
    is_concurrent: bool = False
    """Whether several tasks of its role sent messages, if somebody observes them."""
    leaves_unread: bool = False
    """Whether its role may leave messages unread."""

    @property
    def is_working(self) -> bool:
        """Whether the party is neither waiting for a peer nor finished."""
        return not (self.waits or self.blocked or self.over)

    def sentences(self) -> list[str]:
        """The messages that it is waiting for, one sentence each."""
        kinds = [wait.kind for wait in self.waits if wait.sender == ANYBODY]
        anybody = [Wait(ANYBODY, " or ".join(kinds), None)] if kinds else []
        named = [wait for wait in self.waits if wait.sender != ANYBODY]
        waits = [f"{self.party} is waiting for {wait.said}" for wait in [*named, *anybody]]
        return waits + [f"{self.party} is waiting for {peer} to read" for peer in self.blocked]


class Blame(NamedTuple):
    """The party at fault, if one can be found."""

    culprit: str
    """The name of the party; empty if nobody can be blamed, or if there are two suspects."""
    sentence: str
    """A sentence: the act of the culprit, the two suspects, or the reason why nobody is blamed."""


def find_fault(standings: Iterable[Standing], judge: str = "") -> Blame:
    """Return the party that stalls a session, if it follows from the states of all parties.

    Args:
        judge: The party that judges. It has all other states from its peers, which may lie; empty
            if they are known to be true.
    """
    by_name = {standing.party: standing for standing in standings}
    waits = [(wait, standing) for standing in by_name.values() for wait in standing.waits]
    alone = len(waits) == 1  # the earliest, whatever the order of the wait
    ordered = sorted(
        (wait.due or 0, standing.party != judge, standing.party, wait.sender, wait.kind)
        for wait, standing in waits
        if wait.due is not None or alone
    )
    if not ordered or len(ordered) < len(waits):
        return _nobody(_at_work(by_name.values()) or _UNORDERED)
    _, is_hearsay, waiting, sender, kind = ordered[0]
    verdict = _judge(by_name.get(sender), by_name[waiting], sender, kind)
    if verdict.culprit and judge and is_hearsay:
        return Blame("", f"{verdict.sentence}, or the report of {waiting} is false")
    return verdict


def _judge(sender: Standing | None, waiting: Standing, name: str, kind: str) -> Blame:
    if sender is None:
        missed = Wait(name, kind, None).said
        silent = "" if name == ANYBODY else ", which did not report"
        return _nobody(f"{waiting.party} is waiting for {missed}{silent}")
    if sender.blocked:
        return _nobody(f"{name} is waiting for {', '.join(sender.blocked)} to read")
    sent, received = sender.sent.get(waiting.party, 0), waiting.received.get(name, 0)
    if sent > received:
        return _nobody(f"a message from {name} to {waiting.party} has not arrived")
    if sent < received:
        counts = f"{name} reports {sent} messages sent to {waiting.party}, which received"
        return _nobody(f"{counts} {received}")
    if sender.is_working:
        return _nobody(f"{waiting.party} is waiting for {kind} from {name}, which is computing")
    return Blame(name, f"{name} did not send {kind} to {waiting.party} when it was due")


def _at_work(standings: Iterable[Standing]) -> str:
    names = [standing.party for standing in standings if standing.is_working]
    return f"still computing: {', '.join(names)}" if names else ""


def _nobody(why: str) -> Blame:
    return Blame("", f"nobody can be blamed: {why}")


_M = TypeVar("_M", bound=Message)
_T = TypeVar("_T")
OneOf: TypeAlias = type[_M] | tuple[type[_M], ...]
"""The type of a message, or several."""


def expected_kinds(types: OneOf[Message]) -> str:
    """Return the kinds of messages that are expected, in words."""
    return " or ".join(each.kind for each in (types if isinstance(types, tuple) else (types,)))


class Parties(tuple[str, ...]):  # noqa: SLOT001  (CPython allows no slots on subtypes of tuple)
    """The participants of a run, in the order of the roster, with constant-time membership.

    A run with 10,000 parties has 10,000 sessions that all look up participants; they share one
    instance.
    """

    positions: dict[str, int]
    """The position of each party, from 0."""

    def __new__(cls, names: Iterable[str]) -> Self:
        """Build the tuple and its index."""
        parties = super().__new__(cls, names)
        parties.positions = {name: position for position, name in enumerate(parties)}
        if len(parties.positions) != len(parties):
            raise InputError.because("a party is named twice", field="parties")
        return parties

    @override
    def __contains__(self, name: object) -> bool:
        return name in self.positions

    def position(self, name: str) -> int:
        """Return the position of a party, from 0."""
        return self.positions[name]


def by_party(each: Mapping[str, _T] | Iterable[_T]) -> dict[str, _T]:
    """Return values by the names of parties; without names, those of `party-0`, `party-1`, …."""
    if isinstance(each, Mapping):
        return dict(each)
    return {f"party-{number}": value for number, value in enumerate(each)}


class Party(Protocol):
    """One participant of one protocol run. A role is a coroutine that uses nothing else.

    Messages of one sender are received in the order in which they were sent. If a peer is lost,
    breaks the protocol or aborts, `send` and `receive` raise the corresponding error, at every
    party, and keep raising it; for roles that continue, see `tolerate_losses`.
    """

    me: str
    """This party's name."""
    parties: Parties
    """All participants in the order of the roster, including this one."""
    session: bytes
    """The public name of this run, never used twice."""

    @property
    def peers(self) -> tuple[str, ...]:
        """All participants except this one, in the order of the roster."""
        own = self.parties.positions[self.me]
        return self.parties[:own] + self.parties[own + 1 :]

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

    async def send_all(self, peers: Iterable[str], message: Message) -> None:
        """Send one message to several peers in order."""
        for peer in peers:
            await self.send(peer, message)

    async def receive(self, message_type: type[_M], *, sender: str, due: int | None = None) -> _M:
        """Wait for the next message of a peer, which must be of the given type.

        Args:
            due: The round in which the peer sends it. Set-up counts backwards: its last step is
                round 0, the one before is round -1. If all roles of a protocol pass it, the culprit
                of a stalled run can be named; see `veilring.nodes.party`.

        Raises:
            ProtocolViolation: If the message has another type.
        """

    async def receive_joined(self, message_type: type[_M], *, sender: str) -> Sequence[_M]:
        """Wait for the next message of a peer, and return all of this type that have arrived.

        Messages that differ only in their fields `Message.joins` may be returned as one.

        Raises:
            ProtocolViolation: If the next message has another type.
        """
        return [await self.receive(message_type, sender=sender)]

    async def receive_any(
        self, types: OneOf[_M], *, senders: Iterable[str] | None = None, needed: int = 1
    ) -> tuple[str, _M]:
        """Wait for the next message of several peers, in order of arrival.

        Args:
            senders: The peers; all by default. No other task may wait for one of them meanwhile.
            needed: The number of senders that must be left for the wait to make sense.

        Returns:
            The sender, and its message.

        Raises:
            ProtocolViolation: If the message has another type.
            PeerLost: If too few senders are left, in a session that tolerates losses.
        """

    def leave_unread(self) -> None:
        """Allow messages that the role does not receive.

        Without it, a message that is unread when the role ends is a violation by its sender. Until
        then, unread messages still count against the limits of a session.
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
    await party.send_all(party.peers if to is None else to, message)


async def receive_quorum(
    party: Party, types: OneOf[_M], count: int, *, senders: Iterable[str] | None = None
) -> dict[str, _M]:
    """Receive one message from each of some peers, those whose messages arrive first.

    The messages of the others stay unread: receive them later, or call `Party.leave_unread`.

    Args:
        count: The number of peers.
        senders: The peers that may be among them; all by default.

    Raises:
        InputError: If there are fewer senders.
        PeerLost: If too few senders are left, in a session that tolerates losses.
    """
    left = list(party.peers if senders is None else senders)
    if not 0 <= count <= len(left):
        raise InputError("count", count, f"0 to {len(left)}, the number of senders")
    received: dict[str, _M] = {}
    while len(received) < count:
        needed = count - len(received)
        sender, message = await party.receive_any(types, senders=left, needed=needed)
        received[sender] = message
        left.remove(sender)
    return received


async def broadcast_to_rest(party: Party, message: Message) -> None:
    """Send one message to all peers that are not lost, in a session that tolerates losses."""
    for peer in party.peers:
        with suppress(PeerLost, SessionAborted):
            await party.send(peer, message)


class ForwardingParty(Party):
    """A party that passes everything on to another one; a subclass overrides parts of it."""

    def __init__(self, party: Party) -> None:
        self._party = party
        self.me, self.parties, self.session = party.me, party.parties, party.session

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
    async def receive_any(
        self, types: OneOf[_M], *, senders: Iterable[str] | None = None, needed: int = 1
    ) -> tuple[str, _M]:
        return await self._party.receive_any(types, senders=senders, needed=needed)

    @override
    def leave_unread(self) -> None:
        self._party.leave_unread()

    @override
    def accuse(self, error: VeilringError) -> None:
        self._party.accuse(error)

    @override
    def tolerate_losses(self) -> None:
        self._party.tolerate_losses()

    @override
    def give_up(self, peer: str) -> None:
        self._party.give_up(peer)

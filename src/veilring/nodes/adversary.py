"""Malicious parties: an adversary controls a party's input and what it sends and receives.

An adversary can do what a malicious party can: choose its input, say what it likes to whom it likes
and when, and change what its own role receives. It cannot speak on another's channel, for the
transport authenticates senders, or in another session, for each frame is bound to its own.

The adversaries at the end of this module suit any protocol: they delay, drop, repeat, reorder,
alter, replay and misaddress. Each takes `only`: the types of the messages that it touches, all
unless given.
"""

import asyncio
import copy
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

from typing_extensions import override

from veilring.errors import InputError, VeilringError
from veilring.nodes.party import ForwardingParty, Party
from veilring.nodes.transcript import SETUP_ROUND, Seen
from veilring.transport.messages import Message

_M = TypeVar("_M", bound=Message)
_R = TypeVar("_R")
Lines: TypeAlias = Iterable[tuple[str, Message]]
"""Messages to send, each with its receiver."""
_ALL: Final = (Message,)


class Adversary:
    """Controls one party; this one leaves it honest, and a subclass changes what it overrides.

    Checks that its role makes have no effect: a corrupted party accuses nobody.

    ::

        class Gossip(Adversary):
            async def sending(self, to: str, message: Message) -> Lines:
                return [(peer, message) for peer in self.party.peers]

    Each run starts with a copy of its own, so that an adversary may keep what it has seen in
    attributes. It has to be picklable where parties are processes.

    Attributes:
        party: The honest party underneath: its name, its peers, its session, its randomness. What
            is sent through it goes out as it is, and may be more than the role ever says.
        arguments: The keyword arguments of its role: what is public.
        round: The communication round in which the role is.
        called: Its name in traces; by default the name of its class.
    """

    party: Party
    arguments: Mapping[str, object] = MappingProxyType({})
    called: str = ""
    round: int = SETUP_ROUND

    def own(self, own: Any) -> Any:  # noqa: ANN401 (whatever the role takes)
        """Return the private input that the party uses in place of its own."""
        return own

    async def sending(self, to: str, message: Message) -> Lines:
        """Return the messages, with receivers, to send in place of one that the role sends.

        Return nothing to drop the message, several pairs to send more. Awaiting first delays it.
        """
        return ((to, message),)

    async def received(self, sender: str, message: Message) -> Message:  # noqa: ARG002 (for those who override it)
        """Return the message that the role receives in place of a peer's."""
        return message


class Corrupted(ForwardingParty):
    """A party whose sends and receives pass through an adversary; a role sees no difference.

    Args:
        honest: The party underneath. What it sends is measured there: what really crosses the wire.
        adversary: The adversary that controls it.
    """

    def __init__(self, honest: Party, adversary: Adversary) -> None:
        super().__init__(honest)
        self._adversary = adversary
        adversary.party = honest

    @override
    def round(self, number: int) -> None:
        super().round(number)
        self._adversary.round = number

    @override
    async def send(self, to: str, message: Message) -> None:
        for receiver, line in await self._adversary.sending(to, message):
            await super().send(receiver, line)

    @override
    async def receive(self, message_type: type[_M], *, sender: str, due: int | None = None) -> _M:
        heard = await super().receive(message_type, sender=sender, due=due)
        instead = await self._adversary.received(sender, heard)
        if not isinstance(instead, message_type):
            raise InputError.because(
                f"the adversary returned a {instead.kind!r} message where "
                f"{message_type.kind!r} is due",
                field="received",
            )
        return instead

    @override
    def accuse(self, error: VeilringError) -> None:
        """Let it pass: it may well be the party's own lie that has come back to it."""


def corrupt(
    role: Callable[..., Awaitable[_R]], adversary: Adversary
) -> Callable[..., Awaitable[_R]]:
    """Return a role as it is played by a party that an adversary controls."""

    async def play(party: Party, *given: object, **public: object) -> _R:
        mine = copy.deepcopy(adversary)
        mine.arguments = public
        inputs = [mine.own(own) for own in given]
        return await role(Corrupted(party, mine), *inputs, **public)

    return play


@dataclass
class Substitute(Adversary):
    """Uses another input than its own. No protocol can know better."""

    input: Any

    @override
    def own(self, own: Any) -> Any:
        return self.input


@dataclass
class Alter(Adversary):
    """Replaces each message by `change(message)`. Processes import `change` by its name."""

    change: Callable[[Message], Message]
    only: tuple[type[Message], ...] = _ALL

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        return [(to, self.change(message) if isinstance(message, self.only) else message)]


@dataclass
class Drop(Adversary):
    """Does not send its first `first` messages, or any if that is left out."""

    only: tuple[type[Message], ...] = _ALL
    first: int | None = None

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        if not isinstance(message, self.only) or self.first == 0:
            return [(to, message)]
        if self.first is not None:
            self.first -= 1
        return []


@dataclass
class Silent(Adversary):
    """Sends nothing any more from a communication round on; in round 0 it sets the protocol up."""

    first_round: int = 1

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        return [] if self.round >= self.first_round else [(to, message)]


@dataclass
class Delay(Adversary):
    """Waits before each message, on the party's own clock.

    Attributes:
        seconds: The delay, 0 or more.
    """

    seconds: float
    only: tuple[type[Message], ...] = _ALL

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise InputError("seconds", self.seconds, "a number of at least 0")

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        if isinstance(message, self.only):
            await asyncio.sleep(self.seconds)
        return [(to, message)]


@dataclass
class Repeat(Adversary):
    """Says each thing several times."""

    times: int = 2
    only: tuple[type[Message], ...] = _ALL

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        return [(to, message)] * (self.times if isinstance(message, self.only) else 1)


@dataclass
class Reorder(Adversary):
    """Swaps each two messages to the same peer: it says the second before the first."""

    only: tuple[type[Message], ...] = _ALL
    _held: dict[str, Message] = field(default_factory=dict, init=False)

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        if not isinstance(message, self.only):
            return [(to, message)]
        if to in self._held:
            return [(to, message), (to, self._held.pop(to))]
        self._held[to] = message
        return []


@dataclass
class Replay(Adversary):
    """Sends its messages of another run again, type by type and in the same order.

    Attributes:
        sent: `View.sent` of that run. When it has no more of a type, the party goes on honestly.
    """

    sent: Sequence[Seen]
    _left: dict[str, deque[Message]] = field(init=False)

    def __post_init__(self) -> None:
        self._left = defaultdict(deque)
        for seen in self.sent:
            self._left[seen.message.kind].append(seen.message)

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        old = self._left[message.kind]
        return [(to, old.popleft() if old else message)]


@dataclass
class Forger(Adversary):
    """Sends each message to a victim as well, in place of the party whose turn it is.

    The transport knows who speaks, so that the victim hears it from the forger, not from the other.
    """

    victim: str
    only: tuple[type[Message], ...] = _ALL

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        own = (to, message)
        forges = to != self.victim != self.party.me and isinstance(message, self.only)
        return [own, (self.victim, message)] if forges else [own]

"""Malicious parties: an adversary controls a party's input and what it sends and receives.

An adversary can do what a malicious party can do: choose its input, send any message to any peer at
any time, and change the messages that its own role receives. It cannot send under another name,
because the transport authenticates senders, or in another session, because each frame is bound to
its session.

The adversaries at the end of this module suit any protocol: they delay, drop, repeat, reorder,
alter, replay and misaddress messages. Each takes `only`: the types of the messages to affect, by
default all.
"""

import asyncio
import copy
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

from typing_extensions import override

from veilring.errors import InputError, ProtocolViolation, Tampered, VeilringError
from veilring.nodes.journal import SETUP_ROUND, Seen
from veilring.nodes.party import ForwardingParty, OneOf, Party, expected_kinds
from veilring.transport.messages import Message

_M = TypeVar("_M", bound=Message)
_R = TypeVar("_R")
Lines: TypeAlias = Iterable[tuple[str, Message]]
"""Messages to send, each with its receiver."""
_ALL: Final = (Message,)


class Adversary:
    """Controls one party. The base class leaves it honest; a subclass overrides methods.

    Checks by the corrupted role are ignored, because a failure may be a consequence of the party's
    own lie: `accuse` does nothing.

    ::

        class Gossip(Adversary):
            async def sending(self, to: str, message: Message) -> Lines:
                return [(peer, message) for peer in self.party.peers]

    Each run starts with a fresh copy, so an adversary may keep its observations in attributes. It
    must be picklable if parties are processes.

    Attributes:
        party: The honest party underneath: its name, its peers, its session, its randomness.
            Messages sent through it are unchanged, and need not be those of the role.
        arguments: The public keyword arguments of its role.
        round: The current communication round of the role.
        called: Its name in traces; by default the name of its class.
    """

    party: Party
    arguments: Mapping[str, object] = MappingProxyType({})
    called: str = ""
    round: int = SETUP_ROUND

    def own(self, own: Any) -> Any:  # noqa: ANN401  (as the role takes it)
        """Return the private input to use instead of the party's own."""
        return own

    async def sending(self, to: str, message: Message) -> Lines:
        """Return the messages, with receivers, to send instead of the role's message.

        Return an empty list to drop the message, several pairs to send more. Awaiting first delays
        it.
        """
        return ((to, message),)

    async def received(self, sender: str, message: Message) -> Message:  # noqa: ARG002  (a subclass's own)
        """Return the message that the role receives instead of a peer's."""
        return message


class Corrupted(ForwardingParty):
    """A party whose sends and receives pass through an adversary; the role cannot tell."""

    def __init__(self, honest: Party, adversary: Adversary) -> None:
        super().__init__(honest)
        self._adversary, self.has_ignored = adversary, False
        adversary.party = honest

    @property
    @override
    def ignores_checks(self) -> bool:
        return True

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
        return await self._changed(sender, heard, message_type)

    @override
    async def receive_any(
        self, types: OneOf[_M], *, senders: Iterable[str] | None = None, needed: int = 1
    ) -> tuple[str, _M]:
        sender, heard = await super().receive_any(types, senders=senders, needed=needed)
        return sender, await self._changed(sender, heard, types)

    async def _changed(self, sender: str, heard: Message, allowed: OneOf[_M]) -> _M:
        instead = await self._adversary.received(sender, heard)
        if not isinstance(instead, allowed):
            due = expected_kinds(allowed)
            said = f"the adversary returned a {instead.kind!r} message where {due!r} was expected"
            raise InputError.because(said, field="received")
        return instead

    @override
    def accuse(self, error: VeilringError) -> None:
        """Do nothing: the apparent violation may be a consequence of the party's own lie."""
        self.has_ignored = True


def corrupt(
    role: Callable[..., Awaitable[_R]], adversary: Adversary
) -> Callable[..., Awaitable[_R]]:
    """Return a role as played by a party that an adversary controls."""

    async def play(party: Party, *given: object, **public: object) -> _R:
        mine = copy.deepcopy(adversary)
        mine.arguments = public
        inputs, corrupted = [mine.own(own) for own in given], Corrupted(party, mine)
        try:
            return await role(corrupted, *inputs, **public)
        except ProtocolViolation as error:
            if not corrupted.has_ignored:
                raise
            # A consequence of what was ignored, and of the party's own lie: it convicts nobody.
            raise Tampered(party.peers, error.reason) from error

    return play


@dataclass
class Substitute(Adversary):
    """Uses another input than its own. No protocol can detect that."""

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
    """Does not send its first `first` messages, or any message by default."""

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
    """Sends nothing from a communication round on; in round 0 it still sets the protocol up."""

    first_round: int = 1

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        return [] if self.round >= self.first_round else [(to, message)]


@dataclass
class Delay(Adversary):
    """Waits before each message, on the party's own clock."""

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
    """Sends each message several times."""

    times: int = 2
    only: tuple[type[Message], ...] = _ALL

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        return [(to, message)] * (self.times if isinstance(message, self.only) else 1)


@dataclass
class Reorder(Adversary):
    """Swaps each pair of messages to the same peer: it sends the second before the first."""

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
    """Sends its messages of an earlier run again, type by type and in the same order.

    Attributes:
        sent: `View.sent` of that run. Once it has no more messages of a type, the party is honest.
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
    """Also sends each message to a victim, as if it were the party whose turn it is.

    The transport authenticates senders, so the victim receives it from the forger.
    """

    victim: str
    only: tuple[type[Message], ...] = _ALL

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        own = (to, message)
        forges = to != self.victim != self.party.me and isinstance(message, self.only)
        return [own, (self.victim, message)] if forges else [own]

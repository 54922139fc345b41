"""Adversaries for any protocol: they delay, drop, repeat, reorder, alter, replay and misaddress.

Each takes `only`: the types of the messages that it touches, all unless given.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from typing_extensions import override

from veilring.errors import InputError
from veilring.measure.transcript import Seen
from veilring.nodes.adversary import Adversary, Lines
from veilring.transport.messages import Message

_ALL: Final = (Message,)


@dataclass
class Substitute(Adversary):
    """Uses another input than its own. No protocol can know better."""

    input: Any

    @override
    def own(self, own: Any) -> Any:
        return self.input


@dataclass
class Alter(Adversary):
    """Says something else: `change` of each message. Processes import it by its name."""

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
        seconds: For how long, 0 or more.
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
    """Says again what it said in another run, type by type and in the same order.

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
    """Says all that it says to a victim as well, in the place of the party whose turn that is.

    The transport knows who speaks, so that the victim hears it from the forger, not from the other.
    """

    victim: str
    only: tuple[type[Message], ...] = _ALL

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        own = (to, message)
        forges = to != self.victim != self.party.me and isinstance(message, self.only)
        return [own, (self.victim, message)] if forges else [own]

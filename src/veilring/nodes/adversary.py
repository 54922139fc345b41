"""A party in somebody's hands: it plays its role, but an adversary holds its input and its lines.

What an adversary can do is what a malicious party can: choose its input, say what it likes to whom
it likes and when, and make what it hears into what it wants its own role to hear. What it cannot do
is speak on another's channel, for the transport authenticates senders, or in another session, for
each frame is bound to its own.
"""

import copy
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias, TypeVar

from numpy.random import Generator
from typing_extensions import override

from veilring.errors import InputError, VeilringError
from veilring.measure.events import SETUP_ROUND
from veilring.nodes.party import Parties, Party
from veilring.transport.messages import Message

M = TypeVar("M", bound=Message)
R = TypeVar("R")

Lines: TypeAlias = Iterable[tuple[str, Message]]
"""What is sent, each with its receiver."""


class Adversary:
    """Controls one party; this one leaves it honest, and a subclass changes what it overrides.

    Whoever it is, it complains of nobody: checks that its role makes have no effect.

    ::

        class Gossip(Adversary):
            async def sending(self, to: str, message: Message) -> Lines:
                return [(peer, message) for peer in self.party.peers]

    Each run starts with a copy of its own, so that an adversary may keep what it has seen in
    attributes. It has to be picklable where parties are processes.

    Attributes:
        party: The honest party underneath: its name, its peers, its session, its randomness. What
            is sent through it goes out as it is, and may be more than the role ever says.
        round: The communication round in which the role is.
        called: What a trace calls it; by default the name of its class.
    """

    party: Party
    called: str = ""
    round: int = SETUP_ROUND

    def own(self, own: Any) -> Any:  # noqa: ANN401 (whatever the role takes)
        """Return what the party uses as its private input in place of its own."""
        return own

    async def sending(self, to: str, message: Message) -> Lines:
        """Return what is sent, to whom, in place of a message that the role sends to a peer.

        Nothing drops it, several send more, and it is late if this waits.
        """
        return ((to, message),)

    async def received(self, sender: str, message: Message) -> Message:  # noqa: ARG002 (for those who override it)
        """Return what the role hears in place of a message that a peer has sent."""
        return message


class Corrupted(Party):
    """A party whose lines and ears belong to an adversary; a role cannot tell the difference.

    Args:
        honest: The party underneath. What it sends is measured there: what really crosses the wire.
        adversary: Who controls it.
    """

    def __init__(self, honest: Party, adversary: Adversary) -> None:
        self._honest, self._adversary = honest, adversary
        adversary.party = honest

    @property
    @override
    def me(self) -> str:
        return self._honest.me

    @property
    @override
    def parties(self) -> Parties:
        return self._honest.parties

    @property
    @override
    def peers(self) -> tuple[str, ...]:
        return self._honest.peers

    @property
    @override
    def session(self) -> bytes:
        return self._honest.session

    @property
    @override
    def rng(self) -> Generator:
        return self._honest.rng

    @override
    def round(self, number: int) -> None:
        self._honest.round(number)
        self._adversary.round = number

    @override
    async def send(self, to: str, message: Message) -> None:
        for receiver, line in await self._adversary.sending(to, message):
            await self._honest.send(receiver, line)

    @override
    async def receive(self, message_type: type[M], *, sender: str, due: int | None = None) -> M:
        heard = await self._honest.receive(message_type, sender=sender, due=due)
        instead = await self._adversary.received(sender, heard)
        if not isinstance(instead, message_type):
            raise InputError("received", instead.kind, f"{message_type.kind}, which is due")
        return instead

    @override
    def accuse(self, error: VeilringError) -> None:
        """Let it pass: it may well be the party's own lie that has come back to it."""


def corrupt(role: Callable[..., Awaitable[R]], adversary: Adversary) -> Callable[..., Awaitable[R]]:
    """Return a role as it is played by a party that an adversary controls."""

    async def play(party: Party, *given: object, **public: object) -> R:
        mine = copy.deepcopy(adversary)
        inputs = [mine.own(own) for own in given]
        return await role(Corrupted(party, mine), *inputs, **public)

    return play

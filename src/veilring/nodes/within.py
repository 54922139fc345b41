"""A party among some of the parties of its session: roles can be put together of smaller ones."""

from typing import TypeVar

from numpy.random import Generator
from typing_extensions import override

from veilring.errors import InputError, VeilringError
from veilring.nodes.party import Parties, Party
from veilring.transport.messages import Message

M = TypeVar("M", bound=Message)


class Within(Party):
    """All that a role sees of a part of the session; rounds and randomness are the session's.

    What it sends and receives is not told apart from what the party says outside of the part: two
    parties may be together in several parts only if what they say there cannot be mixed up.

    Args:
        party: The participant.
        parties: Some of the session's, the participant among them.

    Raises:
        InputError: If it is not.
    """

    def __init__(self, party: Party, parties: Parties) -> None:
        if party.me not in parties:
            raise InputError("parties", f"a part without {party.me}", "one that has it")
        self._party, self._parties = party, parties

    @property
    @override
    def me(self) -> str:
        return self._party.me

    @property
    @override
    def parties(self) -> Parties:
        return self._parties

    @property
    @override
    def peers(self) -> tuple[str, ...]:
        return tuple(name for name in self._parties if name != self.me)

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
    async def receive(self, message_type: type[M], *, sender: str, due: int | None = None) -> M:
        return await self._party.receive(message_type, sender=sender, due=due)

    @override
    def accuse(self, error: VeilringError) -> None:
        self._party.accuse(error)

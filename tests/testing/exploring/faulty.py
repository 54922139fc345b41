"""Roles with one mistake each, and their claims. Their inputs are objects that TOML cannot hold."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tests.roles import Number

from veilring.errors import PeerLost, SessionAborted
from veilring.nodes.adversary import Adversary, Lines
from veilring.nodes.party import Party, broadcast
from veilring.testing.auditing import RoleClaims
from veilring.transport.messages import Message

_background: set[asyncio.Task[None]] = set()


@dataclass(frozen=True)
class Ballot:
    """The input of a party."""

    number: int


async def total(party: Party, own: Ballot, *, factor: int = 1) -> int:
    """Return the total, multiplied by a factor. This role has no mistake."""
    party.round(1)
    await broadcast(party, Number(number=own.number))
    received = [(await party.receive(Number, sender=peer)).number for peer in party.peers]
    return factor * (own.number + sum(received))


async def ignore_lost(party: Party, own: Ballot) -> int:
    """Count a lost peer as zero, without telling anybody."""
    party.tolerate_losses()
    party.round(1)
    found = own.number
    for peer in party.peers:
        with suppress(PeerLost, SessionAborted):
            await party.send(peer, Number(number=own.number))
    for peer in party.peers:
        with suppress(PeerLost, SessionAborted):
            found += (await party.receive(Number, sender=peer)).number
    return found


async def give_up_waiting(party: Party, own: Ballot) -> int:
    """Wait at most 3 s for each peer, and add up the numbers that arrived."""
    party.round(1)
    await broadcast(party, Number(number=own.number))
    found = own.number
    for peer in party.peers:
        with suppress(TimeoutError):
            async with asyncio.timeout(3.0):
                found += (await party.receive(Number, sender=peer)).number
    return found


async def look_up_lost(party: Party, own: Ballot) -> int:
    """Look a lost peer up in a table that has only the others."""
    party.tolerate_losses()
    party.round(1)
    found = {party.me: own.number}
    for peer in party.peers:
        with suppress(PeerLost, SessionAborted):
            await party.send(peer, Number(number=own.number))
    for peer in party.peers:
        with suppress(PeerLost, SessionAborted):
            found[peer] = (await party.receive(Number, sender=peer)).number
    return sum(found[name] for name in party.parties)


async def leave_task(party: Party, own: Ballot) -> int:
    """Leave a task behind."""
    task = asyncio.create_task(asyncio.sleep(1e6))
    _background.add(task)
    return await total(party, own)


def is_total(inputs: Mapping[str, Ballot], results: Mapping[str, Any]) -> None:
    """Require the total of all inputs."""
    due = sum(each.number for each in inputs.values())
    for party, found in results.items():
        assert found == due, f"{party} found {found}, not {due}"


def are_equal(_inputs: Mapping[str, Ballot], results: Mapping[str, Any]) -> None:
    """Require one result."""
    assert len(set(results.values())) <= 1, f"the results differ: {dict(results)}"


INPUTS: Final = {"ada": Ballot(1), "ben": Ballot(2), "cy": Ballot(4), "dee": Ballot(8)}
RIGHT: Final = RoleClaims(total, INPUTS, is_total)
TWICE: Final = RoleClaims(total, INPUTS, is_total, factor=2)
LOST: Final = RoleClaims(ignore_lost, INPUTS, are_equal)
LATE: Final = RoleClaims(give_up_waiting, INPUTS, is_total)
ABSENT: Final = RoleClaims(look_up_lost, INPUTS, are_equal)
BEHIND: Final = RoleClaims(leave_task, INPUTS, is_total)


@dataclass
class Inflate(Adversary):
    """Adds a number to each number that is sent."""

    more: int = 1

    async def sending(self, to: str, message: Message) -> Lines:
        """Return the message with a larger number."""
        assert isinstance(message, Number)
        return [(to, Number(number=message.number + self.more))]

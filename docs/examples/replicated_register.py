"""A register on several replicas that survives the loss of a minority, and a checker for it.

The algorithm is that of Attiya, Bar-Noy and Dolev ("Sharing memory robustly in message-passing
systems", JACM 42, 1995). Each operation asks a majority of the replicas for their latest value.
Then it stores the value that it writes, or the one that it has read, at a majority.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from veilring import Message, Party
from veilring.errors import PeerLost, SessionAborted
from veilring.nodes.party import broadcast_to_rest
from veilring.testing.exploring import explore
from veilring.testing.histories import check_linearizable, operation, recorded, register

INITIAL: Final = 0
PAUSE_SECONDS: Final = 0.1
READ: Final = None
OPERATIONS: Final[Mapping[str, Sequence[int | None]]] = {
    "ada": [1, 2, READ],
    "ben": [READ, 3, READ],
    "cy": [READ, READ, READ],
}
"""The operations of each party: a value that it writes, or a read."""
_GONE: Final = (PeerLost, SessionAborted)
Version = tuple[int, str, int]
"""The number of a version, its writer, and its value; a greater one is later."""


class Ask(Message, kind="register.ask"):
    """Asks a replica for its version."""

    call: int


class Store(Message, kind="register.store"):
    """Asks a replica to store a version, unless it has a later one."""

    call: int
    version: Version


class Held(Message, kind="register.held"):
    """Answers both: the version that a replica has now."""

    call: int
    version: Version


class Done(Message, kind="register.done"):
    """Says that a party needs its peers no longer."""


class Replica:
    """A party's copy of the register, and its operations on all copies."""

    def __init__(self, party: Party) -> None:
        self._party, self._held, self._calls = party, (0, "", INITIAL), 0
        self._done: set[str] = set()
        party.tolerate_losses()
        party.leave_unread()

    async def read(self) -> int:
        """Return the latest value."""
        async with operation(self._party, "read") as op:
            latest = max(await self._majority(Ask(call=self._next())))
            await self._majority(Store(call=self._next(), version=latest))
            op.result = latest[2]
        return latest[2]

    async def read_own(self) -> int:
        """Return the value of this party's copy, which may be an old one."""
        async with operation(self._party, "read") as op:
            op.result = self._held[2]
        return self._held[2]

    async def write(self, value: int) -> None:
        """Set the value."""
        async with operation(self._party, "write", value):
            number, _, _ = max(await self._majority(Ask(call=self._next())))
            version = (number + 1, self._party.me, value)
            await self._majority(Store(call=self._next(), version=version))

    async def pause(self, seconds: float) -> None:
        """Answer the others for a while."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    await self._take(self._party.peers)

    async def serve(self) -> None:
        """Answer until every peer is done or lost."""
        await broadcast_to_rest(self._party, Done())
        with suppress(*_GONE):
            while left := set(self._party.peers) - self._done:
                await self._take(left)

    def _next(self) -> int:
        self._calls += 1
        return self._calls

    async def _majority(self, request: Ask | Store) -> list[Version]:
        """Return the versions of this party and of the first peers that make up a majority."""
        if isinstance(request, Store):
            self._held = max(self._held, request.version)
        await broadcast_to_rest(self._party, request)
        versions, peers = [self._held], len(self._party.parties) // 2
        while len(versions) <= peers:
            answer = await self._take(self._party.peers, needed=peers)
            if answer is not None and answer.call == request.call:
                versions.append(answer.version)
        return versions

    async def _take(self, senders: Iterable[str], needed: int = 1) -> Held | None:
        """Receive a message, and answer it unless it is an answer."""
        kinds = (Ask, Store, Held, Done)
        sender, message = await self._party.receive_any(kinds, senders=senders, needed=needed)
        match message:
            case Held():
                return message
            case Done():
                self._done.add(sender)
            case Ask() | Store():
                if isinstance(message, Store):
                    self._held = max(self._held, message.version)
                with suppress(*_GONE):
                    await self._party.send(sender, Held(call=message.call, version=self._held))
        return None


async def replicated(party: Party, own: Sequence[int | None], *, asks: bool = True) -> list[int]:
    """Write the party's values, and return the values read, from a majority if it asks."""
    party.round(1)
    replica, found = Replica(party), []
    for value in own:
        await replica.pause(party.rng.exponential(PAUSE_SECONDS))
        if value is READ:
            found.append(await (replica.read() if asks else replica.read_own()))
        else:
            await replica.write(value)
    await replica.serve()
    return found


def is_a_register(_inputs: Mapping[str, object], _results: Mapping[str, object]) -> None:
    """Require that the operations of all parties, also of those that failed, have an order."""
    check_linearizable(recorded(), register(INITIAL))


def main() -> None:
    """Explore the register, and one whose readers do not ask."""
    right = explore(replicated, OPERATIONS, invariant=is_a_register, seeds=20)
    print("replicated:", len(right.failures), "of", right.seeds, "worlds went wrong;")
    print("   ", right.succeeded, "runs with a result,", right.failed, "with a named error")
    wrong = explore(replicated, OPERATIONS, invariant=is_a_register, seeds=10, asks=False)
    print("reads without asking:", len(wrong.failures), "of", wrong.seeds, "worlds went wrong")
    print("   ", wrong.smallest())


if __name__ == "__main__":
    main()

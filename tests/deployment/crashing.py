"""Deployments whose servers are killed repeatedly while clients ask them.

The crash programs beside this module share it: clients that retry, rounds of kills, and the report.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from tests.deployment.commands import SECONDS, Deployment

from veilring.deployment import load_config
from veilring.deployment.config import load_credentials
from veilring.errors import BudgetExhausted, VeilringError
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.randomness import Streams
from veilring.transport.tls import TlsEndpoint

T = TypeVar("T")
R = TypeVar("R")
Client = Callable[[asyncio.Event], Coroutine[Any, Any, None]]
"""Acts repeatedly until it is told to stop."""


@dataclass
class Crashes:
    """The observations of a crash test.

    Attributes:
        answered: Requests that were answered.
        retried: Requests that were repeated after they had been answered.
        interrupted: Attempts that ended without an answer.
        unsent: Kills after which the ledger held an answer that had not arrived.
    """

    answered: int = 0
    retried: int = 0
    interrupted: int = 0
    unsent: int = 0


async def until_answered(attempt: Callable[[], Awaitable[T]], seen: Crashes) -> T:
    """Try until the servers stay available to the end, or a budget is exhausted."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return await attempt()
        except BudgetExhausted:
            raise
        except VeilringError:
            assert time.monotonic() < deadline, "the server does not come back"
            seen.interrupted += 1
            await asyncio.sleep(0.05)


async def play(
    node: Node, server: str, role: Callable[..., Awaitable[T]], given: object, seen: Crashes
) -> T:
    """Play a role, each time in a new session, until there is an answer."""
    pair = Parties((node.name, server))

    async def attempt() -> T:
        return await node.run(role, Streams().token("session"), pair, given, seconds=SECONDS)

    return await until_answered(attempt, seen)


async def connected(folder: Path, name: str, server: str) -> Node:
    """Return the node of a client that is connected to a server."""
    config = load_config(folder / f"{name}.toml")
    endpoint = await TlsEndpoint.start(*load_credentials(config), connect_to=(server,))
    node = Node(endpoint, Streams())
    node.start()
    return node


@dataclass
class Asker(Generic[R]):
    """A client that asks new requests, and repeats old ones, which get the same answers.

    Attributes:
        invent: Returns a new request.
        answer: Asks until there is an answer.
        told: The answered requests with their answers.
        waiting: The request that has no answer yet.
    """

    invent: Callable[[], R]
    answer: Callable[[R], Awaitable[object]]
    rng: np.random.Generator
    seen: Crashes
    told: list[tuple[R, object]] = field(default_factory=list)
    waiting: R | None = None

    async def ask(self, request: R) -> None:
        """Get a new request answered."""
        self.waiting = request
        self.told.append((request, await self.answer(request)))
        self.waiting = None
        self.seen.answered += 1

    async def ask_again(self, number: int) -> None:
        """Repeat an answered request."""
        request, answer = self.told[number]
        assert await self.answer(request) == answer, "a retry was answered differently"
        self.seen.retried += 1

    async def ask_all_again(self) -> None:
        """Repeat all answered requests."""
        for number in range(len(self.told)):
            await self.ask_again(number)

    async def go_on(self, stop: asyncio.Event) -> None:
        """Ask new requests, and repeat some old ones, until told to stop."""
        while not stop.is_set():
            await self.ask(self.invent())
            if self.rng.random() < 0.3:
                await self.ask_again(int(self.rng.integers(len(self.told))))


async def kill_one(
    deployment: Deployment,
    servers: Sequence[str],
    clients: Sequence[Client],
    rng: np.random.Generator,
    check: Callable[[str], None],
) -> None:
    """Let all clients act, kill a server at some point, restart it, and let all finish.

    Args:
        check: Checks the invariants while the server of that name is dead.
    """
    stop, name = asyncio.Event(), str(rng.choice(servers))
    async with asyncio.TaskGroup() as group:
        for act in clients:
            group.create_task(act(stop))
        await asyncio.sleep(rng.uniform(0.05, 0.5))
        deployment.kill(name)  # in the middle of whatever it does
        check(name)
        await asyncio.to_thread(deployment.serve, name)
        stop.set()


def report_crashes(
    crash_rounds: Callable[[Path, int, int], Coroutine[Any, Any, object]], end: str = "\n"
) -> None:
    """Run a crash test with the ROUNDS and the SEED of the command line, and print its report."""
    rounds, seed = [*map(int, sys.argv[1:]), 1][:2]
    with tempfile.TemporaryDirectory() as where:
        started = time.monotonic()
        seen = asyncio.run(crash_rounds(Path(where) / "deployed", rounds, seed))
        sys.stdout.write(f"{seen}{end}{time.monotonic() - started:.0f} s\n")

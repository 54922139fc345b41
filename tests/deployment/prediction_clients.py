"""Clients of a prediction server that is killed: they retry questions and changes."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from tests.deployment.commands import SECONDS
from typing_extensions import override

from veilring.deployment import load_config
from veilring.deployment.config import load_credentials
from veilring.deployment.prediction import PredictionTerms
from veilring.errors import BudgetExhausted, VeilringError
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.nodes.service import opening
from veilring.protocols.prediction.client import add_at_server, forget_at_server, label_queries
from veilring.protocols.prediction.records import LabelledRecords
from veilring.protocols.prediction.server import ADD, FORGET, PREDICT
from veilring.protocols.system import SERVER
from veilring.randomness import Streams
from veilring.transport.tls import TlsEndpoint

BLOCK_MAX = 20

T = TypeVar("T")


@dataclass
class Crashes:
    """The observations of a crash test.

    Attributes:
        answered: Requests that were answered.
        retried: Requests that were repeated after they had been answered.
        changed: Records that were added or removed.
        interrupted: Attempts that ended without an answer.
        unsent: Kills after which the ledger held an answer that had not arrived.
        half_done: Kills after which an unacknowledged change turned out to be complete.
    """

    answered: int = 0
    retried: int = 0
    changed: int = 0
    interrupted: int = 0
    unsent: int = 0
    half_done: int = 0


class Observations(Protocol):
    """The observations of any crash test."""

    interrupted: int


async def play(
    node: Node, server: str, role: Callable[..., Awaitable[T]], given: object, seen: Observations
) -> T:
    """Play a role again until the server stays available to the end, or a budget is exhausted."""
    pair, deadline = Parties((node.name, server)), time.monotonic() + SECONDS
    while True:
        try:
            session = Streams().token("session")
            return await node.run(role, session, pair, given, seconds=SECONDS)
        except BudgetExhausted:
            raise
        except VeilringError:
            assert time.monotonic() < deadline, "the server does not come back"
            seen.interrupted += 1
            await asyncio.sleep(0.05)


async def connected(folder: Path, name: str, server: str) -> Node:
    """Return the node of a client that is connected to a server."""
    config = load_config(folder / f"{name}.toml")
    endpoint = await TlsEndpoint.start(*load_credentials(config), connect_to=(server,))
    node = Node(endpoint, Streams())
    node.start()
    return node


@dataclass
class Client(ABC):
    """A client that retries until there is an answer."""

    node: Node
    terms: PredictionTerms
    rng: np.random.Generator
    seen: Crashes

    @abstractmethod
    async def go_on(self, stop: asyncio.Event) -> None:
        """Act repeatedly until told to stop."""

    async def do(self, role: Callable[..., Awaitable[T]], given: object) -> T:
        """Play a role until there is an answer."""
        return await play(self.node, SERVER, role, given, self.seen)


@dataclass
class PredictionClient(Client):
    """A client that asks blocks of queries, and compares each retry with the earlier answer."""

    told: list[tuple[NDArray[np.float32], list[int]]] = field(default_factory=list)
    waiting: int = 0

    async def ask(self, queries: NDArray[np.float32]) -> list[int]:
        """Label one block."""
        opened = opening(label_queries, PREDICT, self.terms.digest)
        role = partial(opened, rules=self.terms.rules, block=BLOCK_MAX)
        labels: list[int] = (await self.do(role, queries)).tolist()
        return labels

    @override
    async def go_on(self, stop: asyncio.Event) -> None:
        """Ask new blocks, and repeat some old ones."""
        while not stop.is_set():
            rows = self.rng.random((int(self.rng.integers(1, BLOCK_MAX)), self.terms.width))
            queries = self.terms.directions(rows)
            self.waiting = len(queries)
            self.told.append((queries, await self.ask(queries)))
            self.waiting = 0
            self.seen.answered += 1
            if self.rng.random() < 0.3:
                await self.ask_again(int(self.rng.integers(len(self.told))))

    async def ask_again(self, number: int) -> None:
        """Repeat an answered question."""
        queries, labels = self.told[number]
        assert await self.ask(queries) == labels, "a retry was answered differently"
        self.seen.retried += 1


@dataclass
class Administrator(Client):
    """An administrator that adds and forgets a few records, and remembers their state."""

    records: LabelledRecords = field(kw_only=True)
    here: set[str] = field(default_factory=set)
    changing: set[str] = field(default_factory=set)

    @override
    async def go_on(self, stop: asyncio.Event) -> None:
        """Add some records and forget others."""
        while not stop.is_set():
            places = self.rng.permutation(len(self.records))[: int(self.rng.integers(1, 9))]
            some = self.records.take(places.tolist())
            self.changing = set(some.ids)
            await self.do(opening(add_at_server, ADD, self.terms.digest), some)
            self.here |= self.changing
            if self.rng.random() < 0.5:
                await self.do(opening(forget_at_server, FORGET, self.terms.digest), some.ids)
                self.here -= self.changing
            self.seen.changed += len(some)
            self.changing = set()

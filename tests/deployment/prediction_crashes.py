"""A deployed prediction server that is killed again and again while all ask and change it.

By hand: `python -m tests.deployment.prediction_crashes ROUNDS SEED`.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from veilring.data import load_table
from veilring.deployment import load_config, load_prediction_terms
from veilring.deployment.config import load_credentials
from veilring.deployment.prediction_files import read_records
from veilring.deployment.prediction_terms import PredictionSection, PredictionTerms
from veilring.deployment.trials.prediction import CURATOR, SERVER, write_prediction
from veilring.errors import VeilringError
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.privacy.ledger import UNITS, open_ledger, read_totals
from veilring.protocols.prediction.accounts import Accounts
from veilring.protocols.prediction.curator import adding, forgetting
from veilring.protocols.prediction.querier import ask_server
from veilring.protocols.prediction.records import Records
from veilring.protocols.prediction.rowfile import open_rows
from veilring.randomness import Streams
from veilring.transport.sockets import bind
from veilring.transport.tls import LOOPBACK, TlsEndpoint

__all__ = ("SECONDS", "Crashes", "Served", "crash_rounds")

SECONDS = 60.0  # a Python process on a busy machine
QUERIERS = ("querier-0", "querier-1")
# Each record is a neighbour of each query, and can pay for all of them.
EVERYBODY = PredictionSection(queries=100_000, epsilon=200.0, kernel="rbf", tau=0.1, sigma2=1.0)
STABLE = 100  # these records stay; the others come and go
BLOCK_MAX = 20

T = TypeVar("T")


class Served:
    """A folder of `veilring deploy prediction`, and the server that runs in it."""

    def __init__(self, folder: Path, prediction: PredictionSection, source: str = "wine") -> None:
        self.folder, self.state = folder, folder / "state"
        with bind(LOOPBACK, 0) as free:
            port = free.getsockname()[1]
        table = load_table(source)
        write_prediction(table, prediction, folder, queriers=len(QUERIERS), seed=0, port=port)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """What the server has to say."""
        return self.folder / "server.log"

    def serve(self) -> None:
        """Start the server and wait until it is ready."""
        self.log.write_text("")
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "veilring", "serve", f"{SERVER}.toml"]
            self.process = subprocess.Popen(command, cwd=self.folder, stderr=log)  # noqa: S603  (ourselves)
        deadline = time.monotonic() + SECONDS
        while "is ready" not in self.log.read_text():
            assert time.monotonic() < deadline, self.log.read_text()
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)

    def kill(self) -> None:
        """End the server as a loss of power would."""
        if self.process is not None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def everything(self) -> bytes:
        """Return the bytes of all files that the server has written."""
        files = [path for path in self.state.rglob("*") if path.is_file()]
        return b"".join(path.read_bytes() for path in (*files, self.log))


@dataclass
class Crashes:
    """What was seen.

    Attributes:
        answered: Requests that were answered.
        retried: Requests that were asked again after they had been answered.
        changed: Records that came or went.
        interrupted: Attempts that ended without an answer.
        unsent: Kills after which the ledger held an answer that had not arrived.
        half_done: Kills after which a change was found done that nobody had been told of.
    """

    answered: int = 0
    retried: int = 0
    changed: int = 0
    interrupted: int = 0
    unsent: int = 0
    half_done: int = 0


@dataclass
class Client(ABC):
    """Somebody with a connection to the server, who tries until there is an answer."""

    node: Node
    terms: PredictionTerms
    rng: np.random.Generator
    seen: Crashes

    @abstractmethod
    async def go_on(self, stop: asyncio.Event) -> None:
        """Do one thing after the other until told to stop."""

    async def do(self, role: Callable[..., Awaitable[T]], given: object) -> T:
        """Play a role again and again until the server was there to the end."""
        pair, deadline = Parties((self.node.name, SERVER)), time.monotonic() + SECONDS
        while True:
            try:
                session = Streams().token("session")
                return await self.node.run(role, session, pair, given, seconds=SECONDS)
            except VeilringError:
                assert time.monotonic() < deadline, "the server does not come back"
                self.seen.interrupted += 1
                await asyncio.sleep(0.05)


@dataclass
class Querier(Client):
    """Asks blocks, and holds each retry to what it was told before."""

    told: list[tuple[NDArray[np.float32], list[int]]] = field(default_factory=list)
    waiting: int = 0

    async def ask(self, queries: NDArray[np.float32]) -> list[int]:
        """Have one block labelled."""
        role = partial(ask_server(self.terms.digest), rules=self.terms.rules, block=BLOCK_MAX)
        labels: list[int] = (await self.do(role, queries)).tolist()
        return labels

    @override
    async def go_on(self, stop: asyncio.Event) -> None:
        """Ask one new block after the other, and some old ones again."""
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
        """Ask what was answered."""
        queries, labels = self.told[number]
        assert await self.ask(queries) == labels, "a retry was answered differently"
        self.seen.retried += 1


@dataclass
class Curator(Client):
    """Adds and forgets the same few records, and remembers which of them are there."""

    records: Records = field(kw_only=True)
    here: set[str] = field(default_factory=set)
    changing: set[str] = field(default_factory=set)

    @override
    async def go_on(self, stop: asyncio.Event) -> None:
        """Let some records come and others go."""
        while not stop.is_set():
            places = self.rng.permutation(len(self.records))[: int(self.rng.integers(1, 9))]
            some = self.records.take(places.tolist())
            self.changing = set(some.ids)
            await self.do(adding(self.terms.digest), some)
            self.here |= self.changing
            if self.rng.random() < 0.5:
                await self.do(forgetting(self.terms.digest), some.ids)
                self.here -= self.changing
            self.seen.changed += len(some)
            self.changing = set()


class Trial:
    """A server, its clients, and what must hold whenever it was killed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.served, self.seen = Served(folder, EVERYBODY), Crashes()
        self.terms = load_prediction_terms(folder / "terms.toml")
        self.records = read_records(folder / "records.csv", self.terms, "id")
        self.rng = np.random.default_rng(seed)
        self.queriers: list[Querier] = []
        self.left = np.full(STABLE, int(self.terms.rules.budget * UNITS))

    async def run(self, rounds: int) -> Crashes:
        """Kill the server so many times."""
        await asyncio.to_thread(self.served.serve)
        try:
            given = (self.terms, self.rng.spawn(1)[0], self.seen)
            stable, others = (
                self.records.take(range(*span)) for span in ((0, STABLE), (STABLE, STABLE + 30))
            )
            curator = Curator(await self._node(CURATOR), *given, records=others)
            await curator.do(adding(self.terms.digest), stable)
            self.queriers = [Querier(await self._node(name), *given) for name in QUERIERS]
            for _ in range(rounds):
                await self._round(curator, float(self.rng.uniform(0.05, 0.5)))
            for querier in self.queriers:
                for number in range(len(querier.told)):
                    await querier.ask_again(number)
            self.served.kill()
            self._check(curator)
            for client in (curator, *self.queriers):
                await client.node.close()
        finally:
            self.served.kill()
        return self.seen

    async def _node(self, name: str) -> Node:
        config = load_config(self.served.folder / f"{name}.toml")
        endpoint = await TlsEndpoint.start(*load_credentials(config), connect_to=(SERVER,))
        node = Node(endpoint, Streams())
        node.start()
        return node

    async def _round(self, curator: Curator, seconds: float) -> None:
        """Let all go on, kill the server at some point, start it again, and let all finish."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for client in (curator, *self.queriers):
                group.create_task(client.go_on(stop))
            await asyncio.sleep(seconds)
            self.served.kill()  # in the middle of whatever it does
            self._check(curator)
            await asyncio.to_thread(self.served.serve)
            stop.set()

    def _check(self, curator: Curator) -> None:
        self._check_charges()
        self._check_records(curator)

    def _check_charges(self) -> None:
        """No answer left before it was paid for, by its querier and by each record."""
        rules = self.terms.rules
        totals = read_totals(self.served.state / "budgets.sqlite")
        told = sum(len(labels) for each in self.queriers for _, labels in each.told)
        waiting = sum(querier.waiting for querier in self.queriers)
        assert told <= totals.spent <= told + waiting, "an answer left before it was paid for"
        answers = sum(len(querier.told) for querier in self.queriers)
        self.seen.unsent += totals.answers - answers
        entry = rules.predictor().parameters.entry_units
        dearest = entry + int(UNITS / (2 * rules.sigma2**2 * 30)) + 1
        with open_ledger(self.served.state / "budgets.sqlite", rules.budgets) as ledger:
            accounts = Accounts(ledger, rules.queriers)
            numbers = np.arange(STABLE)
            accounts.add(self.records.ids[:STABLE], numbers)
            left = accounts.remaining("", numbers)
        assert np.all(left <= self.left), "a record's budget was refunded"
        paid = int(rules.budget * UNITS) - left
        assert np.all(paid >= totals.spent * entry), "a record did not pay for an answer"
        assert np.all(paid <= totals.spent * dearest), "a record paid twice"
        self.left = left

    def _check_records(self, curator: Curator) -> None:
        """What was added is there, and of what was forgotten is not a byte."""
        rows = open_rows(self.served.state / "rows.bin", self.terms.width, self.terms.schema_digest)
        found = {name for records in rows.load() for name in records.ids}
        rows.close()
        sure = (set(self.records.ids[:STABLE]) | curator.here) - curator.changing
        assert sure <= found <= sure | curator.changing
        self.seen.half_done += bool(curator.changing & (found ^ curator.here))
        content = self.served.everything()
        for name, row in zip(curator.records.ids, curator.records.features, strict=True):
            if name not in found:
                assert f"{name}\0".encode() not in content
                assert row.tobytes() not in content


async def crash_rounds(folder: Path, rounds: int, seed: int) -> Crashes:
    """Kill a server so many times, and check what must hold after each time and in the end."""
    return await Trial(folder, seed).run(rounds)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        started = time.monotonic()
        rounds, seed = map(int, sys.argv[1:])
        print(asyncio.run(crash_rounds(Path(where) / "served", rounds, seed)))  # noqa: T201  (by hand)
        print(f"{time.monotonic() - started:.0f} s")  # noqa: T201  (by hand)

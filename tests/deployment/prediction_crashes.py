"""A deployed prediction server that is killed repeatedly while clients use and change it.

To run it manually: `python -m tests.deployment.prediction_crashes ROUNDS SEED`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.deployment import crashing
from tests.deployment.commands import Deployment
from tests.deployment.crashing import Asker, Client, connected, kill_one, play, report_crashes

from veilring.deployment.examples.folder import REGISTRAR
from veilring.deployment.prediction import PredictionTerms, read_records
from veilring.nodes.node import Node
from veilring.nodes.service import opening
from veilring.privacy.budgets import UNITS
from veilring.privacy.ledger import open_ledger
from veilring.protocols.prediction.client import add_at_server, forget_at_server, label_queries
from veilring.protocols.prediction.records import Accounts
from veilring.protocols.prediction.server import ADD, FORGET, PREDICT
from veilring.protocols.prediction.state import RowTable
from veilring.protocols.system import SERVER

CLIENTS = ("client-0", "client-1")
# Each record is a neighbour of each query, and can pay for all of them.
EVERYBODY = ("kernel=rbf", "tau=0.1", "sigma2=4.0", "queries=1000000", "epsilon=200.0")
STABLE = 100  # these records stay; the others come and go
BLOCK_MAX = 20
Role = Callable[..., Awaitable[Any]]


@dataclass
class Crashes(crashing.Crashes):
    """The observations of a crash test.

    Attributes:
        changed: Records that were added or removed.
        half_done: Kills after which an unacknowledged change turned out to be complete.
    """

    changed: int = 0
    half_done: int = 0


class Trial:
    """A server, its clients, and the invariants after each kill.

    Attributes:
        records: The records that stay, and those that an administrator adds and forgets.
        here: The records of these that it has added and not forgotten.
        changing: The records that it is adding or forgetting.
        left: The remaining budgets of the records that stay.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        options = (f"--set=protocol.{each}" for each in EVERYBODY)
        self.deployed = Deployment(folder, "prediction", "--clients", len(CLIENTS), *options)
        self.deployed.let_all(SERVER)
        self.terms, self.seen = PredictionTerms.load(folder / "terms.toml"), Crashes()
        every = read_records(folder / "records.csv", self.terms, "id")
        self.records = every.take(range(STABLE)), every.take(range(STABLE, STABLE + 30))
        self.here, self.changing = set[str](), set[str]()
        self.rng = np.random.default_rng(seed)
        self.clients = list[Asker[NDArray[np.float32]]]()
        self.left = np.full(STABLE, int(self.terms.rules.budget * UNITS))

    async def _change(self, node: Node, role: Role, service: str, given: object) -> None:
        opened = opening(role, service, self.terms.digest)
        await play(node, SERVER, opened, given, self.seen)

    async def _change_on(self, node: Node, rng: np.random.Generator, stop: asyncio.Event) -> None:
        """Add some records and forget others, until told to stop."""
        while not stop.is_set():
            places = rng.permutation(len(self.records[1]))[: int(rng.integers(1, 9))]
            some = self.records[1].take(places.tolist())
            self.changing = set(some.ids)
            await self._change(node, add_at_server, ADD, some)
            self.here |= self.changing
            if rng.random() < 0.5:
                await self._change(node, forget_at_server, FORGET, some.ids)
                self.here -= self.changing
            self.seen.changed += len(some)
            self.changing = set()

    def _client(self, node: Node) -> Asker[NDArray[np.float32]]:
        """Return a client that asks blocks of queries."""
        opened, rng = opening(label_queries, PREDICT, self.terms.digest), self.rng.spawn(1)[0]
        role = partial(opened, rules=self.terms.rules, block=BLOCK_MAX)

        def invent() -> NDArray[np.float32]:
            rows = rng.random((int(rng.integers(1, BLOCK_MAX)), self.terms.width))
            return self.terms.directions(rows)

        async def answer(queries: NDArray[np.float32]) -> list[int]:
            labels: list[int] = (await play(node, SERVER, role, queries, self.seen)).tolist()
            return labels

        return Asker(invent, answer, rng, self.seen)

    async def run(self, rounds: int) -> Crashes:
        """Kill the server the given number of times."""
        folder = self.deployed.folder
        await asyncio.to_thread(self.deployed.serve, SERVER)
        try:
            nodes = [await connected(folder, name, SERVER) for name in (REGISTRAR, *CLIENTS)]
            await self._change(nodes[0], add_at_server, ADD, self.records[0])
            self.clients = [self._client(node) for node in nodes[1:]]
            administrator = partial(self._change_on, nodes[0], self.rng.spawn(1)[0])
            actors: list[Client] = [administrator, *(each.go_on for each in self.clients)]
            for _ in range(rounds):
                await kill_one(self.deployed, [SERVER], actors, self.rng, self._check)
            for client in self.clients:
                await client.ask_all_again()
            self.deployed.kill()
            self._check(SERVER)
            for node in nodes:
                await node.close()
        finally:
            self.deployed.kill()
        return self.seen

    def _check(self, _: str) -> None:
        self._check_charges()
        self._check_records()

    def _check_charges(self) -> None:
        """Check that no answer was sent before its client and each record had paid for it."""
        rules, totals = self.terms.rules, self.deployed.totals(SERVER)
        told = sum(len(queries) for each in self.clients for queries, _ in each.told)
        waiting = sum(len(each.waiting) for each in self.clients if each.waiting is not None)
        assert told <= totals.spent <= told + waiting, "an answer left before it was paid for"
        assert self.deployed.usage(SERVER)[0] == totals.spent, "not counted as charged"
        entered = [each for each in self.deployed.trail(SERVER, "answered") if each.get("charged")]
        assert sum(each["queries"] for each in entered) == totals.spent, "an answer is not entered"
        self.seen.unsent += totals.answers - sum(len(client.told) for client in self.clients)
        entry = rules.predictor().parameters.entry_units
        dearest = entry + int(UNITS / (2 * rules.sigma2**2 * 30)) + 1
        with open_ledger(self.deployed.folder / "server.db", rules.budgets) as ledger:
            accounts = Accounts(ledger, rules.system.clients)
            numbers = np.arange(STABLE)
            accounts.add(self.records[0].ids, numbers)
            left = accounts.remaining("", numbers)
        assert np.all(left <= self.left), "a record's budget was refunded"
        paid = int(rules.budget * UNITS) - left
        assert np.all(paid >= totals.spent * entry), "a record did not pay for an answer"
        assert np.all(paid <= totals.spent * dearest), "a record paid twice"
        self.left = left

    def _check_records(self) -> None:
        """Check that added records exist, and that no byte of forgotten ones is left."""
        with open_ledger(self.deployed.folder / "server.db", self.terms.rules.budgets) as ledger:
            rows = RowTable(ledger, self.terms.width, self.terms.schema_digest)
            found = {name for records in rows.load() for name in records.ids}
        stable, others = self.records
        sure = (set(stable.ids) | self.here) - self.changing
        assert sure <= found <= sure | self.changing
        self.seen.half_done += bool(self.changing & (found ^ self.here))
        content = written_by_server(self.deployed)
        for name, row in zip(others.ids, others.features, strict=True):
            if name not in found:
                assert f"{name}\0".encode() not in content
                assert row.tobytes() not in content


def written_by_server(deployed: Deployment) -> bytes:
    """Return the content of all files that the server has written."""
    files = (*deployed.folder.glob("server.db*"), deployed.folder / "server.log")
    return b"".join(path.read_bytes() for path in files)


async def crash_rounds(folder: Path, rounds: int, seed: int) -> Crashes:
    """Kill a server the given number of times, and check its invariants after each kill."""
    return await Trial(folder, seed).run(rounds)


if __name__ == "__main__":
    report_crashes(crash_rounds)

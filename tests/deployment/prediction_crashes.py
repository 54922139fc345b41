"""A deployed prediction server that is killed repeatedly while clients use and change it.

To run it manually: `python -m tests.deployment.prediction_crashes ROUNDS SEED`.
"""

import asyncio
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from tests.deployment.commands import Server
from tests.deployment.prediction_clients import Administrator, Crashes, PredictionClient, connected

from veilring.data.sources import load
from veilring.deployment.examples import REGISTRAR, NewDeployment, PredictionExample
from veilring.deployment.prediction import PredictionTerms, read_records
from veilring.nodes.service import opening
from veilring.privacy.budgets import UNITS
from veilring.privacy.ledger import open_ledger, read_totals
from veilring.protocols.prediction.client import add_at_server
from veilring.protocols.prediction.records import Accounts
from veilring.protocols.prediction.server import ADD
from veilring.protocols.prediction.state import RowTable
from veilring.protocols.prediction.system import IndKNN
from veilring.protocols.system import SERVER
from veilring.testing.ports import reserve_ports

CLIENTS = ("client-0", "client-1")
# Each record is a neighbour of each query, and can pay for all of them.
EVERYBODY = IndKNN(queries=1_000_000, epsilon=200.0, kernel="rbf", tau=0.1, sigma2=4.0)
STABLE = 100  # these records stay; the others come and go


class Served(Server):
    """A folder written by `veilring deploy prediction`, and its running server."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, SERVER)
        self.state = folder / "server.db"

    @classmethod
    def deployed(cls, folder: Path, prediction: IndKNN) -> "Served":
        """Write the folder for the wine data."""
        example = PredictionExample.model_validate(
            prediction.model_dump(include={"epsilon", "queries"}) | {"clients": len(CLIENTS)}
        )
        settings = {"protocol": prediction.model_dump(exclude_defaults=True)}
        example.write(load("wine"), NewDeployment(folder, 0, reserve_ports(), settings))
        return cls(folder)

    def everything(self) -> bytes:
        """Return the content of all files that the server has written."""
        files = self.state.parent.glob(f"{self.state.name}*")
        return b"".join(path.read_bytes() for path in (*files, self.log))


class Trial:
    """A server, its clients, and the invariants after each kill."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.served, self.seen = Served.deployed(folder, EVERYBODY), Crashes()
        self.terms = PredictionTerms.load(folder / "terms.toml")
        self.records = read_records(folder / "records.csv", self.terms, "id")
        self.rng = np.random.default_rng(seed)
        self.clients: list[PredictionClient] = []
        self.left = np.full(STABLE, int(self.terms.rules.budget * UNITS))

    async def run(self, rounds: int) -> Crashes:
        """Kill the server the given number of times."""
        node = partial(connected, self.served.folder, server=SERVER)
        await asyncio.to_thread(self.served.serve)
        try:
            given = (self.terms, self.rng.spawn(1)[0], self.seen)
            stable, others = (
                self.records.take(range(*span)) for span in ((0, STABLE), (STABLE, STABLE + 30))
            )
            administrator = Administrator(await node(REGISTRAR), *given, records=others)
            await administrator.do(opening(add_at_server, ADD, self.terms.digest), stable)
            self.clients = [PredictionClient(await node(name), *given) for name in CLIENTS]
            for _ in range(rounds):
                await self._round(administrator, float(self.rng.uniform(0.05, 0.5)))
            for client in self.clients:
                for number in range(len(client.told)):
                    await client.ask_again(number)
            self.served.kill()
            self._check(administrator)
            for each in (administrator, *self.clients):
                await each.node.close()
        finally:
            self.served.kill()
        return self.seen

    async def _round(self, administrator: Administrator, seconds: float) -> None:
        """Let all clients act, kill the server at some point, restart it, and let all finish."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for client in (administrator, *self.clients):
                group.create_task(client.go_on(stop))
            await asyncio.sleep(seconds)
            self.served.kill()  # in the middle of whatever it does
            self._check(administrator)
            await asyncio.to_thread(self.served.serve)
            stop.set()

    def _check(self, administrator: Administrator) -> None:
        self._check_charges()
        self._check_records(administrator)

    def _check_charges(self) -> None:
        """Check that no answer was sent before its client and each record had paid for it."""
        rules = self.terms.rules
        totals = read_totals(self.served.state)
        told = sum(len(labels) for each in self.clients for _, labels in each.told)
        waiting = sum(client.waiting for client in self.clients)
        assert told <= totals.spent <= told + waiting, "an answer left before it was paid for"
        answers = sum(len(client.told) for client in self.clients)
        self.seen.unsent += totals.answers - answers
        entry = rules.predictor().parameters.entry_units
        dearest = entry + int(UNITS / (2 * rules.sigma2**2 * 30)) + 1
        with open_ledger(self.served.state, rules.budgets) as ledger:
            accounts = Accounts(ledger, rules.system.clients)
            numbers = np.arange(STABLE)
            accounts.add(self.records.ids[:STABLE], numbers)
            left = accounts.remaining("", numbers)
        assert np.all(left <= self.left), "a record's budget was refunded"
        paid = int(rules.budget * UNITS) - left
        assert np.all(paid >= totals.spent * entry), "a record did not pay for an answer"
        assert np.all(paid <= totals.spent * dearest), "a record paid twice"
        self.left = left

    def _check_records(self, administrator: Administrator) -> None:
        """Check that added records exist, and that no byte of forgotten ones is left."""
        schema = self.terms.schema_digest
        with open_ledger(self.served.state, self.terms.rules.budgets) as ledger:
            rows = RowTable(ledger, self.terms.width, schema)
            found = {name for records in rows.load() for name in records.ids}
        sure = (set(self.records.ids[:STABLE]) | administrator.here) - administrator.changing
        assert sure <= found <= sure | administrator.changing
        self.seen.half_done += bool(administrator.changing & (found ^ administrator.here))
        content = self.served.everything()
        for name, row in zip(
            administrator.records.ids, administrator.records.features, strict=True
        ):
            if name not in found:
                assert f"{name}\0".encode() not in content
                assert row.tobytes() not in content


async def crash_rounds(folder: Path, rounds: int, seed: int) -> Crashes:
    """Kill a server the given number of times, and check its invariants after each kill."""
    return await Trial(folder, seed).run(rounds)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        started = time.monotonic()
        rounds, seed = map(int, sys.argv[1:])
        print(asyncio.run(crash_rounds(Path(where) / "served", rounds, seed)))
        print(f"{time.monotonic() - started:.0f} s")

"""A deployed data owner that is killed repeatedly while two analysts ask it.

To run it manually: `python -m tests.deployment.owner_crashes ROUNDS`.
"""

import asyncio
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import tomli_w
from tests.deployment.commands import Server
from tests.deployment.prediction_clients import connected, play
from typer.testing import CliRunner, Result

from veilring.cli.app import app
from veilring.data.sources import load
from veilring.deployment.examples import OWNER, NewDeployment, OwnerExample
from veilring.deployment.owner import OwnerTerms
from veilring.errors import BudgetExhausted
from veilring.nodes.node import Node
from veilring.nodes.service import opening
from veilring.privacy.ledger import read_totals
from veilring.protocols.radius.messages import LabelRequest
from veilring.protocols.radius.owner import LABEL_SERVICE, ask_within, request_labels
from veilring.testing.ports import reserve_ports

ANALYSTS = ("analyst-0", "analyst-1")
PRICE, LAST_PRICE = 0.001, 0.5
TOTAL, ANALYST = 20.0, 12.0


class Deployed(Server):
    """A folder written by `veilring deploy owner`, and its running owner."""

    def __init__(
        self, folder: Path, *, budgets: dict[str, float], asked: dict[str, float] | None = None
    ) -> None:
        super().__init__(folder, OWNER)
        options = asked or {"epsilon": 1.0, "radius": 0.2}
        example = OwnerExample.model_validate(options | {"analysts": len(ANALYSTS)})
        example.write(load("iris"), NewDeployment(folder, 0, reserve_ports()))
        path = folder / f"{OWNER}.toml"
        config = tomllib.loads(path.read_text()) | {"budgets": budgets}
        path.write_text(tomli_w.dumps(config))

    @property
    def ledger(self) -> Path:
        """The path of the ledger."""
        return self.folder / "owner.db"

    def ask(self, number: int) -> Result:
        """Run an analyst's command in this process."""
        name = str(self.folder / f"analyst-{number}")
        return CliRunner().invoke(app, ["ask", f"{name}.toml", f"{name}.csv"])


@dataclass
class Crashes:
    """The observations of a crash test.

    Attributes:
        answered: Requests that were answered.
        retried: Requests that were repeated after they had been answered.
        interrupted: Attempts that ended without an answer.
        unsent: Kills after which the ledger held an answer that had not arrived.
        spent: The charges in the ledger at the end.
    """

    answered: int = 0
    retried: int = 0
    interrupted: int = 0
    unsent: int = 0
    spent: float = 0.0


@dataclass
class Analyst:
    """An analyst with its requests and the answers."""

    node: Node
    terms: OwnerTerms
    rng: np.random.Generator
    seen: Crashes
    told: dict[bytes, tuple[LabelRequest, bytes]] = field(default_factory=dict)
    pending: LabelRequest | None = None

    def invent(self, price: float) -> LabelRequest:
        """Create a new request."""
        count, features = int(self.rng.integers(1, 40)), self.terms.width
        radii = self.rng.uniform(0, 0.5, count)
        return ask_within(self.rng.random((count, features)), radii, price)

    async def ask(self, request: LabelRequest) -> None:
        """Ask until there is an answer, and compare it with an earlier one."""
        opened = opening(request_labels, LABEL_SERVICE, self.terms.digest)
        role = partial(opened, rules=self.terms.rules)
        labels = (await play(self.node, OWNER, role, request, self.seen)).labels.tobytes()
        if request.key in self.told:
            assert self.told[request.key][1] == labels, "a retry was answered differently"
            self.seen.retried += 1
        else:
            self.told[request.key] = request, labels
            self.seen.answered += 1

    async def ask_on(self, stop: asyncio.Event) -> None:
        """Ask new requests, and repeat some old ones, until told to stop."""
        while not stop.is_set():
            self.pending = self.invent(PRICE)
            await self.ask(self.pending)
            self.pending = None
            if self.told and self.rng.random() < 0.3:
                keys = list(self.told)
                await self.ask(self.told[keys[int(self.rng.integers(len(keys)))]][0])

    async def exhaust(self) -> int:
        """Ask expensive requests until the budget is exhausted; return the number of answers."""
        answered, left = 0, LAST_PRICE
        while left >= LAST_PRICE:
            try:
                await self.ask(self.invent(LAST_PRICE))
                answered += 1
            except BudgetExhausted as error:
                left = error.left or 0.0
        return answered


async def crash_rounds(folder: Path, rounds: int, seed: int) -> Crashes:
    """Kill the owner the given number of times, and check its invariants after each kill."""
    deployed = Deployed(folder, budgets={"total": TOTAL, "analyst": ANALYST})
    seen, rng = Crashes(), np.random.default_rng(seed)
    await asyncio.to_thread(deployed.serve)
    try:
        terms = OwnerTerms.load(folder / "terms.toml")
        analysts = [
            Analyst(await connected(folder, name, OWNER), terms, rng.spawn(1)[0], seen)
            for name in ANALYSTS
        ]
        for _ in range(rounds):
            await _round(deployed, analysts, float(rng.uniform(0.05, 0.5)))
        for analyst in analysts:
            for request, _ in list(analyst.told.values()):
                await analyst.ask(request)
        dear = sum(await asyncio.gather(*(analyst.exhaust() for analyst in analysts)))
        _check(deployed, seen, dear)
        for analyst in analysts:
            await analyst.node.close()
    finally:
        deployed.kill()
    return seen


async def _round(deployed: Deployed, analysts: list[Analyst], seconds: float) -> None:
    """Let both ask, kill the owner at some point, restart it, and let both finish."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for analyst in analysts:
            group.create_task(analyst.ask_on(stop))
        await asyncio.sleep(seconds)
        deployed.kill()  # in the middle of whatever it does
        told = sum(len(analyst.told) for analyst in analysts)
        totals = read_totals(deployed.ledger)
        waiting = sum(analyst.pending is not None for analyst in analysts)
        assert told <= totals.answers <= told + waiting, "an answer left before it was paid for"
        assert totals.spent <= TOTAL
        analysts[0].seen.unsent += totals.answers - told
        await asyncio.to_thread(deployed.serve)
        stop.set()


def _check(deployed: Deployed, seen: Crashes, dear: int) -> None:
    """Compare the ledger with the analysts' answers."""
    totals = read_totals(deployed.ledger)
    assert totals.answers == seen.answered, "a request was charged twice, or for nothing"
    spent = round((seen.answered - dear) * PRICE + dear * LAST_PRICE, 6)
    assert totals.spent == spent <= TOTAL
    assert all(each.spent <= ANALYST for each in totals.analysts)
    assert TOTAL - spent < LAST_PRICE, "a budget was left that nobody could spend"
    seen.spent = spent


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        started = time.monotonic()
        print(asyncio.run(crash_rounds(Path(where) / "owner", int(sys.argv[1]), 1)))
        print(f"{time.monotonic() - started:.0f} s")

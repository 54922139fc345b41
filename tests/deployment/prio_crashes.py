"""Deployed aggregators that are killed repeatedly while clients report and a collector asks.

To run it manually: `python -m tests.deployment.prio_crashes ROUNDS`.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from tests.deployment import crashing
from tests.deployment.commands import SECONDS, Deployment
from tests.deployment.crashing import kill_one, report_crashes, until_answered

from veilring.deployment.surveys.upload_client import Uploader, open_uploader
from veilring.privacy.statefile import read_state_file
from veilring.protocols.prio.algorithm.prio3 import Prio3
from veilring.protocols.prio.client import Recipients, make_report
from veilring.protocols.prio.messages import Verdict
from veilring.protocols.prio.scheme import scheme_of
from veilring.protocols.prio.store import SHARES
from veilring.protocols.prio.task import Task
from veilring.randomness import Streams

AGGREGATORS = ("leader", "helper")
MINIMUM, AT_ONCE = 20, 8
# So large that a total is off by any noise once in e**40 times: then it shows who was counted.
PRICE, BUDGET = 40.0, 1e6
FORGED_SHARE, KILLED_SHARE = 0.1, 0.3


class Batch(NamedTuple):
    """A batch in the state of an aggregator."""

    ids: frozenset[bytes]
    agreed: bool
    is_released: bool


@dataclass
class Crashes(crashing.Crashes):
    """The observations.

    Attributes:
        batches: The batches that were closed and collected.
        refused: The forged reports that were refused.
        collections: The collections that ended, and those that were killed.
    """

    batches: int = 0
    refused: int = 0
    collections: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return (
            f"{self.answered} reports acknowledged, {self.interrupted} interrupted attempts\n"
            f"{self.batches} batches, each once; {self.refused} forged reports refused;"
            f" collections: {dict(self.collections)}\n"
        )


class Forging(Prio3):
    """A scheme whose shares are those of an invalid measurement."""

    def shard(self, *given: Any) -> Any:
        """Return shares of which the leader's has one other bit."""
        public, (leader, helper) = super().shard(*given)
        leader = leader.copy()
        leader[:, 0] ^= 1
        return public, (leader, helper)


@dataclass
class Clients:
    """Clients that report a value each, until it is acknowledged.

    Attributes:
        acknowledged: The values of valid reports by their ids.
        forged: The ids of reports that are not valid.
    """

    task: Task
    uploader: Uploader
    recipients: Recipients
    rng: Generator
    seen: Crashes
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    forged: set[bytes] = field(default_factory=set)

    async def report(self, *, is_valid: bool | None = None) -> None:
        """Make one report, and upload it until it is acknowledged."""
        prio, value = scheme_of(self.task.vdaf), int(self.rng.integers(3))
        valid = self.rng.random() >= FORGED_SHARE if is_valid is None else is_valid
        made = prio if valid else Forging(prio.circuit, prio.algorithm_id)
        given = (self.task, made, self.recipients, value)
        report = make_report(*given, now=time.time(), generator=Streams().generator("client"))
        await until_answered(partial(self.uploader.send, report.encode()), self.seen)
        self.seen.answered += 1
        if valid:
            self.acknowledged[report.metadata.report_id] = value
        else:
            self.forged.add(report.metadata.report_id)

    async def go_on(self, stop: asyncio.Event) -> None:
        """Report until told to stop."""
        while not stop.is_set():
            await self.report()


@dataclass
class Collector:
    """A collector that asks repeatedly, and is sometimes killed.

    Attributes:
        told: The totals of each batch, which never change.
    """

    deployed: Deployment
    rng: Generator
    seen: Crashes
    told: dict[int, tuple[int, list[int]]] = field(default_factory=dict)

    async def go_on(self, stop: asyncio.Event) -> None:
        """Collect until told to stop."""
        while not stop.is_set():
            await asyncio.to_thread(self.collect, kills=True)

    def collect(self, *, kills: bool = False) -> bool:
        """Collect once, or be killed; return whether totals arrived."""
        command = self.deployed.command("estimate", "collector.toml", "--json", log="estimate")
        if kills and self.rng.random() < KILLED_SHARE:
            time.sleep(self.rng.uniform(0, 1))
            command.kill()
            self.seen.collections["killed"] += 1
            return False
        code = command.wait(SECONDS)
        self.seen.collections["ended" if code == 0 else "failed"] += 1
        if code:
            assert "Traceback" not in command.output, command.output
            return False
        text = command.output
        for each in json.loads(text[text.index("{\n") :])["batches"]:
            found = each["reports"], each["totals"]
            assert self.told.setdefault(each["number"], found) == found, "another total"
        return True


def read_batches(folder: Path, name: str) -> tuple[dict[int, Batch], dict[bytes, Verdict]]:
    """Return the batches and the verdicts in the state of an aggregator."""
    with read_state_file(folder / f"{name}.db", SHARES) as db:
        verdicts = {each: Verdict(v) for each, v in db.execute("SELECT id, verdict FROM uploads")}
        rows = db.execute("SELECT number, agreed, total IS NOT NULL FROM batches").fetchall()
        find = "SELECT id FROM uploads WHERE batch = ?"
        batches = {
            number: Batch(
                frozenset(each for (each,) in db.execute(find, (number,))),
                bool(agreed),
                bool(released),
            )
            for number, agreed, released in rows
        }
    return batches, verdicts


def check(deployed: Deployment, clients: Clients, name: str) -> None:
    """Check the state of an aggregator that is dead."""
    batches, verdicts = read_batches(deployed.folder, name)
    members = [each for batch in batches.values() for each in batch.ids]
    assert len(members) == len(set(members)), "a report is in two batches"
    assert all(verdicts[each] == Verdict.ACCEPTED for each in members)
    spent = deployed.totals(name).spent
    released = sum(batch.is_released for batch in batches.values())
    assert round(spent / PRICE) == released, "a batch was not charged exactly once"
    assert deployed.usage(name) == (released, spent), "not counted as charged"
    if name == "leader":
        known = {*clients.acknowledged, *clients.forged}
        assert known <= set(verdicts), "an acknowledged report is lost"


def deploy_sum(folder: Path) -> Deployment:
    """Write a deployment whose aggregators answer any number of collections."""
    options = ("--minimum", MINIMUM, "--epsilon", PRICE, "--budget", BUDGET)
    deployed = Deployment(folder, "sum", *options)
    deployed.let_all(*AGGREGATORS)
    return deployed


@asynccontextmanager
async def open_clients(folder: Path, seen: Crashes, rng: Generator) -> AsyncIterator[Clients]:
    """Yield clients of served aggregators."""
    task = Task.decode((folder / "task.json").read_bytes())
    async with open_uploader(task, pauses=()) as uploader:
        recipients = await uploader.fetch_recipients()
        yield Clients(task, uploader, recipients, rng.spawn(1)[0], seen)


async def crash_rounds(folder: Path, rounds: int, seed: int) -> Crashes:
    """Kill aggregators and collectors, and check that each report counts once at both."""
    deployed, seen, rng = deploy_sum(folder), Crashes(), np.random.default_rng(seed)
    try:
        await asyncio.to_thread(deployed.serve, *AGGREGATORS)
        async with open_clients(folder, seen, rng) as clients:
            collector = Collector(deployed, rng.spawn(1)[0], seen)
            acting = [*[clients.go_on] * AT_ONCE, collector.go_on]
            see = partial(check, deployed, clients)
            for _ in range(rounds):
                await kill_one(deployed, AGGREGATORS, acting, rng, see)
            await finish(clients, collector)
        deployed.end_in_order()
        compare(deployed, clients, collector)
    finally:
        deployed.kill()
    return seen


async def finish(clients: Clients, collector: Collector) -> None:
    """Fill the last batch, and wait until everything is verified and collected."""
    while len(clients.acknowledged) % MINIMUM:
        await clients.report(is_valid=True)
    due, deadline = len(clients.acknowledged) // MINIMUM, time.monotonic() + SECONDS
    while not (await asyncio.to_thread(collector.collect) and len(collector.told) == due):
        assert time.monotonic() < deadline, (len(collector.told), due)
    clients.seen.batches = due


def compare(deployed: Deployment, clients: Clients, collector: Collector) -> None:
    """Check that each acknowledged report was counted exactly once, at both aggregators."""
    for name in AGGREGATORS:
        check(deployed, clients, name)
    (leader, verdicts), (helper, _) = (read_batches(deployed.folder, n) for n in AGGREGATORS)
    assert leader == helper
    assert all(batch.agreed and batch.is_released for batch in leader.values())
    counted = [each for batch in leader.values() for each in batch.ids]
    assert sorted(counted) == sorted(clients.acknowledged)
    assert all(verdicts[each] == Verdict.INVALID for each in clients.forged)
    clients.seen.refused = len(clients.forged)
    for number, batch in leader.items():
        values = [clients.acknowledged[each] for each in batch.ids]
        total = np.bincount(values, minlength=3).tolist()
        assert collector.told[number] == (len(values), total), "a total of other reports"


if __name__ == "__main__":
    report_crashes(crash_rounds, end="")

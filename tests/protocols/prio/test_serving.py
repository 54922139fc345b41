"""A served leader and helper: what they verify, whom they answer, and what ends them."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

import numpy as np
import pytest
from tests.privacy.generators import seeded
from tests.protocols.prio.reporting import Pair, add, forged, make_task, uploads_of

from veilring.errors import BudgetExhausted, NotReady, SessionAborted, StoreFailed
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.nodes.service import Service, run_inline
from veilring.protocols.prio import aggregator
from veilring.protocols.prio.messages import Verdict
from veilring.protocols.prio.release import open_total
from veilring.protocols.prio.serving import (
    AGGREGATE,
    COLLECT,
    Aggregator,
    Collected,
    HelperParty,
    LeaderParty,
    collecting,
)
from veilring.randomness import Streams
from veilring.transport.endpoint import MemoryNetwork

TERMS = bytes(32)
NAMES = ("leader", "helper", "collector", "eve")


@dataclass
class Served:
    """A pair that is served, and the nodes of all members."""

    pair: Pair
    nodes: dict[str, Node]
    leader: LeaderParty
    helper: HelperParty

    async def collect(self, aggregator: str, number: int = 0, who: str = "collector") -> Collected:
        """Ask an aggregator for its share of a total."""
        pair, session = Parties((who, aggregator)), Streams().token("session")
        role = partial(collecting(TERMS), prio=self.pair.leader.prio, price=1.0)
        return await self.nodes[who].run(role, session, pair, number)

    async def total(self, number: int = 0) -> list[int]:
        """Return the total of a batch."""
        shares = [(await self.collect(name, number)).share for name in NAMES[:2]]
        leader, helper = shares
        assert leader is not None
        assert helper is not None
        return open_total(self.pair.leader.prio, leader, helper, names=("leader", "helper"))


@asynccontextmanager
async def served(pair: Pair) -> AsyncIterator[Served]:
    """Serve a pair in memory."""
    network = MemoryNetwork(NAMES)
    nodes = {name: Node(network.endpoint(name), Streams(1)) for name in NAMES}
    common = (TERMS, "collector", run_inline)
    leader = LeaderParty(
        *(pair.totals["leader"], *common),
        leader=pair.leader,
        node=nodes["leader"],
        helper="helper",
        pauses=(0.01, 0.01),
    )
    helper = HelperParty(*(pair.totals["helper"], *common), helper=pair.helper, leader="leader")
    async with AsyncExitStack() as stack:
        for node in nodes.values():
            await stack.enter_async_context(node)
        parties: tuple[Aggregator, ...] = (leader, helper)
        for party, name in zip(parties, NAMES, strict=False):
            await stack.enter_async_context(Service(nodes[name], party.offers()))
        yield Served(pair, nodes, leader, helper)


async def test_a_leader_catches_up_and_totals_are_collected() -> None:
    """Everything that waits is verified, each full batch is closed, and the collector gets it."""
    pair = Pair.of(make_task(minimum=2))
    add(pair, [0, 1, 1, 4, 2], seeded("clients"))
    async with served(pair) as all_of:
        await all_of.leader.catch_up()
        assert await all_of.total(0) == [1, 1, 0, 0, 0]
        assert await all_of.total(1) == [0, 1, 0, 0, 1]
        assert await all_of.collect("leader", 2) == Collected(2, None)


async def test_reports_are_prepared_while_others_are_verified(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reports of several exchanges, of which some are refused, fill batches of the minimum."""
    monkeypatch.setattr(aggregator, "EXCHANGE_REPORTS_MAX", 2)
    pair = Pair.of(make_task(minimum=5))
    uploads = uploads_of(pair.task, np.array([0, 1, 1, 4, 2, 3, 3]), seeded("clients"))
    pair.leader.store.add([forged(uploads[0]), *uploads[1:3], forged(uploads[3]), *uploads[4:]])
    async with served(pair) as all_of:
        await all_of.leader.catch_up()
        assert await all_of.total() == [0, 2, 1, 2, 0]
    assert pair.helper.store.counts() == {Verdict.ACCEPTED: 5, Verdict.INVALID: 2}


async def test_a_leader_that_runs_goes_on_after_losses() -> None:
    """While the helper is away nothing is lost; all is verified once it is back."""
    pair = Pair.of(make_task(minimum=2))
    add(pair, [0, 1], seeded("clients"))
    async with served(pair) as all_of:
        calls = count()

        async def flaky(call: Callable[[], object]) -> object:
            if next(calls) < 2:
                raise NotReady("helper", "leader")
            return await run_inline(call)

        object.__setattr__(all_of.helper, "offload", flaky)
        running = asyncio.create_task(all_of.leader.run())
        while (await all_of.collect("leader")).batches == 0:  # noqa: ASYNC110  (another party's work)
            await asyncio.sleep(0.01)
        running.cancel()
        assert await all_of.total() == [1, 1, 0, 0, 0]
        assert next(calls) > 2


async def test_only_the_collector_and_the_leader_are_answered() -> None:
    """Nobody else gets a total, or has reports verified."""
    pair = Pair.of(make_task(minimum=1))
    async with served(pair) as all_of:
        for name in NAMES[:2]:
            with pytest.raises(SessionAborted, match="NotOffered"):
                await all_of.collect(name, who="eve")
        stranger = replace(all_of.leader, node=all_of.nodes["eve"])
        add(pair, [0], seeded("clients"))
        with pytest.raises(SessionAborted, match="NotOffered"):
            await stranger.catch_up()
    assert set(all_of.leader.offers()) == {COLLECT}
    assert set(all_of.helper.offers()) == {COLLECT, AGGREGATE}


async def test_an_exhausted_budget_is_told_to_the_collector() -> None:
    """An aggregator without budget says so, and charges nothing."""
    pair = Pair.of(make_task(minimum=1, epsilon=1.0), budget=0.5)
    add(pair, [0], seeded("clients"))
    async with served(pair) as all_of:
        await all_of.leader.catch_up()
        with pytest.raises(BudgetExhausted):
            await all_of.collect("leader")
    assert [each.totals().spent for each in pair.ledgers] == [0.0, 0.0]


async def test_a_failed_disk_ends_an_aggregator() -> None:
    """A helper whose store fails answers nothing more, and its leader keeps all reports."""
    pair = Pair.of(make_task(minimum=1))
    add(pair, [0], seeded("clients"))

    async def full(_call: object) -> object:
        raise sqlite3.OperationalError("database or disk is full")

    async with served(pair) as all_of:
        object.__setattr__(all_of.helper, "offload", full)
        with pytest.raises(SessionAborted, match="StoreFailed"):
            await all_of.leader.catch_up()
        with pytest.raises(StoreFailed, match="disk is full"):
            await all_of.helper.failure()
    assert len(pair.leader.store.waiting(9)) == 1
    assert pair.helper.store.pool() == []

"""Long batches: the delay of other requests, and its limits."""

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from veilring.data.table import Rows
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party
from veilring.nodes.service import Threads
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import open_ledger
from veilring.protocols.promise import Facts
from veilring.protocols.radius import messages
from veilring.protocols.radius.algorithm.nearest import LabelledBatch, label_within
from veilring.protocols.radius.messages import LabelRequest
from veilring.protocols.radius.owner import Owner, ask_within, request_labels
from veilring.protocols.radius.system import DataOwner

DRAWS = np.random.default_rng(9)
ROWS = Rows(DRAWS.random((60, 2)), DRAWS.integers(2, size=60))
QUERIES = DRAWS.random((5, 2))
RULES = DataOwner().bind(Facts(1, 2, 2))


def _asked(name: str, epsilon: float = 0.5) -> LabelRequest:
    return ask_within(QUERIES, np.full(5, 0.3), epsilon, name=name)


def test_others_are_answered_during_a_long_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long batch delays only the next request of its own analyst."""
    slow, other_done, order = threading.Event(), threading.Event(), list[str]()

    def slowly(*given: Any, **named: Any) -> object:
        if not slow.is_set():
            slow.set()
            assert other_done.wait(20)
        return label_within(*given, **named)

    monkeypatch.setattr(messages, "label_within", slowly)

    async def part(party: Party, *, name: str, room: Owner) -> None:
        if party.me == "owner":
            await room.answer(party, party.peers[0])
            return
        await request_labels(party, _asked(name, 0.01), rules=RULES)
        order.append(name)
        if party.me == "bob":
            other_done.set()

    async def main() -> None:
        async with Cluster(["owner", "ann", "bob"], seed=1) as cluster:
            with open_ledger(None, Budgets()) as ledger:
                async with Threads(2, "labels") as offload, asyncio.TaskGroup() as group:
                    room = Owner(ROWS, RULES, ledger, offload)

                    def ask(who: str, name: str) -> asyncio.Task[object]:
                        run = cluster.run(part, among=["owner", who], name=name, room=room)
                        return group.create_task(run)

                    ask("ann", "ann 1")
                    assert await asyncio.to_thread(slow.wait, 20)
                    ask("ann", "ann 2")
                    ask("bob", "bob")

    asyncio.run(main())
    assert order[0] == "bob"
    assert sorted(order) == ["ann 1", "ann 2", "bob"]


def test_a_late_answer_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that ends during its batch is charged once, and answered on request."""
    working, release = threading.Event(), threading.Event()

    def slowly(*given: Any, **named: Any) -> object:
        working.set()
        assert release.wait(20)
        return label_within(*given, **named)

    monkeypatch.setattr(messages, "label_within", slowly)

    async def part(party: Party, *, room: Owner) -> object:
        if party.me == "ann":
            return await request_labels(party, _asked("late"), rules=RULES)
        await room.answer(party, "ann")
        return None

    async def main() -> None:
        async with Cluster(["owner", "ann"], seed=1) as cluster:
            with open_ledger(None, Budgets(total=0.5)) as ledger:
                async with Threads(1, "labels") as offload:
                    room = Owner(ROWS, RULES, ledger, offload)
                    first = asyncio.create_task(cluster.run(part, room=room))
                    assert await asyncio.to_thread(working.wait, 20)
                    first.cancel()
                    await asyncio.gather(first, return_exceptions=True)
                    release.set()
                    run = await cluster.run(part, room=room)
                    assert isinstance(run.results["ann"], LabelledBatch)
                    assert (ledger.totals().spent, ledger.totals().answers) == (0.5, 1)

    asyncio.run(main())


def test_a_cancelled_batch_keeps_its_turn_until_its_thread_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An analyst that disconnects and asks again still uses one thread of the owner, not two."""
    working, second, release = (threading.Event() for _ in range(3))

    def slowly(*given: Any, **named: Any) -> object:
        (second if working.is_set() else working).set()
        assert release.wait(20)
        return label_within(*given, **named)

    monkeypatch.setattr(messages, "label_within", slowly)

    async def part(party: Party, *, name: str, room: Owner) -> None:
        if party.me == "ann":
            await request_labels(party, _asked(name), rules=RULES)
        else:
            await room.answer(party, "ann")

    async def main() -> None:
        async with Cluster(["owner", "ann"], seed=1) as cluster:
            with open_ledger(None, Budgets()) as ledger:
                async with Threads(2, "labels") as offload:
                    room = Owner(ROWS, RULES, ledger, offload)
                    first = asyncio.create_task(cluster.run(part, name="first", room=room))
                    assert await asyncio.to_thread(working.wait, 20)
                    first.cancel()
                    await asyncio.gather(first, return_exceptions=True)
                    again = asyncio.create_task(cluster.run(part, name="again", room=room))
                    assert not await asyncio.to_thread(second.wait, 0.3)
                    release.set()
                    await again
                    assert second.is_set()

    asyncio.run(main())

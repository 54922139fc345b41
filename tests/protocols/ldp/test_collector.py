"""A collector acknowledges stored reports, refuses bad ones, and counts none twice."""

import asyncio
import logging
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import numpy as np
import pytest
from tests.protocols.ldp.collecting import (
    REFUSALS,
    Lie,
    batches,
    make_task,
    messages,
    ragged_ids,
    with_fields,
)

from veilring import simulation
from veilring.errors import FrameError, ProtocolViolation, RunFailed, SessionAborted, StoreFailed
from veilring.nodes.cluster import Cluster, RuntimeName
from veilring.nodes.party import Party
from veilring.nodes.service import Offload, run_inline
from veilring.nodes.session import UNREAD_BYTES_MAX, UNREAD_MESSAGES_MAX
from veilring.protocols.intake import GROUP_SECONDS, GroupCommit
from veilring.protocols.ldp.collector import Collector
from veilring.protocols.ldp.messages import (
    ID_BYTES,
    ID_PREFIX_BYTES,
    ClientBatch,
    ReportBatch,
    ReportReceipt,
    ReportVerdict,
    Task,
)
from veilring.protocols.ldp.roles import submit_reports
from veilring.protocols.ldp.store import begin_report_store, open_report_store
from veilring.protocols.ldp.store.base import Store
from veilring.transport.messages import SESSION_BYTES, encode, join_messages, open_frame

TASK = make_task()
COUNTED, KNOWN = ReportVerdict.COUNTED, ReportVerdict.KNOWN


class Setting(NamedTuple):
    """A collector, and clients that open sessions with it."""

    store: Store
    collector: Collector
    cluster: Cluster

    async def play(self, client: str, role: Callable[[Party], Any]) -> None:
        """Let a client play a role in its own session."""

        async def both(party: Party) -> None:
            is_collector = party.me == "census"
            await (self.collector.take(party, client) if is_collector else role(party))

        await self.cluster.run(both, among=("census", client))

    async def submit_reports(self, client: str, made: Iterable[ClientBatch]) -> list[int]:
        """Submit batches, and return the verdict on each report in order."""
        verdicts: list[int] = []

        async def role(party: Party) -> None:
            task = self.store.task
            await submit_reports(
                party, made, task=task, settled=lambda _, each: verdicts.extend(each.tolist())
            )

        await self.play(client, role)
        return verdicts

    async def require(
        self, client: str, made: Iterable[ClientBatch], verdict: ReportVerdict = COUNTED
    ) -> None:
        """Submit batches, and require that all their reports get one verdict."""
        assert set(await self.submit_reports(client, made)) == {verdict}

    def require_stored(self, clients: int) -> None:
        """Require a number of stored reports."""
        assert self.store.recount().clients == clients


@asynccontextmanager
async def collecting(
    path: Path,
    task: Task = TASK,
    *,
    now: float = 1000.0,
    runtime: RuntimeName = "memory",
    offload: Offload | None = None,
) -> AsyncIterator[Setting]:
    """Start a collector with three clients and a constant clock."""
    store = open_report_store(str(path), task)
    async with (
        Collector(store, lambda: now, offload) as collector,
        Cluster(["census", "ada", "bob", "eve"], runtime=runtime, seed=1) as cluster,
    ):
        yield Setting(store, collector, cluster)


async def heard(party: Party, reports: int) -> list[int]:
    """Receive receipts for a number of reports, and return the verdict on each."""
    verdicts: list[int] = []
    while len(verdicts) < reports:
        receipt = await party.receive(ReportReceipt, sender="census")
        each = np.zeros(receipt.reports, dtype=np.uint8)
        each[receipt.places] = receipt.verdicts
        verdicts += each.tolist()
    return verdicts


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a new store."""
    path = tmp_path / "reports.sqlite"
    begin_report_store(str(path))
    return path


async def test_many_sessions_at_once_count_everything_once(path: Path) -> None:
    """Concurrent reports of several clients are all stored, in messages of one or many."""
    async with collecting(path) as setting:
        submitted = await asyncio.gather(
            setting.submit_reports("ada", batches(TASK, 2000, 1, at_once=1)),
            setting.submit_reports("bob", batches(TASK, 9000, 2)),
            setting.submit_reports("eve", batches(TASK, 2000, 3, at_once=7)),
        )
        assert [len(verdicts) for verdicts in submitted] == [2000, 9000, 2000]
        assert {verdict for verdicts in submitted for verdict in verdicts} == {COUNTED}
        await setting.require("eve", batches(TASK, 2000, 1, at_once=64), KNOWN)
        setting.require_stored(13_000)


def test_the_collector_runs_on_the_simulated_clock(path: Path) -> None:
    """The same role, with its store called in the loop, accepts the same reports."""

    async def main() -> None:
        async with collecting(path, offload=run_inline, runtime="simulated") as setting:
            await setting.require("ada", batches(TASK, 3000, at_once=50))
            setting.require_stored(3000)

    simulation.simulate(main())


@pytest.mark.parametrize(("lie", "verdict"), REFUSALS.values(), ids=REFUSALS)
async def test_a_bad_batch_affects_no_other(path: Path, lie: Lie, verdict: ReportVerdict) -> None:
    """Every report of a bad message gets the reason and is not counted; all others are."""
    good = messages(TASK, batches(TASK, 300))
    bad = with_fields(lie(messages(TASK, batches(TASK, 90, 5))[0]))
    expected = len(bad.ids) // ID_BYTES
    verdicts: list[int] = []

    async def role(party: Party) -> None:
        for message in (good[0], with_fields(bad, more=True), *good[1:]):
            await party.send("census", message)
        verdicts.extend(await heard(party, 300 + expected))

    async with collecting(path) as setting:
        await setting.play("eve", role)
        first = len(good[0].ids) // ID_BYTES
        assert set(verdicts[first : first + expected]) == {verdict}
        assert set(verdicts[:first] + verdicts[first + expected :]) == {COUNTED}
        setting.require_stored(300)


async def test_one_bad_report_does_not_affect_its_batch(path: Path) -> None:
    """Each report of a batch is judged separately, and the receipt lists only the refused one."""
    batch = next(each for each in batches(TASK, 300) if each.question == 1)
    reports = batch.reports.copy()
    reports[5] = 255  # a padding bit is set
    made = ClientBatch(1, batch.ids, reports, batch.clients)
    async with collecting(path) as setting:
        verdicts = await setting.submit_reports("eve", [made])
        assert np.flatnonzero(verdicts).tolist() == [5]
        assert verdicts[5] == ReportVerdict.OUT_OF_DOMAIN
        setting.require_stored(len(batch) - 1)


async def test_a_closed_collection_refuses_new_and_acknowledges_old_reports(path: Path) -> None:
    """After closing, a new report is too late, and an old one is still acknowledged."""
    task = make_task(closes=1000.0)
    async with collecting(path, task, now=999.0) as setting:
        await setting.require("ada", batches(task, 50))
    async with collecting(path, task) as setting:
        await setting.require("ada", batches(task, 50), KNOWN)
        await setting.require("ada", batches(task, 50, 9), ReportVerdict.CLOSED)
        setting.require_stored(50)


UNANSWERABLE: dict[str, tuple[Lie, int, int]] = {
    "ragged ids": (ragged_ids, 30, 1),
    "no report": (partial(with_fields, ids=b""), 30, 1),
    "too many messages": (with_fields, 1, 2 * UNREAD_MESSAGES_MAX),
    "too many bytes": (with_fields, 8192, 2 * UNREAD_BYTES_MAX // 8192 // 17),
}


@pytest.mark.parametrize(("lie", "size", "count"), UNANSWERABLE.values(), ids=UNANSWERABLE)
async def test_a_flood_costs_only_a_session(path: Path, lie: Lie, size: int, count: int) -> None:
    """Invalid ids and floods cost a client its session only."""
    gate = asyncio.Event()

    async def role(party: Party) -> None:
        message = batches(TASK, 4 * size, at_once=size)[0].message(TASK, more=True)
        for _ in range(count):
            await party.send("census", lie(message))
        await party.receive(ReportReceipt, sender="census")

    async def when_told(call: Callable[[], Any]) -> Any:
        await gate.wait()
        return call()

    async with collecting(path, offload=when_told) as setting:
        with pytest.raises(RunFailed) as caught:
            await setting.play("eve", role)
        (violation,) = (e for e in caught.value.errors.values() if isinstance(e, ProtocolViolation))
        assert violation.culprit == "eve"
        gate.set()
        await setting.require("ada", batches(TASK, 30, 8))


def test_parts_of_ids_do_not_become_ids_when_joined() -> None:
    """Messages with a part of an id each are refused together as they are alone."""
    part = ragged_ids(batches(TASK, 30, at_once=1)[0].message(TASK, more=True))
    frames = [open_frame(encode(bytes(SESSION_BYTES), part)) for _ in range(ID_BYTES)]
    with pytest.raises(FrameError, match="a multiple of 16 bytes"):
        join_messages(frames)


async def test_no_report_waits_for_a_collector_that_has_ended() -> None:
    """Items of a running transaction, and those behind it, fail when the collector ends."""
    begun = asyncio.Event()

    async def endless(_call: Callable[[], Any]) -> Any:
        begun.set()
        await asyncio.Event().wait()

    async with GroupCommit[int, int](list, logging.getLogger(), endless) as commit:
        stored = commit.put(1)
        await begun.wait()
        waiting = commit.put(2)
    for future in (stored, waiting, commit.put(3)):
        with pytest.raises(StoreFailed):
            await asyncio.wait_for(future, 1.0)


async def test_a_failing_store_ends_sessions(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """During a full disk clients get an error; repeated reports count once."""
    monkeypatch.setattr("veilring.protocols.intake.STORE_PAUSE_SECONDS", 0.0)
    made = batches(TASK, 100)
    async with collecting(path) as setting:
        with monkeypatch.context() as patch:
            patch.setattr(setting.store, "keep", Mock(side_effect=StoreFailed("the disk is full")))
            with pytest.raises(RunFailed) as caught:
                await setting.submit_reports("ada", made)
        assert isinstance(caught.value.errors["census"], StoreFailed)
        assert isinstance(caught.value.errors["ada"], SessionAborted)
        await setting.require("ada", made)
        setting.require_stored(100)


async def test_a_mistake_ends_the_collector(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A permanent failure ends the collector and is reported; a cancelled wait ends nothing."""

    async def use() -> None:
        async with collecting(path) as setting:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(setting.collector.failure(), 0.01)
            await setting.require("ada", batches(TASK, 100))
            monkeypatch.setattr(setting.store, "keep", Mock(side_effect=LookupError("a mistake")))
            submitted = asyncio.create_task(setting.submit_reports("bob", batches(TASK, 100, 2)))
            try:
                await setting.collector.failure()
            finally:
                submitted.cancel()
                await asyncio.gather(submitted, return_exceptions=True)

    with pytest.raises(LookupError, match="a mistake"):
        await use()


async def test_groups_form_while_one_is_stored(path: Path) -> None:
    """Reports of all sessions that arrive during a transaction are stored by the next one."""
    gate, groups = asyncio.Semaphore(0), []

    async def counted(call: Callable[[], Any]) -> Any:
        await gate.acquire()
        result = call()
        groups.append(sum(map(len, result)))
        return result

    async with collecting(path, offload=counted) as setting:
        running = asyncio.gather(
            setting.submit_reports("ada", batches(TASK, 200, 1, at_once=1)),
            setting.submit_reports("bob", batches(TASK, 200, 2, at_once=1)),
        )
        for _ in range(50):
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        for _ in range(10):
            gate.release()
        await running
        assert sum(groups) == 400
        assert len(groups) <= 3


def test_transactions_begin_apart(path: Path) -> None:
    """Reports that arrive one by one share transactions, of which the first begins at once."""
    began = list[float]()

    async def counted(call: Callable[[], Any]) -> Any:
        began.append(asyncio.get_running_loop().time())
        return call()

    async def main() -> None:
        async with collecting(path, offload=counted, runtime="simulated") as setting:
            await asyncio.sleep(1.0)
            await setting.require("ada", batches(TASK, 2000, at_once=1))

    simulation.simulate(main())
    assert began[0] < 1.0 + GROUP_SECONDS
    assert len(began) > 1
    assert np.diff(began).min() >= GROUP_SECONDS - 1e-9


def test_ids_made_together_lie_together() -> None:
    """They have one random prefix and ascend as they are sent; those of another call do not."""
    first, second = (
        np.concatenate([each.ids for each in batches(TASK, 700, seed, at_once=99)])
        for seed in (1, 2)
    )
    numbers = first[:, ID_PREFIX_BYTES:].copy().view(">u4").ravel()
    assert numbers.tolist() == list(range(700))
    assert len(np.unique(first[:, :ID_PREFIX_BYTES], axis=0)) == 1
    assert (first[0] != second[0]).any()


IMPOSSIBLE: list[tuple[int, list[int], list[int], str]] = [
    (99, [], [], "not sent"),
    (0, [], [], "not sent"),
    (1, [], [], "a part of"),
    (9, [9], [1], "unreadable"),
    (9, [0], [], "unreadable"),
    (9, [0], [9], "unreadable"),
]


@pytest.mark.parametrize(("reports", "places", "verdicts", "reason"), IMPOSSIBLE)
async def test_an_impossible_receipt_names_the_collector(
    reports: int, places: list[int], verdicts: list[int], reason: str
) -> None:
    """A client accepts no receipt for reports that it did not send."""
    made, settled = batches(TASK, 27, at_once=9)[:1], list[object]()
    refused = {"places": np.array(places, "<u4"), "verdicts": np.array(verdicts, "u1")}
    receipt = ReportReceipt(reports=reports, **refused)

    async def play(party: Party) -> None:
        if party.me == "census":
            await party.receive(ReportBatch, sender="ada")
            await party.send("ada", receipt)
            await party.receive(ReportBatch, sender="ada")
        else:
            await submit_reports(party, made, task=TASK, settled=lambda *what: settled.append(what))

    async with Cluster(["census", "ada"]) as cluster:
        with pytest.raises(RunFailed) as caught:
            await cluster.run(play)
    error = caught.value.errors["ada"]
    assert isinstance(error, ProtocolViolation)
    assert error.culprit == "census"
    assert reason in error.reason
    assert settled == []


@pytest.mark.slow
async def test_thousands_of_hostile_reports_are_refused_one_by_one(path: Path) -> None:
    """Lies and replays get their reasons, none counts, and no memory remains used."""
    made, held = batches(TASK, 400, at_once=1), list[int]()
    lies: list[tuple[ReportBatch, ReportVerdict]] = []
    for number, batch in enumerate(made):
        honest = batch.message(TASK, more=True)
        other = next(each for each in made if each.question != batch.question)
        renamed = with_fields(honest, ids=other.ids.tobytes())
        lies += [(honest, KNOWN), (renamed, ReportVerdict.REUSED_ID)]
        lies += [
            (with_fields(lie(honest)), verdict)
            for name, (lie, verdict) in REFUSALS.items()
            if name != "too many reports" or number % 64 == 0
        ]

    async def role(party: Party, part: list[tuple[ReportBatch, ReportVerdict]]) -> None:
        for start in range(0, len(part), 100):
            due: list[int] = []
            for message, verdict in part[start : start + 100]:
                await party.send("census", message)
                due += [verdict] * (len(message.ids) // ID_BYTES)
            assert await heard(party, len(due)) == due
        await party.send("census", made[0].message(TASK, more=False))
        await heard(party, 1)

    async with collecting(path) as setting:
        await setting.require("ada", made)
        tracemalloc.start()
        try:
            for first in range(4):
                await setting.play("eve", partial(role, part=lies[first::4] * 2))
                held.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
        setting.require_stored(400)
    # 4,800 more reports left less behind than 20 bytes each: nothing is kept of any.
    assert held[-1] - held[0] < 20 * 4800

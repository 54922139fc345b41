"""A collector acknowledges stored reports, refuses bad ones, and counts none twice."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.protocols.ldp.collecting import batches, make_task, messages
from tests.protocols.ldp.hostile import attack
from tests.protocols.ldp.lies import REFUSALS, ragged_ids
from tests.protocols.ldp.sessions import collecting

from veilring import simulation
from veilring.errors import ProtocolViolation, RunFailed, SessionAborted, StoreFailed
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party
from veilring.nodes.service import run_inline
from veilring.protocols.ldp.messages import (
    ID_BYTES,
    ClientBatch,
    ReportBatch,
    ReportReceipt,
    ReportVerdict,
)
from veilring.protocols.ldp.roles import WINDOW_BYTES_MAX, WINDOW_MESSAGES_MAX, submit_reports
from veilring.transport.messages import Message

TASK = make_task()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a location for a store."""
    return tmp_path / "reports.sqlite"


async def test_many_sessions_at_once_count_everything_once(path: Path) -> None:
    """Concurrent reports of several clients are all stored, in messages of one or many."""
    async with collecting(path) as setting:
        submitted = await asyncio.gather(
            setting.submit_reports("ada", batches(TASK, 2000, 1, at_once=1)),
            setting.submit_reports("bob", batches(TASK, 9000, 2)),
            setting.submit_reports("eve", batches(TASK, 2000, 3, at_once=7)),
        )
        assert [len(verdicts) for verdicts in submitted] == [2000, 9000, 2000]
        assert {verdict for verdicts in submitted for verdict in verdicts} == {
            ReportVerdict.COUNTED
        }
        assert setting.store.recount().clients == 13_000
        again = await setting.submit_reports("eve", batches(TASK, 2000, 1, at_once=64))
        assert set(again) == {ReportVerdict.KNOWN}
        assert setting.store.recount().clients == 13_000


def test_the_collector_runs_on_the_simulated_clock(path: Path) -> None:
    """The same role, with its store called in the loop, accepts the same reports."""

    async def main() -> tuple[int, set[int]]:
        async with collecting(path, offload=run_inline, runtime="simulated") as setting:
            verdicts = await setting.submit_reports("ada", batches(TASK, 3000, at_once=50))
            return setting.store.recount().clients, set(verdicts)

    assert simulation.simulate(main()) == (3000, {ReportVerdict.COUNTED})


@pytest.mark.parametrize(("lie", "verdict"), REFUSALS.items())
async def test_a_refused_batch_gets_its_reason_and_affects_no_other(
    path: Path, lie: Callable[[Message], Message], verdict: ReportVerdict
) -> None:
    """Every report of a bad message gets the reason and is not counted; all others are."""
    good = messages(TASK, batches(TASK, 300))
    bad = lie(messages(TASK, batches(TASK, 90, 5))[0])
    assert isinstance(bad, ReportBatch)
    expected = len(bad.ids) // ID_BYTES
    verdicts: list[int] = []

    async def role(party: Party) -> None:
        for message in (good[0], bad.model_copy(update={"more": True}), *good[1:]):
            await party.send("census", message)
        while len(verdicts) < 300 + expected:
            receipt = await party.receive(ReportReceipt, sender="census")
            some = np.zeros(receipt.reports, dtype=int)
            some[receipt.places] = receipt.verdicts
            verdicts.extend(some.tolist())

    async with collecting(path) as setting:
        await setting.play("eve", role)
        first = len(good[0].ids) // ID_BYTES
        assert set(verdicts[first : first + expected]) == {verdict}
        assert set(verdicts[:first] + verdicts[first + expected :]) == {ReportVerdict.COUNTED}
        assert setting.store.recount().clients == 300


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
        assert setting.store.recount().clients == len(batch) - 1


async def test_a_closed_collection_refuses_new_and_acknowledges_old_reports(path: Path) -> None:
    """After closing, a new report is too late, and an old one is still acknowledged."""
    task = make_task(closes=1000.0)
    async with collecting(path, task, now=999.0) as setting:
        assert set(await setting.submit_reports("ada", batches(task, 50))) == {
            ReportVerdict.COUNTED
        }
    async with collecting(path, task) as setting:
        assert set(await setting.submit_reports("ada", batches(task, 50))) == {ReportVerdict.KNOWN}
        assert set(await setting.submit_reports("ada", batches(task, 50, 9))) == {
            ReportVerdict.CLOSED
        }
        assert setting.store.recount().clients == 50


@pytest.mark.parametrize(
    "role",
    [
        lambda party: _send_one(party, ragged_ids),
        lambda party: _send_one(party, lambda message: message.model_copy(update={"ids": b""})),
        lambda party: _flood_and_wait(party, 1, WINDOW_MESSAGES_MAX + 1),
        lambda party: _flood_and_wait(party, 8192, WINDOW_BYTES_MAX // 8192 // 17 + 2),
    ],
    ids=["ragged-ids", "no-report", "too-many-messages", "too-many-bytes"],
)
async def test_an_unanswerable_message_ends_the_session_and_names_the_client(
    path: Path, role: Callable[[Party], Any]
) -> None:
    """Invalid ids and floods cost a client its session only."""
    gate = asyncio.Event()

    async def when_told(call: Callable[[], Any]) -> Any:
        await gate.wait()
        return call()

    async with collecting(path, offload=when_told) as setting:
        with pytest.raises(RunFailed) as caught:
            await setting.play("eve", role)
        (violation,) = (e for e in caught.value.errors.values() if isinstance(e, ProtocolViolation))
        assert violation.culprit == "eve"
        gate.set()
        assert set(await setting.submit_reports("ada", batches(TASK, 30, 8))) == {
            ReportVerdict.COUNTED
        }


async def _send_one(party: Party, lie: Callable[[Message], Message]) -> None:
    await party.send("census", lie(messages(TASK, batches(TASK, 30))[0]))
    await party.receive(ReportReceipt, sender="census")


async def _flood_and_wait(party: Party, size: int, count: int) -> None:
    batch = batches(TASK, 4 * size, at_once=size)[0].message(TASK, more=True)
    for _ in range(count):
        await party.send("census", batch)
    await party.receive(ReportReceipt, sender="census")


async def test_a_failing_store_ends_sessions_and_acknowledges_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During a full disk clients get an error; repeated reports count once."""
    monkeypatch.setattr("veilring.protocols.ldp.collector.STORE_PAUSE_SECONDS", 0.0)
    made = batches(TASK, 100)
    async with collecting(path) as setting:
        with monkeypatch.context() as patch:

            def fail(*_: object, **__: object) -> None:
                raise StoreFailed("the disk is full")

            patch.setattr(setting.store, "keep", fail)
            with pytest.raises(RunFailed) as caught:
                await setting.submit_reports("ada", made)
        assert isinstance(caught.value.errors["census"], StoreFailed)
        assert isinstance(caught.value.errors["ada"], SessionAborted)
        assert set(await setting.submit_reports("ada", made)) == {ReportVerdict.COUNTED}
        assert setting.store.recount().clients == 100


async def test_a_permanent_failure_ends_the_collector(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A permanent failure ends the collector and is reported; a cancelled wait ends nothing."""

    def fail(*_: object, **__: object) -> None:
        raise LookupError("a mistake")

    async def use() -> None:
        async with collecting(path) as setting:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(setting.collector.failure(), 0.01)
            assert set(await setting.submit_reports("ada", batches(TASK, 100))) == {
                ReportVerdict.COUNTED
            }
            monkeypatch.setattr(setting.store, "keep", fail)
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


@pytest.mark.parametrize(
    ("receipt", "reason"),
    [
        (
            ReportReceipt(reports=99, places=np.zeros(0, "<u4"), verdicts=np.zeros(0, "u1")),
            "not sent",
        ),
        (
            ReportReceipt(reports=0, places=np.zeros(0, "<u4"), verdicts=np.zeros(0, "u1")),
            "not sent",
        ),
        (
            ReportReceipt(reports=1, places=np.zeros(0, "<u4"), verdicts=np.zeros(0, "u1")),
            "a part of",
        ),
        (
            ReportReceipt(reports=9, places=np.full(1, 9, "<u4"), verdicts=np.ones(1, "u1")),
            "unreadable",
        ),
        (
            ReportReceipt(reports=9, places=np.zeros(1, "<u4"), verdicts=np.zeros(0, "u1")),
            "unreadable",
        ),
        (
            ReportReceipt(reports=9, places=np.zeros(1, "<u4"), verdicts=np.full(1, 9, "u1")),
            "unreadable",
        ),
    ],
)
async def test_an_impossible_receipt_names_the_collector(
    receipt: ReportReceipt, reason: str
) -> None:
    """A client accepts no receipt for reports that it did not send."""
    made = batches(TASK, 27, at_once=9)[:1]
    settled: list[object] = []

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
    async with collecting(path) as setting:
        seen = await attack(setting, 6400)
        assert setting.store.recount().clients == seen.honest
    assert set(seen.verdicts) == {*REFUSALS.values(), ReportVerdict.KNOWN, ReportVerdict.REUSED_ID}
    assert seen.messages == 6400
    # 4,800 more reports left less behind than 20 bytes each: nothing is kept of any.
    assert seen.held[-1] - seen.held[0] < 20 * 4800

"""The long-lived aggregator, which stores clients' reports and acknowledges them once on disk.

Reports are stored by group commit: reports that arrive during one transaction are stored by the
next.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Self

import numpy as np

from veilring.errors import ProtocolViolation, StoreFailed, VeilringError
from veilring.nodes.party import Party
from veilring.nodes.service import Offer, Offload, Threads, opening
from veilring.protocols.ldp.messages import (
    ID_BYTES,
    TASK_DIGEST_BYTES,
    Published,
    ReportBatch,
    Task,
    Verdicts,
    count_reports,
    judge_batches,
    make_receipt,
)
from veilring.protocols.ldp.roles import WINDOW_BYTES_MAX, WINDOW_MESSAGES_MAX
from veilring.protocols.ldp.store.base import NO_QUOTAS, Quotas, Senders, Store

# After a full disk or a lost server, clients' reports do not each trigger an immediate retry.
STORE_PAUSE_SECONDS: Final = 1.0
TASK: Final = "ldp.task"
"""The service that provides the task to any member of the roster."""
SUBMIT: Final = "ldp.submit"
"""The service that accepts reports for that task."""
_NO_TERMS: Final = bytes(TASK_DIGEST_BYTES)
_log = logging.getLogger("veilring.collector")


class Collector:
    """Accepts reports while its context is entered.

    Args:
        store: The store of the reports; the collector closes it.
        now: A clock: the seconds since 1970 (UTC).
        offload: The executor of slow calls; by default a thread owned by the collector.
        quotas: The maximum number of counted reports of each member; by default unlimited.
    """

    def __init__(
        self,
        store: Store,
        now: Callable[[], float],
        offload: Offload | None = None,
        *,
        quotas: Quotas = NO_QUOTAS,
    ) -> None:
        self._store = store
        self._thread = Threads(1, "store")  # starts no thread before the first call
        self._groups = _GroupCommit(store, now, offload or self._thread, quotas)
        self._running: asyncio.Task[None] | None = None

    @property
    def task(self) -> Task:
        """The task that clients answer."""
        return self._store.task

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._groups.run(), name="store")
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if self._running is not None:
                self._running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await self._running
        finally:
            self._thread.close()  # waits for a running transaction
            self._store.close()

    async def failure(self) -> None:
        """Wait until storing fails permanently, and raise the error."""
        if self._running is not None:
            await asyncio.shield(self._running)

    def offers(self) -> dict[str, Offer]:
        """Return the two services, for all members of the roster."""
        return {
            TASK: Offer(self._publish, _NO_TERMS, lambda _peer: True),
            SUBMIT: Offer(self.take, self.task.digest, lambda _peer: True),
        }

    async def _publish(self, party: Party, client: str) -> None:
        await party.send(client, Published(task=self.task.encoded))

    async def take(self, party: Party, client: str) -> None:
        """Receive one client's reports, and acknowledge them in order as they become durable.

        Raises:
            ProtocolViolation: If the client sends a message that cannot be answered report by
                report, or is more than a window of reports ahead of the answers.
            StoreFailed: If the reports could not be stored.
        """
        slot = _Slot(client)
        receipts = asyncio.create_task(_acknowledge(party, client, slot))
        try:
            more = True
            while more:
                message = await party.receive(ReportBatch, sender=client)
                _require_due(slot, message, client)
                self._groups.put(slot, message)
                more = message.more
            slot.end()
            await receipts
        finally:
            receipts.cancel()
            await asyncio.gather(receipts, return_exceptions=True)


def read_task() -> Callable[..., Awaitable[bytes]]:
    """Return the role that asks a collector for its task, as `Task.encoded`."""
    return opening(_read_task, TASK, _NO_TERMS)


async def _read_task(party: Party) -> bytes:
    (collector,) = party.peers
    return (await party.receive(Published, sender=collector)).task


class _Slot:
    """The messages of one session that have no verdicts yet."""

    def __init__(self, member: str) -> None:
        self.member = member
        self.waiting: list[ReportBatch] = []
        self.messages = 0
        """The number of messages waiting or being stored."""
        self.held_bytes = 0
        """The total size of these messages."""
        self._settled: list[Verdicts] = []
        self._error: VeilringError | None = None
        self._ended = False
        self._news = asyncio.Event()

    def put(self, message: ReportBatch) -> None:
        """Add a message."""
        self.waiting.append(message)
        self.messages += 1
        self.held_bytes += _held_bytes(message)

    def take(self) -> list[ReportBatch]:
        """Return the waiting messages, and mark them as being stored."""
        taken, self.waiting = self.waiting, []
        return taken

    def settle(self, messages: Sequence[ReportBatch], verdicts: Verdicts) -> None:
        """Set the verdicts on the reports of these messages."""
        self.messages -= len(messages)
        self.held_bytes -= sum(map(_held_bytes, messages))
        self._settled.append(verdicts)
        self._news.set()

    def fail(self, error: VeilringError) -> None:
        """End the session with an error: the reports being stored may be lost."""
        self._error = error
        self._news.set()

    def end(self) -> None:
        """Mark the end of the messages."""
        self._ended = True
        self._news.set()

    async def verdicts(self) -> Verdicts | None:
        """Wait for the verdicts on the next reports; return None after the last."""
        while not self._settled:
            if self._error is not None:
                raise self._error
            if self._ended and not self.messages:
                return None
            self._news.clear()
            await self._news.wait()
        settled, self._settled = self._settled, []
        return np.concatenate(settled)


class _GroupCommit:
    """Stores the contents of the slots in consecutive transactions, until cancelled.

    `offload` keeps the event loop free while a transaction runs.
    """

    def __init__(
        self, store: Store, now: Callable[[], float], offload: Offload, quotas: Quotas
    ) -> None:
        self._store, self._now, self._offload, self._quotas = store, now, offload, quotas
        self._slots: dict[_Slot, None] = {}
        self._work = asyncio.Event()

    def put(self, slot: _Slot, message: ReportBatch) -> None:
        """Add a message to the next group."""
        slot.put(message)
        self._slots[slot] = None
        self._work.set()

    async def run(self) -> None:
        """Store groups until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            await self._store_group()

    async def _store_group(self) -> None:
        slots, self._slots = list(self._slots), {}
        messages = [slot.take() for slot in slots]
        closed = self._store.task.is_closed(self._now())
        try:
            members = [slot.member for slot in slots]
            verdicts = await self._offload(lambda: self._settle(members, messages, closed=closed))
        except StoreFailed as error:
            _log.error("nothing was stored; clients must send their reports again: %s", error)
            for slot in slots:
                slot.fail(error)
            await asyncio.sleep(STORE_PAUSE_SECONDS)
            return
        for slot, sent, each in zip(slots, messages, verdicts, strict=True):
            slot.settle(sent, each)

    def _settle(
        self, members: Sequence[str], messages: Sequence[Sequence[ReportBatch]], *, closed: bool
    ) -> list[Verdicts]:
        """Check and store reports; return the verdicts slot by slot."""
        task = self._store.task
        verdicts, accepted = judge_batches(task, [each for sent in messages for each in sent])
        counts = [sum(len(m.ids) for m in sent) // ID_BYTES for sent in messages]
        if accepted:
            names = tuple(sorted(set(members)))  # a member may have several sessions
            numbers = np.array([names.index(member) for member in members])
            senders = Senders(names, np.repeat(numbers, counts))
            kept = self._store.keep(accepted, senders, quotas=self._quotas, closed=closed)
            for part, found in zip(accepted, kept, strict=True):
                verdicts[part.places] = found
        return np.split(verdicts, np.cumsum(counts)[:-1])


def _require_due(slot: _Slot, message: ReportBatch, client: str) -> None:
    if not count_reports(message, client):
        raise ProtocolViolation(client, "sent no report")
    held = slot.held_bytes + _held_bytes(message)
    if slot.messages and (slot.messages >= WINDOW_MESSAGES_MAX or held > WINDOW_BYTES_MAX):
        raise ProtocolViolation(client, "sent more than a window of reports ahead of its turn")


async def _acknowledge(party: Party, client: str, slot: _Slot) -> None:
    try:
        while (verdicts := await slot.verdicts()) is not None:
            await party.send(client, make_receipt(verdicts))
    except StoreFailed as error:
        party.accuse(error)  # so that no task waits for more of this session


def _held_bytes(message: ReportBatch) -> int:
    """Return the size in bytes of a message, as counted by its session's window."""
    return len(message.ids) + len(message.reports)

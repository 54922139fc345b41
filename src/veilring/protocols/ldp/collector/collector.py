"""What `veilring serve` plays for a collector, and how a client learns its task."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self

from veilring.errors import ProtocolViolation, StoreFailed
from veilring.nodes.aside import Aside, Threads
from veilring.nodes.party import Party
from veilring.nodes.service import Offer, convening
from veilring.protocols.ldp.collector.groups import Groups, Slot, held_bytes
from veilring.protocols.ldp.intake import count_reports, receipt
from veilring.protocols.ldp.messages import Published, ReportBatch
from veilring.protocols.ldp.roles.submit import WINDOW_BYTES_MAX, WINDOW_MESSAGES_MAX
from veilring.protocols.ldp.store import Quotas, Store
from veilring.protocols.ldp.store.base import NO_QUOTAS
from veilring.protocols.ldp.task import DIGEST_BYTES, Task

TASK: Final = "ldp.task"
"""What a client asks first: the task. Whoever is in the roster may."""
SUBMIT: Final = "ldp.submit"
"""What it asks then: to take its reports to that task."""
_NO_TERMS: Final = bytes(DIGEST_BYTES)


class Collector:
    """Takes reports for as long as its context is entered.

    Args:
        store: Where reports are kept; the collector closes it.
        now: Says how many seconds have passed since 1970 (UTC).
        aside: Calls what takes long; in a thread of the collector's own unless given.
        quotas: How many reports of each member may count; without end unless given.
    """

    def __init__(
        self,
        store: Store,
        now: Callable[[], float],
        aside: Aside | None = None,
        *,
        quotas: Quotas = NO_QUOTAS,
    ) -> None:
        self._store = store
        self._thread = Threads(1, "store")  # starts no thread before the first call
        self._groups = Groups(store, now, aside or self._thread, quotas)
        self._running: asyncio.Task[None] | None = None

    @property
    def task(self) -> Task:
        """What is asked."""
        return self._store.task

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._groups.run(), name="store")
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._running is not None:
                self._running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await self._running
        finally:
            self._thread.close()  # a transaction that runs is let finish
            self._store.close()

    async def failure(self) -> None:
        """Wait until storing ends for a reason that trying again does not mend, and raise it."""
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
        """Take one client's reports, and acknowledge them in order as they become durable.

        Args:
            party: The collector, in a session with the client alone.
            client: Who sends.

        Raises:
            ProtocolViolation: If the client sends what cannot be answered report by report, or
                more than a window of it before it is answered.
            StoreFailed: If the reports could not be stored.
        """
        slot = Slot(client)
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


def _require_due(slot: Slot, message: ReportBatch, client: str) -> None:
    if not count_reports(message, client):
        raise ProtocolViolation(client, "sent no report")
    held = slot.held_bytes + held_bytes(message)
    if slot.messages and (slot.messages >= WINDOW_MESSAGES_MAX or held > WINDOW_BYTES_MAX):
        raise ProtocolViolation(client, "sent more than a window of reports ahead of its turn")


async def _acknowledge(party: Party, client: str, slot: Slot) -> None:
    try:
        while (verdicts := await slot.verdicts()) is not None:
            await party.send(client, receipt(verdicts))
    except StoreFailed as error:
        party.accuse(error)  # so that nobody waits for more of this session


def read_task() -> Callable[..., Awaitable[bytes]]:
    """Return the role that asks a collector for its task, as `Task.encoded`."""
    return convening(_read_task, TASK, _NO_TERMS)


async def _read_task(party: Party) -> bytes:
    (collector,) = party.peers
    return (await party.receive(Published, sender=collector)).task

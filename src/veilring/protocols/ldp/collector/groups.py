"""Group commit: all that arrives while one transaction runs is stored by the next."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from veilring.errors import StoreFailed, VeilringError
from veilring.nodes.aside import Aside
from veilring.protocols.ldp.intake import Verdicts, sift
from veilring.protocols.ldp.messages import ID_BYTES, ReportBatch
from veilring.protocols.ldp.store import Quotas, Senders, Store

# A disk that is full or a server that is gone is not asked again at once, for each of many clients.
STORE_PAUSE_SECONDS: Final = 1.0

_log = logging.getLogger("veilring.collector")


class Slot:
    """What one session has sent and was not told the end of.

    Args:
        member: Who sends.
    """

    def __init__(self, member: str) -> None:
        self.member = member
        self.waiting: list[ReportBatch] = []
        self.messages = 0
        """How many wait or are being stored."""
        self.held_bytes = 0
        """Of these messages."""
        self._settled: list[Verdicts] = []
        self._error: VeilringError | None = None
        self._ended = False
        self._news = asyncio.Event()

    def put(self, message: ReportBatch) -> None:
        """Take a message."""
        self.waiting.append(message)
        self.messages += 1
        self.held_bytes += held_bytes(message)

    def take(self) -> list[ReportBatch]:
        """Return the messages that wait; they are being stored from now on."""
        taken, self.waiting = self.waiting, []
        return taken

    def settle(self, messages: Sequence[ReportBatch], verdicts: Verdicts) -> None:
        """Say what became of the reports in messages that were taken."""
        self.messages -= len(messages)
        self.held_bytes -= sum(map(held_bytes, messages))
        self._settled.append(verdicts)
        self._news.set()

    def fail(self, error: VeilringError) -> None:
        """Say that nothing is known of the reports that are being stored."""
        self._error = error
        self._news.set()

    def end(self) -> None:
        """Say that no message follows."""
        self._ended = True
        self._news.set()

    async def verdicts(self) -> Verdicts | None:
        """Wait for the verdicts on the next reports; nothing if there are no more.

        Raises:
            StoreFailed: If they could not be stored.
        """
        while not self._settled:
            if self._error is not None:
                raise self._error
            if self._ended and not self.messages:
                return None
            self._news.clear()
            await self._news.wait()
        settled, self._settled = self._settled, []
        return np.concatenate(settled)


class Groups:
    """Stores what the slots hold, one transaction after the other, until cancelled.

    Args:
        store: Where to.
        now: Says how many seconds have passed since 1970 (UTC).
        aside: Keeps the event loop free while a transaction runs.
        quotas: How many reports of each member may count.
    """

    def __init__(
        self, store: Store, now: Callable[[], float], aside: Aside, quotas: Quotas
    ) -> None:
        self._store, self._now, self._aside, self._quotas = store, now, aside, quotas
        self._slots: dict[Slot, None] = {}
        self._work = asyncio.Event()

    def put(self, slot: Slot, message: ReportBatch) -> None:
        """Put a message into the next group."""
        slot.put(message)
        self._slots[slot] = None
        self._work.set()

    async def run(self) -> None:
        """Store groups for ever."""
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
            verdicts = await self._aside(lambda: self._settle(members, messages, closed=closed))
        except StoreFailed as error:
            _log.error("nothing is stored, clients have to send again: %s", error)
            for slot in slots:
                slot.fail(error)
            await asyncio.sleep(STORE_PAUSE_SECONDS)
            return
        for slot, sent, each in zip(slots, messages, verdicts, strict=True):
            slot.settle(sent, each)

    def _settle(
        self, members: Sequence[str], messages: Sequence[Sequence[ReportBatch]], *, closed: bool
    ) -> list[Verdicts]:
        """Judge and store; return the verdicts slot by slot."""
        task = self._store.task
        verdicts, accepted = sift(task, [each for sent in messages for each in sent])
        counts = [sum(len(m.ids) for m in sent) // ID_BYTES for sent in messages]
        if accepted:
            names = tuple(sorted(set(members)))  # a member may have several sessions
            numbers = np.array([names.index(member) for member in members])
            senders = Senders(names, np.repeat(numbers, counts))
            kept = self._store.keep(accepted, senders, quotas=self._quotas, closed=closed)
            for part, found in zip(accepted, kept, strict=True):
                verdicts[part.places] = found
        return np.split(verdicts, np.cumsum(counts)[:-1])


def held_bytes(message: ReportBatch) -> int:
    """Return what a message counts towards the window of its session."""
    return len(message.ids) + len(message.reports)

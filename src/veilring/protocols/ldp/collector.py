"""The long-lived aggregator, which stores clients' reports and acknowledges them once on disk."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from typing_extensions import override

from veilring.errors import ProtocolViolation
from veilring.nodes.party import Party
from veilring.nodes.service import Offer, Offload, opening
from veilring.protocols.intake import GroupCommit
from veilring.protocols.ldp.messages import (
    ID_BYTES,
    TASK_DIGEST_BYTES,
    Published,
    ReportBatch,
    Task,
    Verdicts,
    judge_batches,
    make_receipt,
)
from veilring.protocols.ldp.store.base import NO_QUOTAS, Quotas, Senders, Store

TASK: Final = "ldp.task"
"""The service that provides the task to any member of the roster."""
SUBMIT: Final = "ldp.submit"
"""The service that accepts reports for that task."""
_NO_TERMS: Final = bytes(TASK_DIGEST_BYTES)
_log = logging.getLogger("veilring.collector")


class _Sent(NamedTuple):
    """Messages of one member."""

    member: str
    messages: Sequence[ReportBatch]


class Collector(GroupCommit[_Sent, Verdicts]):
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
        super().__init__(self._settle, _log, offload)
        self._store, self._now, self._quotas = store, now, quotas

    @property
    def task(self) -> Task:
        """The task that clients answer."""
        return self._store.task

    @override
    async def __aexit__(self, *_: object) -> None:
        try:
            await super().__aexit__()
        finally:
            self._store.close()

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

        Messages that arrive during a transaction wait unread until the next one begins, within the
        limits of a session.

        Raises:
            ProtocolViolation: If the client sends a message that cannot be answered report by
                report, or is too far ahead of the answers.
            StoreFailed: If the reports could not be stored.
        """
        more = True
        while more:
            messages = await party.receive_joined(ReportBatch, sender=client)
            more = _require_answerable(messages, client)
            verdicts = await self.put(_Sent(client, messages))
            await party.send(client, make_receipt(verdicts))

    def _settle(self, group: Sequence[_Sent]) -> list[Verdicts]:
        """Check and store reports; return the verdicts on those of each item."""
        task = self._store.task
        verdicts, accepted = judge_batches(task, [each for sent in group for each in sent.messages])
        counts = [sum(len(m.ids) for m in sent.messages) // ID_BYTES for sent in group]
        if accepted:
            names = tuple(sorted({sent.member for sent in group}))
            numbers = np.array([names.index(sent.member) for sent in group])
            senders = Senders(names, np.repeat(numbers, counts))
            closed = task.is_closed(self._now())
            kept = self._store.keep(accepted, senders, quotas=self._quotas, closed=closed)
            for part, found in zip(accepted, kept, strict=True):
                verdicts[part.places] = found
        return np.split(verdicts, np.cumsum(counts)[:-1])


def read_task() -> Callable[..., Awaitable[bytes]]:
    """Return the role that asks a collector for its task, as `Task.encoded`."""
    return opening(_read_task, TASK, _NO_TERMS)


async def _read_task(party: Party) -> bytes:
    (collector,) = party.peers
    return (await party.receive(Published, sender=collector)).task


def _require_answerable(messages: Sequence[ReportBatch], client: str) -> bool:
    """Return whether more reports follow, once each of these can be answered."""
    if not all(message.ids for message in messages):
        raise ProtocolViolation(client, "sent no report")
    if not all(message.more for message in messages[:-1]):
        raise ProtocolViolation(client, "sent reports after its last ones")
    return messages[-1].more

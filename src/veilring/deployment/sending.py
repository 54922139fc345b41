"""A submitter's connection with its collector, for as long as it takes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, Self, TypeVar

from veilring.deployment.survey_terms import SurveyTerms, read_published
from veilring.errors import (
    EndpointClosed,
    SessionAborted,
    SessionTimeout,
    TransportError,
    VeilringError,
)
from veilring.nodes.limit import Limits
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.nodes.service import convening
from veilring.protocols.ldp.collector import SUBMIT, read_task
from veilring.protocols.ldp.messages import ClientBatch, Verdicts
from veilring.protocols.ldp.outbox import Outbox
from veilring.protocols.ldp.roles import submit_reports
from veilring.protocols.ldp.task import Task
from veilring.randomness import Streams
from veilring.transport.identity import Identity
from veilring.transport.roster import Roster
from veilring.transport.tls import TlsEndpoint

# A collector that is being started again is there within seconds.
CONNECT_SECONDS: Final = 30.0
# Between the first two attempts; the connection itself is made again in the background. Each
# attempt that brings no receipt doubles it, so that a collector that is down is not asked, nor
# named in the log, each second; at most it is a twentieth of what a submitter waits in all.
RETRY_SECONDS: Final = 1.0
RETRY_SECONDS_MAX: Final = 15.0
# Without a single receipt for so long the submitter gives up; what it made is kept, and the same
# command goes on.
PATIENCE_SECONDS: Final = 300.0
# A session has a limit of two minutes, which a busy collector and a slow line should not meet: it
# takes 100 messages a second, or 1 Mbit/s, to send these in time.
SESSION_MESSAGES_MAX: Final = 10_000
SESSION_BYTES_MAX: Final = 8 << 20
# Receipts that are written into the outbox together: a commit costs what a thousand reports do.
# What is lost in a crash is sent again and known.
SETTLED_BATCH: Final = 1000

Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and of how much."""

# With these the collector says that it never will.
_FINAL: Final = frozenset({"NotOffered", "OtherTerms", "WrongParties"})

R = TypeVar("R")

_log = logging.getLogger("veilring.submitter")


class Sender:
    """Use it as an asynchronous context manager.

    Args:
        identity: Who submits.
        roster: Who there is.
        collector: To whom.
        limits: How long sessions may take.
    """

    def __init__(self, identity: Identity, roster: Roster, collector: str, limits: Limits) -> None:
        self._identity, self._roster, self._collector = identity, roster, collector
        self._pair, self._limits = Parties((identity.name, collector)), limits
        self._node: Node | None = None

    async def __aenter__(self) -> Self:
        endpoint = await TlsEndpoint.start(
            self._identity, self._roster, connect_to=(self._collector,), timeout=CONNECT_SECONDS
        )
        limits = self._limits
        self._node = Node(endpoint, Streams(), seconds=limits.client, limits=limits)
        self._node.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._node is not None:
            await self._node.close()

    async def read_task(self) -> SurveyTerms:
        """Ask for the task, and make it again from its terms.

        Raises:
            ProtocolViolation: If it is not what it claims to be.
            VeilringError: If it could not be had.
        """
        return read_published(await self._run(read_task()), self._collector)

    async def send(
        self,
        task: Task,
        outbox: Outbox,
        *,
        at_once: int | None,
        progress: Progress,
    ) -> None:
        """Send what is unanswered until nothing is.

        Args:
            task: The collector's.
            outbox: What there is to send.
            at_once: How many reports a message may have.
            progress: Told how many reports are answered.

        Raises:
            VeilringError: If the collector refuses, or `PATIENCE_SECONDS` brought no receipt.
        """
        clock = asyncio.get_running_loop().time
        book, heard, failures = _Book(outbox, task, progress), clock(), 0
        while book.waiting:
            before = book.waiting
            try:
                await self._send_some(task, outbox, book, at_once)
            except (TransportError, SessionAborted, SessionTimeout) as error:
                if book.waiting < before:
                    heard, failures = clock(), 0
                if _is_final(error) or clock() - heard > PATIENCE_SECONDS:
                    raise
                pause = min(RETRY_SECONDS * 2**failures, RETRY_SECONDS_MAX)
                failures += 1
                _log.warning(
                    "%s; attempt %d without a receipt; %d reports wait and are sent again in %g s",
                    *(error, failures, book.waiting, pause),
                )
                await asyncio.sleep(pause)
            else:
                heard, failures = clock(), 0

    async def _send_some(
        self, task: Task, outbox: Outbox, book: "_Book", at_once: int | None
    ) -> None:
        role = convening(submit_reports, SUBMIT, task.digest)
        batches = for_one_session(outbox.waiting(task, at_once=at_once))
        try:
            await self._run(role, batches, task=task, settled=book.settle)
        finally:
            book.write()

    async def _run(self, role: Callable[..., Awaitable[R]], *given: object, **public: Any) -> R:  # noqa: ANN401  (a role's)
        if self._node is None:
            raise EndpointClosed("the sender was not entered")
        session = Streams().token("session")
        return await self._node.run(role, session, self._pair, *given, **public)


class _Book:
    """Writes receipts into the outbox, some at a time."""

    def __init__(self, outbox: Outbox, task: Task, progress: Progress) -> None:
        counted = outbox.count(task)
        self.waiting, self._total = counted.get(None, 0), sum(counted.values())
        self._outbox, self._progress = outbox, progress
        self._settled: list[tuple[ClientBatch, Verdicts]] = []
        self._unwritten = 0

    def settle(self, batch: ClientBatch, verdicts: Verdicts) -> None:
        """Take note of what became of a batch."""
        self._settled.append((batch, verdicts))
        self._unwritten += len(batch)
        self.waiting -= len(batch)
        if self._unwritten >= SETTLED_BATCH:
            self.write()

    def write(self) -> None:
        """Write what was noted."""
        self._outbox.settle(self._settled)
        self._settled, self._unwritten = [], 0
        self._progress("reports acknowledged", self._total - self.waiting, self._total)


def for_one_session(batches: Iterator[ClientBatch]) -> Iterator[ClientBatch]:
    """Yield batches until there are as many as a session should have."""
    sent = 0
    for number, batch in enumerate(batches, start=1):
        yield batch
        sent += batch.payload_bytes
        if number >= SESSION_MESSAGES_MAX or sent >= SESSION_BYTES_MAX:
            return


def _is_final(error: VeilringError) -> bool:
    """Say whether the collector refuses for good."""
    return isinstance(error, SessionAborted) and error.reason in _FINAL

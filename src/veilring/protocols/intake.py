"""The common part of collectors of reports: verdicts, and storage by group commit.

Reports that arrive during one transaction are stored by the next, so that many share the cost of
making one transaction durable.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final, Generic, Self, TypeVar

from veilring.errors import StoreFailed, VeilringError
from veilring.nodes.service import Offload, Threads

_T = TypeVar("_T")
_R = TypeVar("_R")

# After a full disk or a lost server, clients' reports do not each trigger an immediate retry.
STORE_PAUSE_SECONDS: Final = 1.0
# Transactions begin at least this far apart. On a fast disk a group would otherwise be as small as
# the work for its transaction allows, which then costs more than the reports. A transaction after a
# pause begins at once.
GROUP_SECONDS: Final = 0.01
_ENDED: Final = "reports cannot be stored any more, and this party has to be started again"


class ReasonedVerdict(IntEnum):
    """A decision on one report, as a byte of an answer.

    Attributes:
        reason: Its meaning in words.
    """

    reason: str

    def __new__(cls, value: int, reason: str = "") -> Self:
        """Return the number with its words."""
        verdict = int.__new__(cls, value)
        verdict._value_, verdict.reason = value, reason
        return verdict


class GroupCommit(Generic[_T, _R]):
    """Stores items in consecutive transactions while its context is entered.

    Args:
        store: Stores a group of items in one transaction, and returns the outcome of each; then
            they are durable. It raises `StoreFailed` if none of them is stored.
        log: The log of the party.
        offload: The executor of transactions; by default a thread owned by this object.
    """

    def __init__(
        self,
        store: Callable[[Sequence[_T]], Sequence[_R]],
        log: logging.Logger,
        offload: Offload | None = None,
    ) -> None:
        self._store_all, self._log = store, log
        self._thread = Threads(1, "store")  # starts no thread before the first call
        self._offload: Offload = offload or self._thread
        self._waiting: list[tuple[_T, asyncio.Future[_R]]] = []
        self._work = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._run(), name="store")
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if self._running is not None:
                self._running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await self._running
        finally:
            self._thread.close()  # waits for a running transaction

    async def failure(self) -> None:
        """Wait until storing fails permanently, and raise the error."""
        if self._running is not None:
            await asyncio.shield(self._running)

    def put(self, item: _T) -> asyncio.Future[_R]:
        """Add an item to the next group, and return the future of its outcome.

        The future raises `StoreFailed` if the item may be lost; its client may send it again.
        """
        future = asyncio.get_running_loop().create_future()
        if self._running is None or self._running.done():
            future.set_exception(StoreFailed(_ENDED))
        else:
            self._waiting.append((item, future))
            self._work.set()
        return future

    async def _run(self) -> None:
        clock, due = asyncio.get_running_loop().time, 0.0
        try:
            while True:
                await self._work.wait()
                await asyncio.sleep(due - clock())
                due = clock() + GROUP_SECONDS
                self._work.clear()
                group, self._waiting = self._waiting, []
                items, futures = [item for item, _ in group], [future for _, future in group]
                await self._store_group(items, futures)
        finally:
            _fail([future for _, future in self._waiting], StoreFailed(_ENDED))

    async def _store_group(self, items: list[_T], futures: "list[asyncio.Future[_R]]") -> None:
        try:
            outcomes = await self._offload(lambda: self._store_all(items))
        except StoreFailed as error:
            self._log.error("nothing was stored; clients must send their reports again: %s", error)
            _fail(futures, error)
            await asyncio.sleep(STORE_PAUSE_SECONDS)
        except BaseException as error:
            _fail(futures, StoreFailed(_ENDED))
            if isinstance(error, VeilringError):  # such as that of a file closed by a failure
                raise StoreFailed(f"{_ENDED}: {error}") from error
            raise
        else:
            for future, outcome in zip(futures, outcomes, strict=True):
                if not future.done():  # its client may be gone
                    future.set_result(outcome)


def _fail(futures: "Sequence[asyncio.Future[_R]]", error: StoreFailed) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)

"""The long-lived leader and helper of a verified sum, and the requests of their collector.

A leader verifies all reports that have arrived, and closes each batch that is due. It opens the
sessions with its helper, which only answers. Whatever interrupts it, it goes on from its store.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeVar

from typing_extensions import override

from veilring.errors import ProtocolViolation, StoreFailed, VeilringError
from veilring.nodes.node import Node
from veilring.nodes.party import Parties, Party
from veilring.nodes.service import Offer, Offload, opening
from veilring.nodes.session import SessionLimits
from veilring.protocols.admission import Admission, Asked, admit_all
from veilring.protocols.chunks import receive_chunks, send_chunks
from veilring.protocols.prio.aggregator import Exchange, Helper, Leader
from veilring.protocols.prio.algorithm.prio3 import Prio3
from veilring.protocols.prio.exchange import answer_leader, close_batch, verify_reports
from veilring.protocols.prio.messages import BatchAnswer, BatchState, CollectBatch, TotalShare
from veilring.protocols.prio.release import Releases, like_share
from veilring.protocols.requests import (
    RequestRefusal,
    RequestVerdict,
    ServerFailure,
    charging,
    require_answered,
)
from veilring.randomness import Streams
from veilring.transport.pacing import SparingLog

AGGREGATE: Final = "prio.aggregate"
"""The service of a helper that verifies reports and fixes batches, for its leader."""
COLLECT: Final = "prio.collect"
"""The service of both aggregators that releases totals, for the collector."""
# Often enough for an operator who watches; reports that arrive meanwhile are verified together.
PAUSE_SECONDS: Final = 1.0
# After an error: a helper that restarts is back within a few seconds.
RETRY_SECONDS: Final = 3.0
_T = TypeVar("_T")
_log = logging.getLogger("veilring.aggregator")


class Collected(NamedTuple):
    """An aggregator's answer to a collector.

    Attributes:
        share: Its share of the total; none if the batch is not closed.
    """

    batches: int
    share: TotalShare | None


@dataclass(frozen=True, slots=True)
class Aggregator:
    """The common part of a leader and a helper: totals for the collector.

    Attributes:
        releases: Its totals.
        terms: The SHA-256 of all terms that must be equal for parties of one session.
        collector: The name of the only party that may ask for totals.
        offload: The executor of everything that uses the store: one call at a time, in order.
    """

    releases: Releases
    terms: bytes
    collector: str
    offload: Offload
    limits: SessionLimits = field(default_factory=SessionLimits)
    admission: Admission = field(default=admit_all, repr=False)
    _failure: ServerFailure = field(default_factory=ServerFailure, init=False, repr=False)

    async def failure(self) -> None:
        """Wait until the store or the ledger fails, which ends this party; otherwise forever."""
        await self._failure.wait()

    def offers(self) -> dict[str, Offer]:
        """Return the service for the collector."""
        only = self.collector.__eq__
        return {COLLECT: Offer(self._collect, self.terms, only, self.limits.served)}

    async def settled(self, call: Callable[[], _T]) -> _T:
        """Run a call that uses the store. Any failure of the disk ends this party.

        Raises:
            ProtocolViolation: If a peer is at fault.
            StoreFailed: If the store or the ledger failed, now or before.
        """
        self._failure.check()
        try:
            with charging():
                return await self.offload(call)
        except StoreFailed as error:
            self._failure.report(error)
            raise

    async def _collect(self, party: Party, collector: str) -> None:
        request = await party.receive(CollectBatch, sender=collector, due=1)
        release = partial(self._release, request.number, collector, party.session)
        state, share = await self.settled(release)
        party.round(2)
        await party.send(collector, state)
        if share is not None:
            await send_chunks(party, collector, share, first_round=3)
            line = "%s sent its share of batch %d to %s; it was paid for once, with epsilon %g"
            _log.info(line, party.me, request.number, collector, self.releases.price)

    def _release(
        self, number: int, collector: str, session: bytes
    ) -> tuple[BatchState, TotalShare | None]:
        store, price = self.releases.store, self.releases.price
        last, batch = store.last_batch(), store.batch(number)
        if batch is not None and not batch.agreed:
            batch = None
        state = BatchState(
            verdict=RequestVerdict.ANSWERED,
            left=0.0,
            batches=0 if last is None else last.number + last.agreed,
        )
        new = int(batch is not None and batch.total is None)
        asked = Asked(
            *(collector, new, price if new else 0.0),
            service=COLLECT,
            session=session,
            request=self.releases.request(number),
        )
        with self.admission(asked) as admitted:
            if batch is None:
                return state, None
            done = self.releases.release(batch, collector, admitted.count)
            if isinstance(done, RequestRefusal):
                admitted.refuse(done.rule)
                refused = {"verdict": int(done.verdict), "left": done.left}
                return state.model_copy(update=refused), None
            admitted.answer(done.entries.tobytes())
        return state, done


@dataclass(frozen=True, slots=True)
class HelperParty(Aggregator):
    """A helper that answers its leader and the collector."""

    helper: Helper = field(kw_only=True)
    leader: str = field(kw_only=True)

    @override
    def offers(self) -> dict[str, Offer]:
        only, joined = self.leader.__eq__, self.limits.joined
        return {**Aggregator.offers(self), AGGREGATE: Offer(self._answer, self.terms, only, joined)}

    async def _answer(self, party: Party, leader: str) -> None:
        answer: object = None
        number = 1
        while answer is None or (isinstance(answer, BatchAnswer) and not answer.agreed):
            answer = await answer_leader(
                party, self.helper, leader=leader, offload=self.settled, first_round=number
            )
            number += 2


@dataclass(frozen=True, slots=True)
class LeaderParty(Aggregator):
    """A leader that verifies uploads with its helper, and answers the collector.

    Attributes:
        node: The node on which it opens sessions with its helper.
        helper: The name of the helper.
        pauses: The time in seconds between two looks at the store, and after an error.
    """

    leader: Leader = field(kw_only=True)
    node: Node = field(kw_only=True)
    helper: str = field(kw_only=True)
    pauses: tuple[float, float] = (PAUSE_SECONDS, RETRY_SECONDS)

    async def run(self) -> None:
        """Verify reports and close batches until cancelled.

        Raises:
            StoreFailed: If the store failed.
        """
        lines, idle, retry = SparingLog(_log), *self.pauses
        while True:
            try:
                await self.catch_up()
                pause = idle
            except StoreFailed:
                raise
            except VeilringError as error:
                what, pause = f"{type(error).__name__}: {error}", retry
                is_at_fault = isinstance(error, ProtocolViolation)
                level = logging.ERROR if is_at_fault else logging.WARNING
                lines.say(level, self.helper, what, "%s; trying again", error)
            await asyncio.sleep(pause)

    async def catch_up(self) -> None:
        """Verify everything that waits, and close each batch that is due.

        Raises:
            NotReady: If the helper is not connected.
            ProtocolViolation: If the helper is at fault.
            VeilringError: If a session broke off. Nothing is lost.
        """
        while True:
            self.node.require((self.helper,))  # before anything is computed
            if await self.settled(self.leader.has_proposed):  # before it was interrupted
                await self._close()
            exchange = await self.settled(self.leader.prepare)
            if exchange is not None:
                await self._verify(exchange)
            elif await self.settled(self.leader.is_due):
                await self._close()
            else:
                return

    async def _close(self) -> None:
        """Close a batch."""
        proposal = await self.settled(self.leader.propose)
        await self._play(partial(close_batch, proposal=proposal))
        line = "batch %d of %d reports is closed, here and at %s"
        _log.info(line, proposal.batch.number, proposal.batch.reports, self.helper)

    async def _verify(self, exchange: Exchange | None) -> None:
        """Verify reports, and prepare the next ones while the helper works, until none is left."""
        while exchange is not None:
            following = self.settled(partial(self.leader.prepare, exchange))
            play = self._play(partial(verify_reports, exchange=exchange))
            accepted, prepared = await asyncio.gather(play, following)
            line = "verified %d reports with %s: %d are accepted"
            _log.info(line, len(exchange.numbers), self.helper, accepted)
            exchange = prepared

    async def _play(self, role: Callable[..., Awaitable[int]]) -> int:
        whole = partial(role, leader=self.leader, helper=self.helper, offload=self.settled)
        pair, session = Parties((self.node.name, self.helper)), Streams().token("session")
        opened = opening(whole, AGGREGATE, self.terms)
        return await self.node.run(opened, session, pair, seconds=self.limits.joined)


async def collect_batch(party: Party, number: int, *, prio: Prio3, price: float) -> Collected:
    """Ask an aggregator for its share of the total of a batch.

    Raises:
        BudgetExhausted: If a budget of the aggregator is insufficient.
    """
    (aggregator,) = party.peers
    party.round(1)
    await party.send(aggregator, CollectBatch(number=number))
    state = await party.receive(BatchState, sender=aggregator, due=2)
    require_answered(state.verdict, state.left, asked=price, unit="epsilon")
    share = None
    if number < state.batches:
        like = like_share(prio)
        share = await receive_chunks(party, like, sender=aggregator, first_round=3)
        if share.number != number:
            raise ProtocolViolation(aggregator, "sent its share of another batch")
    return Collected(state.batches, share)


def collecting(terms: bytes) -> Callable[..., Awaitable[Collected]]:
    """Return `collect_batch` for a session that the collector opens with an aggregator."""
    return opening(collect_batch, COLLECT, terms)

"""The data owner, which labels analysts' queries and charges each answer first; and the analyst."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.arrays import Floats
from veilring.data.table import Rows
from veilring.errors import InputError, ProtocolViolation, StoreFailed
from veilring.nodes.party import Party
from veilring.nodes.service import Offer, Offload
from veilring.privacy.budgets import Charge
from veilring.privacy.checks import require
from veilring.privacy.ledger import Ledger
from veilring.protocols.admission import Admission, Asked, admit_all, pack_labels
from veilring.protocols.radius.algorithm.nearest import LabelledBatch
from veilring.protocols.radius.messages import LabelAnswer, LabelRequest, OwnerRules
from veilring.protocols.requests import (
    REQUEST_KEY_BYTES,
    RequestRefusal,
    RequestVerdict,
    ServerFailure,
    answer_once,
    charging,
    content_key,
    require_answered,
)
from veilring.transport.frames import pack, unpack

_log = logging.getLogger("veilring.owner")

LABEL_SERVICE: Final = "radius.label"
"""The service that labels a batch of queries."""


class Owner:
    """A data owner that labels requests under the budgets of a ledger.

    Refusals depend only on requests and earlier charges, never on a row. If a disk or memory
    failure prevents both an answer and a refusal, the owner stops: see `failure`.

    Args:
        ledger: The ledger of all charges. The caller opens and closes it.
        admission: The owner's own decision on each request.
    """

    def __init__(
        self,
        rows: Rows,
        rules: OwnerRules,
        ledger: Ledger,
        offload: Offload,
        admission: Admission = admit_all,
    ) -> None:
        _require_fitting(rows, rules)
        self._rows, self._rules, self._ledger, self._offload = rows, rules, ledger, offload
        self._admission, self._failure = admission, ServerFailure()
        # Requests of one analyst take turns, so that it occupies at most one thread.
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def offers(self, terms: bytes) -> dict[str, Offer]:
        """Return the one service, for all members of the roster.

        Args:
            terms: The SHA-256 of the terms that analysts must agree to.
        """
        return {LABEL_SERVICE: Offer(self.answer, terms, lambda _peer: True)}

    async def failure(self) -> None:
        """Wait for an answer that cannot be drawn or charged.

        Raises:
            StoreFailed: If it cannot. The owner answers no further request; restart it to continue
                from the ledger.
        """
        await self._failure.wait()

    async def answer(self, party: Party, analyst: str) -> None:
        """Answer one request with one message, whose size depends only on the request."""
        request = await party.receive(LabelRequest, sender=analyst)
        try:
            self._rules.check(request)
        except InputError as error:
            party.accuse(
                ProtocolViolation(analyst, f"sent a request that violates the rules: {error}")
            )
        act = partial(self.answer_once, analyst, request, party.rng, party.session)
        answer = await self._in_turn(analyst, act)
        party.round(2)
        await party.send(analyst, answer)
        if answer.verdict == RequestVerdict.ANSWERED:
            line = "%s labelled %d queries for %s; the request is charged epsilon %g once"
            _log.info(line, party.me, len(request.queries), analyst, request.epsilon)

    def answer_once(
        self, analyst: str, request: LabelRequest, rng: Generator, session: bytes = b""
    ) -> LabelAnswer:
        """Return the answer to a request, after it was charged and durably stored.

        Args:
            rng: The secret source of randomness, fresh for each call.
            session: The name of the session in which it is asked.

        Raises:
            PolicyRefused: If the owner's policy does not allow the request.
        """
        price, key, content = request.epsilon, request.key, request.content

        with charging():
            is_known = self._ledger.has(analyst, key.hex())
        new, epsilon = (0, 0.0) if is_known else (len(request.queries), price)
        asked = Asked(analyst, new, epsilon, request.k, LABEL_SERVICE, "", session, key)
        with self._admission(asked) as admitted:

            def pay() -> bytes:
                drawn = self._label(request, rng)
                count = partial(admitted.count, answer=pack_labels(*_unpacked(drawn)))
                return self._ledger.charge(Charge(analyst, key.hex(), content, drawn, price), count)

            settled = answer_once(self._ledger, analyst, key, content, amount=price, pay=pay)
            if isinstance(settled, RequestRefusal):
                admitted.refuse(settled.rule)
                return _refused(request, settled)
            labels, radii = _unpacked(settled)
            admitted.answer(pack_labels(labels, radii))
        return LabelAnswer(verdict=RequestVerdict.ANSWERED, left=0.0, labels=labels, radii=radii)

    async def _in_turn(self, analyst: str, act: Callable[[], LabelAnswer]) -> LabelAnswer:
        """Run a call in a thread, in an analyst's turn, which outlives cancellation."""
        turn = self._turns[analyst]
        await turn.acquire()
        settling = asyncio.create_task(self._settled(act, turn))
        return await asyncio.shield(settling)

    async def _settled(self, act: Callable[[], LabelAnswer], turn: asyncio.Lock) -> LabelAnswer:
        try:
            self._failure.check()
            return await self._offload(act)
        except StoreFailed as error:
            self._failure.report(error)
            raise
        finally:
            turn.release()

    def _label(self, request: LabelRequest, rng: Generator) -> bytes:
        """Draw labels, and return them as the ledger stores them."""
        found = self._rules.label(request, self._rows, rng)
        return pack((found.labels.astype(np.uint16), found.radii if request.k else np.zeros(0)))


def _require_fitting(rows: Rows, rules: OwnerRules) -> None:
    width, facts = rows.features.shape[1], rules.facts
    if width != facts.features:
        raise InputError.because(
            f"the rows have {width} features; the rules have {facts.features}", field="rows"
        )
    if rows.labels.size and int(rows.labels.max()) >= facts.classes:
        raise InputError.because(
            f"labels must be below {facts.classes}, the number of classes", field="rows.labels"
        )


def _unpacked(kept: bytes) -> tuple[NDArray[np.uint16], Floats]:
    match unpack(kept):
        case (np.ndarray() as labels, np.ndarray() as radii):
            return labels.astype(np.uint16), radii.astype(np.float64)
    raise StoreFailed("the ledger has an answer of another kind")


def _refused(request: LabelRequest, refusal: RequestRefusal) -> LabelAnswer:
    count = len(request.queries)
    labels, radii = np.zeros(count, dtype=np.uint16), np.zeros(count if request.k else 0)
    return LabelAnswer(verdict=refusal.verdict, left=refusal.left, labels=labels, radii=radii)


def ask_within(queries: Floats, radii: Floats, epsilon: float, *, name: str = "") -> LabelRequest:
    """Return a request for labels by the votes of the rows within given radii.

    Its key is a hash of its content. An equal request, even from another process after a crash,
    gets the same answer at no further cost.

    Args:
        name: A name that distinguishes requests with equal content. A request with a new name gets
            a fresh answer and is charged again.
    """
    return _keyed(name, queries, radii, epsilon, 0)


def ask_nearest(queries: Floats, k: int, epsilon: float, *, name: str = "") -> LabelRequest:
    """Return a request for labels by the votes of about k nearest rows."""
    require(k >= 1, "k", k, "a whole number of at least 1")
    return _keyed(name, queries, np.zeros(0), epsilon, k)


async def request_labels(
    party: Party, request: LabelRequest, *, rules: OwnerRules
) -> LabelledBatch:
    """Send a request and return the owner's answer, in one round trip.

    Raises:
        BudgetExhausted: If a budget does not suffice. Nothing has been charged.
    """
    (owner,) = party.peers
    rules.check(request)
    party.round(1)
    await party.send(owner, request)
    answer = await party.receive(LabelAnswer, sender=owner)
    _check(owner, request, answer, rules)
    require_answered(answer.verdict, answer.left, asked=request.epsilon, unit="epsilon")
    radii = answer.radii if request.k else request.radii
    return LabelledBatch(answer.labels.astype(np.int64), radii)


def _keyed(name: str, queries: Floats, radii: Floats, epsilon: float, k: int) -> LabelRequest:
    draft = LabelRequest(
        key=bytes(REQUEST_KEY_BYTES), epsilon=epsilon, k=k, queries=queries, radii=radii
    )
    return draft.model_copy(update={"key": content_key(name, draft.content)})


def _check(owner: str, request: LabelRequest, answer: LabelAnswer, rules: OwnerRules) -> None:
    count = len(request.queries)
    if answer.labels.shape != (count,) or answer.radii.shape != (count if request.k else 0,):
        raise ProtocolViolation(owner, f"sent an answer of the wrong shape for {count} queries")
    if answer.labels.size and int(answer.labels.max()) >= rules.facts.classes:
        raise ProtocolViolation(owner, "sent a class that does not exist")
    if not np.all(np.isfinite(answer.radii) & (answer.radii >= 0)):
        raise ProtocolViolation(owner, "sent an invalid radius")

"""The data owner: it labels what analysts ask, and pays before it answers."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data.table import Rows
from veilring.errors import InputError, ProtocolViolation, StoreFailed
from veilring.nodes.offload import Offload
from veilring.nodes.party import Party
from veilring.nodes.service import Offer
from veilring.privacy.budgets import Charge, RecordCharge, to_units
from veilring.privacy.ledger import Ledger
from veilring.protocols.radius.algorithm.nearest import label_nearest
from veilring.protocols.radius.algorithm.voting import answer_next, label_within
from veilring.protocols.radius.messages import LabelAnswer, LabelRequest
from veilring.protocols.radius.rules import OwnerRules
from veilring.protocols.requests import RequestRefusal, RequestVerdict, ServerFailure, answer_once
from veilring.transport.frames import pack, unpack

_log = logging.getLogger("veilring.owner")

LABEL_SERVICE: Final = "radius.label"
"""What an analyst asks of a data owner: the labels of a batch of queries."""


class Owner:
    """Labels requests under the budgets of a ledger.

    What is refused, and whether a budget suffices, follows from the requests and from what was
    charged before: from no row. A request that can be neither answered nor refused, because the
    disk or the memory fails, ends the owner: see `failure`.

    Args:
        rows: The table. Secret.
        rules: Public.
        ledger: Where all is charged. The caller opens and closes it.
        offload: Runs slow calls.
        ids: Where rows have budgets of their own: the id of each row, by which the ledger knows it
            again. Each id once, since one person is one row.

    Raises:
        InputError: If rows, ids and rules do not fit together.
    """

    def __init__(
        self,
        rows: Rows,
        rules: OwnerRules,
        ledger: Ledger,
        offload: Offload,
        *,
        ids: Sequence[str] | None = None,
    ) -> None:
        _require_fitting(rows, rules, ids)
        self._rows, self._rules, self._ledger, self._offload = rows, rules, ledger, offload
        self._slots = ledger.records.add(ids or ())
        self._failure = ServerFailure()
        # One analyst's requests take turns, so that it never has more than a thread of ours.
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        # What rows have left may not change between reading and charging it.
        self._guard: AbstractContextManager[object] = nullcontext() if ids is None else Lock()

    def offers(self, terms: bytes) -> dict[str, Offer]:
        """Return the one service, for all members of the roster.

        Args:
            terms: SHA-256 of all that analysts and owner agree on.
        """
        return {LABEL_SERVICE: Offer(self.answer, terms, lambda _peer: True)}

    async def failure(self) -> None:
        """Wait until an answer could not be drawn or charged.

        Raises:
            StoreFailed: Then. Nothing more is answered; start again to see what the ledger holds.
        """
        await self._failure.wait()

    async def answer(self, party: Party, analyst: str) -> None:
        """Answer one request: one message in, one of a size that the request determines out.

        Args:
            party: The owner, in a session with the analyst alone.
            analyst: The name of the analyst.

        Raises:
            ProtocolViolation: If the request is against the rules.
            StoreFailed: If the answer could not be drawn or charged, now or before.
        """
        request = await party.receive(LabelRequest, sender=analyst)
        try:
            self._rules.check(request)
        except InputError as error:
            party.accuse(
                ProtocolViolation(analyst, f"sent a request that violates the rules: {error}")
            )
        rng = party.rng
        answer = await self._in_turn(analyst, lambda: self.answer_once(analyst, request, rng))
        party.round(2)
        await party.send(analyst, answer)
        if answer.verdict == RequestVerdict.ANSWERED:
            line = "%s labelled %d queries for %s; they cost epsilon %g, once"
            price = self._rules.price(request)
            _log.info(line, party.me, len(request.queries), analyst, price)

    def answer_once(self, analyst: str, request: LabelRequest, rng: Generator) -> LabelAnswer:
        """Return the answer that may leave: it is paid for, and on the disk.

        Args:
            analyst: The name of the analyst, as the transport authenticated it.
            request: One that the rules allow.
            rng: The source of randomness, secret and fresh for each call.

        Raises:
            StoreFailed: If the answer could not be drawn or charged.
        """
        price, key, content = self._rules.price(request), request.key, request.content

        def pay() -> bytes:
            with self._guard:
                released, records = self._label(request, rng)
                charge = Charge(analyst, key.hex(), content, released, price, records)
                return self._ledger.charge(charge)

        settled = answer_once(self._ledger, analyst, key, content, amount=price, pay=pay)
        if isinstance(settled, RequestRefusal):
            return _refused(request, settled)
        labels, radii = _unpacked(settled)
        return LabelAnswer(verdict=RequestVerdict.ANSWERED, left=0.0, labels=labels, radii=radii)

    async def _in_turn(self, analyst: str, act: Callable[[], LabelAnswer]) -> LabelAnswer:
        """Act in a worker thread, in an analyst's turn, which a cancelled call does not end."""
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

    def _label(self, request: LabelRequest, rng: Generator) -> tuple[bytes, RecordCharge | None]:
        """Draw labels; return them as the ledger keeps them, and what rows have to pay."""
        rules, rows, queries = self._rules, self._rows, request.queries
        if rules.accounting == "record":
            return self._label_by_rows(request, rng)
        if request.k:
            found = label_nearest(queries, rows, rules.nearest(request.k, request.epsilon), rng)
            return _packed(found.labels, found.radii), None
        labels = label_within(queries, request.radii, rows, rules.within(request.epsilon), rng)
        return _packed(labels, np.zeros(0)), None

    def _label_by_rows(self, request: LabelRequest, rng: Generator) -> tuple[bytes, RecordCharge]:
        """Have the rows vote that can pay: the others are left out, and nobody is told."""
        count = len(request.queries)
        left = self._ledger.records.remaining()[self._slots]
        answered = answer_next(
            request.queries,
            request.radii,
            np.full(count, request.epsilon),
            self._rows,
            left,
            rng,
            classes=self._rules.classes,
            mechanism=self._rules.mechanism,
            prices=np.full(count, to_units(request.epsilon)),
        )
        paid = left - answered.left
        payers = np.flatnonzero(paid)
        charge = RecordCharge(self._slots[payers], paid[payers])
        return _packed(answered.labels, np.zeros(0)), charge


def _require_fitting(rows: Rows, rules: OwnerRules, ids: Sequence[str] | None) -> None:
    width = rows.features.shape[1]
    if width != rules.features:
        raise InputError.because(
            f"the rows have {width} features; the rules have {rules.features}", field="rows"
        )
    if rows.labels.size and int(rows.labels.max()) >= rules.classes:
        raise InputError.because(
            f"labels must be below {rules.classes}, the number of classes", field="rows.labels"
        )
    if (ids is not None) != (rules.accounting == "record"):
        raise InputError.because(
            "give ids if, and only if, rows have budgets of their own", field="ids"
        )
    if ids is not None and not len(set(ids)) == len(ids) == len(rows):
        raise InputError.because(
            f"there are {len(ids)} ids for {len(rows)} rows; each row needs a different one",
            field="ids",
        )


def _packed(labels: NDArray[np.int64], radii: NDArray[np.float64]) -> bytes:
    return pack((labels.astype(np.uint16), radii))


def _unpacked(kept: bytes) -> tuple[NDArray[np.uint16], NDArray[np.float64]]:
    match unpack(kept):
        case (np.ndarray() as labels, np.ndarray() as radii):
            return labels.astype(np.uint16), radii.astype(np.float64)
    raise StoreFailed("the ledger has an answer of another kind")


def _refused(request: LabelRequest, refusal: RequestRefusal) -> LabelAnswer:
    count = len(request.queries)
    labels, radii = np.zeros(count, dtype=np.uint16), np.zeros(count if request.k else 0)
    return LabelAnswer(verdict=refusal.verdict, left=refusal.left, labels=labels, radii=radii)

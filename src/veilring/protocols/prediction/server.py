"""The prediction server, which answers clients and changes records for its administrators."""

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, TypeVar

from numpy.random import Generator

from veilring.errors import InputError, ProtocolViolation, StoreFailed
from veilring.nodes.party import Party
from veilring.nodes.service import Offer, Offload
from veilring.protocols.admission import Admission, Asked, admit_all
from veilring.protocols.prediction.messages import (
    NO_PLACE,
    AddRequest,
    ChangeReceipt,
    ForgetRequest,
    PredictionAnswer,
    PredictionRequest,
    StatusRequest,
    StreamStatus,
)
from veilring.protocols.prediction.records import LabelledRecords
from veilring.protocols.prediction.state import ChangeRefused, ServerState
from veilring.protocols.requests import REQUEST_KEY_BYTES, RequestVerdict, ServerFailure

_log = logging.getLogger("veilring.prediction")

PREDICT: Final = "prediction.predict"
"""The service that labels queries, for everyone in the roster."""
STATUS: Final = "prediction.look"
"""The free service that reports the number of queries left."""
ADD: Final = "prediction.add"
"""The service that adds records, for administrators."""
FORGET: Final = "prediction.forget"
"""The service that forgets records, for administrators."""

_T = TypeVar("_T")
_Change = TypeVar("_Change", AddRequest, ForgetRequest)


class PredictionServer:
    """A server that answers requests one after the other, in the order of their arrival."""

    def __init__(
        self,
        state: ServerState,
        offload: Offload,
        administrators: Collection[str] = (),
        admission: Admission = admit_all,
    ) -> None:
        self._state, self._offload, self._administrators = state, offload, frozenset(administrators)
        self._admission = admission
        self._failure = ServerFailure()

    def offers(self, terms: bytes) -> dict[str, Offer]:
        """Return the services.

        Args:
            terms: The SHA-256 of the terms that clients, administrators and server agree on.
        """
        return {
            PREDICT: Offer(self.answer, terms, lambda _peer: True),
            STATUS: Offer(self.report_status, terms, lambda _peer: True),
            ADD: Offer(self.add, terms, self._administrators.__contains__),
            FORGET: Offer(self.forget, terms, self._administrators.__contains__),
        }

    async def failure(self) -> None:
        """Wait for a failure of the disk.

        Raises:
            StoreFailed: If the disk fails. The server answers no further request; restart it to
                continue from its files.
        """
        await self._failure.wait()

    async def answer(self, party: Party, client: str) -> None:
        """Answer the requests of a session, each with one message whose size it determines."""
        number, more = 0, True
        while more:
            request = await party.receive(PredictionRequest, sender=client)
            try:
                self._state.rules.check(request)
            except InputError as error:
                party.accuse(
                    ProtocolViolation(client, f"sent a request that violates the rules: {error}")
                )
            number += 2
            reply = await self._do(partial(self._answer, client, request, party.rng, party.session))
            party.round(number)
            await party.send(client, reply)
            if reply.verdict == RequestVerdict.ANSWERED:
                _log.info("%s labelled %d queries for %s", party.me, len(reply.labels), client)
            more = request.more

    def _answer(
        self, client: str, request: PredictionRequest, rng: Generator, session: bytes
    ) -> PredictionAnswer:
        new = 0 if self._state.has(client, request) else len(request.queries)
        # the terms' ε covers all queries
        asked = Asked(client, new, 0.0, None, PREDICT, "", session, request.key)
        with self._admission(asked) as admitted:
            return self._state.answer(client, request, rng, admitted)

    async def report_status(self, party: Party, client: str) -> None:
        """Answer the status requests of a session."""
        number, more = 0, True
        while more:
            message = await party.receive(StatusRequest, sender=client)
            if len(message.keys) % REQUEST_KEY_BYTES:
                party.accuse(ProtocolViolation(client, "sent a part of a key"))
            firsts = range(0, len(message.keys), REQUEST_KEY_BYTES)
            keys = [message.keys[first : first + REQUEST_KEY_BYTES] for first in firsts]
            number += 2
            status = await self._do(partial(self._status, client, keys))
            party.round(number)
            await party.send(client, status)
            more = message.more

    def _status(self, client: str, keys: list[bytes]) -> StreamStatus:
        with self._admission(Asked(client, 0, service=STATUS)):
            return self._state.status(client, keys)

    async def add(self, party: Party, administrator: str) -> None:
        """Add the records that an administrator sends, message by message."""

        def add(message: AddRequest) -> int:
            return self._state.add(LabelledRecords(message.ids, message.features, message.labels))

        wrong = "records that violate the rules"
        await self._change(party, administrator, AddRequest, ADD, add, wrong)

    async def forget(self, party: Party, administrator: str) -> None:
        """Forget the records that an administrator names, message by message."""

        def forget(message: ForgetRequest) -> int:
            return self._state.forget(message.ids)

        await self._change(party, administrator, ForgetRequest, FORGET, forget, "invalid ids")

    async def _change(  # noqa: PLR0917  (of two services)
        self,
        party: Party,
        administrator: str,
        kind: type[_Change],
        service: str,
        change: Callable[[_Change], int],
        wrong: str,
    ) -> None:
        def entered(message: _Change) -> int:
            asked = Asked(administrator, 0, service=service, session=party.session)
            with self._admission(asked._replace(records=len(message.ids))) as admitted:
                admitted.count()
                return change(message)

        number, more = 0, True
        while more:
            message = await party.receive(kind, sender=administrator)
            number += 2
            try:
                changed = await self._do(partial(entered, message))
                receipt = ChangeReceipt(changed=changed, place=NO_PLACE)
            except ChangeRefused as refused:
                receipt = ChangeReceipt(changed=0, place=refused.place)
            except InputError as error:
                raise ProtocolViolation(administrator, f"sent {wrong}: {error}") from None
            party.round(number)
            await party.send(administrator, receipt)
            more = message.more

    async def _do(self, step: Callable[[], _T]) -> _T:
        try:
            return await self._offload(step)
        except StoreFailed as error:
            self._failure.report(error)
            raise

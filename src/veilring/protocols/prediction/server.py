"""The prediction server: it answers queriers, and does at once what its curators say."""

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, TypeVar

from veilring.errors import InputError, ProtocolViolation, StoreFailed
from veilring.nodes.aside import Aside
from veilring.nodes.party import Party
from veilring.nodes.service import Offer
from veilring.protocols.prediction.messages import NO_PLACE, Add, Forget, Look, Receipt, Request
from veilring.protocols.prediction.records import Records
from veilring.protocols.prediction.state import Refused, State
from veilring.protocols.requests import REQUEST_KEY_BYTES, RequestVerdict, ServerFailure

_log = logging.getLogger("veilring.prediction")

PREDICT: Final = "prediction.predict"
"""What a querier asks: labels for its queries. Whoever is in the roster may."""
LOOK: Final = "prediction.look"
"""What a querier asks first: how many queries are left. It costs nothing."""
ADD: Final = "prediction.add"
"""What a curator asks: to add records."""
FORGET: Final = "prediction.forget"
"""What a curator asks: to forget records."""

T = TypeVar("T")


class PredictionServer:
    """Answers requests one after the other, in the order in which they come.

    Args:
        state: Whoever opened it closes it.
        aside: Calls what takes long, one at a time.
        curators: Who may add and forget records.
    """

    def __init__(self, state: State, aside: Aside, curators: Collection[str] = ()) -> None:
        self._state, self._aside, self._curators = state, aside, frozenset(curators)
        self._failure = ServerFailure()

    def offers(self, terms: bytes) -> dict[str, Offer]:
        """Return the services.

        Args:
            terms: SHA-256 of all that queriers, curators and server agree on.
        """
        return {
            PREDICT: Offer(self.answer, terms, lambda _peer: True),
            LOOK: Offer(self.look, terms, lambda _peer: True),
            ADD: Offer(self.add, terms, self._curators.__contains__),
            FORGET: Offer(self.forget, terms, self._curators.__contains__),
        }

    async def failure(self) -> None:
        """Wait until the disk fails.

        Raises:
            StoreFailed: Then. Nothing more is answered; start again to see what the files hold.
        """
        await self._failure.wait()

    async def answer(self, party: Party, querier: str) -> None:
        """Answer the requests of a session: one message in, one of a size that it determines out.

        Args:
            party: The server, in a session with the querier alone.
            querier: Who asks.

        Raises:
            ProtocolViolation: If a request is against the rules.
            StoreFailed: If the disk failed.
        """
        number, more = 0, True
        while more:
            request = await party.receive(Request, sender=querier)
            try:
                self._state.rules.check(request)
            except InputError as error:
                party.accuse(ProtocolViolation(querier, f"asked against the rules: {error}"))
            number += 2
            reply = await self._do(partial(self._state.answer, querier, request, party.rng))
            party.round(number)
            await party.send(querier, reply)
            if reply.verdict == RequestVerdict.ANSWERED:
                _log.info("%s labelled %d queries for %s", party.me, len(reply.labels), querier)
            more = request.more

    async def look(self, party: Party, querier: str) -> None:
        """Say how many queries are left, and which requests were answered, message by message.

        Raises:
            ProtocolViolation: If a look is against the rules.
            StoreFailed: If the disk failed.
        """
        number, more = 0, True
        while more:
            message = await party.receive(Look, sender=querier)
            if len(message.keys) % REQUEST_KEY_BYTES:
                party.accuse(ProtocolViolation(querier, "sent a part of a key"))
            firsts = range(0, len(message.keys), REQUEST_KEY_BYTES)
            keys = [message.keys[first : first + REQUEST_KEY_BYTES] for first in firsts]
            number += 2
            outlook = await self._do(partial(self._state.look, querier, keys))
            party.round(number)
            await party.send(querier, outlook)
            more = message.more

    async def add(self, party: Party, curator: str) -> None:
        """Add what a curator hands over, message by message.

        Raises:
            ProtocolViolation: If it hands over what are no records by the rules.
            StoreFailed: If the disk failed.
        """
        number, more = 0, True
        while more:
            message = await party.receive(Add, sender=curator)
            number += 2
            try:
                records = Records(message.ids, message.features, message.labels)
                receipt = await self._change(partial(self._state.add, records))
            except InputError as error:
                raise ProtocolViolation(curator, f"sent no records by the rules: {error}") from None
            party.round(number)
            await party.send(curator, receipt)
            more = message.more

    async def forget(self, party: Party, curator: str) -> None:
        """Forget what a curator names, message by message.

        Raises:
            ProtocolViolation: If it names what are no ids.
            StoreFailed: If the disk failed.
        """
        number, more = 0, True
        while more:
            message = await party.receive(Forget, sender=curator)
            number += 2
            try:
                receipt = await self._change(partial(self._state.forget, message.ids))
            except InputError as error:
                raise ProtocolViolation(curator, f"sent no ids: {error}") from None
            party.round(number)
            await party.send(curator, receipt)
            more = message.more

    async def _change(self, step: Callable[[], int]) -> Receipt:
        try:
            return Receipt(changed=await self._do(step), place=NO_PLACE)
        except Refused as refused:
            return Receipt(changed=0, place=refused.place)

    async def _do(self, step: Callable[[], T]) -> T:
        try:
            return await self._aside(step)
        except StoreFailed as error:
            self._failure.report(error)
            raise

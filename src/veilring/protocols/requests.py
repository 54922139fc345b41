"""Requests that a ledger charges once: their keys, and what becomes of each.

A request is answered and paid for, or refused. There is no third outcome that a server survives:
whether drawing or charging an answer fails may depend on private rows, and a failure that costs
nothing could be asked for again and again. So every failure is the same `StoreFailed` to the
client, and ends the server.
"""

import asyncio
import hashlib
import sqlite3
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from veilring.errors import BudgetExhausted, InputError, StoreFailed, VeilringError
from veilring.nodes.node import ABORT_SECONDS
from veilring.privacy.ledger import Ledger
from veilring.reached import sometimes

REQUEST_KEY_BYTES: Final = 16  # as many as a UUID has: never drawn twice by chance

RequestKey = Annotated[bytes, Field(min_length=REQUEST_KEY_BYTES, max_length=REQUEST_KEY_BYTES)]
"""The client's name of a request. A request that is sent again has the same key, gets the same
answer, and is charged once."""


def content_key(name: str, content: bytes) -> bytes:
    """Return the key that follows from a request's content.

    Args:
        name: Another name makes another key of the same content.
        content: All of the request but its key.
    """
    salt = hashlib.sha256(name.encode()).digest()
    return hashlib.sha256(salt + content).digest()[:REQUEST_KEY_BYTES]


class RequestVerdict(IntEnum):
    """The outcome of a request, as its answer states it."""

    ANSWERED = 0
    CLIENT_EXHAUSTED = 1
    TOTAL_EXHAUSTED = 2
    KEY_USED = 3


class RequestRefusal(NamedTuple):
    """Why a request was not answered. Nothing was charged."""

    verdict: RequestVerdict
    left: float
    """Of the budget that does not suffice; else 0."""


def answer_once(
    ledger: Ledger,
    client: str,
    key: bytes,
    content: bytes,
    *,
    amount: float,
    pay: Callable[[], bytes],
) -> bytes | RequestRefusal:
    """Return the kept answer of a request that was answered before; otherwise pay for a new one.

    Args:
        ledger: The ledger that is charged.
        client: The client, as the transport authenticated it.
        key: The request's key.
        content: All of the request but its key.
        amount: What the request costs the client.
        pay: Draws an answer, charges it, and returns what `Ledger.charge` does. Called only for a
            new request that the budgets allow.

    Raises:
        StoreFailed: If an answer could not be drawn or charged; see `charging`.
    """
    try:
        with charging():
            kept = ledger.find(client, key.hex(), content)
            if kept is not None:
                sometimes("a request that was answered is answered again")
                return kept
            ledger.check(client, amount)
            return pay()
    except BudgetExhausted as error:
        sometimes("a budget does not suffice for a request")
        own = error.budget == "analyst"
        left = 0.0 if error.left is None else error.left
        return RequestRefusal(
            RequestVerdict.CLIENT_EXHAUSTED if own else RequestVerdict.TOTAL_EXHAUSTED, left
        )
    except InputError:
        return RequestRefusal(RequestVerdict.KEY_USED, 0.0)


@contextmanager
def charging() -> Iterator[None]:
    """Let a ledger's refusals and a session's errors pass, and make one error of all others.

    Raises:
        BudgetExhausted: If a client's or the total budget does not suffice.
        InputError: If the client used the key for another request.
        VeilringError: If the session ended, where something is sent within.
        StoreFailed: For everything else. Its message is for the server's log: to the client a
            failed disk and a failed draw are the same.
    """
    try:
        yield
    except Exception as error:
        if _is_public(error):
            raise
        raise StoreFailed(_failure(error)) from error


class ServerFailure:
    """The failure that ends a server: after it nothing more is answered, and its process ends."""

    def __init__(self) -> None:
        self._error: StoreFailed | None = None
        self._reported = asyncio.Event()

    def report(self, error: StoreFailed) -> None:
        """Keep the first failure and wake the task that waits for it. Call it in the event loop."""
        self._error = self._error or error
        self._reported.set()

    def check(self) -> None:
        """Raise the failure if there was one."""
        if self._error is not None:
            raise self._error

    async def wait(self) -> None:
        """Wait for a failure, and until the sessions that it ended have sent their aborts.

        Raises:
            StoreFailed: Then.
        """
        await self._reported.wait()
        await asyncio.sleep(ABORT_SECONDS)
        self.check()


def require_answered(verdict: int, left: float, *, asked: float, unit: str) -> None:
    """Raise the error that a refusal means to the client.

    Args:
        verdict: A `Verdict`.
        left: Of the budget that does not suffice.
        asked: What the request would have cost.
        unit: Of both.

    Raises:
        InputError: If the key was used for another request.
        BudgetExhausted: If a budget does not suffice.
    """
    if verdict == RequestVerdict.KEY_USED:
        raise InputError.because(
            "this request key was already used for a different request; use a new one", field="key"
        )
    if verdict != RequestVerdict.ANSWERED:
        budget = "analyst" if verdict == RequestVerdict.CLIENT_EXHAUSTED else "total"
        raise BudgetExhausted(budget, asked, left, unit)


def _is_public(error: Exception) -> bool:
    """Return whether an error follows from requests, budgets and peers alone."""
    match error:
        case BudgetExhausted():
            return error.left is not None  # that of a record is secret
        case InputError():
            return error.field == "key"
    return isinstance(error, VeilringError)


def _failure(error: Exception) -> str:
    """Describe a failure in words that reveal nothing of the data."""
    match error:
        case BudgetExhausted():
            # Records that cannot pay were left out; that one could not after all is secret.
            what = "the ledger has charged what nobody here has seen"
        case sqlite3.Error() | OSError() | InputError(field="ledger"):
            what = f"the ledger failed: {error}"
        case _:  # its text may quote a row, so that only its kind and its place are named
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            what = f"an answer could not be drawn: {type(error).__name__} in {where}"
    return f"{what}. Nothing was sent. Check the disk and the memory, and start the server again"

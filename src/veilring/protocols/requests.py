"""Requests that a ledger charges once: their keys and their outcomes.

A request is answered and charged, or refused. There is no third outcome that a server survives:
whether drawing or charging an answer fails may depend on private rows, and a failure that costs
nothing could be repeated. Every failure is therefore the same `StoreFailed` to the client, and ends
the server.
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
"""The client's name of a request. A repeated request has the same key, gets the same answer, and is
charged once."""


def content_key(name: str, content: bytes) -> bytes:
    """Return the key derived from a request's content.

    Args:
        name: The name of the request; another name gives another key for the same content.
        content: The request without its key.
    """
    salt = hashlib.sha256(name.encode()).digest()
    return hashlib.sha256(salt + content).digest()[:REQUEST_KEY_BYTES]


class RequestVerdict(IntEnum):
    """The outcome of a request, as stated in its answer."""

    ANSWERED = 0
    CLIENT_EXHAUSTED = 1
    TOTAL_EXHAUSTED = 2
    KEY_USED = 3


class RequestRefusal(NamedTuple):
    """The reason why a request was not answered. Nothing was charged."""

    verdict: RequestVerdict
    left: float
    """The remaining budget if that is insufficient, otherwise 0."""

    @property
    def rule(self) -> str:
        """The reason in words, for the party's own records."""
        if self.verdict == RequestVerdict.KEY_USED:
            return "key: it was used for a different request"
        whose = "client" if self.verdict == RequestVerdict.CLIENT_EXHAUSTED else "total"
        return f"budget: {whose}"


def answer_once(
    ledger: Ledger,
    client: str,
    key: bytes,
    content: bytes,
    *,
    amount: float,
    pay: Callable[[], bytes],
) -> bytes | RequestRefusal:
    """Return the stored answer of a repeated request; otherwise pay for a new one.

    Args:
        content: The request without its key.
        pay: A function that draws an answer, charges it, and returns the result of `Ledger.charge`.
            Called only for a new request within the budgets.
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
    """Pass on a ledger's refusals and a session's errors, and convert all others to one error.

    Raises:
        BudgetExhausted: If a client's or the total budget is insufficient.
        VeilringError: If the session ended, in code that sends messages.
        StoreFailed: For everything else. Its message is for the server's log: to the client a
            failed disk and a failed draw look the same.
    """
    try:
        yield
    except Exception as error:
        if _is_public(error):
            raise
        raise StoreFailed(_failure(error)) from error


class ServerFailure:
    """The failure that ends a server, which then answers nothing more."""

    def __init__(self) -> None:
        self._error: StoreFailed | None = None
        self._reported = asyncio.Event()

    def report(self, error: StoreFailed) -> None:
        """Store the first failure and wake its waiting task. Call it in the event loop."""
        self._error = self._error or error
        self._reported.set()

    def check(self) -> None:
        """Raise the failure if there is one."""
        if self._error is not None:
            raise self._error

    async def wait(self) -> None:
        """Raise a failure once the sessions that it ended have sent their aborts."""
        await self._reported.wait()
        await asyncio.sleep(ABORT_SECONDS)
        self.check()


def require_answered(verdict: int, left: float, *, asked: float, unit: str) -> None:
    """Raise the error that a refusal means for the client."""
    if verdict == RequestVerdict.KEY_USED:
        raise InputError.because(
            "this request key was already used for a different request; use a new one", field="key"
        )
    if verdict != RequestVerdict.ANSWERED:
        budget = "analyst" if verdict == RequestVerdict.CLIENT_EXHAUSTED else "total"
        raise BudgetExhausted(budget, asked, left, unit)


def _is_public(error: Exception) -> bool:
    """Return whether an error follows only from requests, budgets and peers."""
    match error:
        case BudgetExhausted():
            return error.left is not None  # the budget of a record is secret
        case InputError():
            return error.field == "key"
    return isinstance(error, VeilringError)


def _failure(error: Exception) -> str:
    """Describe a failure in words that reveal nothing of the data."""
    match error:
        case BudgetExhausted():
            # Records that cannot pay were left out; that one could not pay after all is secret.
            what = "the ledger charged for an answer that is unknown here"
        case sqlite3.Error() | OSError() | InputError(field="ledger"):
            what = f"the ledger failed: {error}"
        case _:  # its text may quote a row, so only its kind and its place are named
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            what = f"an answer could not be drawn: {type(error).__name__} in {where}"
    return f"{what}. Nothing was sent. Check the disk and the memory, and start the server again"

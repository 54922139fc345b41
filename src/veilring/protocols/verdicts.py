"""What becomes of a request that a ledger charges: it is answered and paid for, or refused.

There is no third outcome that a server survives. Whether drawing or charging an answer fails may
depend on private rows, and a failure that costs nothing could be asked for again and again. So
whatever fails is the same `StoreFailed` to the asker, and ends the server.
"""

import asyncio
import sqlite3
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from veilring.errors import BudgetExhausted, InputError, StoreFailed, VeilringError
from veilring.nodes.node import ABORT_SECONDS
from veilring.privacy.ledger import Ledger


class Verdict(IntEnum):
    """What became of a request, as its answer says it."""

    ANSWERED = 0
    ASKER_EXHAUSTED = 1
    TOTAL_EXHAUSTED = 2
    KEY_USED = 3


class Refusal(NamedTuple):
    """Why a request was not answered. Nothing was charged."""

    verdict: Verdict
    left: float
    """Of the budget that does not suffice; else 0."""


def settle(
    ledger: Ledger,
    asker: str,
    key: bytes,
    content: bytes,
    *,
    amount: float,
    pay: Callable[[], bytes],
) -> bytes | Refusal:
    """Return the answer that may leave: what this request got before, or one that is paid for now.

    Args:
        ledger: Where all is charged.
        asker: Who asks, as the transport authenticated it.
        key: The request's.
        content: What the key stands for.
        amount: What the request costs the asker.
        pay: Draws an answer, charges it, and returns what `Ledger.charge` does. Called for a
            request that is new and can be paid.

    Raises:
        StoreFailed: If an answer could not be drawn or charged; see `charging`.
    """
    try:
        with charging():
            kept = ledger.find(asker, key.hex(), content)
            if kept is not None:
                return kept
            ledger.check(asker, amount)
            return pay()
    except BudgetExhausted as error:
        own = error.budget == "analyst"
        left = 0.0 if error.left is None else error.left
        return Refusal(Verdict.ASKER_EXHAUSTED if own else Verdict.TOTAL_EXHAUSTED, left)
    except InputError:
        return Refusal(Verdict.KEY_USED, 0.0)


@contextmanager
def charging() -> Iterator[None]:
    """Let a ledger's refusals and a session's errors pass, and make one error of all others.

    Raises:
        BudgetExhausted: If an asker's or the total budget does not suffice.
        InputError: If the asker used the key for another request.
        VeilringError: What ended the session, if something is sent within.
        StoreFailed: For everything else. Its message is for the server's log: to the asker a failed
            disk and a failed draw are the same.
    """
    try:
        yield
    except Exception as error:
        if _is_public(error):
            raise
        raise StoreFailed(_failure(error)) from error


class Failure:
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
        """Wait for a failure, and until the sessions that it ended have told their peers.

        Raises:
            StoreFailed: Then.
        """
        await self._reported.wait()
        await asyncio.sleep(ABORT_SECONDS)
        self.check()


def require_answered(verdict: int, left: float, *, asked: float, unit: str) -> None:
    """Raise what a refusal means to whoever asked.

    Args:
        verdict: A `Verdict`.
        left: Of the budget that does not suffice.
        asked: What the request would have cost.
        unit: Of both.

    Raises:
        InputError: If the key was used for another request.
        BudgetExhausted: If a budget does not suffice.
    """
    if verdict == Verdict.KEY_USED:
        raise InputError("key", "used for another request", "a new key for each request")
    if verdict != Verdict.ANSWERED:
        budget = "analyst" if verdict == Verdict.ASKER_EXHAUSTED else "total"
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
    """Say what failed in words that hold nothing of the data."""
    match error:
        case BudgetExhausted():
            # Records that cannot pay were left out; that one could not after all is secret.
            what = "the ledger has charged what nobody here has seen"
        case sqlite3.Error() | OSError() | InputError(field="ledger"):
            what = f"the ledger failed: {error}"
        case _:  # its text may quote a row, so that only its kind and its place are told
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            what = f"an answer could not be drawn: {type(error).__name__} in {where}"
    return f"{what}. Nothing was sent. Check the disk and the memory, and start the server again"

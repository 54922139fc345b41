"""What becomes of a request that a ledger charges: it is answered and paid for, or refused."""

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from veilring.errors import BudgetExhausted, InputError, StoreFailed
from veilring.privacy.ledger import Ledger

__all__ = ("Refusal", "Verdict", "require_answered", "settle")


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
        StoreFailed: If the ledger contradicts itself.
    """
    try:
        kept = ledger.find(asker, key.hex(), content)
        if kept is not None:
            return kept
        ledger.check(asker, amount)
        return pay()
    except BudgetExhausted as error:
        if error.left is None:
            # Records that cannot pay were left out; that one could not after all is secret.
            raise StoreFailed("the ledger has charged what nobody here has seen") from None
        own = error.budget == "analyst"
        return Refusal(Verdict.ASKER_EXHAUSTED if own else Verdict.TOTAL_EXHAUSTED, error.left)
    except InputError as error:
        if error.field != "key":
            raise
        return Refusal(Verdict.KEY_USED, 0.0)


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

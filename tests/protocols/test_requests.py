"""Requests: each is answered once, or refused with a reason."""

from collections.abc import Iterator

import pytest

import veilring as vr
from veilring.errors import StoreFailed
from veilring.privacy.budgets import Budgets, Charge
from veilring.privacy.ledger import Ledger, open_ledger
from veilring.protocols.requests import (
    REQUEST_KEY_BYTES,
    RequestRefusal,
    RequestVerdict,
    answer_once,
    require_answered,
)

KEY = bytes(REQUEST_KEY_BYTES)


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """Return a ledger of three, of which each client may spend two."""
    with open_ledger(None, Budgets(total=3.0, analyst=2.0)) as opened:
        yield opened


def ask(
    ledger: Ledger, amount: float, *, client: str = "ann", key: bytes = KEY, content: bytes = b"q"
) -> bytes | RequestRefusal:
    """Request an answer that contains the previous charges."""

    def pay() -> bytes:
        answer = f"{ledger.totals().spent:g}".encode()
        return ledger.charge(Charge(client, key.hex(), content, answer, amount, None))

    return answer_once(ledger, client, key, content, amount=amount, pay=pay)


def test_a_request_is_answered_and_charged_once(ledger: Ledger) -> None:
    """A repeated request gets the same answer at no cost, and its key fits no other request."""
    assert ask(ledger, 1.5) == b"0"
    assert ask(ledger, 1.5) == b"0"
    assert ledger.totals().spent == 1.5
    assert ask(ledger, 0.1, content=b"another") == RequestRefusal(RequestVerdict.KEY_USED, 0.0)
    assert ask(ledger, 0.5, content=b"another", key=b"k" * REQUEST_KEY_BYTES) == b"1.5"


def test_a_refusal_names_the_budget_and_the_remainder(ledger: Ledger) -> None:
    """It is the client's budget or the total one, and nothing is charged."""
    assert ask(ledger, 2.5) == RequestRefusal(RequestVerdict.CLIENT_EXHAUSTED, 2.0)
    assert ask(ledger, 2.0, client="bob") == b"0"
    assert ask(ledger, 1.5) == RequestRefusal(RequestVerdict.TOTAL_EXHAUSTED, 1.0)
    assert ledger.totals().spent == 2.0


def test_a_records_exhaustion_is_not_a_refusal(ledger: Ledger) -> None:
    """A record that cannot pay is not disclosed: it means that the ledger was changed."""

    def pay() -> bytes:
        raise vr.BudgetExhausted("record", None, None, "epsilon")

    with pytest.raises(StoreFailed, match="is unknown here"):
        answer_once(ledger, "ann", KEY, b"q", amount=1.0, pay=pay)


def test_the_client_learns_the_meaning_of_an_answer() -> None:
    """An answer passes, and each refusal is the error that names it."""
    require_answered(RequestVerdict.ANSWERED, 0.0, asked=1.0, unit="epsilon")
    with pytest.raises(vr.InputError, match="key"):
        require_answered(RequestVerdict.KEY_USED, 0.0, asked=1.0, unit="epsilon")
    for verdict, budget in (
        (RequestVerdict.CLIENT_EXHAUSTED, "analyst"),
        (RequestVerdict.TOTAL_EXHAUSTED, "total"),
    ):
        with pytest.raises(vr.BudgetExhausted) as caught:
            require_answered(verdict, 0.5, asked=1.0, unit="epsilon")
        assert (caught.value.budget, caught.value.left) == (budget, 0.5)

"""The fate of a request: it is answered once, or refused with a reason for the client."""

from collections.abc import Iterator

import pytest

from veilring.errors import BudgetExhausted, InputError, StoreFailed
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
    """A ledger of three, of which each client may spend two."""
    with open_ledger(None, Budgets(total=3.0, analyst=2.0)) as opened:
        yield opened


def ask(
    ledger: Ledger, amount: float, *, client: str = "ann", key: bytes = KEY, content: bytes = b"q"
) -> bytes | RequestRefusal:
    """Ask for what is answered with how much was charged before."""

    def pay() -> bytes:
        answer = f"{ledger.totals().spent:g}".encode()
        return ledger.charge(Charge(client, key.hex(), content, answer, amount, None))

    return answer_once(ledger, client, key, content, amount=amount, pay=pay)


def test_a_request_is_answered_and_paid_once(ledger: Ledger) -> None:
    """The same request gets the same answer for nothing, and its key stands for no other."""
    assert ask(ledger, 1.5) == b"0"
    assert ask(ledger, 1.5) == b"0"
    assert ledger.totals().spent == 1.5
    assert ask(ledger, 0.1, content=b"another") == RequestRefusal(RequestVerdict.KEY_USED, 0.0)
    assert ask(ledger, 0.5, content=b"another", key=b"k" * REQUEST_KEY_BYTES) == b"1.5"


def test_a_refusal_says_which_budget_and_what_is_left(ledger: Ledger) -> None:
    """The client's own or everybody's; and nothing is charged."""
    assert ask(ledger, 2.5) == RequestRefusal(RequestVerdict.CLIENT_EXHAUSTED, 2.0)
    assert ask(ledger, 2.0, client="bob") == b"0"
    assert ask(ledger, 1.5) == RequestRefusal(RequestVerdict.TOTAL_EXHAUSTED, 1.0)
    assert ledger.totals().spent == 2.0


def test_what_only_the_ledger_knows_is_no_refusal(ledger: Ledger) -> None:
    """That a record cannot pay is told to nobody: it means that the ledger was changed."""

    def pay() -> bytes:
        raise BudgetExhausted("record", None, None, "epsilon")

    with pytest.raises(StoreFailed, match="is unknown here"):
        answer_once(ledger, "ann", KEY, b"q", amount=1.0, pay=pay)


def test_whoever_asked_is_told_what_the_answer_means() -> None:
    """An answer passes, and each refusal is the error that names it."""
    require_answered(RequestVerdict.ANSWERED, 0.0, asked=1.0, unit="epsilon")
    with pytest.raises(InputError, match="key"):
        require_answered(RequestVerdict.KEY_USED, 0.0, asked=1.0, unit="epsilon")
    for verdict, budget in (
        (RequestVerdict.CLIENT_EXHAUSTED, "analyst"),
        (RequestVerdict.TOTAL_EXHAUSTED, "total"),
    ):
        with pytest.raises(BudgetExhausted) as caught:
            require_answered(verdict, 0.5, asked=1.0, unit="epsilon")
        assert (caught.value.budget, caught.value.left) == (budget, 0.5)

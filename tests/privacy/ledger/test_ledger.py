"""Global budgets: single charges, repeated requests and refusals."""

import pickle
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.privacy.ledger.charged import BUDGETS, charge

from veilring.errors import BudgetExhausted, InputError
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import Ledger, open_ledger


@pytest.fixture(params=["file", "memory"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """Return a ledger on disk and one in memory."""
    path = tmp_path / "spent.ledger" if request.param == "file" else None
    with open_ledger(path, BUDGETS, new=True) as opened:
        yield opened


def test_an_answer_is_given_for_its_price(ledger: Ledger) -> None:
    """The answer is returned, and the odometer and both budgets decrease by its price."""
    assert ledger.charge(charge("ann", "1", 0.25)) == b"yes"
    assert ledger.remaining("ann") == 0.35
    assert ledger.remaining("bob") == 0.6
    totals = ledger.totals()
    assert (totals.spent, totals.budget, totals.answers) == (0.25, 1.0, 1)
    assert [(each.name, each.spent, each.budget) for each in totals.analysts] == [
        ("ann", 0.25, 0.6)
    ]


def test_ten_charges_of_a_tenth_fill_a_budget_of_one(tmp_path: Path) -> None:
    """Ten charges of 0.1 fit into a budget of 1, and not a millionth of a millionth more."""
    with open_ledger(tmp_path / "a", Budgets(total=1.0), new=True) as ledger:
        for number in range(10):
            ledger.charge(charge("ann", str(number), 0.1))
        with pytest.raises(BudgetExhausted):
            ledger.charge(charge("ann", "more", 1e-12))
        assert ledger.totals().spent == 1.0


def test_a_repeated_request_gets_the_same_answer_at_no_cost(ledger: Ledger) -> None:
    """The first answer is returned, for any answer and price of the second attempt."""
    ledger.charge(charge("ann", "1", 0.25))
    assert ledger.charge(charge("ann", "1", 0.5, answer=b"no")) == b"yes"
    assert ledger.find("ann", "1", b"?") == b"yes"
    assert ledger.totals().spent == 0.25


def test_a_repeated_request_succeeds_with_an_exhausted_budget(ledger: Ledger) -> None:
    """A paid answer is returned even if no budget is left."""
    ledger.charge(charge("ann", "1", 0.6))
    assert ledger.charge(charge("ann", "1", 0.6)) == b"yes"


def test_a_key_of_another_request_is_refused(ledger: Ledger) -> None:
    """The error shows neither request, and nothing is charged."""
    ledger.charge(charge("ann", "1", 0.25, request=b"first secret"))
    for use in (ledger.charge, lambda one: ledger.find(one.analyst, one.key, one.request)):
        with pytest.raises(InputError) as caught:
            use(charge("ann", "1", 0.25, request=b"other secret"))
        assert caught.value.field == "key"
        assert "secret" not in str(caught.value)
    assert ledger.totals().spent == 0.25


def test_keys_are_separate_for_each_analyst(ledger: Ledger) -> None:
    """An analyst cannot fetch another's answer with the other's key and request."""
    ledger.charge(charge("ann", "1", 0.1, answer=b"for ann"))
    assert ledger.find("bob", "1", b"?") is None
    assert ledger.charge(charge("bob", "1", 0.1, answer=b"for bob")) == b"for bob"


@pytest.mark.parametrize(
    ("analyst", "amount", "budget", "left"),
    [("ann", 0.61, "analyst", 0.6), ("eve", 0.2, "analyst", 0.1), ("bob", 0.5, "total", 0.4)],
)
def test_a_charge_beyond_a_budget_is_refused(
    ledger: Ledger, analyst: str, amount: float, budget: str, left: float
) -> None:
    """The error names the budget and the requested and remaining amounts; nothing is charged."""
    if budget == "total":
        ledger.charge(charge("ann", "1", 0.6))
    before = ledger.totals()
    with pytest.raises(BudgetExhausted) as foreseen:
        ledger.check(analyst, amount)
    ledger.check(analyst, left)
    with pytest.raises(BudgetExhausted) as caught:
        ledger.charge(charge(analyst, "2", amount))
    assert foreseen.value.args == caught.value.args
    error = pickle.loads(pickle.dumps(caught.value))
    fields = (error.budget, error.asked, error.left, error.unit)
    assert fields == (budget, amount, left, "epsilon")
    assert str(error) == str(caught.value)
    assert f"{amount} epsilon requested, {left} left" in str(error)
    assert ledger.totals() == before
    assert ledger.find(analyst, "2", b"?") is None


def test_a_group_is_charged_in_order_and_refused_one_by_one(ledger: Ledger) -> None:
    """A refused charge delays no other, and a key may occur twice."""
    outcomes = ledger.charge_many(
        [
            charge("ann", "1", 0.5, answer=b"1"),
            charge("ann", "2", 0.5, answer=b"2"),
            charge("ann", "1", 0.5, answer=b"again"),
            charge("ann", "1", 0.5, request=b"another"),
            charge("bob", "1", 0.5, answer=b"3"),
        ]
    )
    assert [type(outcome) for outcome in outcomes] == [
        bytes,
        BudgetExhausted,
        bytes,
        InputError,
        bytes,
    ]
    assert [outcomes[0], outcomes[2], outcomes[4]] == [b"1", b"1", b"3"]
    assert ledger.totals().spent == 1.0


def test_a_reserved_budget_is_for_its_own_charge(ledger: Ledger) -> None:
    """Until the block is left, no other charge or reservation can spend it."""
    reserved = charge("ann", "1", 0.6)
    with ledger.reserving(reserved):
        assert ledger.remaining("ann") == 0.0
        assert ledger.remaining("bob") == 0.4  # of the total
        with pytest.raises(BudgetExhausted):
            ledger.charge(charge("ann", "2", 0.1))
        with pytest.raises(BudgetExhausted), ledger.reserving(charge("bob", "1", 0.5)):
            pytest.fail("it was reserved")
        ledger.charge(reserved)
        assert ledger.totals().spent == 0.6
    assert ledger.remaining("bob") == 0.4
    with ledger.reserving(charge("bob", "2", 0.4)):
        pass
    assert ledger.remaining("bob") == 0.4


def test_a_reservation_needs_space_for_its_charge(ledger: Ledger) -> None:
    """On a full disk it fails, before the charge."""
    ledger._store.connection.execute("PRAGMA max_page_count = 1")  # noqa: SLF001  (means its current size)
    reservation = ledger.reserving(charge("ann", "1", 0.6))
    with pytest.raises(sqlite3.OperationalError, match="disk is full"), reservation:
        pytest.fail("it was reserved")


def test_a_reserved_charge_needs_no_new_space(tmp_path: Path) -> None:
    """Charges and an answer that were reserved for leave the log's size unchanged."""
    log = tmp_path / "a-wal"
    with open_ledger(tmp_path / "a", Budgets(), new=True) as ledger, ExitStack() as stack:
        charges = [charge("ann", str(number), 0.1) for number in range(5)]
        for each in charges:
            stack.enter_context(ledger.reserving(each, size=100_000))
        before = log.stat().st_size
        for each in charges:
            ledger.charge(each)
        ledger.charge(charge("ann", "answer", 0.0, answer=bytes(100_000)))
        assert log.stat().st_size == before


def test_threads_take_turns(tmp_path: Path) -> None:
    """Charges from many threads never exceed the budget together, and exhaust it."""
    given = Budgets(total=0.5)
    with open_ledger(tmp_path / "a", given, new=True) as ledger:
        outcomes: list[object] = []

        def spend(analyst: str) -> None:
            group = [charge(analyst, str(number), 0.01) for number in range(20)]
            outcomes.extend(outcome for one in group for outcome in ledger.charge_many([one]))

        threads = [threading.Thread(target=spend, args=(f"{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(isinstance(outcome, bytes) for outcome in outcomes) == 50
        assert ledger.totals().spent == 0.5

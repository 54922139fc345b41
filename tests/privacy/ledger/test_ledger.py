"""Global budgets: single charges, repeated requests, refusals, and sequences as in a model."""

import pickle
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.privacy.ledger.charged import BUDGETS, charge

from veilring.errors import BudgetExhausted, InputError
from veilring.privacy.budgets import UNITS, Budgets, Charge, from_units
from veilring.privacy.ledger import Ledger, open_ledger, read_totals


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


class _Attempt(NamedTuple):
    analyst: str
    key: str
    request: bytes
    units: int


ATTEMPTS = st.builds(
    _Attempt,
    st.sampled_from(["ann", "bob", "eve"]),
    st.sampled_from("12345678"),
    st.sampled_from([b"x", b"y"]),
    st.integers(0, UNITS // 3),
)


GROUPS = st.lists(st.lists(ATTEMPTS, max_size=4), max_size=12)


@settings(deadline=None)
@given(groups=GROUPS)
def test_any_sequence_of_charges_is_that_of_a_model(groups: list[list[_Attempt]]) -> None:
    """No budget is exceeded, each request is charged once, and its answer never changes."""
    with open_ledger(None, BUDGETS) as ledger:
        model = _Model()
        for number, group in enumerate(groups):
            model.require_same(ledger, group, number)


@settings(max_examples=8, deadline=None)  # the disk is waited for at each charge
@given(groups=GROUPS)
def test_restarts_change_nothing(
    groups: list[list[_Attempt]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The model still holds if the ledger is reopened between any two groups."""
    path, model = tmp_path_factory.mktemp("model") / "ledger", _Model()
    for number, group in enumerate(groups):
        with open_ledger(path, BUDGETS, new=not number) as ledger:
            model.require_same(ledger, group, number)
        assert read_totals(path).answers == len(model.kept)


class _Model:
    """A model of a ledger with `BUDGETS`, in plain dictionaries."""

    def __init__(self) -> None:
        self.limits = {"ann": 6 * UNITS // 10, "bob": 6 * UNITS // 10, "eve": UNITS // 10}
        self.spent = dict.fromkeys(self.limits, 0)
        self.kept: dict[tuple[str, str], tuple[bytes, bytes]] = {}

    def require_same(self, ledger: Ledger, group: list[_Attempt], number: int) -> None:
        """Charge a group, and check each result and the totals."""
        answers = [f"{number}.{place}".encode() for place in range(len(group))]
        outcomes = ledger.charge_many(
            Charge(one.analyst, one.key, one.request, answer, float(from_units(one.units)))
            for one, answer in zip(group, answers, strict=True)
        )
        for one, answer, outcome in zip(group, answers, outcomes, strict=True):
            expected = self._outcome(one, answer)
            assert outcome == expected if isinstance(expected, bytes) else type(outcome) is expected
        counted = {each.name: each.spent for each in ledger.totals().analysts}
        named = {analyst for analyst, _ in self.kept}
        assert counted == {name: float(from_units(self.spent[name])) for name in named}

    def _outcome(self, one: _Attempt, answer: bytes) -> bytes | type[Exception]:
        request, first = self.kept.get((one.analyst, one.key), (one.request, None))
        if request != one.request:
            return InputError
        if first is not None:
            return first
        own = self.spent[one.analyst] + one.units
        if own > self.limits[one.analyst] or sum(self.spent.values()) + one.units > UNITS:
            return BudgetExhausted
        self.kept[one.analyst, one.key] = one.request, answer
        self.spent[one.analyst] = own
        return answer

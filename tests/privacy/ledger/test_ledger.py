"""Charges of a ledger, as in a model; its opening with other terms; and amounts and their units."""

import pickle
import resource
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.privacy.ledger.charging import BUDGETS, charge

from veilring.errors import BudgetExhausted, InputError
from veilring.privacy.budgets import (
    AMOUNT_MAX,
    ANSWER_BYTES_MAX,
    KEY_SIZE,
    UNITS,
    Budgets,
    Charge,
    RecordCharge,
    budget_units,
    from_units,
    merge_slots,
    to_units,
)
from veilring.privacy.ledger import LEDGER, Ledger, open_ledger, read_totals
from veilring.privacy.statefile import open_state_file


@pytest.fixture(params=["file", "memory"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """Return a ledger on disk and one in memory."""
    path = tmp_path / "spent.ledger" if request.param == "file" else None
    with open_ledger(path, BUDGETS, new=True) as opened:
        yield opened


def test_an_answer_is_given_for_its_price(ledger: Ledger) -> None:
    """It is returned, also by later attempts at no cost, and both budgets decrease by its price.

    Neither another request with its key gets it, and the error shows no request, nor another
    analyst with its key and request.
    """
    assert ledger.charge(charge("ann", "1", 0.25)) == b"yes"
    assert ledger.remaining("ann") == 0.35
    assert ledger.remaining("bob") == 0.6
    assert ledger.charge(charge("ann", "1", 0.5, answer=b"no")) == b"yes"  # beyond what is left
    assert ledger.find("ann", "1", b"?") == b"yes"
    for use in (ledger.charge, lambda one: ledger.find(one.analyst, one.key, one.request)):
        with pytest.raises(InputError) as caught:
            use(charge("ann", "1", 0.25, request=b"secret"))
        assert caught.value.field == "key"
        assert "secret" not in str(caught.value)
    totals = ledger.totals()
    assert (totals.spent, totals.budget, totals.answers) == (0.25, 1.0, 1)
    (analyst,) = totals.analysts
    assert (analyst.name, analyst.spent, analyst.budget) == ("ann", 0.25, 0.6)
    assert ledger.find("bob", "1", b"?") is None
    assert ledger.charge(charge("bob", "1", 0.1, answer=b"for bob")) == b"for bob"


def test_deltas_add_up_over_paid_answers(tmp_path: Path) -> None:
    """What is only stored is no answer of its own, and its owner has no account."""
    path = tmp_path / "ledger"
    for delta in (1e-5, 1e-7):
        with open_ledger(path, BUDGETS, new=not path.exists()) as ledger:
            paid = Charge("ann", str(delta), b"?", b"", 0.25, delta=delta)
            for one in (paid, paid, Charge("ada", str(delta), b"?", b"stored")):
                ledger.charge(one)
    totals = read_totals(path)
    assert (totals.answers, [each.name for each in totals.analysts]) == (2, ["ann"])
    assert totals.delta == pytest.approx(1.01e-5)
    assert "0.5 epsilon spent on 2 answers with delta 1.01e-05" in str(totals)


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
    with open_ledger(tmp_path / "a", Budgets(total=0.5), new=True) as ledger:

        def spend(analyst: str) -> list[object]:
            group = [charge(analyst, str(number), 0.01) for number in range(20)]
            return [outcome for one in group for outcome in ledger.charge_many([one])]

        with ThreadPoolExecutor(4) as pool:
            outcomes = [outcome for spent in pool.map(spend, "0123") for outcome in spent]
        assert sum(isinstance(outcome, bytes) for outcome in outcomes) == 50
        assert ledger.totals().spent == 0.5


AMOUNTS = st.integers(0, UNITS // 3).map(lambda units: float(from_units(units)))
ANALYSTS, KEYS = st.sampled_from(["ann", "bob", "eve"]), st.sampled_from("12345678")
REQUESTS = st.sampled_from([b"x", b"y"])
ATTEMPTS = st.builds(Charge, ANALYSTS, KEYS, REQUESTS, st.just(b""), AMOUNTS)
GROUPS = st.lists(st.lists(ATTEMPTS, max_size=4), max_size=12)


@settings(deadline=None)
@given(groups=GROUPS)
def test_any_sequence_of_charges_is_that_of_a_model(groups: list[list[Charge]]) -> None:
    """No budget is exceeded, each request is charged once, and its answer never changes."""
    with open_ledger(None, BUDGETS) as ledger:
        model = _Model()
        for number, group in enumerate(groups):
            model.require_same(ledger, group, number)


@settings(max_examples=8, deadline=None)  # the disk is waited for at each charge
@given(groups=GROUPS)
def test_restarts_change_nothing(
    groups: list[list[Charge]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The model still holds if the ledger is reopened between any two groups."""
    path, model = tmp_path_factory.mktemp("model") / "ledger", _Model()
    for number, group in enumerate(groups):
        with open_ledger(path, BUDGETS, new=not number) as ledger:
            model.require_same(ledger, group, number)
        assert read_totals(path).answers == model.paid


class _Model:
    """A model of a ledger with `BUDGETS`, in plain dictionaries."""

    def __init__(self) -> None:
        self.limits = {"ann": 6 * UNITS // 10, "bob": 6 * UNITS // 10, "eve": UNITS // 10}
        self.spent = dict.fromkeys(self.limits, 0)
        self.kept: dict[tuple[str, str], tuple[bytes, bytes]] = {}
        self.paid = 0

    def require_same(self, ledger: Ledger, group: list[Charge], number: int) -> None:
        """Charge a group, and check each result and the totals."""
        charges = [
            replace(one, answer=f"{number}.{place}".encode()) for place, one in enumerate(group)
        ]
        for one, outcome in zip(charges, ledger.charge_many(charges), strict=True):
            expected = self._outcome(one)
            assert outcome == expected if isinstance(expected, bytes) else type(outcome) is expected
        counted = {each.name: each.spent for each in ledger.totals().analysts}
        assert counted == {
            name: float(from_units(each)) for name, each in self.spent.items() if each
        }

    def _outcome(self, one: Charge) -> bytes | type[Exception]:
        request, first = self.kept.get((one.analyst, one.key), (one.request, None))
        if request != one.request:
            return InputError
        if first is not None:
            return first
        units = int(to_units(one.amount))
        own = self.spent[one.analyst] + units
        if own > self.limits[one.analyst] or sum(self.spent.values()) + units > UNITS:
            return BudgetExhausted
        self.kept[one.analyst, one.key] = one.request, one.answer
        self.spent[one.analyst] = own
        self.paid += units > 0
        return one.answer


def test_budgets_can_be_amended(path: Path) -> None:
    """Until there is an answer or a record they, and their unit, can be corrected.

    From then on this must be intended, and keeps all spending.
    """
    open_ledger(path, Budgets(total=1.0), new=True).close()
    open_ledger(path, Budgets(total=9.0, record=1.0), amend=True).close()
    with open_ledger(path, Budgets("rho", total=1.0)) as ledger:
        ledger.charge(charge("ann", "1", 0.8))
    for total, left in ((2.0, 1.2), (0.5, 0.0)):
        with open_ledger(path, Budgets("rho", total=total), amend=True) as ledger:
            assert ledger.remaining("ann") == left
        assert (read_totals(path).unit, read_totals(path).budget) == ("rho", total)
    other = path.with_name("other")
    with open_ledger(other, Budgets("rho", record=1.0), new=True) as ledger:
        ledger.records.add(["ann"])
    with pytest.raises(InputError, match="other budgets"):
        open_ledger(other, Budgets("rho", total=3.0, record=1.0))


ONE, WITHIN = Budgets(total=1.0), "epsilon within 10.0"


@pytest.mark.parametrize(
    ("made", "given", "said"),
    [
        ({}, {"budgets": Budgets(total=2.0)}, "other budgets"),
        ({"budgets": Budgets(WITHIN, total=1.0)}, {"budgets": ONE, "amend": True}, f"in {WITHIN}"),
        ({"key": bytes(16)}, {"key": bytes(15) + b"1", "amend": True}, "key"),
        (
            {},
            {"budgets": Budgets(total=1.0, record=1.0), "amend": True},
            "each record cannot be added after answers were charged",
        ),
    ],
)
def test_a_used_ledger_is_opened_only_with_its_own_terms(
    path: Path, made: dict[str, Any], given: dict[str, Any], said: str
) -> None:
    """Other budgets must be intended, and have its unit and key; records get none afterwards."""
    terms = {"budgets": ONE} | made
    with open_ledger(path, **terms, new=True) as ledger:
        ledger.charge(charge("ann", "1", 0.8))
    before = read_totals(path)
    with pytest.raises(InputError, match=said):
        open_ledger(path, **{"budgets": Budgets(total=9.0)} | given)
    assert read_totals(path) == before
    open_ledger(path, **terms).close()


def test_a_record_over_a_lowered_budget_delays_no_others(path: Path) -> None:
    """A record that has spent more than its lowered budget still takes part at no cost."""
    for budget, key, amounts in ((1.0, "1", [0.9, 0.0]), (0.5, "2", [0.0, 0.1])):
        new = not path.exists()
        with open_ledger(path, Budgets(record=budget), amend=True, new=new) as ledger:
            paid = RecordCharge.of(ledger.records.add(["a", "b"]), amounts)
            assert ledger.charge(Charge("ann", key, b"?", b"yes", records=paid)) == b"yes"


def test_an_error_of_the_disk_closes_the_ledger(path: Path) -> None:
    """On a full disk a reservation fails before its charge, and a charge closes the ledger.

    Reopened, it shows all charges.
    """
    with open_ledger(path, Budgets(), new=True) as ledger:
        ledger.charge(charge("ann", "1", 0.5))
        ledger._store.connection.execute("PRAGMA max_page_count = 1")  # noqa: SLF001  (a full disk)
        reservation = ledger.reserving(charge("ann", "2", 0.6))
        with pytest.raises(sqlite3.OperationalError, match="disk is full"), reservation:
            pytest.fail("it was reserved")
    with open_ledger(path, Budgets()) as ledger:
        ledger._store.connection.execute("PRAGMA max_page_count = 1")  # noqa: SLF001  (as above)
        with pytest.raises(sqlite3.OperationalError, match="full"):
            ledger.charge(charge("ann", "2", 0.5, answer=bytes(ANSWER_BYTES_MAX)))
        for use in (
            lambda: ledger.charge(charge("ann", "1", 0.5)),
            lambda: ledger.remaining("ann"),
            ledger.records.remaining,
        ):
            with pytest.raises(InputError, match="closed"):
                use()
    with open_ledger(path, Budgets()) as ledger:
        assert ledger.totals().spent == 0.5


def test_a_full_disk_fails_no_close(path: Path) -> None:
    """A ledger whose disk takes nothing more closes without an error and keeps its charges."""
    ledger = open_ledger(path, Budgets(), new=True)
    ledger.charge(charge("ann", "1", 0.5, answer=bytes(ANSWER_BYTES_MAX // 2)))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, before[1]))
    try:
        ledger.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with open_ledger(path, Budgets()) as ledger:
        assert ledger.totals().spent == 0.5


@pytest.mark.parametrize("content", [b"", b"x" * 5000, b"SQLite format 3\0" + bytes(5000), None])
def test_a_file_that_is_not_a_ledger_is_refused(path: Path, content: bytes | None) -> None:
    """It cannot be written or read, is not overwritten by a new one, and is left unchanged."""
    if content is None:  # another program's database
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE theirs (x)")
        content = path.read_bytes()
    path.write_bytes(content)
    with pytest.raises(InputError, match="a ledger of veilring"):
        read_totals(path)
    refusal = "a ledger of veilring" if content else "there is no ledger at"
    with pytest.raises(InputError, match=refusal):
        open_ledger(path, BUDGETS)
    with pytest.raises(InputError, match=r"there is a ledger at .* already"):
        open_ledger(path, BUDGETS, new=True)
    assert path.read_bytes() == content
    with pytest.raises(InputError, match="nowhere; allowed: an existing file"):
        read_totals(path.with_name("nowhere"))


def test_an_uninitialised_ledger_has_no_totals(path: Path) -> None:
    """A process that died between creating the file and its budgets leaves a usable file."""
    open_state_file(path, LEDGER, new=True).close()
    with pytest.raises(InputError, match="ledger has no budgets"):
        read_totals(path)
    open_ledger(path, BUDGETS).close()
    assert read_totals(path).budget == BUDGETS.total


def test_a_fingerprint_belongs_to_one_ledgers_key(tmp_path: Path) -> None:
    """It survives restarts, differs between ledgers, and is not the hash of a record."""
    budgets = Budgets(total=1.0, record=1.0)
    with open_ledger(tmp_path / "a", budgets, new=True) as ledger:
        ledger.records.add(["ann"])
        made = ledger.fingerprint(b"ann")
        assert made != ledger.fingerprint(b"bob")
    with open_ledger(tmp_path / "a", budgets) as ledger:
        assert ledger.fingerprint(b"ann") == made
    with closing(sqlite3.connect(tmp_path / "a")) as database:
        ((record,),) = database.execute("SELECT digest FROM records")
    assert record.hex() not in made
    with open_ledger(tmp_path / "b", budgets, new=True) as other:
        assert other.fingerprint(b"ann") != made
    fingerprints = []
    for name in ("c", "d"):
        with open_ledger(tmp_path / name, budgets, key=b"k" * 32, new=True) as ledger:
            fingerprints.append(ledger.fingerprint(b"ann"))
    assert fingerprints[0] == fingerprints[1] != made


def test_stored_settings_are_returned(tmp_path: Path) -> None:
    """The latest stored settings are returned, separate from the ledger's own."""
    with open_ledger(tmp_path / "a", Budgets(), new=True) as ledger:
        assert ledger.recall("budgets") is None
        ledger.keep("budgets", "one")
        ledger.keep("budgets", "two")
    with open_ledger(tmp_path / "a", Budgets()) as ledger:
        assert ledger.recall("budgets") == "two"


@settings(deadline=None)
@given(st.floats(0, AMOUNT_MAX, allow_subnormal=False))
def test_charges_round_up_and_budgets_down(amount: float) -> None:
    """Each is off by less than a unit in the safe direction, apart from the float's error."""
    exact, error = Fraction(amount) * UNITS, Fraction(amount) * UNITS / 2**49
    charged, budget = int(to_units(amount)), budget_units(amount, field="total")
    assert -error <= charged - exact < 1
    assert -error <= exact - budget < 1


@settings(deadline=None)
@given(st.integers(0, 100 * UNITS), st.decimals(0, AMOUNT_MAX, places=6))
def test_decimal_numbers_are_exact(units: int, given: Decimal) -> None:
    """Numbers up to 100 with up to twelve places convert exactly both ways.

    Larger ones of up to 13 digits are the same numbers again, as a charge and as a budget.
    """
    amount = float(from_units(units))
    assert amount == float(f"{units // UNITS}.{units % UNITS:012d}")
    assert to_units(amount) == budget_units(amount, field="total") == units
    charged = int(to_units(float(given)))
    assert charged == budget_units(float(given), field="total")
    assert charged / UNITS == float(given)


@pytest.mark.parametrize("amount", [-1e-300, AMOUNT_MAX * 1.001, float("nan"), float("inf")])
def test_other_numbers_are_refused_and_not_shown(amount: float) -> None:
    """The error shows no amount, because it may belong to a record."""
    with pytest.raises(InputError) as caught:
        to_units([0.5, amount])
    assert "must be from 0 to" in str(caught.value)


def test_the_longest_names_are_stored() -> None:
    """Names of the greatest length are found again; a charge shows no request and no answer."""
    name = "k" * KEY_SIZE
    with open_ledger(None, Budgets()) as ledger:
        ledger.charge(charge(name, name, 0.1))
        assert ledger.find(name, name, b"?") == b"yes"
    assert "secret" not in repr(charge("ann", "1", 0.1, answer=b"secret", request=b"secret"))


def test_payments_are_validated_slot_by_slot() -> None:
    """Payments that fit into 64 bits per slot are allowed for any number of slots."""
    assert RecordCharge.of([], []).slots.dtype == np.int64
    most = (1 << 63) - 1
    assert RecordCharge(np.arange(3), np.full(3, most)).units.tolist() == [most] * 3
    twice = RecordCharge(np.array([4, 4]), np.full(2, most // 2))
    assert merge_slots(twice.slots, twice.units)[1].tolist() == [most - 1]
    with pytest.raises(InputError, match="units a slot"):
        RecordCharge(np.array([4, 4]), np.full(2, most // 2 + 1))


def test_charges_of_records_can_be_compared() -> None:
    """Charges are equal only to themselves, even with equal content."""
    one, other = RecordCharge.of([1, 2], 0.5), RecordCharge.of([1, 2], 0.5)
    assert one != other
    assert {one, one} == {one}
    made = Charge("ann", "1", b"?", b"!", records=one)
    assert made == Charge("ann", "1", b"?", b"!", records=one)
    assert made != Charge("ann", "1", b"?", b"!", records=other)

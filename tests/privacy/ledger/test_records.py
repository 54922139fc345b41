"""The filters of records: their limits, their storage and their secrecy."""

import pickle
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.privacy.ledger.charged import RECORD_BUDGETS, charge_of, charge_records, left

from veilring.arrays import Ints
from veilring.errors import BudgetExhausted, InputError
from veilring.privacy.budgets import JOURNAL_BYTES_MAX, UNITS, Budgets, Charge, RecordCharge
from veilring.privacy.ledger import open_ledger, read_totals


def test_records_pay_and_the_others_do_not() -> None:
    """Each record pays its own part, a repeated one pays twice, and a new one has a full budget."""
    with open_ledger(None, RECORD_BUDGETS) as ledger:
        slots = ledger.records.add(["a", "b", "c"])
        ledger.charge(charge_records(1, slots[[0, 2, 0]], [0.25, 0.5, 0.25]))
        assert left(ledger) == [0.5, 1.0, 0.5]
        assert ledger.records.add(["d", "a"]).tolist() == [3, 0]
        assert left(ledger) == [0.5, 1.0, 0.5, 1.0]


def test_one_amount_may_stand_for_all() -> None:
    """A single amount is charged to each record, and units are charged unchanged."""
    with open_ledger(None, RECORD_BUDGETS) as ledger:
        ledger.records.add("abc")
        ledger.charge(charge_records(1, [0, 1], 0.25))
        ledger.charge(charge_of(2, RecordCharge(np.array([1, 2]), np.array([1, 2]))))
        ledger.charge(charge_records(3, [0], 0))
        assert isinstance(ledger.charge_many([charge_records(4, [0], 1)])[0], BudgetExhausted)
        left = UNITS - np.array([UNITS // 4, UNITS // 4 + 1, 2])
        np.testing.assert_array_equal(ledger.records.remaining(), left)


def test_if_one_record_cannot_pay_no_record_is_charged() -> None:
    """The error reveals only that some record cannot pay, even pickled; nothing is charged."""
    with open_ledger(None, Budgets(record=1.0, analyst=1.0)) as ledger:
        ledger.records.add("ab")
        ledger.charge(charge_records(1, [0], 0.75))
        whole = Charge("ann", "2", b"?", b"!", 0.5, RecordCharge.of([0, 1], 0.5))
        with pytest.raises(BudgetExhausted) as caught:
            ledger.charge(whole)
        error = pickle.loads(pickle.dumps(caught.value))
        assert error.args == ("record", None, None, "")
        assert str(error) == "the privacy budget of a record is exhausted"
        assert left(ledger) == [0.25, 1.0]
        assert ledger.remaining("ann") == 1.0


def test_a_repeated_request_charges_no_record() -> None:
    """Neither the first attempt's records nor the second's are charged."""
    with open_ledger(None, RECORD_BUDGETS) as ledger:
        ledger.records.add("ab")
        for slot in (0, 1):
            ledger.charge(charge_records(1, [slot], 0.5))
        assert left(ledger) == [0.5, 1.0]


@settings(deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 4), st.integers(0, UNITS // 2)), min_size=1, max_size=5),
        max_size=15,
    )
)
def test_a_record_never_spends_more_than_it_has(groups: list[list[tuple[int, int]]]) -> None:
    """Adaptive charges are all or nothing, and a sum of integers bounds each record."""
    with open_ledger(None, RECORD_BUDGETS) as ledger:
        ledger.records.add("abcde")
        spent = np.zeros(5, np.int64)
        for key, group in enumerate(groups):
            slots, units = np.array(group, np.int64).T
            asked = np.zeros(5, np.int64)
            np.add.at(asked, slots, units)
            (outcome,) = ledger.charge_many([charge_of(key, RecordCharge(slots, units))])
            assert isinstance(outcome, bytes) == bool((spent + asked <= UNITS).all())
            if isinstance(outcome, bytes):
                spent += asked
            np.testing.assert_array_equal(ledger.records.remaining(), UNITS - spent)


def test_spending_survives_any_number_of_foldings(tmp_path: Path) -> None:
    """A reopened ledger has the same budgets, wherever the journal was folded."""
    path, rng, count = tmp_path / "a", np.random.default_rng(3), 2100
    spent: Ints = np.zeros(count, np.int64)
    keys = iter(range(10**6))
    for more in (700, 2, 1398):  # records join while the ledger is in use
        with open_ledger(path, RECORD_BUDGETS, new=not path.exists()) as ledger:
            known = len(ledger.records) + more
            slots = ledger.records.add(f"record {number}" for number in range(known))
            np.testing.assert_array_equal(slots, np.arange(known))
            np.testing.assert_array_equal(ledger.records.remaining(), UNITS - spent[:known])
            for _ in range(3):
                group = []
                for _ in range(100):
                    chosen = rng.choice(known, known // 2, replace=False)
                    units = rng.integers(0, 10**6, len(chosen))
                    spent[chosen] += units
                    group.append(charge_of(next(keys), RecordCharge(chosen, units)))
                ledger.charge_many(group)
    with open_ledger(path, RECORD_BUDGETS) as ledger:
        np.testing.assert_array_equal(ledger.records.remaining(), UNITS - spent)


def test_the_journal_is_folded_before_it_grows_large(tmp_path: Path) -> None:
    """After any charges, a start reads only blocks and a short journal."""
    with open_ledger(tmp_path / "a", RECORD_BUDGETS, new=True) as ledger:
        ledger.records.add(str(number) for number in range(5000))
        sizes = []
        for key in range(30):
            ledger.charge(charge_records(key, np.arange(5000), 1e-12))
            rows = ledger._store.connection.execute(  # noqa: SLF001  (the content of the file)
                "SELECT coalesce(sum(length(slots) + length(units)), 0) FROM journal"
            )
            sizes.append(rows.fetchone()[0])
        assert max(sizes) <= JOURNAL_BYTES_MAX
        assert 0 in sizes
        assert set(ledger.records.remaining()) == {UNITS - 30}


def test_the_odometer_shows_no_record(tmp_path: Path) -> None:
    """Totals do not depend on the records that paid."""
    seen = []
    for name, amount in (("a", 0.0), ("b", 0.5)):
        with open_ledger(tmp_path / name, RECORD_BUDGETS, new=True) as ledger:
            ledger.records.add("xyz")
            ledger.charge(charge_records(1, [0, 2], amount))
            seen.append(ledger.totals())
        seen.append(read_totals(tmp_path / name))
    assert len(set(seen)) == 1


@pytest.mark.slow
def test_any_number_of_records_pays_any_amount(tmp_path: Path) -> None:
    """The sum of charges and the field width do not limit the number of records."""
    count, path = 80_000, tmp_path / "a"
    with open_ledger(path, Budgets(record=1e6), new=True) as ledger:
        connection = ledger._store.connection  # noqa: SLF001  (its limits are those of the file)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_200_000)  # as 10**9 is to more records
        slots = ledger.records.add(str(number) for number in range(count))
        amount, before = np.full(count, 10**5 * UNITS), ledger.records.remaining()
        ledger.charge(charge_of(1, RecordCharge(slots, amount)))
        ledger.charge(charge_of(2, RecordCharge(slots[::2], amount[::2])))
    with open_ledger(path, Budgets(record=1e6)) as ledger:
        spent = np.tile([2, 1], count // 2) * 10**5 * UNITS
        np.testing.assert_array_equal(ledger.records.remaining(), before - spent)


@pytest.mark.parametrize("slot", [-1, 2])
def test_unassigned_slots_are_refused(slot: int) -> None:
    """An unassigned slot is refused, and nothing is charged."""
    with open_ledger(None, RECORD_BUDGETS) as ledger:
        ledger.records.add("ab")
        with pytest.raises(InputError) as caught:
            ledger.charge(charge_records(1, [0, slot], 0.5))
        assert caught.value.field == "slots"
        assert left(ledger) == [1.0, 1.0]

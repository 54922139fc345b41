"""The filters of records: what they allow, what is kept of them, and what is wiped."""

import pickle
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from veilring.errors import BudgetExhausted, InputError
from veilring.privacy.ledger import (
    UNITS,
    Budgets,
    Charge,
    Ledger,
    RecordCharge,
    open_ledger,
    read_totals,
)
from veilring.privacy.ledger.records import JOURNAL_BYTES_MAX

BUDGETS = Budgets(unit="rho", record=1.0)


def _charge(key: object, slots: ArrayLike, amounts: ArrayLike) -> Charge:
    return _charged(key, RecordCharge.of(slots, amounts))


def _charged(key: object, records: RecordCharge) -> Charge:
    return Charge("ann", str(key), b"?", b"!", records=records)


def _left(ledger: Ledger) -> list[float]:
    return [units / UNITS for units in ledger.records.remaining()]


def test_records_pay_and_the_others_do_not() -> None:
    """Each pays its own part, one that occurs twice pays twice, a new one has all its budget."""
    with open_ledger(None, BUDGETS) as ledger:
        slots = ledger.records.add(["a", "b", "c"])
        ledger.charge(_charge(1, slots[[0, 2, 0]], [0.25, 0.5, 0.25]))
        assert _left(ledger) == [0.5, 1.0, 0.5]
        assert ledger.records.add(["d", "a"]).tolist() == [3, 0]
        assert _left(ledger) == [0.5, 1.0, 0.5, 1.0]


def test_one_amount_may_stand_for_all() -> None:
    """A number is what each pays, whole or not; units are taken as they are."""
    with open_ledger(None, BUDGETS) as ledger:
        ledger.records.add("abc")
        ledger.charge(_charge(1, [0, 1], 0.25))
        ledger.charge(_charged(2, RecordCharge(np.array([1, 2]), np.array([1, 2]))))
        ledger.charge(_charge(3, [0], 0))
        assert isinstance(ledger.charge_many([_charge(4, [0], 1)])[0], BudgetExhausted)
        left = UNITS - np.array([UNITS // 4, UNITS // 4 + 1, 2])
        np.testing.assert_array_equal(ledger.records.remaining(), left)


def test_if_one_record_cannot_pay_none_does() -> None:
    """The error says no more than that, also when it is pickled; nothing at all was charged."""
    with open_ledger(None, Budgets(record=1.0, analyst=1.0)) as ledger:
        ledger.records.add("ab")
        ledger.charge(_charge(1, [0], 0.75))
        whole = Charge("ann", "2", b"?", b"!", 0.5, RecordCharge.of([0, 1], 0.5))
        with pytest.raises(BudgetExhausted) as caught:
            ledger.charge(whole)
        error = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  (our own error)
        assert error.args == ("record", None, None, "")
        assert str(error) == "the privacy budget of a record is exhausted"
        assert _left(ledger) == [0.25, 1.0]
        assert ledger.remaining("ann") == 1.0


def test_a_repeated_request_charges_no_record() -> None:
    """Neither the records of the first attempt again, nor those that the second names."""
    with open_ledger(None, BUDGETS) as ledger:
        ledger.records.add("ab")
        for slot in (0, 1):
            ledger.charge(_charge(1, [slot], 0.5))
        assert _left(ledger) == [0.5, 1.0]


@settings(deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 4), st.integers(0, UNITS // 2)), min_size=1, max_size=5),
        max_size=15,
    )
)
def test_a_record_never_spends_more_than_it_has(groups: list[list[tuple[int, int]]]) -> None:
    """Adaptive charges of any kind are all or nothing, and a sum of integers bounds each record."""
    with open_ledger(None, BUDGETS) as ledger:
        ledger.records.add("abcde")
        spent = np.zeros(5, np.int64)
        for key, group in enumerate(groups):
            slots, units = np.array(group, np.int64).T
            asked = np.zeros(5, np.int64)
            np.add.at(asked, slots, units)
            (outcome,) = ledger.charge_many([_charged(key, RecordCharge(slots, units))])
            assert isinstance(outcome, bytes) == bool((spent + asked <= UNITS).all())
            if isinstance(outcome, bytes):
                spent += asked
            np.testing.assert_array_equal(ledger.records.remaining(), UNITS - spent)


def test_what_was_spent_survives_any_number_of_foldings(tmp_path: Path) -> None:
    """A ledger that is opened again has the same budgets, however the journal was cut."""
    path, rng, count = tmp_path / "a", np.random.default_rng(3), 2100
    spent: NDArray[np.int64] = np.zeros(count, np.int64)
    keys = iter(range(10**6))
    for more in (700, 2, 1398):  # records join while the ledger is in use
        with open_ledger(path, BUDGETS) as ledger:
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
                    group.append(_charged(next(keys), RecordCharge(chosen, units)))
                ledger.charge_many(group)
    with open_ledger(path, BUDGETS) as ledger:
        np.testing.assert_array_equal(ledger.records.remaining(), UNITS - spent)


def test_the_journal_is_folded_before_it_grows_large(tmp_path: Path) -> None:
    """Whatever is charged, at start there is no more to read than blocks and a short journal."""
    with open_ledger(tmp_path / "a", BUDGETS) as ledger:
        ledger.records.add(str(number) for number in range(5000))
        sizes = []
        for key in range(30):
            ledger.charge(_charge(key, np.arange(5000), 1e-12))
            rows = ledger._store.connection.execute(  # noqa: SLF001  (what the file holds)
                "SELECT coalesce(sum(length(slots) + length(units)), 0) FROM journal"
            )
            sizes.append(rows.fetchone()[0])
        assert max(sizes) <= JOURNAL_BYTES_MAX
        assert 0 in sizes
        assert set(ledger.records.remaining()) == {UNITS - 30}


def test_a_forgotten_record_pays_nothing_and_comes_back_with_what_was_left(tmp_path: Path) -> None:
    """At once and after a restart; another record that joins meanwhile has a fresh budget."""
    path = tmp_path / "a"
    with open_ledger(path, BUDGETS) as ledger:
        ledger.records.add(["ann", "bob"])
        ledger.charge(_charge(1, [0, 1], [0.25, 0.5]))
        ledger.records.forget(["bob"])
        assert _left(ledger) == [0.75, 0.0]
        with pytest.raises(BudgetExhausted):
            ledger.charge(_charge(2, [1], 1e-12))
    with open_ledger(path, BUDGETS) as ledger:
        assert _left(ledger) == [0.75, 0.0]
        ledger.records.forget(["bob"])  # again: nothing changes
        assert ledger.records.add(["cid", "bob"]).tolist() == [2, 1]
        assert _left(ledger) == [0.75, 0.5, 1.0]


def test_nothing_is_forgotten_if_one_is_unknown() -> None:
    """The error does not name it: ids may be secret."""
    with open_ledger(None, BUDGETS) as ledger:
        ledger.records.add(["ann"])
        with pytest.raises(InputError) as caught:
            ledger.records.forget(["ann", "secret"])
        assert "secret" not in str(caught.value)
        assert _left(ledger) == [1.0]


def test_no_byte_of_a_forgotten_record_is_left(tmp_path: Path) -> None:
    """Its id is in no file at any time; what it paid for which answer is there no more."""
    path = tmp_path / "a"
    name = "a-name-that-is-nowhere"
    paid = [np.array([n], "<i8").tobytes() for n in (0x1234567, 0x2345678, 0x3456789)]
    with open_ledger(path, BUDGETS) as ledger:
        ledger.records.add([*(f"other {number}" for number in range(3000)), name])
        for key, units in enumerate(paid):
            pays = RecordCharge(np.array([3000]), np.frombuffer(units, "<i8").astype(np.int64))
            ledger.charge(_charged(key, pays))
        before = _bytes_beside(path)
        assert all(units in before for units in paid)
        ledger.records.forget([name])
        after = _bytes_beside(path)
        assert not any(units in after for units in paid)
        for part in (name.encode(), name.encode("utf-16-le")):
            assert part not in before
            assert part not in after
        assert Path(f"{path}-wal").stat().st_size == 0
    assert not any(units in _bytes_beside(path) for units in paid)


def test_a_crash_before_the_wiping_is_made_up_for(tmp_path: Path) -> None:
    """What is left of a forgotten record goes when the ledger is opened again."""
    path, copy = tmp_path / "a", tmp_path / "copy"
    units = np.array([0x1234567], "<i8")
    with open_ledger(path, BUDGETS) as ledger:
        ledger.records.add(["ann"])
        ledger.charge(_charged(1, RecordCharge(np.array([0]), units.astype(np.int64))))
        ledger.charge(_charge(2, [0], [0.5]))
        ledger._store.wipe = lambda: None  # type: ignore[method-assign]  # noqa: SLF001  (the crash)
        ledger.records.forget(["ann"])
        copy.write_bytes(path.read_bytes())
        Path(f"{copy}-wal").write_bytes(Path(f"{path}-wal").read_bytes())
    assert units.tobytes() in _bytes_beside(copy)
    with open_ledger(copy, BUDGETS) as ledger:
        assert units.tobytes() not in _bytes_beside(copy)
        assert _left(ledger) == [0.0]


def test_a_reader_that_does_not_let_go_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is forgotten; its traces go with the next one, when nobody reads."""
    monkeypatch.setattr("veilring.privacy.ledger.store.BUSY_SECONDS", 0.01)
    path = tmp_path / "a"
    with open_ledger(path, BUDGETS) as ledger:
        ledger.records.add(["ann", "bob"])
        ledger.charge(_charge(1, [0, 1], [0.25, 0.25]))
        reader = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM analysts").fetchall()
        with pytest.raises(InputError, match="being read"):
            ledger.records.forget(["ann"])
        assert _left(ledger) == [0.0, 0.75]
        reader.close()
        ledger.records.forget(["ann"])
        assert Path(f"{path}-wal").stat().st_size == 0


def _bytes_beside(path: Path) -> bytes:
    """Return all that is in a ledger's files."""
    return b"".join(each.read_bytes() for each in sorted(path.parent.glob(f"{path.name}*")))


def test_ids_are_hashed_with_the_owners_key(tmp_path: Path) -> None:
    """A key that the owner keeps is in no file, is needed again, and ties ids to their budgets."""
    path, key = tmp_path / "a", b"k" * 32
    with open_ledger(path, BUDGETS, key=key) as ledger:
        ledger.records.add(["ann"])
        ledger.charge(_charge(1, [0], 0.5))
    assert key not in _bytes_beside(path)
    for other in (None, b"l" * 32):
        with pytest.raises(InputError, match="key"):
            open_ledger(path, BUDGETS, key=other)
    with open_ledger(path, BUDGETS, key=key) as ledger:
        assert ledger.records.add(["ann"]).tolist() == [0]
        assert _left(ledger) == [0.5]
    with open_ledger(tmp_path / "own", BUDGETS):
        pass
    with pytest.raises(InputError, match="key"):
        open_ledger(tmp_path / "own", BUDGETS, key=key)
    for short_or_long in (b"k" * 15, b"k" * 65):
        with pytest.raises(InputError, match="16 to 64"):
            open_ledger(tmp_path / "new", BUDGETS, key=short_or_long)


def test_the_odometer_shows_no_record(tmp_path: Path) -> None:
    """Totals are the same whatever records paid."""
    seen = []
    for name, amount in (("a", 0.0), ("b", 0.5)):
        with open_ledger(tmp_path / name, BUDGETS) as ledger:
            ledger.records.add("xyz")
            ledger.charge(_charge(1, [0, 2], amount))
            seen.append(ledger.totals())
        seen.append(read_totals(tmp_path / name))
    assert len(set(seen)) == 1


@pytest.mark.parametrize(
    ("field", "slots", "amounts"),
    [
        ("slots", [[0]], 0.1),
        ("amounts", [0, 1], [0.1, 0.1, 0.1]),
        ("amounts", [0], [-0.1]),
        ("amounts", [0], [float("nan")]),
        ("amounts", [0] * 10, 1e6),
    ],
)
def test_a_charge_of_records_is_judged_when_it_is_made(
    field: str, slots: ArrayLike, amounts: ArrayLike
) -> None:
    """The error names the argument; sums that 64 bits cannot hold are refused, too."""
    with pytest.raises(InputError) as caught:
        _charge(1, slots, amounts)
    assert caught.value.field == field


@pytest.mark.parametrize("slot", [-1, 2])
def test_slots_that_nobody_gave_are_refused(slot: int) -> None:
    """Nothing is charged."""
    with open_ledger(None, BUDGETS) as ledger:
        ledger.records.add("ab")
        with pytest.raises(InputError) as caught:
            ledger.charge(_charge(1, [0, slot], 0.5))
        assert caught.value.field == "slots"
        assert _left(ledger) == [1.0, 1.0]

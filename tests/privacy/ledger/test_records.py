"""The filters of records: their limits, storage and secrecy, and how records are forgotten."""

import pickle
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.privacy.ledger.charging import RECORD_BUDGETS, charge_of, charge_records, left

from veilring.arrays import Ints
from veilring.errors import BudgetExhausted, InputError
from veilring.privacy.budgets import JOURNAL_BYTES_MAX, UNITS, Budgets, Charge, RecordCharge
from veilring.privacy.ledger import open_ledger, read_totals


def test_records_pay_and_the_others_do_not() -> None:
    """Each record pays its own part, a repeated one pays twice, and a new one has a full budget.

    A single amount is charged to each, units are charged unchanged, and repetitions are free. An
    unassigned slot is refused, and nothing is charged.
    """
    with open_ledger(None, RECORD_BUDGETS) as ledger:
        slots = ledger.records.add(["a", "b", "c"])
        ledger.charge(charge_records(1, slots[[0, 2, 0]], [0.25, 0.5, 0.25]))
        ledger.charge(charge_records(1, [1], 0.5))  # neither attempt's records pay again
        assert left(ledger) == [0.5, 1.0, 0.5]
        assert ledger.records.add(["d", "a"]).tolist() == [3, 0]
        ledger.charge(charge_records(2, [0, 3], 0.25))
        ledger.charge(charge_records(3, [0], 0))
        ledger.charge(charge_of(4, RecordCharge(np.array([1, 2]), np.array([1, 2]))))
        assert isinstance(ledger.charge_many([charge_records(5, [0], 1)])[0], BudgetExhausted)
        for slot in (-1, 4):
            with pytest.raises(InputError) as caught:
                ledger.charge(charge_records(6, [0, slot], 0.1))
            assert caught.value.field == "slots"
        units = [UNITS // 4, UNITS - 1, UNITS // 2 - 2, 3 * UNITS // 4]
        assert ledger.records.remaining().tolist() == units


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


PAYMENTS = st.tuples(st.integers(0, 4), st.integers(0, UNITS // 2))


@settings(deadline=None)
@given(st.lists(st.lists(PAYMENTS, min_size=1, max_size=5), max_size=15))
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


@pytest.mark.parametrize(("gone", "slot"), [("ann", 0), ("bob", 1)])
def test_a_forgotten_record_comes_back_with_its_budget(path: Path, gone: str, slot: int) -> None:
    """This holds at once and after a restart; a record that joins meanwhile has a fresh budget.

    With an unknown record nothing is forgotten, and the error does not name it: ids may be secret.
    """
    kept = [0.75, 0.5]
    nothing = [0.0 if place == slot else each for place, each in enumerate(kept)]
    with open_ledger(path, RECORD_BUDGETS, new=True) as ledger:
        ledger.records.add(["ann", "bob"])
        ledger.charge(charge_records(1, [0, 1], [0.25, 0.5]))
        with pytest.raises(InputError) as caught:
            ledger.records.forget([gone, "secret"])
        assert "secret" not in str(caught.value)
        assert left(ledger) == kept
        ledger.records.forget([gone])
        assert left(ledger) == nothing
        with pytest.raises(BudgetExhausted):
            ledger.charge(charge_records(2, [slot], 1e-12))
    with open_ledger(path, RECORD_BUDGETS) as ledger:
        assert left(ledger) == nothing
        ledger.records.forget([gone])  # again: nothing changes
        assert ledger.records.add(["cid", gone]).tolist() == [2, slot]
        assert left(ledger) == [*kept, 1.0]
    with open_ledger(path, RECORD_BUDGETS) as ledger:
        assert left(ledger) == [*kept, 1.0]


def test_no_byte_of_a_forgotten_record_is_left(path: Path) -> None:
    """The id of a forgotten record is in no file, and neither are its payments."""
    name = "a-name-that-is-nowhere"
    paid = [np.array([n], "<i8").tobytes() for n in (0x1234567, 0x2345678, 0x3456789)]
    with open_ledger(path, RECORD_BUDGETS, new=True) as ledger:
        ledger.records.add([*(f"other {number}" for number in range(3000)), name])
        for key, units in enumerate(paid):
            pays = RecordCharge(np.array([3000]), np.frombuffer(units, "<i8").astype(np.int64))
            ledger.charge(charge_of(key, pays))
        before = bytes_beside(path)
        assert all(units in before for units in paid)
        ledger.records.forget([name])
        after = bytes_beside(path)
        assert not any(units in after for units in paid)
        for part in (name.encode(), name.encode("utf-16-le")):
            assert part not in before
            assert part not in after
        assert Path(f"{path}-wal").stat().st_size == 0
    assert not any(units in bytes_beside(path) for units in paid)


def test_a_crash_before_the_wiping_is_repaired(tmp_path: Path) -> None:
    """Traces of a forgotten record are removed when the ledger is opened again."""
    path, copy = tmp_path / "a", tmp_path / "copy"
    units = np.array([0x1234567], "<i8")
    with open_ledger(path, RECORD_BUDGETS, new=True) as ledger:
        ledger.records.add(["ann"])
        ledger.charge(charge_of(1, RecordCharge(np.array([0]), units.astype(np.int64))))
        ledger.charge(charge_records(2, [0], [0.5]))
        ledger._store.wipe = lambda: None  # type: ignore[method-assign]  # noqa: SLF001  (the crash)
        ledger.records.forget(["ann"])
        copy.write_bytes(path.read_bytes())
        Path(f"{copy}-wal").write_bytes(Path(f"{path}-wal").read_bytes())
    assert units.tobytes() in bytes_beside(copy)
    with open_ledger(copy, RECORD_BUDGETS) as ledger:
        assert units.tobytes() not in bytes_beside(copy)
        assert left(ledger) == [0.0]


def test_a_blocking_reader_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is forgotten; its traces are removed with the next one, once no reader is left."""
    monkeypatch.setattr("veilring.privacy.statefile.READER_SECONDS", 0.01)
    with open_ledger(path, RECORD_BUDGETS, new=True) as ledger:
        ledger.records.add(["ann", "bob"])
        ledger.charge(charge_records(1, [0, 1], [0.25, 0.25]))
        reader = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM analysts").fetchall()
        with pytest.raises(InputError, match="is reading it"):
            ledger.records.forget(["ann"])
        assert left(ledger) == [0.0, 0.75]
        reader.close()
        ledger.records.forget(["ann"])
        assert Path(f"{path}-wal").stat().st_size == 0


def bytes_beside(path: Path) -> bytes:
    """Return the content of all files of a ledger."""
    return b"".join(each.read_bytes() for each in sorted(path.parent.glob(f"{path.name}*")))


def test_ids_are_hashed_with_the_owners_key(tmp_path: Path) -> None:
    """The owner's key is stored in no file, is required again, and links ids to their budgets."""
    path, key = tmp_path / "a", b"k" * 32
    with open_ledger(path, RECORD_BUDGETS, key=key, new=True) as ledger:
        ledger.records.add(["ann"])
        ledger.charge(charge_records(1, [0], 0.5))
    assert key not in bytes_beside(path)
    for other in (None, b"l" * 32):
        with pytest.raises(InputError, match="key"):
            open_ledger(path, RECORD_BUDGETS, key=other)
    with open_ledger(path, RECORD_BUDGETS, key=key) as ledger:
        assert ledger.records.add(["ann"]).tolist() == [0]
        assert left(ledger) == [0.5]
    with open_ledger(tmp_path / "own", RECORD_BUDGETS, new=True):
        pass
    with pytest.raises(InputError, match="key"):
        open_ledger(tmp_path / "own", RECORD_BUDGETS, key=key)
    for short_or_long in (b"k" * 15, b"k" * 65):
        with pytest.raises(InputError, match="16 to 64"):
            open_ledger(tmp_path / "new", RECORD_BUDGETS, key=short_or_long, new=True)
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("size", [90, 700, 5000])
def test_erased_places_leave_no_fragment(size: int, tmp_path: Path) -> None:
    """No 8 bytes of an erased blob are in a file, open or closed, also if it spans pages.

    A word of a file equals one of an erased blob by accident with a probability below 1e-6.
    """
    path, rng = tmp_path / "a", np.random.default_rng(size)
    held, erased, free = dict[int, bytes](), list[bytes](), list[int]()
    with open_ledger(path, RECORD_BUDGETS, new=True) as ledger:
        for number in range(1, 8):
            for _ in range(rng.integers(1, 20)):
                place = free.pop() if free else len(held) + 1
                held[place] = rng.bytes(size)
            ledger.places.put(held)
            ledger.charge(Charge("ann", str(number), b"?", rng.bytes(100 * number), 0.001))
            gone = rng.choice(sorted(held), len(held) // 3, replace=False).tolist()
            assert fragments(path, held.values()) == len(held)  # so the search does find
            ledger.places.erase(gone)
            erased += [held.pop(place) for place in gone]
            free += gone
            assert fragments(path, erased) == 0
        assert {number: kept for number, kept in ledger.places if any(kept)} == held
    assert fragments(path, erased) == 0


def fragments(path: Path, blobs: Iterable[bytes]) -> int:
    """Return the number of blobs of which an aligned 8-byte word is in a file of a ledger."""
    content = bytes_beside(path)
    words = {content[at : at + 8] for at in range(len(content))}
    return sum(
        any(blob[at : at + 8] in words for at in range(0, len(blob) - 7, 8)) for blob in blobs
    )

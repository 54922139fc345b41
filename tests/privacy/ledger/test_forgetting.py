"""Forgetting records: they pay no more, and leave only a hash behind."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from tests.privacy.ledger.charged import RECORD_BUDGETS, charge_of, charge_records, left

from veilring.errors import BudgetExhausted, InputError
from veilring.privacy.budgets import Charge, RecordCharge
from veilring.privacy.ledger import open_ledger


def test_a_forgotten_record_pays_nothing_and_comes_back_with_its_budget(path: Path) -> None:
    """This holds at once and after a restart; a record that joins meanwhile has a fresh budget."""
    with open_ledger(path, RECORD_BUDGETS, new=True) as ledger:
        ledger.records.add(["ann", "bob"])
        ledger.charge(charge_records(1, [0, 1], [0.25, 0.5]))
        ledger.records.forget(["bob"])
        assert left(ledger) == [0.75, 0.0]
        with pytest.raises(BudgetExhausted):
            ledger.charge(charge_records(2, [1], 1e-12))
    with open_ledger(path, RECORD_BUDGETS) as ledger:
        assert left(ledger) == [0.75, 0.0]
        ledger.records.forget(["bob"])  # again: nothing changes
        assert ledger.records.add(["cid", "bob"]).tolist() == [2, 1]
        assert left(ledger) == [0.75, 0.5, 1.0]


@pytest.mark.parametrize("which", [0, 1])
def test_a_record_that_comes_back_remains_after_a_restart(which: int, tmp_path: Path) -> None:
    """A forgotten record that is added again has its remaining budget in later processes, too."""
    path, ids = tmp_path / "a", ["ann", "bob"]
    with open_ledger(path, RECORD_BUDGETS, new=True) as ledger:
        ledger.records.add(ids)
        ledger.charge(charge_records(1, [0, 1], [0.25, 0.5]))
        ledger.records.forget([ids[which]])
        ledger.records.add(ids)
    with open_ledger(path, RECORD_BUDGETS) as ledger:
        assert left(ledger) == [0.75, 0.5]


def test_nothing_is_forgotten_if_a_record_is_unknown() -> None:
    """The error does not name the unknown record: ids may be secret."""
    with open_ledger(None, RECORD_BUDGETS) as ledger:
        ledger.records.add(["ann"])
        with pytest.raises(InputError) as caught:
            ledger.records.forget(["ann", "secret"])
        assert "secret" not in str(caught.value)
        assert left(ledger) == [1.0]


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

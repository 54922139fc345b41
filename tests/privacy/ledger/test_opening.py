"""Opening a ledger: its own budgets and key, recovery after failures, and refusals."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.privacy.ledger.charged import BUDGETS, charge

from veilring.errors import InputError, StoreFailed
from veilring.privacy.budgets import ANSWER_BYTES_MAX, Budgets, Charge, RecordCharge
from veilring.privacy.ledger import open_ledger, open_ledger_store, read_totals


def test_other_budgets_need_to_be_meant(tmp_path: Path) -> None:
    """A ledger opens with the budgets it was begun with; amended, what was spent stays spent."""
    path = tmp_path / "a"
    with open_ledger(path, Budgets(total=1.0)) as ledger:
        ledger.charge(charge("ann", "1", 0.8))
    with pytest.raises(InputError, match="budgets"):
        open_ledger(path, Budgets(total=2.0))
    for total, left in ((2.0, 1.2), (0.5, 0.0)):
        with open_ledger(path, Budgets(total=total), amend=True) as ledger:
            assert ledger.remaining("ann") == left
        assert read_totals(path).budget == total


def test_amounts_are_never_counted_in_another_unit(tmp_path: Path) -> None:
    """What was spent in one unit is no amount in another one, even if other budgets are meant."""
    path = tmp_path / "a"
    with open_ledger(path, Budgets("epsilon within 10.0", total=1.0)) as ledger:
        ledger.charge(charge("ann", "1", 0.8))
    with pytest.raises(InputError, match=r"counts in epsilon within 10"):
        open_ledger(path, Budgets("epsilon", total=1.0), amend=True)
    assert read_totals(path).unit == "epsilon within 10.0"


def test_another_key_changes_no_budget(tmp_path: Path) -> None:
    """Without the key of a ledger, its budgets cannot be amended."""
    path = tmp_path / "a"
    open_ledger(path, Budgets(total=1.0), key=bytes(16)).close()
    with pytest.raises(InputError, match="key"):
        open_ledger(path, Budgets(total=9.0), key=bytes(15) + b"1", amend=True)
    assert read_totals(path).budget == 1.0


def test_a_record_over_a_lowered_budget_holds_nobody_up(tmp_path: Path) -> None:
    """A record that has spent more than it now may still takes part in what costs it nothing."""
    path = tmp_path / "a"
    for budget, key, amounts in ((1.0, "1", [0.9, 0.0]), (0.5, "2", [0.0, 0.1])):
        with open_ledger(path, Budgets(record=budget), amend=True) as ledger:
            paid = RecordCharge.of(ledger.records.add(["a", "b"]), amounts)
            assert ledger.charge(Charge("ann", key, b"?", b"yes", records=paid)) == b"yes"


def test_an_error_of_the_disk_closes_the_ledger(tmp_path: Path) -> None:
    """After a disk error the ledger closes, and opening it again shows what was charged."""
    path = tmp_path / "a"
    with open_ledger(path, Budgets()) as ledger:
        ledger.charge(charge("ann", "1", 0.5))
        ledger._store.connection.execute("PRAGMA max_page_count = 1")  # noqa: SLF001  (a full disk)
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


@pytest.mark.parametrize("content", [b"", b"x" * 5000, b"SQLite format 3\0" + bytes(5000)])
def test_what_is_no_ledger_is_refused(tmp_path: Path, content: bytes) -> None:
    """To write or to read, and it is left as it is; an empty file can be begun."""
    path = tmp_path / "a"
    path.write_bytes(content)
    with pytest.raises(InputError, match="a ledger of veilring"):
        read_totals(path)
    if content:
        with pytest.raises(InputError, match="a ledger of veilring"):
            open_ledger(path, BUDGETS)
        assert path.read_bytes() == content
    else:
        open_ledger(path, BUDGETS).close()


def test_a_damaged_ledger_is_named(tmp_path: Path) -> None:
    """Pages that are overwritten are met when it is opened or read, and its lock is free again."""
    path = tmp_path / "a"
    with open_ledger(path, BUDGETS) as ledger:
        ledger.charge(charge("ann", "1", 0.5))
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xa5" * (len(content) - 4096))
    for use in (lambda: open_ledger(path, BUDGETS), lambda: read_totals(path)) * 2:
        with pytest.raises(StoreFailed, match=f"{path} is damaged .*Restore your newest copy"):
            use()


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    """A SQLite file that is no ledger stays as it is."""
    path = tmp_path / "a"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(InputError, match="a ledger of veilring"):
        open_ledger(path, BUDGETS)
    assert path.read_bytes() == before
    with pytest.raises(InputError, match="nowhere; allowed: an existing file"):
        read_totals(tmp_path / "nowhere")


def test_a_ledger_that_was_never_begun_has_no_totals(tmp_path: Path) -> None:
    """A process that died between making the file and its budgets leaves one that can be begun."""
    path = tmp_path / "a"
    open_ledger_store(path).close()
    with pytest.raises(InputError, match="ledger has no budgets"):
        read_totals(path)
    open_ledger(path, BUDGETS).close()
    assert read_totals(path).budget == BUDGETS.total


def test_records_get_no_budgets_after_answers_that_they_did_not_pay_for(tmp_path: Path) -> None:
    """Budgets of records cannot be added after answers that did not charge records."""
    path = tmp_path / "a"
    with open_ledger(path, Budgets(total=9.0)):
        pass
    with open_ledger(path, Budgets(total=9.0, record=1.0), amend=True):
        pass  # nothing was answered
    with open_ledger(path, Budgets(total=9.0), amend=True) as ledger:
        ledger.charge(charge("ann", "1", 1.0))
    with pytest.raises(InputError, match="each record cannot be added after answers were charged"):
        open_ledger(path, Budgets(total=9.0, record=1.0), amend=True)


def test_a_fingerprint_is_of_one_ledgers_key(tmp_path: Path) -> None:
    """It is the same after a restart, another in each ledger, and not a record's hash."""
    budgets = Budgets(total=1.0, record=1.0)
    with open_ledger(tmp_path / "a", budgets) as ledger:
        ledger.records.add(["ann"])
        made = ledger.fingerprint(b"ann")
        assert made != ledger.fingerprint(b"bob")
    with open_ledger(tmp_path / "a", budgets) as ledger:
        assert ledger.fingerprint(b"ann") == made
    with closing(sqlite3.connect(tmp_path / "a")) as database:
        ((record,),) = database.execute("SELECT digest FROM records")
    assert record.hex() not in made
    with open_ledger(tmp_path / "b", budgets) as other:
        assert other.fingerprint(b"ann") != made
    fingerprints = []
    for name in ("c", "d"):
        with open_ledger(tmp_path / name, budgets, key=b"k" * 32) as ledger:
            fingerprints.append(ledger.fingerprint(b"ann"))
    assert fingerprints[0] == fingerprints[1] != made


def test_what_is_kept_is_recalled(tmp_path: Path) -> None:
    """A user's own settings are the last that were kept, and apart from the ledger's."""
    with open_ledger(tmp_path / "a", Budgets()) as ledger:
        assert ledger.recall("budgets") is None
        ledger.keep("budgets", "one")
        ledger.keep("budgets", "two")
    with open_ledger(tmp_path / "a", Budgets()) as ledger:
        assert ledger.recall("budgets") == "two"

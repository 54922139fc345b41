"""Opening a ledger: its own budgets and key, recovery after failures, and refusals."""

import resource
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.privacy.ledger.charged import BUDGETS, charge

from veilring.errors import InputError, StoreFailed
from veilring.privacy.budgets import ANSWER_BYTES_MAX, Budgets, Charge, RecordCharge
from veilring.privacy.ledger import LEDGER, open_ledger, read_totals
from veilring.privacy.statefile import open_state_file


def test_other_budgets_must_be_intended(path: Path) -> None:
    """A ledger opens only with its original budgets; amending them keeps all spending."""
    with open_ledger(path, Budgets(total=1.0), new=True) as ledger:
        ledger.charge(charge("ann", "1", 0.8))
    with pytest.raises(InputError, match="budgets"):
        open_ledger(path, Budgets(total=2.0))
    for total, left in ((2.0, 1.2), (0.5, 0.0)):
        with open_ledger(path, Budgets(total=total), amend=True) as ledger:
            assert ledger.remaining("ann") == left
        assert read_totals(path).budget == total


def test_an_unused_ledger_takes_other_budgets(path: Path) -> None:
    """Budgets and unit can be corrected until there is an answer or a record."""
    open_ledger(path, Budgets(total=1.0), new=True).close()
    with open_ledger(path, Budgets("rho", total=2.0, record=1.0)) as ledger:
        ledger.records.add(["ann"])
    assert (read_totals(path).unit, read_totals(path).budget) == ("rho", 2.0)
    with pytest.raises(InputError, match="other budgets"):
        open_ledger(path, Budgets("rho", total=3.0, record=1.0))


def test_amounts_are_never_counted_in_another_unit(path: Path) -> None:
    """Spending in one unit is never counted in another unit, even with amended budgets."""
    with open_ledger(path, Budgets("epsilon within 10.0", total=1.0), new=True) as ledger:
        ledger.charge(charge("ann", "1", 0.8))
    with pytest.raises(InputError, match=r"counts in epsilon within 10"):
        open_ledger(path, Budgets("epsilon", total=1.0), amend=True)
    assert read_totals(path).unit == "epsilon within 10.0"


def test_another_key_changes_no_budget(path: Path) -> None:
    """The budgets of a ledger cannot be amended without its key."""
    open_ledger(path, Budgets(total=1.0), key=bytes(16), new=True).close()
    with pytest.raises(InputError, match="key"):
        open_ledger(path, Budgets(total=9.0), key=bytes(15) + b"1", amend=True)
    assert read_totals(path).budget == 1.0


def test_a_record_over_a_lowered_budget_delays_no_others(path: Path) -> None:
    """A record that has spent more than its lowered budget still takes part at no cost."""
    for budget, key, amounts in ((1.0, "1", [0.9, 0.0]), (0.5, "2", [0.0, 0.1])):
        new = not path.exists()
        with open_ledger(path, Budgets(record=budget), amend=True, new=new) as ledger:
            paid = RecordCharge.of(ledger.records.add(["a", "b"]), amounts)
            assert ledger.charge(Charge("ann", key, b"?", b"yes", records=paid)) == b"yes"


def test_an_error_of_the_disk_closes_the_ledger(path: Path) -> None:
    """After a disk error the ledger closes; reopened, it shows all charges."""
    with open_ledger(path, Budgets(), new=True) as ledger:
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


@pytest.mark.parametrize("content", [b"", b"x" * 5000, b"SQLite format 3\0" + bytes(5000)])
def test_a_file_that_is_not_a_ledger_is_refused(path: Path, content: bytes) -> None:
    """It cannot be written or read, is not overwritten by a new one, and is left unchanged."""
    path.write_bytes(content)
    with pytest.raises(InputError, match="a ledger of veilring"):
        read_totals(path)
    refusal = "a ledger of veilring" if content else "there is no ledger at"
    with pytest.raises(InputError, match=refusal):
        open_ledger(path, BUDGETS)
    with pytest.raises(InputError, match=r"there is a ledger at .* already"):
        open_ledger(path, BUDGETS, new=True)
    assert path.read_bytes() == content


def test_a_damaged_ledger_is_named(path: Path) -> None:
    """Overwritten pages are detected on opening or reading, and the lock is released."""
    with open_ledger(path, BUDGETS, new=True) as ledger:
        ledger.charge(charge("ann", "1", 0.5))
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xa5" * (len(content) - 4096))
    for use in (lambda: open_ledger(path, BUDGETS), lambda: read_totals(path)) * 2:
        with pytest.raises(StoreFailed, match=f"{path} is damaged .*Restore your newest copy"):
            use()


def test_another_programs_database_is_refused(path: Path, tmp_path: Path) -> None:
    """An SQLite file of another program is left unchanged."""
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(InputError, match="a ledger of veilring"):
        open_ledger(path, BUDGETS)
    assert path.read_bytes() == before
    with pytest.raises(InputError, match="nowhere; allowed: an existing file"):
        read_totals(tmp_path / "nowhere")


def test_an_uninitialised_ledger_has_no_totals(path: Path) -> None:
    """A process that died between creating the file and its budgets leaves a usable file."""
    open_state_file(path, LEDGER, new=True).close()
    with pytest.raises(InputError, match="ledger has no budgets"):
        read_totals(path)
    open_ledger(path, BUDGETS).close()
    assert read_totals(path).budget == BUDGETS.total


def test_records_get_no_budgets_after_unpaid_answers(path: Path) -> None:
    """Records cannot get budgets after answers that did not charge records."""
    with open_ledger(path, Budgets(total=9.0), new=True):
        pass
    with open_ledger(path, Budgets(total=9.0, record=1.0), amend=True):
        pass  # nothing was answered
    with open_ledger(path, Budgets(total=9.0), amend=True) as ledger:
        ledger.charge(charge("ann", "1", 1.0))
    with pytest.raises(InputError, match="each record cannot be added after answers were charged"):
        open_ledger(path, Budgets(total=9.0, record=1.0), amend=True)


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

"""`veilring ledger`: totals for the owner, without details."""

import json
import shutil
from pathlib import Path

import pytest
from tests.cli.invoking import invoke

from veilring.errors import StoreFailed
from veilring.privacy.budgets import Budgets, Charge, RecordCharge
from veilring.privacy.ledger import open_ledger, read_totals


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a ledger in which two analysts have spent."""
    path = tmp_path / "queries.ledger"
    with open_ledger(
        path, Budgets(total=2.0, analysts={"bob": 0.5}, record=0.123), new=True
    ) as ledger:
        slots = ledger.records.add(["someone"])
        for number, (analyst, amount) in enumerate([("ann", 0.25), ("ann", 0.5), ("bob", 0.125)]):
            records = RecordCharge.of(slots, 0.0123)
            ledger.charge(Charge(analyst, str(number), b"?", b"!", amount, records))
    return path


def test_show_prints_totals(path: Path) -> None:
    """It shows answers, spending and remainder by analyst and in total."""
    code, out, _ = invoke("ledger", "show", str(path))
    rows = [line.replace("│", " ").split() for line in out.splitlines()]
    assert code == 0
    assert ["ann", "2", "0.75", "1.125"] in rows
    assert ["bob", "1", "0.125", "0.375"] in rows
    assert ["all", "3", "0.875", "1.125"] in rows


def test_json_has_the_same_totals_and_no_records(path: Path) -> None:
    """The JSON contains neither the records' budgets nor their spending."""
    code, out, _ = invoke("ledger", "show", str(path), "--json")
    assert code == 0
    assert json.loads(out) == {
        "unit": "epsilon",
        "spent": 0.875,
        "budget": 2.0,
        "answers": 3,
        "analysts": [
            {"name": "ann", "spent": 0.75, "budget": None, "answers": 2},
            {"name": "bob", "spent": 0.125, "budget": 0.5, "answers": 1},
        ],
    }


def test_json_has_the_given_numbers_of_large_amounts(tmp_path: Path) -> None:
    """A budget and a charge are printed as they were given, also above 1,000."""
    path = tmp_path / "queries.ledger"
    with open_ledger(path, Budgets(total=100_000.0, analyst=1500.3), new=True) as ledger:
        ledger.charge(Charge("ann", "0", b"?", b"!", 1500.3))
    shown = json.loads(invoke("ledger", "show", path, "--json")[1])
    assert (shown["budget"], shown["spent"]) == (100_000.0, 1500.3)
    assert shown["analysts"][0]["budget"] == shown["analysts"][0]["spent"] == 1500.3


def test_a_backup_is_complete_and_its_return_is_explicit(path: Path) -> None:
    """A backup contains every earlier charge, and opens in place only without the ledger's lock."""
    copy, later = path.with_name("copy"), Charge("cid", "1", b"?", b"!", 0.5)
    budgets = Budgets(total=2.0, analysts={"bob": 0.5}, record=0.123)
    with open_ledger(path, budgets) as ledger:
        ledger.charge(Charge("cid", "0", b"?", b"!", 0.25))
        assert invoke("state", "backup", str(path), str(copy))[0] == 0
        ledger.charge(later)
    assert [each.name for each in path.parent.glob("copy*")] == ["copy"]
    assert read_totals(copy).spent == 1.125
    code, _, told = invoke("state", "backup", str(path), str(copy))
    assert (code, "copy is " in told, "does not exist" in told) == (2, True, True)
    copy.replace(path)
    with pytest.raises(StoreFailed, match=r"last \d transactions are .* queries\.ledger\.lock"):
        open_ledger(path, budgets)
    path.with_name("queries.ledger.lock").unlink()
    with open_ledger(path, budgets) as ledger:
        assert ledger.totals().spent == 1.125


def test_a_backup_is_restored_after_a_kill(path: Path, tmp_path: Path) -> None:
    """With the killed process's four files moved away, the copy opens with its charges."""
    killed = tmp_path / "killed"
    budgets = Budgets(total=2.0, analysts={"bob": 0.5}, record=0.123)
    with open_ledger(path, budgets) as ledger:
        assert invoke("state", "backup", str(path), str(tmp_path / "copy"))[0] == 0
        ledger.charge(Charge("cid", "0", b"?", b"!", 0.25))
        killed.mkdir()
        for each in tmp_path.glob("queries.ledger*"):
            shutil.copy(each, killed)
    left = {each.name.removeprefix("queries.ledger") for each in killed.iterdir()}
    assert left == {"", "-wal", "-shm", ".lock"}
    for each in tuple(killed.iterdir()):
        each.unlink()
    shutil.copy(tmp_path / "copy", killed / "queries.ledger")
    with open_ledger(killed / "queries.ledger", budgets) as ledger:
        assert ledger.totals().spent == 0.875


def test_help_describes_restoring_a_copy() -> None:
    """The help names each of the files to move away first."""
    code, out, _ = invoke("state", "backup", "--help")
    assert code == 0
    assert all(f" {end}" in out for end in ("-wal", "-shm", ".lock"))


def test_show_does_not_disturb_the_writer(path: Path) -> None:
    """It shows a ledger while another process continues to write it."""
    budgets = Budgets(total=2.0, analysts={"bob": 0.5}, record=0.123)
    with open_ledger(path, budgets) as ledger:
        for number, spent in enumerate((1.0, 1.125)):
            ledger.charge(Charge("cid", str(number), b"?", b"!", 0.125))
            code, out, _ = invoke("ledger", "show", str(path), "--json")
            assert code == 0
            assert json.loads(out)["spent"] == spent


def test_a_missing_ledger_is_an_input_error(tmp_path: Path) -> None:
    """The error is one paragraph, and no file is created."""
    code, out, error = invoke("ledger", "show", str(tmp_path / "nothing"))
    assert (code, out) == (2, "")
    assert "nothing; allowed: an existing file" in error
    assert not list(tmp_path.iterdir())

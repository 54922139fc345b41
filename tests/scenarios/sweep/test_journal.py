"""The journal: durability and refusals."""

import json
from pathlib import Path

import pytest

from veilring.errors import InputError
from veilring.scenarios.sweep.cells import CellOutcome
from veilring.scenarios.sweep.run import SYNC_SECONDS, open_journal

SWEEP = {"scenario": "wine", "grid": {"protocol.k": [1, 2]}}
FIRST, SECOND = (
    CellOutcome(name, {"accuracy": 0.1 + 0.2, "label": "é\n"}, {"seconds": 1e-9})
    for name in ("first", "second")
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the journal."""
    return tmp_path / "out.parquet.journal"


def _write(path: Path, *outcomes: CellOutcome) -> None:
    with open_journal(path, SWEEP) as journal:
        for outcome in outcomes:
            journal.append(outcome)


def test_returns_its_cells_exactly(path: Path) -> None:
    """A journal returns its cells to the last bit, over several calls."""
    _write(path, FIRST)
    _write(path, SECOND)
    with open_journal(path, SWEEP) as journal:
        assert journal.outcomes == {"first": FIRST, "second": SECOND}


def test_a_line_is_in_the_file_before_the_next_cell(path: Path) -> None:
    """No line waits in the process until the file is closed."""
    with open_journal(path, SWEEP) as journal:
        journal.append(FIRST)
        assert len(path.read_bytes().splitlines()) == 2


def test_the_disk_is_synchronised_periodically(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only lines at least `SYNC_SECONDS` after the last synchronisation wait for the disk."""
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", synced.append)
    now = 0.0
    with open_journal(path, SWEEP, clock=lambda: now) as journal:
        synced.clear()
        journal.append(FIRST)
        now += SYNC_SECONDS / 2
        journal.append(SECOND)
        assert synced == []
        now += SYNC_SECONDS / 2
        journal.append(FIRST)
        assert len(synced) == 1


@pytest.mark.parametrize("lost", [1, 2, 20])
def test_a_torn_last_line_is_cut_off(path: Path, lost: int) -> None:
    """Complete lines stay, and appended lines are complete."""
    _write(path, FIRST, SECOND)
    path.write_bytes(path.read_bytes()[:-lost])
    with open_journal(path, SWEEP) as journal:
        assert set(journal.outcomes) == {"first"}
        journal.append(SECOND)
    with open_journal(path, SWEEP) as journal:
        assert journal.outcomes == {"first": FIRST, "second": SECOND}


def test_another_sweeps_journal_is_refused_unchanged(path: Path) -> None:
    """The error names the argument."""
    _write(path, FIRST)
    before = path.read_bytes()
    other = {**SWEEP, "grid": {"protocol.k": [1, 3]}}
    with (
        pytest.raises(InputError, match=r"grid is .*2.* not .*3") as caught,
        open_journal(path, other),
    ):
        pass
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


def test_a_journal_without_a_cell_is_replaced(path: Path) -> None:
    """A journal without a cell is replaced, because its sweep died before the first one."""
    path.write_text(json.dumps(SWEEP) + "\n")
    with open_journal(path, {"scenario": "digits"}) as journal:
        journal.append(FIRST)
    assert json.loads(path.read_text().splitlines()[0]) == {"scenario": "digits"}


def test_an_empty_journal_is_removed(path: Path) -> None:
    """No cell was stored, so no file is left."""
    with open_journal(path, SWEEP):
        assert path.exists()
    assert not path.exists()


@pytest.mark.parametrize("line", [b"nonsense", b"[1]", b'{"cell": "first"}', b"\xff"])
def test_a_damaged_line_is_reported_without_loss(path: Path, line: bytes) -> None:
    """Only the last line can be torn; an earlier one was damaged by another program."""
    _write(path, FIRST, SECOND)
    header, _, last = path.read_bytes().splitlines()
    damaged = b"\n".join([header, line, last, b""])
    path.write_bytes(damaged)
    with pytest.raises(InputError, match="line 2"), open_journal(path, SWEEP):
        pass
    assert path.read_bytes() == damaged


def test_two_sweeps_cannot_share_one(path: Path) -> None:
    """The second is refused while the first writes, and the first continues."""
    with open_journal(path, SWEEP) as journal:
        with pytest.raises(InputError, match="is locked"), open_journal(path, SWEEP):
            pass
        journal.append(FIRST)
    with open_journal(path, SWEEP) as journal:
        assert set(journal.outcomes) == {"first"}

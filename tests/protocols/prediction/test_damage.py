"""A server's folder that is damaged, or is none: an error that names the file and what to do."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.protocols.prediction.serving import make_rules, opened, requests, table
from tests.protocols.prediction.test_server import labels, left

from veilring.errors import StoreFailed
from veilring.protocols.prediction.rowfile import RowFile
from veilring.protocols.prediction.state import open_state

RULES = make_rules()


def test_a_damaged_ledger_is_named(tmp_path: Path) -> None:
    """Pages that are overwritten are met when the server starts, and nothing is left open."""
    with opened(RULES, tmp_path, table(2000)):
        pass
    ledger = tmp_path / "budgets.sqlite"
    content = ledger.read_bytes()
    ledger.write_bytes(content[:4096] + b"\xa5" * (len(content) - 4096))
    with pytest.raises(StoreFailed, match=r"budgets\.sqlite is damaged .*spent is forgotten"):
        open_state(RULES, tmp_path)
    with closing(sqlite3.connect(tmp_path / "budgets.sqlite.lock", timeout=0)) as lock:
        lock.execute("BEGIN EXCLUSIVE")


def test_rows_that_cannot_be_read_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails while rows are read is met when the server starts."""
    with opened(RULES, tmp_path, table(5)):
        pass

    def broken(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(RowFile, "_read", broken)
    with pytest.raises(StoreFailed, match=r"rows\.bin: .*Input/output error.*what they had left"):
        open_state(RULES, tmp_path)


def test_records_that_are_added_to_a_new_file_of_rows_have_what_they_had_left(
    tmp_path: Path,
) -> None:
    """What the error says: the ledger knows records again whose rows are gone."""
    with opened(RULES, tmp_path, table(50)) as state:
        labels(state, requests(3, 5))
    before = left(tmp_path, RULES, 50)
    (tmp_path / "rows.bin").unlink()
    with opened(RULES, tmp_path, table(50)):
        pass
    assert left(tmp_path, RULES, 50) == before
    assert min(before) < max(before)


def test_a_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    """A file in the place of the folder, or of one above it, is named."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    for folder in (tmp_path / "file", tmp_path / "file" / "state"):
        with pytest.raises(StoreFailed, match=f"{folder}: .*Check the disk"):
            open_state(RULES, folder)

"""A server's folder that is damaged, or is none: an error that names the file and what to do."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.protocols.prediction.serving import make_rules, opened, table

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
    with pytest.raises(StoreFailed, match=r"budgets\.sqlite: .*an empty folder"):
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
    with pytest.raises(StoreFailed, match=r"rows\.bin: .*Input/output error.*an empty folder"):
        open_state(RULES, tmp_path)


def test_a_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    """A file in the place of the folder, or of one above it, is named."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    for folder in (tmp_path / "file", tmp_path / "file" / "state"):
        with pytest.raises(StoreFailed, match=f"{folder}: .*Check the disk"):
            open_state(RULES, folder)

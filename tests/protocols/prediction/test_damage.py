"""A server's folder that is damaged or invalid: an error with the file and the remedy."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.protocols.prediction.serving import make_rules, opened, requests, table
from tests.protocols.prediction.test_server import labels, left

from veilring.errors import InputError, StoreFailed
from veilring.privacy.ledger import open_ledger
from veilring.protocols.prediction.records import Accounts
from veilring.protocols.prediction.rowfile import SCHEMA_BYTES, RowFile, open_rows
from veilring.protocols.prediction.state import (
    BUDGETS,
    ROWS,
    StateDamage,
    begin_state,
    open_state,
    repair_state,
)

RULES, SCHEMA = make_rules(), bytes(SCHEMA_BYTES)


def test_a_damaged_ledger_is_named(tmp_path: Path) -> None:
    """Overwritten pages are detected at the start, and nothing is left open."""
    with opened(RULES, tmp_path, table(2000)):
        pass
    ledger = tmp_path / "budgets.sqlite"
    content = ledger.read_bytes()
    ledger.write_bytes(content[:4096] + b"\xa5" * (len(content) - 4096))
    with pytest.raises(StoreFailed, match=r"budgets\.sqlite is damaged .*charges are forgotten"):
        open_state(RULES, tmp_path)
    with closing(sqlite3.connect(tmp_path / "budgets.sqlite.lock", timeout=0)) as lock:
        lock.execute("BEGIN EXCLUSIVE")


def test_unreadable_rows_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails while rows are read is reported at the start."""
    with opened(RULES, tmp_path, table(5)):
        pass

    def broken(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(RowFile, "_read", broken)
    with pytest.raises(
        StoreFailed, match=r"rows\.bin: .*Input/output error.*restore your newest copy"
    ):
        open_state(RULES, tmp_path)


def answered(folder: Path) -> Path:
    """Serve a folder for some requests and changes of records."""
    with opened(RULES, folder, table(50)) as state:
        labels(state, requests(3, 5))
        state.forget(table(50).ids[40:])
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder except the locks, which are empty."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".lock"}


def lose(folder: Path, name: str) -> None:
    """Remove a file and its companion files."""
    for path in folder.glob(f"{name}*"):
        path.unlink()


def put_back(copy: Path, folder: Path, name: str) -> None:
    """Replace a file and its companion files by an old copy."""
    lose(folder, name)
    for path in copy.glob(f"{name}*"):
        shutil.copy(path, folder)


def test_a_lost_file_is_refused_and_not_recreated(tmp_path: Path) -> None:
    """Without rows answers would be noise, and without the ledger all budgets full again."""
    for name in (ROWS, BUDGETS):
        folder = answered(tmp_path / name)
        lose(folder, name)
        before = contents(folder)
        with pytest.raises(StoreFailed, match=f"{name} is missing.*estore it.*records repair"):
            open_state(RULES, folder)
        assert name not in contents(folder)
        assert contents(folder).get(ROWS) == before.get(ROWS)


def test_an_old_copy_of_one_file_is_refused(tmp_path: Path) -> None:
    """Old rows lack records and contain forgotten ones; an old ledger lacks spending."""
    folder, old = answered(tmp_path / "state"), tmp_path / "old"
    shutil.copytree(folder, old)
    with opened(RULES, folder) as state:
        for seed in (7, 8):
            state.add(table(5, seed=seed))
            labels(state, requests(1, 5, seed=seed))
    new = tmp_path / "new"
    shutil.copytree(folder, new)
    put_back(old, folder, ROWS)
    with pytest.raises(StoreFailed, match=r"rows\.bin is older than the ledger.*: 2 changes"):
        open_state(RULES, folder)
    put_back(new, folder, ROWS)
    put_back(old, folder, BUDGETS)
    with pytest.raises(StoreFailed, match=r"ledger next to .*rows\.bin is an older copy"):
        open_state(RULES, folder)


def test_a_copy_from_within_a_finished_step_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that the ledger records as finished is not treated as an interrupted addition."""
    folder, old = answered(tmp_path / "state"), tmp_path / "old"
    begin = RowFile._begin_step  # noqa: SLF001  (the moment of the copy)

    def copied(rows: RowFile, *given: Any) -> None:
        begin(rows, *given)
        shutil.copytree(folder, old)

    monkeypatch.setattr(RowFile, "_begin_step", copied)
    with opened(RULES, folder) as state:
        state.add(table(5, seed=7))
    put_back(old, folder, ROWS)
    before = contents(folder)
    with pytest.raises(StoreFailed, match=r"rows\.bin is older than the ledger.*: 1 changes"):
        open_state(RULES, folder)
    assert contents(folder)[ROWS] == before[ROWS]


def test_files_of_two_servers_are_refused(tmp_path: Path) -> None:
    """Each file names its server, even if both servers have had the same records."""
    one, other = answered(tmp_path / "one"), answered(tmp_path / "other")
    put_back(other, one, BUDGETS)
    with pytest.raises(StoreFailed, match=r"rows\.bin does not belong to the ledger"):
        open_state(RULES, one)


def test_rows_unknown_to_the_ledger_are_refused(tmp_path: Path) -> None:
    """No crash leaves a row without a budget, so it gets no fresh one."""
    folder = answered(tmp_path)
    with closing(open_ledger(folder / BUDGETS, RULES.budgets)) as ledger:
        rows = open_rows(folder / ROWS, RULES.features, tie=ledger.id)
        for _ in rows.load():
            pass
        rows.add(table(3, seed=9))
        rows.close()
    with pytest.raises(StoreFailed, match="does not contain all of its records"):
        open_state(RULES, folder)


def test_a_crash_between_the_two_files_is_not_damage(tmp_path: Path) -> None:
    """A record may then exist in the ledger alone, or without its mark."""
    folder = answered(tmp_path)
    more = table(4, seed=9)
    with closing(open_ledger(folder / BUDGETS, RULES.budgets)) as ledger:
        Accounts(ledger, RULES.clients).add(more.ids, np.arange(4))
    with opened(RULES, folder) as state:
        assert len(state) == 40
    with closing(open_ledger(folder / BUDGETS, RULES.budgets)) as ledger:
        rows = open_rows(folder / ROWS, RULES.features, tie=ledger.id)
        for _ in rows.load():
            pass
        rows.add(more)
        rows.close()
    for _ in range(2):
        with opened(RULES, folder) as state:
            assert len(state) == 44


def test_lost_records_added_again_keep_their_remaining_budgets(tmp_path: Path) -> None:
    """The ledger recognises records whose rows were lost, once an operator has accepted it."""
    with opened(RULES, tmp_path, table(50)) as state:
        labels(state, requests(3, 5))
    before = left(tmp_path, RULES, 50)
    lose(tmp_path, ROWS)
    assert repair_state(RULES, tmp_path, SCHEMA) == StateDamage(0, 1, 0)
    with pytest.raises(StoreFailed, match="is missing"):
        open_state(RULES, tmp_path)
    assert repair_state(RULES, tmp_path, SCHEMA, lose_records=True) == StateDamage(0, 1, 0)
    with opened(RULES, tmp_path, table(50)):
        pass
    assert left(tmp_path, RULES, 50) == before
    assert min(before) < max(before)


def test_a_server_continues_without_a_damaged_record_if_accepted(tmp_path: Path) -> None:
    """The others keep their remaining budgets, and a sound ledger is never discarded."""
    folder = answered(tmp_path)
    before = left(folder, RULES, 30)
    path = folder / ROWS
    content = bytearray(path.read_bytes())
    content[-94 * 15] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreFailed, match=r"rows\.bin: 1 of 50 places are damaged.*records repair"):
        open_state(RULES, folder)
    assert repair_state(RULES, folder, SCHEMA, lose_budgets=True) == StateDamage(39, 1, 0)
    assert path.read_bytes() == content
    assert repair_state(RULES, folder, SCHEMA, lose_records=True) == StateDamage(39, 1, 0)
    with opened(RULES, folder) as state:
        assert len(state) == 39
    assert left(folder, RULES, 30) == before


def test_spending_is_discarded_only_if_accepted(tmp_path: Path) -> None:
    """This includes a ledger of another server, or an old one."""
    another = answered(tmp_path / "another's")
    for name in ("lost", "replaced", "old"):
        folder, old = answered(tmp_path / name), tmp_path / f"old of {name}"
        shutil.copytree(folder, old)
        with opened(RULES, folder) as state:
            for seed in (7, 8):
                state.add(table(5, seed=seed))
        if name == "lost":
            lose(folder, BUDGETS)
        else:
            put_back(old if name == "old" else another, folder, BUDGETS)
        for lose_records in (False, True):
            assert repair_state(RULES, folder, SCHEMA, lose_records=lose_records) == StateDamage(
                50, 0, 50
            )
            with pytest.raises(StoreFailed):
                open_state(RULES, folder)
        assert repair_state(RULES, folder, SCHEMA, lose_budgets=True) == StateDamage(50, 0, 50)
        with opened(RULES, folder) as state:
            assert len(state) == 50
            assert labels(state, requests(1, 5, seed=11))


def test_an_empty_folder_is_not_a_servers(tmp_path: Path) -> None:
    """Nothing is repaired without files."""
    with pytest.raises(InputError, match="state is"):
        repair_state(RULES, tmp_path, SCHEMA, lose_budgets=True, lose_records=True)
    assert list(tmp_path.iterdir()) == []


def test_an_invalid_folder_is_named(tmp_path: Path) -> None:
    """A file in place of the folder, or of a parent, is named."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    for folder in (tmp_path / "file", tmp_path / "file" / "state"):
        with pytest.raises(StoreFailed, match=f"{folder}: .*Check the disk"):
            begin_state(RULES, folder)

"""Upgrades of state files: complete or not begun, never two files that both can be spent from."""

import multiprocessing
import os
import resource
import shutil
import signal
import sqlite3
import sys
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from veilring.errors import InputError, StoreFailed
from veilring.nodes.runtimes.processes import warm_up
from veilring.privacy.statefile import Section, open_state_file, read_state_file, require_current
from veilring.privacy.upgrade import Upgrade, undo_upgrade, upgrade_state_file

NOTES = {"a": b"first", "b": b"second"}
INSERT = "INSERT INTO notes VALUES (?, ?)"


def schema(column: str) -> str:
    """Return the tables of a notebook, by the name of a column."""
    return f"CREATE TABLE notes (name TEXT PRIMARY KEY, {column} BLOB NOT NULL);"


def rename(connection: sqlite3.Connection) -> Iterable[str]:
    """Rename the column, which makes the section incompatible."""
    connection.execute("ALTER TABLE notes RENAME COLUMN text TO body")
    yield "notes have bodies now"


OLD = Section("notebook", 1, schema("text"), ("notes",), "all notes are lost")
NEW = replace(OLD, version=2, schema=schema("body"), steps={1: rename})
INDEX = Section("index", 1, "CREATE TABLE words (word TEXT);", ("words",), "no word is found")
"""A section of another package."""


def add(path: Path, section: Section = NEW, name: str = "c") -> None:
    """Add a note by a process of a version."""
    with closing(open_state_file(path, section)) as file, file.transaction() as connection:
        connection.execute(INSERT, (name, b"third"))


def notes_in(path: Path, section: Section = NEW) -> dict[str, bytes]:
    """Return the notes of a file that is opened by a version."""
    with read_state_file(path, section) as connection:
        return dict(connection.execute("SELECT * FROM notes").fetchall())


@pytest.fixture(params=["closed", "killed"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return a file of the old version, in the state left by a process that ended in a way."""
    live = tmp_path / "live" / "book.db"
    live.parent.mkdir()
    file = open_state_file(live, OLD, INDEX, new=True)
    with file.transaction() as connection:
        connection.executemany(INSERT, NOTES.items())
    if request.param == "closed":
        file.close()
    shutil.copytree(live.parent, tmp_path / "left")
    file.close()
    return tmp_path / "left" / "book.db"


def upgrade(path: Path, **options: Any) -> Upgrade:
    """Convert a file to the new version."""
    return upgrade_state_file(path, [NEW], {}, **options)


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files with content; the log's index is rebuilt at each start."""
    files = (each for each in folder.iterdir() if not each.name.endswith("-shm"))
    return {each.name: content for each in files if (content := each.read_bytes())}


def test_a_section_is_converted_by_its_steps(path: Path) -> None:
    """The command does what opening refuses to do, and a section of another package stays."""
    with pytest.raises(
        InputError, match=r"of format 1, .* Convert it with `veilring state upgrade"
    ):
        open_state_file(path, NEW)
    with pytest.raises(InputError, match="Convert it with"):
        require_current(path, NEW)
    before = contents(path.parent)
    planned = upgrade(path, dry_run=True)
    assert contents(path.parent) == before
    assert upgrade(path) == planned
    assert planned.changes == ("notebook: version 1 → 2",)
    assert planned.rows == {"notes": 2, "words": 0}
    assert planned.notes == ("notes have bodies now",)
    assert notes_in(path) == NOTES
    add(path)
    open_state_file(path, INDEX).close()
    require_current(path, NEW)
    assert upgrade(path).changes == ()


def test_the_old_file_is_no_second_copy(path: Path) -> None:
    """Its kept copy is opened by no version, and a backup of it is refused beside its witness."""
    shutil.copyfile(path, path.with_name("backup"))
    kept = upgrade(path).kept
    assert kept == path.with_name("book.db.format-4")
    for section in (OLD, NEW):
        with pytest.raises(InputError, match="is the copy that `veilring state upgrade` kept"):
            open_state_file(kept, section)
    with pytest.raises(InputError, match="is the copy that"):
        upgrade(kept)
    path.with_name("backup").replace(path)
    with pytest.raises(StoreFailed, match=r"its last [12] transactions are missing"):
        open_state_file(path, OLD)


def test_a_file_in_use_or_in_doubt_is_refused(path: Path) -> None:
    """A file in use, damaged, newer or without a step stays as it is."""
    with (
        closing(open_state_file(path, OLD)),
        pytest.raises(InputError, match="is locked: another process is writing"),
    ):
        upgrade(path)
    before = contents(path.parent)
    with pytest.raises(InputError, match="of format 1, which cannot be converted"):
        upgrade_state_file(path, [replace(NEW, steps={})], {})
    with pytest.raises(
        InputError, match=r"of a newer version .* Go on with the version that wrote"
    ):
        upgrade_state_file(path, [replace(OLD, version=0)], {})
    assert contents(path.parent) == before
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE notes SET text = x'00'")
        connection.commit()
    before = contents(path.parent)
    with pytest.raises(StoreFailed, match="its rows are not those that were written"):
        upgrade(path)
    assert contents(path.parent) == before


def test_other_programs_files_are_refused(tmp_path: Path) -> None:
    """No lock is left beside them."""
    for name, content in (("a", b""), ("b", b"text" * 4000), ("c", None)):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=r"a state file of veilring|there is no state file"):
            upgrade(tmp_path / name)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "b"]


def test_a_reader_delays_the_upgrade(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that is being read cannot be moved; nothing is converted then."""
    monkeypatch.setattr("veilring.privacy.upgrade.READER_SECONDS", 0.01)
    if not path.with_name("book.db-wal").exists():
        return  # a file without a log is replaced while it is read
    with (
        read_state_file(path, OLD),
        pytest.raises(InputError, match="another process is reading it"),
    ):
        upgrade(path)
    assert notes_in(path, OLD) == NOTES


def test_a_full_disk_changes_nothing(path: Path) -> None:
    """Wherever the space ends, the old file stays the state, and the command can be repeated."""
    size, before = sum(map(len, contents(path.parent).values())), resource.RLIMIT_FSIZE
    limits = resource.getrlimit(before)
    for most in range(0, size, 1 << 12):
        resource.setrlimit(before, (most, limits[1]))
        try:
            upgrade(path)
        except StoreFailed as error:
            assert "run the command again" in str(error)  # noqa: PT017  (most sizes suffice)
        else:
            break
        finally:
            resource.setrlimit(before, limits)
        assert notes_in(path, OLD) == NOTES
        left = {each.name for each in path.parent.iterdir()}
        assert left <= {"book.db", "book.db.lock", "book.db-wal", "book.db-shm"}
    assert most > 0
    assert notes_in(path) == NOTES


def test_going_back_forgets_nothing(path: Path) -> None:
    """The kept copy becomes the state again, but not once a note was added to the new one."""
    kept = upgrade(path).kept
    assert undo_upgrade(path, [NEW], {}) == kept
    assert notes_in(path, OLD) == NOTES
    add(path, OLD)
    with pytest.raises(InputError, match="there is no kept copy"):
        undo_upgrade(path, [NEW], {})
    upgrade(path)
    add(path, NEW, "d")
    before = contents(path.parent)
    with pytest.raises(InputError, match=r"has changed since its upgrade, in notes: .*Go on"):
        undo_upgrade(path, [NEW], {})
    assert contents(path.parent) == before
    assert undo_upgrade(path, [NEW], {}, ignored=["notes"]) == kept
    assert notes_in(path, OLD).keys() == {"a", "b", "c"}


def test_an_error_after_the_rename_says_what_is_done(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file was replaced, and the same command completes it; a dry run and a start do not."""
    with monkeypatch.context() as patched:
        patched.setattr("veilring.privacy.upgrade._complete", _fail)
        with pytest.raises(
            StoreFailed, match=r"book.db was replaced, but .* not complete: no disk"
        ):
            upgrade(path)
    for refuse in (partial(upgrade, dry_run=True), partial(notes_in, section=NEW)):
        with pytest.raises(InputError, match=r"is a draft of .* run the same command again"):
            refuse(path)
    draft = path.with_name("other.db")
    shutil.copyfile(path, draft)
    with pytest.raises(InputError, match=r"is a draft of .* Otherwise delete"):
        upgrade(draft)  # which no command has put there
    assert upgrade(path).changes == ("the upgrade that was stopped is complete now",)
    assert upgrade(path).changes == ()
    assert notes_in(path) == NOTES


def _fail(*_: object) -> None:
    raise OSError("no disk")


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="needs root")
def test_root_leaves_the_owner_and_the_mode(path: Path) -> None:
    """The party's own user can open what root has converted for it, and the lock beside it."""
    path.with_name("book.db.lock").unlink()
    if path.with_name("book.db-wal").exists():
        return  # without its lock, a file needs no log to be complete
    os.chown(path, 12345, 54321)
    path.chmod(0o640)
    kept = upgrade(path).kept
    assert kept is not None
    for each in (path, kept, path.with_name("book.db.lock")):
        found = each.stat()
        assert (found.st_uid, found.st_gid) == (12345, 54321)
        assert found.st_mode & 0o777 == (0o600 if each.suffix == ".lock" else 0o640)


def test_a_copy_of_another_file_is_not_replaced(path: Path) -> None:
    """A file that has the name of the copy stays."""
    other = path.with_name("book.db.format-4")
    open_state_file(other, OLD, new=True).close()
    with pytest.raises(InputError, match="exists and is no copy of"):
        upgrade(path)
    assert notes_in(other, OLD) == {}
    assert notes_in(path, OLD) == NOTES


@pytest.mark.slow
@pytest.mark.parametrize("path", ["killed"], indirect=True)
@pytest.mark.parametrize("undo", [False, True])
def test_a_kill_leaves_the_old_file_or_the_new_one(path: Path, *, undo: bool) -> None:
    """Killed at any step, one of the two is the state, or a draft that the same command completes.

    No other file beside it is ever opened, and the command can be repeated.
    """
    fork = multiprocessing.get_context("forkserver")
    warm_up()
    if undo:
        upgrade(path)
    folder = path.parent.rename(path.parent.with_name("sound"))
    now = OLD if undo else NEW
    seen = set[int]()
    for moment in count():
        shutil.rmtree(path.parent, ignore_errors=True)
        shutil.copytree(folder, path.parent)
        process = fork.Process(target=_change_and_die, args=(path, moment, undo))
        process.start()
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        opened = {
            (each.name, section.version)
            for each in path.parent.glob("*")
            for section in (OLD, NEW)
            if not each.name.endswith((".lock", "-wal", "-shm")) and _is_open_to(each, section)
        }
        assert len(opened) <= 1
        assert {name for name, _ in opened} <= {path.name}
        seen |= {version for _, version in opened} or {0}
        if not opened:
            with pytest.raises(InputError, match=r"is a draft of .* run the same command again"):
                open_state_file(path, now)
        if opened != {(path.name, now.version)}:
            _change(path, undo=undo)
        assert notes_in(path, now) == NOTES
    assert seen == {0, 1, 2}
    assert moment > 20, "the process was killed at many steps"


def _change(path: Path, *, undo: bool) -> None:
    undo_upgrade(path, [NEW], {}) if undo else upgrade(path)


def _is_open_to(path: Path, section: Section) -> bool:
    try:
        return notes_in(path, section) == NOTES
    except InputError:
        return False


def _change_and_die(path: Path, moment: int, undo: bool) -> None:
    """Change a file, and be killed at a change of files, or at either end of a transaction."""
    moments, connect = count(), sqlite3.connect

    def passed(event: str, *_: object) -> None:
        files = "os.re", "os.ch", "sqlite3.connect"
        changes = *files, "BEGIN", "COMMIT", "UPDATE", "PRAGMA journal_mode =", "PRAGMA app"
        if event.startswith(changes) and next(moments) == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def connected(*given: Any, **settings: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*given, **settings)
        connection.set_trace_callback(passed)
        return connection

    sys.addaudithook(passed)
    with patch("sqlite3.connect", connected):
        _change(path, undo=undo)
    os._exit(0)

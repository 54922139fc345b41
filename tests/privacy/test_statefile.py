"""State files: damaged, truncated, removed, moved or doubly written files are refused."""

import gc
import multiprocessing
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilring.errors import InputError, StoreFailed
from veilring.nodes.runtimes.processes import warm_up
from veilring.privacy.statefile import (
    Section,
    StateFile,
    open_state_file,
    read_state_file,
    require_unused,
)

SCHEMA = (
    "CREATE TABLE notes (name TEXT PRIMARY KEY, pages INTEGER NOT NULL, text BLOB NOT NULL);"
    "CREATE INDEX by_pages ON notes (pages);"
)
WRITE = "INSERT INTO notes VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET text = excluded.text"
FORMAT = Section("notebook", 1, SCHEMA, ("notes",), "all notes are lost")
# Of each file of a notebook; VEILRING_DAMAGES=200 takes a minute.
PLACES = int(os.environ.get("VEILRING_DAMAGES", "40"))
NOTES = {f"note {number}": bytes([number]) * (40 * number) for number in range(60)}
WAYS = ("closed", "killed", "killed after its log was moved into it")


def write(file: StateFile, name: str, text: bytes) -> None:
    """Write a note, or a new text for it."""
    with file.transaction() as connection:
        connection.execute(WRITE, (name, len(text) // 100, text))


def add(path: Path, name: str = "a", text: bytes = b"b", *, new: bool = False) -> None:
    """Open a file, or create it, write a note and close it again."""
    with closing(open_state_file(path, FORMAT, new=new)) as file:
        write(file, name, text)


def change(path: Path, *statements: str) -> None:
    """Change a closed file by hand."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def notes_in(connection: sqlite3.Connection) -> dict[str, bytes]:
    """Return all notes."""
    return dict(connection.execute("SELECT name, text FROM notes").fetchall())


def reopened(path: Path) -> dict[str, bytes]:
    """Return the notes of a file that is opened for writing and closed again."""
    with closing(open_state_file(path, FORMAT)) as file:
        return notes_in(file.connection)


def notebook(folder: Path, way: str) -> Path:
    """Create a file with all notes, in the state left by a process that ended in a given way."""
    live, left = folder / "live" / "notebook", folder / "left"
    live.parent.mkdir(parents=True)
    file = open_state_file(live, FORMAT, new=True)
    for name, text in NOTES.items():
        write(file, name, text)
    if way == "killed after its log was moved into it":
        file.wipe()
    if way == "closed":
        file.close()
    shutil.copytree(live.parent, left)  # the files of a process that is killed now
    file.close()
    shutil.rmtree(live.parent)
    return left / "notebook"


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files with content; the log's index is rebuilt at each start."""
    files = (each for each in folder.iterdir() if not each.name.endswith("-shm"))
    return {each.name: content for each in files if (content := each.read_bytes())}


@pytest.mark.parametrize("way", WAYS)
def test_an_untouched_file_has_everything(tmp_path: Path, way: str) -> None:
    """The file is complete for any end of its process, and when opened again."""
    path = notebook(tmp_path, way)
    for _ in range(2):
        assert reopened(path) == NOTES
        with read_state_file(path, FORMAT) as connection:
            assert notes_in(connection) == NOTES


def _flip(content: bytes, where: int) -> bytes:
    byte, bit = divmod(where, 8)
    return content[:byte] + bytes([content[byte] ^ 1 << bit]) + content[byte + 1 :]


def _cut(content: bytes, where: int) -> bytes:
    return content[: where // 8]


@pytest.mark.parametrize("damage", [_flip, _cut])
@pytest.mark.parametrize("way", WAYS)
def test_damage_is_refused_or_changes_nothing(
    tmp_path: Path, way: str, damage: Callable[[bytes, int], bytes]
) -> None:
    """A flipped bit or a missing end in any file never loses data silently."""
    path, random = notebook(tmp_path, way), Random(3)
    folder, refused = path.parent, 0
    sound = contents(folder)
    for name, content in sound.items():
        bits = 8 * len(content)
        for where in {0, bits - 1, *(random.randrange(bits) for _ in range(PLACES))}:
            shutil.rmtree(folder)
            folder.mkdir()
            for each, whole in sound.items():
                (folder / each).write_bytes(whole)
            (folder / name).write_bytes(damage(content, where))
            before = contents(folder)
            try:
                assert reopened(path) == NOTES, (name, where)
            except StoreFailed as error:
                refused += str(error).startswith(str(path))
                after = contents(folder)
                after.pop("notebook.lock", None)  # an empty one is begun
                assert after.items() <= before.items(), "a refused file is left as it is"
    assert refused > PLACES // 4, "damage is found"


def test_a_schema_that_is_not_text_is_refused(tmp_path: Path) -> None:
    """Errors raised by SQLite's module itself are converted as well."""
    path = notebook(tmp_path, "closed")
    sound = contents(path.parent)
    start = sound["notebook"].index(b"CREATE TABLE notes")
    for byte in range(start, start + 60, 3):
        for name, content in sound.items():
            (path.parent / name).write_bytes(content)
        path.write_bytes(_flip(sound["notebook"], 8 * byte + 7))
        with pytest.raises(StoreFailed, match="notebook is damaged"):
            open_state_file(path, FORMAT)
        with pytest.raises(StoreFailed, match="notebook is damaged"), read_state_file(path, FORMAT):
            pass


ALONE = ("notebook-wal", "notebook-shm", "notebook.lock")
NEEDED = {
    *((("notebook",), way) for way in WAYS),
    (("notebook-wal",), "killed"),
    (("notebook.lock",), "killed after its log was moved into it"),  # there may have been a log
    *((ALONE, way) for way in WAYS if way != "closed"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("gone", [("notebook",), *((name,) for name in ALONE), ALONE], ids=str)
def test_a_removed_file_loses_nothing(tmp_path: Path, way: str, gone: tuple[str, ...]) -> None:
    """Without the main file or a required log it is refused; otherwise it opens.

    Moved without the others, the main file opens only if it was closed properly.
    """
    path = notebook(tmp_path, way)
    for name in gone:
        (path.parent / name).unlink(missing_ok=True)
    if (gone, way) not in NEEDED:
        assert reopened(path) == NOTES
        return
    said = "was in use when it was copied" if gone == ALONE else "missing|not complete"
    with pytest.raises(StoreFailed, match=rf"notebook.* ({said})"):
        open_state_file(path, FORMAT)
    if gone == ALONE:
        (path.parent / "notebook.lock").unlink()
        with pytest.raises(StoreFailed, match=said), read_state_file(path, FORMAT):
            pass


def test_an_older_copy_and_another_file_are_refused(tmp_path: Path) -> None:
    """Neither an older copy nor another file is accepted in its place."""
    path, older, other = tmp_path / "notebook", tmp_path / "older", tmp_path / "other"
    open_state_file(path, FORMAT, new=True).close()
    open_state_file(other, FORMAT, new=True).close()
    shutil.copy(path, older)
    add(path)
    shutil.copy(older, path)
    with pytest.raises(StoreFailed, match="its last 1 transactions are missing"):
        open_state_file(path, FORMAT)
    shutil.copy(other, path)
    with pytest.raises(StoreFailed, match="is not the notebook recorded"):
        open_state_file(path, FORMAT)


def test_a_second_writer_stops_the_first(path: Path) -> None:
    """If the lock file is removed, another process's writes are never overwritten."""
    first = open_state_file(path, FORMAT, new=True)
    write(first, "a", b"of the first")
    with pytest.raises(InputError, match="is locked"):
        open_state_file(path, FORMAT)
    path.with_name("state.lock").unlink()
    with closing(open_state_file(path, FORMAT)) as second:
        write(second, "b", b"of the second")
        with pytest.raises(StoreFailed, match="another process has written to"):
            write(first, "a", b"of the first again")
        assert notes_in(second.connection) == {"a": b"of the first", "b": b"of the second"}


def test_a_long_reader_delays_no_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """During an endless read, transactions continue, and the main file stays incomplete.

    A closed file is not opened for writing while it is read, and nothing is lost.
    """
    monkeypatch.setattr("veilring.privacy.statefile.BUSY_SECONDS", 1e6)
    monkeypatch.setattr("veilring.privacy.statefile.READER_SECONDS", 0.01)
    copy = path.with_name("copy")
    with closing(open_state_file(path, FORMAT, new=True)) as file:
        with read_state_file(path, FORMAT) as reader:
            write(file, "a", b"b")
            shutil.copy(path, copy)
            assert notes_in(reader) == {}
        with pytest.raises(StoreFailed, match="was in use when it was copied"):
            open_state_file(copy, FORMAT)
    being_read = pytest.raises(InputError, match="another process is reading it")
    with read_state_file(path, FORMAT), being_read:
        open_state_file(path, FORMAT)
    assert reopened(path) == {"a": b"b"}


@pytest.mark.slow
def test_a_kill_during_creation_leaves_a_usable_file(tmp_path: Path) -> None:
    """Killed before any statement, it left an empty file, or none, which can be created again."""
    fork, path = multiprocessing.get_context("forkserver"), tmp_path / "notebook"
    warm_up()
    for statement in count():
        process = fork.Process(target=_open_and_die, args=(path, statement))
        process.start()
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        with closing(open_state_file(path, FORMAT, new=not path.exists())) as file:
            assert notes_in(file.connection) == {}
            write(file, "a", b"b")
        for each in tmp_path.iterdir():
            each.unlink()
    assert statement > 10, "the process was killed at many statements"


def _open_and_die(path: Path, statement: int) -> None:
    statements, connect = count(), sqlite3.connect

    def traced(_statement: str) -> None:
        if next(statements) == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    def connected(path: Path, **settings: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(path, **settings)
        connection.set_trace_callback(traced)
        return connection

    with patch("sqlite3.connect", connected):
        open_state_file(path, FORMAT, new=True)
    os._exit(0)  # without closing it


def test_a_transaction_that_fails_changes_neither_rows_nor_seal(path: Path) -> None:
    """A failure closes the file; reopened, it is sound and has its previous content."""
    file = open_state_file(path, FORMAT, new=True)
    write(file, "a", b"kept")
    two = "INSERT INTO notes VALUES ('b', 1, x'00'), ('c', 1, NULL)"
    with pytest.raises(sqlite3.IntegrityError), file.transaction() as connection:
        connection.execute(two)
    with pytest.raises(InputError, match="closed"):
        file.require_open()
    assert reopened(path) == {"a": b"kept"}


STATEMENTS = (
    "INSERT OR IGNORE INTO notes VALUES (:name, :pages, :text)",
    "INSERT OR REPLACE INTO notes VALUES (:name, :pages, :text)",
    "INSERT INTO notes VALUES (:name, :pages, :text) ON CONFLICT DO UPDATE SET pages=9",
    "UPDATE notes SET text = :text WHERE pages = :pages",
    "DELETE FROM notes WHERE name = :name",
    "DELETE FROM notes",
)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2)
VALUES = {"name": st.sampled_from("abc"), "pages": NUMBERS, "text": st.binary(max_size=3)}
STEP = st.tuples(st.sampled_from(STATEMENTS), st.fixed_dictionaries(VALUES))


@pytest.mark.slow
@settings(deadline=None, max_examples=60, derandomize=True)
@given(steps=st.lists(STEP, max_size=8))
def test_the_seal_follows_every_statement(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, dict[str, object]]]
) -> None:
    """Rows that are inserted, ignored, replaced, changed or deleted leave a file that opens."""
    path = tmp_path_factory.mktemp("seal") / "notebook"
    with closing(open_state_file(path, FORMAT, new=True)) as file:
        for statement, values in steps:
            with file.transaction() as connection:
                connection.execute(statement, values)
        kept = notes_in(file.connection)
    assert reopened(path) == kept


def test_a_manually_changed_row_is_detected(tmp_path: Path) -> None:
    """SQLite detects nothing, but the seal does; nor can a table be omitted."""
    for statement in ("UPDATE notes SET text = x'01'", "DELETE FROM notes", "DROP INDEX by_pages"):
        path = tmp_path / statement[:6]
        add(path, new=True)
        change(path, statement)
        for _ in range(2):  # the lock is released
            with pytest.raises(StoreFailed, match=f"{path} is damaged .*Restore your newest copy"):
                open_state_file(path, FORMAT)


@pytest.mark.parametrize(
    ("kind", "version", "said"),
    [
        (None, 0, "notebook of format 0, of an older version of veilring; this version reads"),
        (None, 2, "notebook of format 2, of a newer version of veilring; this version reads"),
        # Before all state of a party was in one file, each kind had its own.
        (0x5645494C, 3, "ledger of format 3, of an older version"),
        (0x7665696C, 1, "store of reports of format 1, of an older version"),
        (0x7665696D, 1, "survey client's outbox of format 1, of an older version"),
        (0x7665696E, 1, "memory of queries of format 1, of an older version"),
    ],
)
def test_another_version_is_named(path: Path, kind: int | None, version: int, said: str) -> None:
    """A healthy file of another format is not called damaged, and is left as it is."""
    if kind is None:
        open_state_file(path, replace(FORMAT, version=version), new=True).close()
    else:
        numbers = f"PRAGMA application_id = {kind}", f"PRAGMA user_version = {version}"
        change(path, *numbers, "CREATE TABLE settings (name TEXT)")
    content = path.read_bytes()
    with pytest.raises(InputError, match=f"a {said}") as refused:
        open_state_file(path, FORMAT)
    assert "damaged" not in str(refused.value)
    assert path.read_bytes() == content


def test_sections_share_a_file_and_its_seal(path: Path) -> None:
    """A process that uses one section keeps the other as it is, and notices a change of it."""
    other = Section("index", 1, "CREATE TABLE words (word TEXT);", ("words",), "no word is found")
    with closing(open_state_file(path, FORMAT, other, new=True)) as file:
        write(file, "a", b"b")
        with file.transaction() as connection:
            connection.execute("INSERT INTO words VALUES ('b')")
    with closing(open_state_file(path, other)) as file, file.transaction() as connection:
        connection.execute("INSERT INTO words VALUES ('c')")
    with closing(open_state_file(path, FORMAT)) as file:
        write(file, "a", b"c")
        assert file.connection.execute("SELECT word FROM words").fetchall() == [("b",), ("c",)]
    with pytest.raises(InputError, match="a shelf of veilring; this file has: notebook, index"):
        open_state_file(path, replace(other, name="shelf"))
    change(path, "UPDATE words SET word = 'd' WHERE word = 'c'")
    with pytest.raises(StoreFailed, match="is damaged"):
        open_state_file(path, FORMAT)


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_is_removed_while_open_is_noticed(path: Path, tmp_path: Path, how: str) -> None:
    """Nothing is written to a file that nobody would find again."""
    file = open_state_file(path, FORMAT, new=True)
    write(file, "first", b"a")
    path.rename(tmp_path / "aside")
    if how == "replaced":
        shutil.copyfile(tmp_path / "aside", path)
    with pytest.raises(StoreFailed, match="was removed or replaced while it was open"):
        write(file, "second", b"b")


def test_a_file_is_begun_only_as_asked(path: Path, tmp_path: Path) -> None:
    """Without `new` a missing file is an error that leaves nothing behind, not even a lock.

    With `new` an existing file, or one whose lock remains, is an error, and is unchanged.
    """
    said = r"no notebook at .*may not be mounted.*all notes are lost"
    with pytest.raises(InputError, match=said):
        open_state_file(path, FORMAT)
    assert not list(tmp_path.iterdir())
    add(path, new=True)
    with pytest.raises(InputError, match=r"there is a notebook at .* already"):
        open_state_file(path, FORMAT, new=True)
    path.rename(tmp_path / "moved")
    with pytest.raises(StoreFailed, match=r"missing or empty, although state\.lock"):
        open_state_file(path, FORMAT, new=True)
    (tmp_path / "moved").rename(path)
    assert reopened(path) == {"a": b"b"}


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_in_memory_has_all_checks_and_changes_no_file(tmp_path: Path, way: str) -> None:
    """It is complete after any end of its writer, and is refused if the file is damaged or lost."""
    path = notebook(tmp_path, way)
    before = contents(path.parent)
    with closing(open_state_file(path, FORMAT, copy=True)) as file:
        assert notes_in(file.connection) == NOTES
        write(file, "of the copy", b"b")
        assert "of the copy" in notes_in(file.connection)
    assert contents(path.parent) == before
    require_unused(path)
    assert reopened(path) == NOTES
    change(path, "UPDATE notes SET pages = pages + 1")
    with pytest.raises(StoreFailed, match="its rows are not those that were written"):
        open_state_file(path, FORMAT, copy=True)
    path.unlink()
    with pytest.raises(StoreFailed, match="is missing or empty, although"):
        open_state_file(path, FORMAT, copy=True)


def test_a_file_in_use_can_be_copied_and_is_reported(path: Path) -> None:
    """The copy has what its writer has written so far."""
    with closing(open_state_file(path, FORMAT, new=True)) as file:
        write(file, "a", b"b")
        with closing(open_state_file(path, FORMAT, copy=True)) as copied:
            assert notes_in(copied.connection) == {"a": b"b"}
        with pytest.raises(InputError, match="is locked: another process is writing"):
            require_unused(path)
    require_unused(path)


def test_memory_needs_no_file() -> None:
    """An in-memory state file has the same transactions, and closes when nothing refers to it."""
    with closing(open_state_file(None, FORMAT)) as file:
        write(file, "a", b"b")
        assert notes_in(file.connection) == {"a": b"b"}
        with suppress(ZeroDivisionError), file.transaction():
            _ = 1 // 0
        with pytest.raises(InputError, match="notebook is closed"):
            write(file, "a", b"c")
    file = open_state_file(None, FORMAT)
    connection = file.connection
    del file
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")

"""The upgrade of a state file of an earlier format.

A draft beside the file is converted in one transaction from a copy of it, and checked like any file
that is opened. A copy of the old file is kept. Drafts and copies have a mark in their header, from
their first byte on, by which every version of veilring refuses them. Then one rename puts the draft
in the place of the old file, and its mark is removed. Until the rename the old file is the state,
unchanged, and afterwards the converted one. The same command begins an upgrade again that was
stopped before the rename, by whatever cause, and completes one that was stopped after it. The lock
of the file, which earlier versions take as well, is held from the beginning to the end.

The converted file has the id of the old one, and a transaction more: beside its witness, an earlier
copy of the old file is refused as incomplete, by the version that wrote it, too.
"""

import glob
import sqlite3
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from veilring.errors import InputError, StoreFailed
from veilring.privacy.files import keep_owner, sync_folder
from veilring.privacy.section import Section
from veilring.privacy.sections import (
    APPLICATION,
    DRAFT,
    EARLIER,
    FORMAT,
    KEPT,
    SECTIONS_SCHEMA,
    Content,
    State,
    another_format,
    format_of,
    missing_state,
    require_format,
    require_known,
    require_sealed,
    require_sections,
    seal_of,
    state_of,
    write_state,
)
from veilring.privacy.statefile import READER_SECONDS, being_read, copy_whole, inspected
from veilring.privacy.witness import Witness, connect_to_read, lock_path, primary_code

_FILE: Final = Content(())
_KEPT: Final = ".format-"  # the end of a copy's name, before the number of its format
_FIRST: Final = 1
"""The version of a section that a file of an earlier format is converted to."""


class Earlier(NamedTuple):
    """A format of files that were one section each, and had no table of sections.

    Attributes:
        section: The section that the file becomes.
        sealed: The sealed tables of the file.
        step: Like a `Step`, to the section's first version; it also gets the path of the file.
    """

    section: Section
    sealed: tuple[str, ...]
    step: Callable[[sqlite3.Connection, Path], Iterable[str]]


EarlierFormats: TypeAlias = Mapping[tuple[str, int], Earlier]
"""Earlier formats by the name of the section and the number of the format."""


class Upgrade(NamedTuple):
    """The changes of an upgrade that was made, or would be made.

    Attributes:
        changes: The formats before and after; empty if the file has today's formats.
        rows: The number of rows of each table afterwards.
        notes: The notes for the operator, in sentences.
        kept: The copy of the old file.
    """

    changes: tuple[str, ...]
    rows: Mapping[str, int] = {}
    notes: tuple[str, ...] = ()
    kept: Path | None = None


def upgrade_state_file(
    path: Path, sections: Sequence[Section], earlier: EarlierFormats, *, dry_run: bool = False
) -> Upgrade:
    """Convert a state file to today's formats, and keep a marked copy of the old one.

    Sections of other packages stay as they are.

    Args:
        sections: All sections of this version.
        dry_run: Whether to convert and check a draft only, and remove it.

    Raises:
        InputError: If it is in use, no state file, or of a format that cannot be converted.
        StoreFailed: If it is damaged or incomplete, or the disk failed.
    """
    path = path.resolve()
    draft = path.with_name(f"{path.name}.upgrade")
    with _locked(path, earlier, dry_run=dry_run) as (witness, completed), _removed(draft):
        source = _source(path, earlier)
        state = _inspected(path, source, witness)
        _copy(path, draft, DRAFT)
        upgrade = _converted(draft, path, source, sections)
        if completed == path and not upgrade.changes:
            return upgrade._replace(changes=("the upgrade that was stopped is complete now",))
        if not upgrade.changes:
            return upgrade
        kept = _kept(path, source.version)
        if not dry_run:
            _keep(path, kept, state.id)
            _replace(path, draft, witness)
        return upgrade._replace(kept=kept)


def undo_upgrade(
    path: Path,
    sections: Sequence[Section],
    earlier: EarlierFormats,
    *,
    ignored: Collection[str] = (),
) -> Path:
    """Put the kept copy of an upgraded file back, unless rows have changed since.

    Args:
        ignored: The tables that a process changes when it opens them, so that their changes may be
            forgotten.

    Returns:
        The former path of the copy.

    Raises:
        InputError: If there is no copy, or rows have changed: going back would forget that.
    """
    path = path.resolve()
    draft, again = (path.with_name(f"{path.name}.{end}") for end in ("undo", "upgrade"))
    with _locked(path, earlier) as (witness, completed), _removed(draft, again):
        if completed not in {None, path}:
            return completed
        state = _inspected(path, _source(path, earlier), witness)
        kept = _newest_kept(path, state.id)
        _copy(kept, draft, DRAFT)
        _copy(kept, again, DRAFT ^ KEPT)
        _converted(again, path, _source(kept, earlier, KEPT), sections)
        _require_same(path, again, kept, ignored)
        with _opened(draft) as connection:
            write_state(
                connection, state_of(connection)._replace(transactions=state.transactions + 1)
            )
        _replace(path, draft, witness)
    return kept


class _Source(NamedTuple):
    """The number of a file's format, and that format if it is an earlier one."""

    version: int
    earlier: Earlier | None


def _source(path: Path, earlier: EarlierFormats, mark: int = 0) -> _Source:
    """Read the header of a file, and refuse other programs' files, copies, and newer ones.

    Args:
        mark: The mark that the file has.
    """
    with closing(connect_to_read(path)) as connection:
        application, version = format_of(connection)
        name = EARLIER.get(application ^ mark)
        if name is None:
            if (application, version) != (APPLICATION ^ mark, FORMAT):
                require_format(connection, path, _FILE)
            return _Source(version, None)
    if (name, version) not in earlier:
        raise _no_way(path, name, version, FORMAT)
    return _Source(version, earlier[name, version])


def _inspected(path: Path, source: _Source, witness: Witness) -> State:
    """Check a file as the version that wrote it does on opening, and return its state."""
    if source.earlier is None:
        return inspected(path, _FILE, witness)
    kind, sealed = Content((source.earlier.section,)), source.earlier.sealed
    return inspected(path, kind, witness, earlier=sealed)


@contextmanager
def _locked(
    path: Path, earlier: EarlierFormats, *, dry_run: bool = False
) -> Iterator[tuple[Witness, Path | None]]:
    """Hold the lock of a file of veilring, and report errors of the disk.

    A command that was stopped after its rename is completed first, except by a dry run. Then the
    result of `_complete` is yielded, too.
    """
    if not path.is_file():
        raise missing_state(str(path), _FILE.name, _FILE.loss)
    is_new = not lock_path(path).exists()
    try:
        with _reported(f"{path} is as before"):
            is_draft = not (is_new or dry_run) and _mark_of(path) != 0
            if not is_draft:  # before a lock file is left beside a file of another program
                _source(path, earlier)
            with closing(Witness(path, _FILE.name)) as witness:
                if is_new:
                    keep_owner(witness.beside, path)
                yield witness, _completed(path, witness) if is_draft else None
    finally:
        if is_new and dry_run:
            lock_path(path).unlink(missing_ok=True)


@contextmanager
def _reported(so_far: str) -> Iterator[None]:
    """Report an error of the disk in a sentence.

    Args:
        so_far: The state of the work until then.
    """
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise StoreFailed(
            f"{so_far}: {error}. Nothing is lost. Check the disk and its free space, and run the"
            " command again"
        ) from error


@contextmanager
def _removed(*drafts: Path) -> Iterator[None]:
    """Remove drafts at the end; one that a kill has left is replaced by the next upgrade."""
    try:
        yield
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a draft, or a file whose log is moved into it."""
    connecting = sqlite3.connect(path, isolation_level=None, timeout=READER_SECONDS)
    with closing(connecting) as connection:
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA fullfsync = ON")  # macOS only: sync past the disk's own cache
        connection.execute("PRAGMA journal_mode = MEMORY")
        yield connection


def _copy(path: Path, to: Path, mark: int) -> None:
    """Copy a file with some bits of its mark changed, and with its owner and its mode.

    The copy is made from one in a nameless temporary file, which has the mark already. So there is
    no moment at which a kill leaves a copy without it.
    """
    with closing(connect_to_read(path)) as source, closing(sqlite3.connect("")) as nameless:
        source.backup(nameless)
        _change_mark(nameless, mark)
        copy_whole(nameless, to)
    keep_owner(to, path)
    to.chmod(stat.S_IMODE(path.stat().st_mode))


def _converted(draft: Path, path: Path, source: _Source, sections: Sequence[Section]) -> Upgrade:
    """Convert a draft of a file, check it, and return its changes."""
    changes, notes = list[str](), list[str]()
    with _opened(draft) as connection:
        connection.execute("BEGIN")
        if source.earlier is not None:
            name = source.earlier.section.name
            changes.append(f"{name} of format {source.version} → state file of format {FORMAT}")
            notes += source.earlier.step(connection, path)
            connection.execute(SECTIONS_SCHEMA)
            connection.execute("INSERT INTO sections VALUES (?, ?, '')", (name, _FIRST))
        found = dict(connection.execute("SELECT name, version FROM sections").fetchall())
        known = tuple(section for section in sections if section.name in found)
        for section in known:
            version = found[section.name]
            if version != section.version:
                changes.append(f"{section.name}: version {version} → {section.version}")
                notes += _raised(connection, path, section, version)
            row = section.version, " ".join(section.sealed), section.name
            connection.execute("UPDATE sections SET version = ?, sealed = ? WHERE name = ?", row)
        connection.execute(f"PRAGMA application_id = {APPLICATION ^ DRAFT}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        state = state_of(connection)
        seal, transactions = seal_of(connection), state.transactions + 1
        write_state(connection, State(state.id, transactions, seal))
        connection.execute("COMMIT")
        rows = {table: _count(connection, table) for table in _tables(connection)}
    _require_sound(draft, Content(known))
    return Upgrade(tuple(changes), rows, tuple(notes))


def _raised(
    connection: sqlite3.Connection, path: Path, section: Section, version: int
) -> list[str]:
    """Change the tables of a section from one version to today's, step by step."""
    notes = list[str]()
    if (
        not set(range(version, section.version)) <= section.steps.keys()
        or version > section.version
    ):
        raise _no_way(path, section.name, version, section.version)
    for step in range(version, section.version):
        notes += section.steps[step](connection)
    return notes


def _require_sound(draft: Path, kind: Content) -> None:
    with closing(connect_to_read(draft)) as connection:
        require_sections(connection, draft, kind)
        require_sealed(connection, draft, kind, state_of(connection))


def _tables(connection: sqlite3.Connection) -> list[str]:
    """Return the names of the tables of all sections."""
    every = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    names = [name for (name,) in connection.execute(every)]
    return [name for name in names if name not in {"statefile", "sections"}]


def _count(connection: sqlite3.Connection, table: str) -> int:
    (rows,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608  (a name of the file's own schema)
    return int(rows)


def _fold(path: Path) -> None:
    """Move a log into its file: beside another file it would be applied to that one."""
    try:
        with _opened(path):
            pass
    except sqlite3.OperationalError as error:
        if primary_code(error) == sqlite3.SQLITE_BUSY:
            raise being_read(_FILE) from None
        raise


def _keep(path: Path, kept: Path, file_id: bytes) -> None:
    """Keep a marked copy, in the place of a copy of the same file, if there is one."""
    if kept.exists() and _id_of(kept) != file_id:
        raise InputError.because(
            f"{kept} exists and is no copy of {path.name}; move it away", field=_FILE.name
        )
    part = kept.with_name(f"{kept.name}.part")
    with _removed(part):
        _copy(path, part, KEPT)
        part.replace(kept)
        sync_folder(kept.parent)


def _change_mark(connection: sqlite3.Connection, mark: int) -> None:
    """Change bits of the application id of a file."""
    application, _ = format_of(connection)
    connection.execute(f"PRAGMA application_id = {application ^ mark}")


def _mark_of(path: Path) -> int:
    """Return the mark of a draft, or 0 for any other file."""
    with closing(connect_to_read(path)) as connection:
        application, _ = format_of(connection)
    marks = (DRAFT, DRAFT ^ KEPT)
    return next((mark for mark in marks if application ^ mark in {APPLICATION, *EARLIER}), 0)


def _kept(path: Path, version: int) -> Path:
    """Return the path of the copy of a file of that format."""
    return path.with_name(f"{path.name}{_KEPT}{version}")


def _id_of(path: Path) -> bytes | None:
    with closing(connect_to_read(path)) as connection, suppress(sqlite3.DatabaseError):
        return state_of(connection).id
    return None


def _newest_kept(path: Path, file_id: bytes) -> Path:
    """Return the kept copy of the newest format."""
    copies = {
        int(kept.suffix.removeprefix(_KEPT)): kept
        for kept in path.parent.glob(f"{glob.escape(path.name)}{_KEPT}*")
        if kept.suffix.removeprefix(_KEPT).isdecimal() and _id_of(kept) == file_id
    }
    if not copies:
        raise InputError.because(
            f"there is no kept copy {path.name}{_KEPT}… of this file", field=_FILE.name
        )
    return copies[max(copies)]


def _require_same(path: Path, again: Path, kept: Path, ignored: Collection[str]) -> None:
    """Refuse to go back if rows have changed since the upgrade."""
    with closing(connect_to_read(path)) as now, closing(connect_to_read(again)) as then:
        before = set(_tables(then))
        tables = [table for table in _tables(now) if table not in ignored]
        seals = ((seal_of(then, (each,)) if each in before else 0) for each in tables)
        pairs = zip(tables, seals, strict=True)
        changed = [table for table, seal in pairs if seal_of(now, (table,)) != seal]
    if changed:
        raise InputError.because(
            f"{path} has changed since its upgrade, in {', '.join(changed)}: with {kept.name},"
            f" {_FILE.loss}. Go on with this version",
            field=_FILE.name,
        )


def _replace(path: Path, draft: Path, witness: Witness) -> None:
    """Put a draft in the place of its file."""
    with closing(connect_to_read(draft)) as connection:
        state = state_of(connection)
    _fold(path)
    if witness.known is None:  # by which a draft is recognised after the rename
        witness.write(state.id, state.transactions - 1)
    draft.replace(path)
    with _reported(f"{path} was replaced, but the command is not complete"):
        _complete(path, state, witness)


def _completed(path: Path, witness: Witness) -> Path:
    """Complete a command that was stopped after its rename; see `_complete`.

    A draft is refused if no rename by a command has put it in the place of the state.
    """
    with closing(connect_to_read(path)) as connection:
        state = state_of(connection)
        if witness.known is None or witness.known[0] != state.id:
            require_format(connection, path, _FILE)  # which says what to do
    if witness.known is not None:
        require_known(path, _FILE, state, witness.known)
    return _complete(path, state, witness)


def _complete(path: Path, state: State, witness: Witness) -> Path:
    """Make a draft the state that is in the place of the state, after its rename.

    Returns:
        The former path of the copy that an undo has put back; for an upgrade, the path itself.
    """
    sync_folder(path.parent)
    witness.write(state.id, state.transactions)
    mark, found = _mark_of(path), path
    with _opened(path) as connection:
        _, version = format_of(connection)
        if mark & KEPT:
            found = _kept(path, version)
            found.unlink(missing_ok=True)
        _change_mark(connection, mark)
    return found


def _no_way(path: Path, name: str, version: int, known: int) -> InputError:
    if version > known:
        return another_format(path, name, version, known, _FILE.loss)
    return InputError.because(
        f"{path} is a {name} of format {version}, which cannot be converted. Go on with the version"
        f" that wrote it: without it, {_FILE.loss}",
        field=name,
    )

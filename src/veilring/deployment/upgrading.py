"""The upgrade of a party's state: all sections, and the formats of earlier versions.

Until format 4, a ledger, a store of reports, an outbox and a memory of queries were each a file of
its own format. A prediction server had a folder, with a ledger and a file of rows.
"""

import math
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Final

from veilring.deployment.duties import load_config
from veilring.deployment.earlier_rows import read_rows
from veilring.deployment.gate import MEMBER_USAGE, USAGE
from veilring.deployment.surveys.terms import renamed_task
from veilring.deployment.trail import TRAIL, is_start, read_trail
from veilring.errors import ScenarioError, VeilringError
from veilring.privacy.budgets import UNITS, Limits, budget_units
from veilring.privacy.ledger import LEDGER
from veilring.privacy.upgrade import (
    Earlier,
    EarlierFormats,
    Upgrade,
    undo_upgrade,
    upgrade_state_file,
)
from veilring.protocols.ldp.outbox import OUTBOX
from veilring.protocols.ldp.store import URL_PREFIXES, rename_task
from veilring.protocols.ldp.store.sqlite import REPORTS
from veilring.protocols.prio.store import SHARES
from veilring.protocols.ranksearch.memory import QUERIES

SECTIONS: Final = (LEDGER, REPORTS, OUTBOX, QUERIES, SHARES, USAGE, MEMBER_USAGE, TRAIL)
"""All sections of state files, except those of other packages."""
# A start writes the budgets of a ledger, the space of charges, and the policy.
_OPENING: Final = ("settings", "policy")
_TOML: Final = ".toml"

# Files of a prediction server's folder. A ledger with the second name has the rows as well.
_FOLDERS_LEDGERS: Final = ("budgets.sqlite", "state.sqlite")
_FOLDERS_ROWS: Final = "rows.bin"
_STEPS: Final = "owner's steps of the file of rows"


def upgrade_state(target: Path, *, dry_run: bool = False) -> tuple[str, Upgrade]:
    """Convert the state of a party to today's formats.

    Args:
        target: The state file, the folder of an earlier prediction server, or the configuration.
        dry_run: Whether to change nothing.

    Returns:
        The place of the state, and what was changed.

    Raises:
        StoreFailed: If it is damaged or incomplete, or the disk failed.
    """
    state = _state_of(target)
    if isinstance(state, Path):
        return str(state), upgrade_state_file(state, SECTIONS, _EARLIER, dry_run=dry_run)
    encoded = rename_task(state, renamed_task, dry_run=dry_run)
    changes, notes = ("store of reports: its task",), (_renamed(encoded or b""),)
    return "the database", Upgrade(changes, notes=notes) if encoded else Upgrade(())


def undo_state_upgrade(target: Path) -> tuple[Path, Path]:
    """Go back to the copy that an upgrade kept, unless something was spent or stored since.

    Returns:
        The state file, and the former path of the copy.
    """
    state = _state_of(target)
    if isinstance(state, str):
        raise ScenarioError.because("a database has no kept copy", field="state")
    ignored = _OPENING + (TRAIL.sealed if _has_only_started(state) else ())
    return state, undo_upgrade(state, SECTIONS, _EARLIER, ignored=ignored)


def _has_only_started(state: Path) -> bool:
    """Return whether nothing happened since the upgrade but starts of the party."""
    with suppress(VeilringError), read_trail(state) as lines:
        return all(is_start(line) for line in lines)
    return False


def _state_of(target: Path) -> Path | str:
    """Return the state file at a path, in a folder, or of a configuration; or its database."""
    if target.suffix == _TOML and target.is_file():
        state: str = getattr(load_config(target), "state", "")
        if not state:
            raise ScenarioError.because("this party keeps no state", field="state")
        if state.startswith(URL_PREFIXES):
            return state
        target = Path(state)
    found = (target / name for name in _FOLDERS_LEDGERS)
    return next((path for path in found if path.exists()), target)


def _unchanged(_connection: sqlite3.Connection, _path: Path) -> Iterator[str]:
    yield from ()


def _ledger_of_format_2(connection: sqlite3.Connection, path: Path) -> Iterator[str]:
    """Add places with the rows of a prediction server, and count large budgets as today."""
    connection.execute("CREATE TABLE places (number INTEGER PRIMARY KEY, content BLOB NOT NULL)")
    steps, rows = _setting(connection, _STEPS), path.parent / _FOLDERS_ROWS
    if steps is not None or (path.name in _FOLDERS_LEDGERS and rows.exists()):
        found = read_rows(connection, rows, int(steps or 0))
        connection.executemany("INSERT INTO places VALUES (?, ?)", enumerate(found.places, 1))
        _set(connection, "owner's rows", f"{found.features} {found.schema.hex()}")
        yield (
            f"{sum(map(any, found.places)):,} records were copied from {rows.name} into the ledger."
            f" Those that are forgotten from now on stay in {rows.name} and in the kept copy:"
            " delete both once you no longer go back"
        )
    budgets = _setting(connection, "budgets")
    if budgets is not None:
        _set(connection, "budgets", _recounted(Limits.from_json(budgets)).to_json())
    yield from _unnamed_answers(connection, path)


def _unnamed_answers(connection: sqlite3.Connection, _path: Path) -> Iterator[str]:
    """Count the answers of members, which are named by a hash of terms."""
    find = "SELECT count(*) FROM answers WHERE units = 0 AND answer != x'' AND key NOT LIKE '% %'"
    ((count,),) = connection.execute(find).fetchall()
    if count:
        yield (
            f"{count:,} stored labels or releases of this member stay in the file. Under terms with"
            " another hash, such as those with renamed keys, no request finds them, and the same"
            " queries are charged again"
        )


def _rename_task(connection: sqlite3.Connection, _path: Path) -> Iterator[str]:
    """Encode the task of a store as today; its reports do not depend on that."""
    for (body,) in connection.execute("SELECT body FROM task").fetchall():
        encoded = renamed_task(body)
        if encoded != body:
            row = sha256(encoded).digest(), encoded
            connection.execute("UPDATE task SET digest = ?, body = ?", row)
            yield _renamed(encoded)


def _renamed(encoded: bytes) -> str:
    digest = sha256(encoded).hexdigest()
    return f"the hash of its task is now {digest}: set it where a client names `task`"


def _rename_reports(connection: sqlite3.Connection, _path: Path) -> Iterator[str]:
    """Rename a table of outboxes, which now has another name than that of a store."""
    find = (
        "SELECT sql FROM sqlite_master WHERE tbl_name = 'reports' AND sql != '' ORDER BY type DESC"
    )
    statements = [sql for (sql,) in connection.execute(find)]  # of the table and its index
    connection.execute("DROP INDEX waiting")
    for statement in statements:
        connection.execute(statement.replace(" reports ", " outgoing "))
    connection.execute("INSERT INTO outgoing SELECT * FROM reports")
    connection.execute("DROP TABLE reports")
    yield from ()


def _recounted(limits: Limits) -> Limits:
    """Return budgets in the units of the amounts that were given.

    Format 2 added 2**-50 of an amount, which is a unit or more for amounts above 1,125.
    """

    def given(units: int | None) -> int | None:
        for decimals in range(13):  # of a unit
            amount = round((units or 0) / UNITS, decimals)
            if units == math.floor(amount * UNITS * (1 + 2**-50)):
                return budget_units(amount, field="budgets")
        return units

    analysts = {name: given(units) or 0 for name, units in limits.analysts.items()}
    total, analyst, record = map(given, (limits.total, limits.analyst, limits.record))
    return replace(limits, total=total, analyst=analyst, analysts=analysts, record=record)


def _setting(connection: sqlite3.Connection, name: str) -> str | None:
    find = "SELECT CAST(value AS TEXT) FROM settings WHERE name = ?"
    row = connection.execute(find, (name,)).fetchone()
    return None if row is None else str(row[0])


def _set(connection: sqlite3.Connection, name: str, value: str) -> None:
    insert = "INSERT OR REPLACE INTO settings VALUES (?, ?)"
    connection.execute(insert, (name, value.encode()))


_EARLIER: Final[EarlierFormats] = {
    (LEDGER.name, 2): Earlier(LEDGER, LEDGER.sealed[:-1], _ledger_of_format_2),
    (LEDGER.name, 3): Earlier(LEDGER, LEDGER.sealed, _unnamed_answers),
    (REPORTS.name, 1): Earlier(REPORTS, REPORTS.sealed, _rename_task),
    (OUTBOX.name, 1): Earlier(OUTBOX, ("naming", "rows", "reports"), _rename_reports),
    (QUERIES.name, 1): Earlier(QUERIES, QUERIES.sealed, _unchanged),
}
"""The formats of files until 3, from those on that had a seal."""

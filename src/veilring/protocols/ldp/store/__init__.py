"""Stores of reports: SQLite, or PostgreSQL by URL."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from veilring.extras import require_extra
from veilring.protocols.ldp.messages import Task
from veilring.protocols.ldp.store.base import Store
from veilring.protocols.ldp.store.sqlite import SqliteStore, begin_sqlite

URL_PREFIXES: Final = ("postgresql://", "postgres://")


def begin_report_store(where: str) -> None:
    """Create a store without reports, which belongs to the first task that opens it.

    Raises:
        StoreFailed: If the database cannot be reached, or the file existed.
    """
    if where.startswith(URL_PREFIXES):
        require_extra("psycopg")
        from veilring.protocols.ldp.store.postgres import begin_postgres

        begin_postgres(where)
    else:
        begin_sqlite(Path(where))


def rename_task(
    url: str, encode: Callable[[bytes], bytes], *, dry_run: bool = False
) -> bytes | None:
    """Replace the encoding of a task in a PostgreSQL store; see `rename_postgres_task`."""
    require_extra("psycopg")
    from veilring.protocols.ldp.store.postgres import rename_postgres_task

    return rename_postgres_task(url, encode, dry_run=dry_run)


def open_report_store(where: str, task: Task, *, read_only: bool = False) -> Store:
    """Open the database of reports to a task.

    Args:
        read_only: Whether to open the database only for reading, for estimates.

    Raises:
        StoreFailed: If the database cannot be reached.
    """
    if where.startswith(URL_PREFIXES):
        require_extra("psycopg")
        from veilring.protocols.ldp.store.postgres import PostgresStore

        return PostgresStore(where, task, read_only=read_only)
    return SqliteStore(Path(where), task, read_only=read_only)

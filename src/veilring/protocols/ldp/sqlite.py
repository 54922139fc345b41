"""What both SQLite files of a collection have in common: a collector's store, a client's outbox."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from veilring.errors import StoreFailed

__all__ = ("as_store_failed", "transaction")


@contextmanager
def as_store_failed(
    what: str, path: Path | None = None, errors: tuple[type[Exception], ...] = (sqlite3.Error,)
) -> Iterator[None]:
    """Raise some errors as `StoreFailed`, which names the file if it is given."""
    try:
        yield
    except errors as error:
        where = f" {path}" if path else ""
        raise StoreFailed(f"{what}{where}: {error}") from error


@contextmanager
def transaction(database: sqlite3.Connection, *, read_only: bool = False) -> Iterator[None]:
    """Do all that is done in the block, durably, or nothing of it."""
    database.execute("BEGIN" if read_only else "BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise

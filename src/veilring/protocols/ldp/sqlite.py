"""What both SQLite files of a collection have in common: a collector's store, a client's outbox."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from veilring.errors import StoreFailed


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

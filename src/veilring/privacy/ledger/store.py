"""The ledger's file: its tables, and what is said of a file that cannot be opened or read."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from veilring.errors import StoreFailed
from veilring.privacy.statefile import (
    MEMORY,
    Format,
    StateFile,
    back_up,
    open_state_file,
    read_state_file,
)

_SCHEMA: Final = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE analysts (
    name TEXT PRIMARY KEY, spent INTEGER NOT NULL, answers INTEGER NOT NULL
);
CREATE TABLE answers (
    analyst TEXT NOT NULL, key TEXT NOT NULL, request BLOB NOT NULL, answer BLOB NOT NULL,
    units INTEGER NOT NULL, PRIMARY KEY (analyst, key)
);
CREATE TABLE records (
    number INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, live INTEGER NOT NULL
);
CREATE TABLE blocks (number INTEGER PRIMARY KEY, units BLOB NOT NULL);
CREATE TABLE journal (number INTEGER PRIMARY KEY, slots BLOB NOT NULL, units BLOB NOT NULL);
"""

_FORMAT: Final = Format(
    name="ledger",
    application=0x5645494C,  # "VEIL"
    version=2,
    schema=_SCHEMA,
    sealed=("settings", "analysts", "answers", "records", "blocks", "journal"),
    loss="what was spent is forgotten, and every budget is whole again",
)


def open_store(path: Path | None) -> StateFile:
    """Open a ledger for writing, or begin it: see `open_state_file`."""
    return open_state_file(path, _FORMAT)


@contextmanager
def read_store(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a ledger for reading; its writer goes on undisturbed: see `read_state_file`.

    Raises:
        InputError: If there is none.
        StoreFailed: If the disk failed, or the file is damaged or not complete.
    """
    try:
        with read_state_file(path, _FORMAT) as connection:
            yield connection
    except sqlite3.Error as error:
        raise unreadable(path, error) from error


def back_up_ledger(path: Path, to: Path) -> None:
    """Copy a ledger into one file, while its writer goes on.

    Args:
        path: The ledger.
        to: Where the copy is to be; nothing is there.

    Raises:
        InputError: If there is no ledger, or something is where the copy is to be.
        StoreFailed: If the disk failed, or the ledger is damaged or not complete.
    """
    try:
        back_up(path, to, _FORMAT)
    except sqlite3.Error as error:
        raise unreadable(path, error) from error


def unreadable(path: Path | None, error: Exception) -> StoreFailed:
    """Return what to say of a ledger that cannot be opened or read."""
    return StoreFailed(
        f"{path or MEMORY}: {error}. Check the disk, and who may write there. If the file is "
        f"damaged, put back the newest copy that you have: without it {_FORMAT.loss}"
    )

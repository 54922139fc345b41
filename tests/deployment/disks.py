"""Failures of a server's disk, which affect a state file until the context is left."""

import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Final

Fault = Callable[[Path, int], AbstractContextManager[object]]
"""Makes a state file fail for the process that writes it: `fault(path, pid)`."""


_OPENED_BYTES: Final = 32_768
"""The size of the index of a log, which opening a state file writes."""


@contextmanager
def _locked(path: Path, _pid: int) -> Iterator[None]:
    """Hold SQLite's own lock, as another program may while reading the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def _full(path: Path, pid: int) -> Iterator[None]:
    """Prevent all files of the process from growing, as on a full disk."""
    log = path.with_name(f"{path.name}-wal")
    most = log.stat().st_size if log.exists() else _OPENED_BYTES
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # a process that ended needs none
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


FAULTS: Final[dict[str, Fault]] = {"locked": _locked, "full": _full}

"""The journal of a sweep: each cell that is finished, one line of JSON, so that none is done twice.

The first line says which sweep it is. A line is handed to the operating system as soon as its cell
is finished, and so survives the death of the process; the disk is waited for once in a while, and
so the death of the machine costs at most `SYNC_SECONDS` of work.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final

from veilring.errors import InputError
from veilring.scenarios.sweep.cells import Outcome

# A disk takes milliseconds to confirm a write, as long as a small cell takes; once a second that
# costs nothing, and nobody minds the loss of a second.
SYNC_SECONDS: Final = 1.0


class Journal:
    """The outcomes that are kept.

    Args:
        path: Where it is.
        file: Opened for appending, unbuffered, after its last whole line.
        outcomes: What it holds already, by the cell's name.
        clock: Gives seconds.
    """

    def __init__(
        self,
        path: Path,
        file: IO[bytes],
        outcomes: Mapping[str, Outcome],
        clock: Callable[[], float],
    ) -> None:
        self.path = path
        self._file, self._outcomes, self._clock = file, dict(outcomes), clock
        self._synced = clock()

    @property
    def outcomes(self) -> Mapping[str, Outcome]:
        """What it holds, by the cell's name."""
        return MappingProxyType(self._outcomes)

    def append(self, outcome: Outcome) -> None:
        """Keep an outcome."""
        _write(self._file, asdict(outcome))
        self._outcomes[outcome.cell] = outcome
        if self._clock() - self._synced >= SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Return when the disk has it all."""
        os.fsync(self._file.fileno())
        self._synced = self._clock()


@contextmanager
def open_journal(
    path: Path, sweep: Mapping[str, Any], clock: Callable[[], float] = time.monotonic
) -> Iterator[Journal]:
    """Open a sweep's journal, or begin it.

    Args:
        path: Where it is. Its folder exists.
        sweep: What makes this sweep what it is, as JSON has it.
        clock: Gives seconds.

    Raises:
        InputError: If it is another sweep's, is in use, or is no journal.
    """
    with path.open("ab+", buffering=0) as file:
        _lock(file, path)
        lines = _whole_lines(file)
        if len(lines) > 1:
            _require_same(path, _parse(path, 1, lines[0]), sweep)
        else:  # without a cell it is nobody's
            file.truncate(0)
            _write(file, sweep)
        numbered = enumerate(lines[1:], start=2)
        outcomes = (_outcome(path, number, line) for number, line in numbered)
        journal = Journal(path, file, {each.cell: each for each in outcomes}, clock)
        journal.sync()
        try:
            yield journal
        finally:
            journal.sync()
            file.close()
            if not journal.outcomes:
                path.unlink()


def _lock(file: IO[bytes], path: Path) -> None:
    if sys.platform == "win32":
        return
    import fcntl  # noqa: PLC0415  (Windows has none)

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        allowed = "a file that no other sweep is writing"
        raise InputError("out", f"in use: {path} is locked", allowed) from None


def _whole_lines(file: IO[bytes]) -> list[bytes]:
    """Return the lines and cut off what is left of one that was not finished."""
    file.seek(0)
    content = file.read()
    whole = content.rfind(b"\n") + 1
    file.truncate(whole)
    return content[:whole].splitlines()


def _write(file: IO[bytes], entry: Mapping[str, Any]) -> None:
    line = memoryview(json.dumps(entry).encode() + b"\n")
    while line:
        line = line[file.write(line) :]


def _parse(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        entry = None
    if not isinstance(entry, dict):
        found = f"{path}, whose line {number} is no entry"
        raise InputError("journal", found, "what a sweep wrote; remove it to begin anew")
    return entry


def _outcome(path: Path, number: int, line: bytes) -> Outcome:
    entry = _parse(path, number, line)
    try:
        return Outcome(**entry)
    except TypeError:
        found = f"{path}, whose line {number} is no cell"
        raise InputError("journal", found, "what a sweep wrote; remove it to begin anew") from None


def _require_same(path: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    for name in (*ours, *theirs):
        if theirs.get(name) != ours.get(name):
            was, now = json.dumps(theirs.get(name)), json.dumps(ours.get(name))
            found = f"another sweep's: in {path.name}, {name} is {was} and not {now}"
            allowed = "the same arguments to go on with that sweep, or another file"
            raise InputError("out", found, f"{allowed}; remove {path} to give it up")

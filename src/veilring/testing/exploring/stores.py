"""Worlds of stores: the durability of a server's data on a disk that fails.

A store is opened in a folder and used, and the operations that it acknowledged are counted. A fault
strikes at a random moment, between two SQLite statements or two writes to a file of rows:

- ``kill``: the process ends there; everything it had written is on the disk.
- ``torn write``: between that moment and the next, only a part of one file's write is stored.
- ``lost sync``: one file is in an earlier state; the others are not.
- ``full disk``: no file can grow beyond its size, or only a little.
- ``bit flip``: one bit of one file is flipped.

Then the store is opened again. It must contain every acknowledged operation, and the operation
under way either completely or not at all. A damaged store may instead be refused, and must then
stay refused.
"""

import resource
import shutil
import sqlite3
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar, get_args

from numpy.random import Generator

from veilring.errors import StoreFailed, VeilringError
from veilring.randomness import Streams
from veilring.testing.exploring.campaign import Campaign
from veilring.testing.exploring.worlds import Explored

_H = TypeVar("_H")

StorageFault = Literal["kill", "torn write", "lost sync", "full disk", "bit flip"]
"""The kinds of disk faults."""
STORAGE_FAULTS: Final[tuple[StorageFault, ...]] = get_args(StorageFault)

# Errors with which a failing disk may end an operation; the store is then closed.
_FAILURES: Final = (VeilringError, sqlite3.Error, OSError)
_OPERATIONS_MAX: Final = 6
# The maximum number of moments that a world records.
_MOMENTS_MAX: Final = 400
# The share of bit flips in a closed store: SQLite detects those in the log of an open one.
_CLOSED_SHARE: Final = 0.5
_SPARE_BYTES_MAX: Final = 8192
# SQLite rebuilds this index of its log.
_INDEX: Final = "-shm"
_IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108  (a temporary folder is made in it)

Files = dict[str, bytes]


class StoreSubject(ABC, Generic[_H]):
    """A store that is explored; its handle is the open store.

    Attributes:
        name: The name of the store.
    """

    name: str

    @abstractmethod
    def open(self, folder: Path) -> _H:
        """Open the store in a folder, or create it."""

    @abstractmethod
    def close(self, handle: _H) -> None:
        """Close the store."""

    @abstractmethod
    def watch(self, handle: _H, moment: Callable[[], None]) -> None:
        """Call `moment` before each statement or write."""

    @abstractmethod
    def use(self, handle: _H, number: int) -> None:
        """Do the operation of this number; it is acknowledged when this method returns."""

    @abstractmethod
    def find_wrong(self, handle: _H, acknowledged: int, *, doubtful: bool) -> list[str]:
        """Return the violations, one sentence each.

        Args:
            handle: The store, opened again.
            acknowledged: The number of acknowledged operations, which are the first ones.
            doubtful: Whether one more operation may have been done.
        """


class _Moments:
    """The files of a folder at each moment of some operations."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.files: list[tuple[Files, int]] = []
        self.acknowledged = 0

    def note(self) -> None:
        """Record the current files."""
        if len(self.files) < _MOMENTS_MAX:
            self.files.append((_read(self._folder), self.acknowledged))


def explore_stores(subjects: Iterable[StoreSubject[Any]], seeds: Iterable[int]) -> Campaign:
    """Explore stores: each seed is a world of one store and one fault.

    Args:
        subjects: The stores, which take turns.
    """
    stores, campaign = list(subjects), Campaign(classes=STORAGE_FAULTS)
    for seed in seeds:
        campaign.add(explore_store(stores[seed % len(stores)], seed))
    return campaign


def explore_store(
    subject: StoreSubject[Any], seed: int, *, kind: StorageFault | None = None
) -> Explored:
    """Use a store, let a fault strike, and open the store again.

    Args:
        subject: The store.
        seed: The seed of the operations and of the moment of the fault.
        kind: The class of the fault; drawn by default.
    """
    rng = Streams(seed).generator("store")
    drawn = STORAGE_FAULTS[int(rng.integers(len(STORAGE_FAULTS)))]
    kind = drawn if kind is None else kind
    explored = Explored(seed)
    explored.struck[kind] += 1
    with _folder() as folder:
        used, again = folder / "used", folder / "again"
        used.mkdir()
        again.mkdir()
        try:
            if kind == "full disk":
                left, acknowledged, doubtful = _fill(subject, used, rng)
            else:
                left, acknowledged, doubtful = _damage(subject, used, rng, kind)
        except _FAILURES as error:
            explored.wrong.append(f"{subject.name}, before any fault: {error}")
            return explored
        _write(again, left)
        explored.wrong += _judge(subject, again, kind, acknowledged, explored, doubtful=doubtful)
    return explored


def _judge(
    subject: StoreSubject[Any],
    folder: Path,
    kind: StorageFault,
    acknowledged: int,
    explored: Explored,
    *,
    doubtful: bool,
) -> list[str]:
    where = f"{subject.name}, {kind} after operation {acknowledged}"
    try:
        handle = subject.open(folder)
    except StoreFailed as refusal:
        explored.failed += 1
        if kind in {"kill", "full disk"}:
            return [f"{where}: refused although nothing is damaged: {refusal}"]
        with suppress(StoreFailed):
            subject.close(subject.open(folder))
            return [f"{where}: refused once, and then opened"]
        return []
    except _FAILURES as error:
        return [f"{where}: {type(error).__name__}: {error}"]
    try:
        wrong = subject.find_wrong(handle, acknowledged, doubtful=doubtful)
    except _FAILURES as error:
        wrong = [f"{type(error).__name__}: {error}"]
    finally:
        subject.close(handle)
    explored.succeeded += not wrong
    return [f"{where}: {sentence}" for sentence in wrong]


def _damage(
    subject: StoreSubject[Any], folder: Path, rng: Generator, kind: StorageFault
) -> tuple[Files, int, bool]:
    """Return the files after a fault, and the number of operations acknowledged before it."""
    handle, moments = subject.open(folder), _Moments(folder)
    try:
        subject.watch(handle, moments.note)
        for number in range(int(rng.integers(1, _OPERATIONS_MAX))):
            subject.use(handle, number)
            moments.acknowledged += 1
        moments.note()
    finally:
        subject.close(handle)
    moments.note()  # after an orderly close, everything is in the files themselves
    place = int(rng.integers(len(moments.files)))
    if kind == "bit flip" and rng.random() < _CLOSED_SHARE:
        place = len(moments.files) - 1
    (files, acknowledged), later = moments.files[place], moments.files[place:]
    match kind:
        case "torn write":
            files = _torn(files, later[min(1, len(later) - 1)][0], rng)
        case "lost sync":
            earlier = moments.files[int(rng.integers(place + 1))][0]
            files = _with_one_of(files, earlier, rng)
        case "bit flip":
            files = _flipped(files, rng)
    return files, acknowledged, True


def _fill(subject: StoreSubject[Any], folder: Path, rng: Generator) -> tuple[Files, int, bool]:
    """Use a store until the disk is full, and return its files."""
    handle, acknowledged = subject.open(folder), 0
    try:
        subject.use(handle, 0)
        acknowledged = 1
        size = max(path.stat().st_size for path in folder.rglob("*"))
        with _limited(size + int(rng.integers(_SPARE_BYTES_MAX))), suppress(*_FAILURES):
            for number in range(1, 4 * _OPERATIONS_MAX):
                subject.use(handle, number)
                acknowledged += 1
    finally:
        with suppress(*_FAILURES):
            subject.close(handle)
    return _read(folder), acknowledged, True


@contextmanager
def _limited(size: int) -> Iterator[None]:
    """Limit the size of every file that this process writes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def _folder() -> Iterator[Path]:
    place = _IN_MEMORY if _IN_MEMORY.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="veilring-store-", dir=place))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _torn(before: Files, after: Files, rng: Generator) -> Files:
    """Return the files with a part of one change."""
    changed = [name for name in after if before.get(name) != after[name]]
    if not changed:
        return before
    name = changed[int(rng.integers(len(changed)))]
    old, new = before.get(name, b""), after[name]
    cut = int(rng.integers(len(new) + 1))
    return before | {name: new[:cut] + old[cut:]}


def _with_one_of(files: Files, earlier: Files, rng: Generator) -> Files:
    """Return the files with one of them in its earlier state."""
    names = sorted(earlier.keys() & files.keys())
    if not names:
        return files
    name = names[int(rng.integers(len(names)))]
    return files | {name: earlier[name]}


def _flipped(files: Files, rng: Generator) -> Files:
    names = sorted(files)  # empty files are not read
    if not names:
        return files
    name = names[int(rng.integers(len(names)))]
    content = bytearray(files[name])
    used = [place for place, byte in enumerate(content) if byte]  # most of a page is empty
    content[used[int(rng.integers(len(used)))]] ^= 1 << int(rng.integers(8))
    return files | {name: bytes(content)}


def _read(folder: Path) -> Files:
    paths = (path for path in folder.rglob("*") if path.is_file())
    kept = (path for path in sorted(paths) if not path.name.endswith(_INDEX))
    read = ((str(path.relative_to(folder)), path.read_bytes()) for path in kept)
    return {name: content for name, content in read if content}


def _write(folder: Path, files: Files) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

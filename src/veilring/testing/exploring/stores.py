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

The subjects are the stores of this package: ledgers, collectors and records.
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

import numpy as np
from numpy.random import Generator
from typing_extensions import override

from veilring.errors import StoreFailed, VeilringError
from veilring.privacy.budgets import Budgets, Charge
from veilring.privacy.ledger import Ledger, open_ledger
from veilring.protocols.ldp.algorithm.oracles import DirectEncoding
from veilring.protocols.ldp.algorithm.survey import FrequencySurvey
from veilring.protocols.ldp.messages import ID_BYTES, Accepted, ReportVerdict, Task
from veilring.protocols.ldp.store.base import Senders
from veilring.protocols.ldp.store.sqlite import SqliteStore, begin_sqlite
from veilring.protocols.prediction.records import LabelledRecords
from veilring.protocols.prediction.state import ServerState, open_state
from veilring.protocols.prediction.system import IndKNN
from veilring.protocols.promise import Facts
from veilring.randomness import Streams
from veilring.testing.exploring import Campaign
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
    """A store that is explored; its handle is the open store."""

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
    def find_wrong(self, handle: _H, acknowledged: int) -> list[str]:
        """Return the violations, one sentence each; one more operation may be stored."""


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
    """Explore stores: each seed is a world of one store and one fault."""
    stores, campaign = list(subjects), Campaign(classes=STORAGE_FAULTS)
    for seed in seeds:
        campaign.add(explore_store(stores[seed % len(stores)], seed))
    return campaign


def explore_store(
    subject: StoreSubject[Any], seed: int, *, kind: StorageFault | None = None
) -> Explored:
    """Use a store, let a fault strike, drawn by default, and open the store again."""
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
                left, acknowledged = _fill(subject, used, rng)
            else:
                left, acknowledged = _damage(subject, used, rng, kind)
        except _FAILURES as error:
            explored.wrong.append(f"{subject.name}, before any fault: {error}")
            return explored
        _write(again, left)
        explored.wrong += _judge(subject, again, kind, acknowledged, explored)
    return explored


def _judge(
    subject: StoreSubject[Any],
    folder: Path,
    kind: StorageFault,
    acknowledged: int,
    explored: Explored,
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
        wrong = subject.find_wrong(handle, acknowledged)
    except _FAILURES as error:
        wrong = [f"{type(error).__name__}: {error}"]
    finally:
        subject.close(handle)
    explored.succeeded += not wrong
    return [f"{where}: {sentence}" for sentence in wrong]


def _damage(
    subject: StoreSubject[Any], folder: Path, rng: Generator, kind: StorageFault
) -> tuple[Files, int]:
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
    return files, acknowledged


def _fill(subject: StoreSubject[Any], folder: Path, rng: Generator) -> tuple[Files, int]:
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
    return _read(folder), acknowledged


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


_AMOUNT: Final = 0.25
_FEATURES: Final = 3
_LARGEST: Final = 1000
_CLASSES: Final = 3
_VALUES: Final = 4
_AT_ONCE: Final = 5

_RULES: Final = IndKNN(queries=10, epsilon=5.0, sigma2=4.0).bind(Facts(1, _FEATURES, _CLASSES))


class LedgerSubject(StoreSubject[Ledger]):
    """A ledger: each operation is a charge, which returns an answer."""

    name = "ledger"

    @override
    def open(self, folder: Path) -> Ledger:
        path = folder / "ledger"
        return open_ledger(path, Budgets(total=1000.0), new=not path.exists())

    @override
    def close(self, handle: Ledger) -> None:
        handle.close()

    @override
    def watch(self, handle: Ledger, moment: Callable[[], None]) -> None:
        _watch_statements(handle._store.connection, moment)  # noqa: SLF001  (a fault strikes inside)

    @override
    def use(self, handle: Ledger, number: int) -> None:
        handle.charge(_charge(number, b"answer"))

    @override
    def find_wrong(self, handle: Ledger, acknowledged: int) -> list[str]:
        totals = handle.totals()
        wrong = []
        if totals.answers - acknowledged not in range(2):
            wrong.append(f"{totals.answers} answers are stored, but {acknowledged} were given")
        if totals.spent != totals.answers * _AMOUNT:
            wrong.append(
                f"the ledger records a spending of {totals.spent} for {totals.answers} answers"
            )
        given = [handle.charge(_charge(number, b"another")) for number in range(acknowledged)]
        if given != [b"answer %d" % number for number in range(acknowledged)]:
            wrong.append("a repeated request gets another answer")
        return wrong


class CollectorSubject(StoreSubject[SqliteStore]):
    """A collector's store: each operation adds a group of reports."""

    name = "collector"

    @override
    def open(self, folder: Path) -> SqliteStore:
        path = folder / "reports"
        if not path.exists():
            begin_sqlite(path)
        return SqliteStore(path, _task())

    @override
    def close(self, handle: SqliteStore) -> None:
        handle.close()

    @override
    def watch(self, handle: SqliteStore, moment: Callable[[], None]) -> None:
        _watch_statements(handle._db, moment)  # noqa: SLF001  (a fault strikes inside)

    @override
    def use(self, handle: SqliteStore, number: int) -> None:
        handle.keep([_group(number)], _SENDERS)

    @override
    def find_wrong(self, handle: SqliteStore, acknowledged: int) -> list[str]:
        wrong, tally, counted = [], handle.tally(), handle.recount()
        if [sums.tolist() for sums in tally.sums] != [sums.tolist() for sums in counted.sums]:
            wrong.append("the running sums differ from those of the stored reports")
        groups, rest = divmod(tally.clients, _AT_ONCE)
        if rest or groups - acknowledged not in range(2):
            wrong.append(
                f"{tally.clients} reports are stored, but {acknowledged} groups were acknowledged"
            )
        for number in range(acknowledged):
            (verdicts,) = handle.keep([_group(number)], _SENDERS)
            if (verdicts != ReportVerdict.KNOWN).any():
                wrong.append(f"group {number} was acknowledged, but is not stored")
        return wrong


class StateSubject(StoreSubject[ServerState]):
    """A prediction server's ledger with its rows: operations add or forget records."""

    name = "state"

    @override
    def open(self, folder: Path) -> ServerState:
        path = folder / "state"
        return open_state(_RULES, path, new=not path.exists())

    @override
    def close(self, handle: ServerState) -> None:
        handle.close()

    @override
    def watch(self, handle: ServerState, moment: Callable[[], None]) -> None:
        ledger = handle._ledger  # noqa: SLF001  (a fault strikes inside)
        _watch_statements(ledger._store.connection, moment)  # noqa: SLF001  (likewise)

    @override
    def use(self, handle: ServerState, number: int) -> None:
        if _forgets(number):
            handle.forget(_records(number - 1).ids)
        else:
            handle.add(_records(number))

    @override
    def find_wrong(self, handle: ServerState, acknowledged: int) -> list[str]:
        rows = handle._rows  # noqa: SLF001  (what the server answers from)
        here, sure = set(rows.ids), _ids_after(acknowledged)
        then = _ids_after(acknowledged + 1)
        if not sure & then <= here <= sure | then:
            return [f"{len(here)} rows are stored, but {len(sure)} were acknowledged"]
        for number in range(acknowledged + 1):
            if rows.differing(_records(number)) is not None:
                return [f"a row of step {number} has changed"]
        return []


STORES: Final = (LedgerSubject(), CollectorSubject(), StateSubject())
"""All three subjects."""


def _watch_statements(connection: Any, moment: Callable[[], None]) -> None:  # noqa: ANN401  (of SQLite)
    connection.set_trace_callback(lambda _sql: moment())


def _charge(number: int, answer: bytes) -> Charge:
    return Charge("ann", str(number), b"request %d" % number, b"%s %d" % (answer, number), _AMOUNT)


_SENDERS: Final = Senders(("ada",), np.zeros(_AT_ONCE, np.int64))


def _task() -> Task:
    return Task({"columns": ["a"]}, FrequencySurvey((DirectEncoding(_VALUES, 1.0),)))


def _group(number: int) -> Accepted:
    """Return the reports of a number, which are always the same."""
    rng = np.random.default_rng(number)
    ids = rng.integers(256, size=(_AT_ONCE, ID_BYTES), dtype=np.uint8)
    reports = rng.integers(_VALUES, size=(_AT_ONCE, 1), dtype=np.uint8)
    return Accepted(0, ids, reports, np.arange(_AT_ONCE))


def _records(number: int) -> LabelledRecords:
    """Return the records of a step, which are always the same."""
    rng = np.random.default_rng(number)
    features = rng.integers(1, _LARGEST, size=(_AT_ONCE, _FEATURES)).astype(np.float32)
    ids = [f"record-{number}-{place}" for place in range(_AT_ONCE)]
    return LabelledRecords.of(ids, features, rng.integers(_CLASSES, size=_AT_ONCE))


def _ids_after(operations: int) -> set[str]:
    """Return the records that are stored after some operations of `StateSubject.use`."""
    here: set[str] = set()
    for number in range(operations):
        if _forgets(number):
            here -= set(_records(number - 1).ids)
        else:
            here |= set(_records(number).ids)
    return here


def _forgets(number: int) -> bool:
    return number % 3 == 2  # noqa: PLR2004  (each third operation)

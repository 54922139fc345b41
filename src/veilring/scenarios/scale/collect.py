"""Clients of one collector, and collectors of one task: what a larger collection would take."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from veilring.errors import InputError, SimulationError
from veilring.protocols.ldp.algorithm.survey import Tally
from veilring.protocols.ldp.task import Task
from veilring.scenarios.runner import Progress
from veilring.scenarios.scale.curves import Curve, Panel, Study
from veilring.scenarios.scale.fits import LINE
from veilring.scenarios.sweep import Engine

__all__ = ("FULL", "PIECES", "QUICK", "Collected", "Collection", "study_collect")

QUICK: Final = (20_000, 80_000, 320_000)
FULL: Final = (20_000, 80_000, 320_000, 1_000_000, 4_000_000)
PIECES: Final = 8
"""Into how many pieces the files of each size are cut, for workers to share."""

_SECONDS: Final = Panel("reports", "seconds")
_MEMORY: Final = Panel("reports", "MiB, peak of the collector")
_DISK: Final = Panel("reports", "MB of its database")
_TALLY: Final = Panel("reports", "seconds of a tally")
_CLIENTS: Final = 10**9
_COLLECTORS: Final = 100
_WORKERS: Final = 100
_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Collected:
    """What came of a collection.

    Attributes:
        reports: How many were made durable.
        seconds: From the first that was sent to the last acknowledgement.
        disk_bytes: Of the database afterwards.
        wire_bytes: Of all messages with reports.
        mib: The most memory that the collector had.
        spent: Whatever else was counted of its process.
    """

    reports: int
    seconds: float
    disk_bytes: float
    wire_bytes: float
    mib: float
    spent: float = 0.0


class Collection(Protocol):
    """What is measured. It stands above this room, which knows of deployments by this only."""

    def collect(self, reports: int) -> Collected:
        """Have one collector take so many reports."""

    def write(self, reports: int, folder: Path) -> tuple[Task, tuple[Path, ...]]:
        """Write so many reports as files."""

    def tally(
        self, task: Task, paths: tuple[Path, ...], engine: Engine | None, at_once: int | None
    ) -> Tally:
        """Add up files, in pieces of at most so many reports."""


def study_collect(
    collection: Collection,
    sizes: Sequence[int] = QUICK,
    *,
    engine: str = "dask",
    workers: Sequence[int] = (1, 2),
    clock: Callable[[], float] = time.perf_counter,
    tell: Progress | None = None,
) -> Study:
    """Measure one collector and the tally of its files, for each number of reports.

    Args:
        collection: What is measured.
        sizes: Numbers of reports, ascending; at least three.
        engine: Where pieces of files are added up.
        workers: With how many workers there.
        clock: Gives seconds.
        tell: Told how far it is.

    Raises:
        InputError: If there are too few sizes, or the engine is not there.
        SimulationError: If the pieces' sums are not those of one pass.
    """
    if len(sizes) <= len(LINE) or sorted(set(sizes)) != list(sizes) or sizes[0] < PIECES:
        raise InputError("sizes", list(sizes), f"three or more from {PIECES} up, ascending")
    found, tallies = list[Collected](), _Tallies(collection, engine, workers, clock)
    for done, size in enumerate(sizes):
        if tell is not None:
            tell(f"{size:,} reports", 2 * done, 2 * len(sizes))
        found.append(collection.collect(size))
        if tell is not None:
            tell(f"{size:,} reports in files", 2 * done + 1, 2 * len(sizes))
        tallies.measure(size)
    curves = [
        Curve.fitted(name, panel, {one.reports: of(one) for one in found}, LINE)
        for name, panel, of in _MEASURES
    ]
    curves += tallies.curves()
    return Study(
        "collect",
        "A collector over the number of its clients, and the tally of its files",
        (
            "naive Bayes of the wine table, epsilon = 1; the collector is durable (SQLite, FULL)",
            f"reports in batches over TLS; files in {PIECES} pieces, added up by {engine}",
            "the sums of all pieces are those of one pass over the files, to the last count",
        ),
        simulated=False,
        curves=tuple(curves),
        findings=tuple(_findings(curves, found[-1], workers)),
    )


_MEASURES: Final[tuple[tuple[str, Panel, Callable[[Collected], float]], ...]] = (
    ("one collector", _SECONDS, lambda one: one.seconds),
    ("one collector", _MEMORY, lambda one: one.mib),
    ("one collector", _DISK, lambda one: one.disk_bytes / 1e6),
)


class _Tallies:
    """Seconds of tallies by workers, all of which say what one pass says."""

    def __init__(
        self,
        collection: Collection,
        engine: str,
        workers: Sequence[int],
        clock: Callable[[], float],
    ) -> None:
        self._collection, self._clock = collection, clock
        self._engines: dict[str, Engine | None] = {"one process, no cluster": None}
        self._engines |= {_by(engine, count): Engine(engine, count) for count in workers}
        self._seconds: dict[str, dict[float, float]] = {name: {} for name in self._engines}

    def measure(self, size: int) -> None:
        with tempfile.TemporaryDirectory() as name:
            task, paths = self._collection.write(size, Path(name, "reports"))
            tallies = list[Tally]()
            for way, engine in self._engines.items():
                pieces = None if engine is None else -(-size // PIECES)
                start = self._clock()
                tallies.append(self._collection.tally(task, paths, engine, pieces))
                self._seconds[way][size] = self._clock() - start
        first, *others = tallies
        for other in others:
            if not _same(first, other) or first.clients != size:
                raise SimulationError("pieces added up to something else than their files")

    def curves(self) -> list[Curve]:
        return [Curve.fitted(way, _TALLY, took, LINE) for way, took in self._seconds.items()]


def _by(engine: str, workers: int) -> str:
    return f"{engine}, {workers} worker{'s' if workers > 1 else ''}"


def _same(one: Tally, other: Tally) -> bool:
    return one.counts == other.counts and all(map(np.array_equal, one.sums, other.sums))


def _findings(curves: Sequence[Curve], last: Collected, workers: Sequence[int]) -> Iterator[str]:
    seconds, memory, disk, alone, *_ = (curve.fit for curve in curves)
    each = seconds.factors[1]
    if each > 0:
        yield f"one collector takes up to {1 / each:,.0f} reports/s, by the model"
    yield f"a report has {last.wire_bytes / last.reports:.1f} bytes on the wire"
    share = _CLIENTS // _COLLECTORS
    yield (
        f"{_CLIENTS:,} clients, by the models: {seconds(_CLIENTS) / _HOUR:.2f} hours, "
        f"{disk(_CLIENTS) / 1000:.1f} GB and {memory(_CLIENTS) / 1024:.2f} GiB of memory at one "
        f"collector; {seconds(share):.0f} s and {disk(share) / 1000:.2f} GB at each of "
        f"{_COLLECTORS}"
    )
    fixed = max(curve.fit.factors[0] for curve in curves[4:]) if workers else 0.0
    shared = fixed + alone.factors[1] * _CLIENTS / _WORKERS
    yield (
        f"their tally: {alone(_CLIENTS):.0f} s in one process; {shared:.0f} s with {_WORKERS} "
        f"workers, if they read without waiting for each other"
    )

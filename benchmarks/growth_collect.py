"""Clients of one collector, and collectors of one task: what a larger collection would take.

Files of reports are added up by one process and by workers of a cluster: the same to a count.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from benchmarks.collecting import Collected
from benchmarks.measurement import least_seconds
from benchmarks.studies import LINE, Basis, Curve, Panel, Study, Term, require_sizes
from veilring.errors import InputError, SimulationError
from veilring.protocols.ldp.algorithm.survey import Tally
from veilring.protocols.ldp.messages import Task
from veilring.protocols.ldp.store.sqlite import CACHE_BYTES_MAX
from veilring.scenarios.batches import Progress
from veilring.scenarios.sweep import Engine

PIECES: Final = 8
"""Into how many pieces the files of each size are cut, for workers to share."""

_TALLY: Final = Panel("reports", "seconds of a tally")
_TIMES: Final = 3  # of which the quickest counts


class Collection(Protocol):
    """What is measured, such as `Driven` collections."""

    def collect(self, reports: int) -> Collected:
        """Have one collector take this number of reports."""

    def write(self, reports: int, folder: Path) -> tuple[Task, tuple[Path, ...]]:
        """Write this number of reports as files."""

    def tally(
        self, task: Task, paths: tuple[Path, ...], engine: Engine | None, at_once: int | None
    ) -> Tally:
        """Add up files, in pieces of at most `at_once` reports."""


def _tally_curves(
    collection: Collection,
    sizes: Sequence[int],
    workers: Sequence[int],
    *,
    clock: Callable[[], float],
    tell: Callable[[str, int], None],
) -> list[Curve]:
    """Measure tallies of each size in one process, and on Dask clusters of this machine.

    Args:
        collection: The collection to measure.
        sizes: Numbers of reports, ascending.
        workers: The number of workers of each cluster.
        clock: Returns the time in seconds.
        tell: Receives messages on the progress.

    Raises:
        InputError: If Dask is not installed.
        SimulationError: If the pieces' sums are not those of one pass.
    """
    curves, expected = list[Curve](), dict[int, Tally]()
    with tempfile.TemporaryDirectory() as name:
        tell("files", 0)
        files = {size: collection.write(size, Path(name, str(size))) for size in sizes}
        for done, count in enumerate((0, *workers)):
            way = f"Dask, {count} worker{'s' * (count > 1)}" if count else "one process"
            tell(f"tallies, {way}", done)
            with _engine(count) as engine:
                points = dict[float, float]()
                for size, (task, paths) in files.items():
                    at_once = -(-size // PIECES) if count else None
                    add_up = partial(collection.tally, task, paths, engine, at_once)
                    _require_same(expected.setdefault(size, add_up()), add_up(), size)
                    points[size] = least_seconds(add_up, _TIMES, clock)
            curves.append(Curve.fitted(way, _TALLY, points, LINE))
    return curves


@contextmanager
def _engine(workers: int) -> Iterator[Engine | None]:
    if not workers:
        yield None
        return
    try:
        from veilring.scenarios.sweep import dask_backend  # noqa: PLC0415  (an extra)
    except ImportError as error:
        allowed = "none, or some after: pip install '.[dask]'"
        raise InputError("workers", workers, allowed) from error
    with dask_backend.local_cluster(workers) as address:
        yield Engine("dask", dask_address=address)


def _require_same(one: Tally, other: Tally, reports: int) -> None:
    equal = one.counts == other.counts and all(map(np.array_equal, one.sums, other.sums))
    if not equal or other.clients != reports:
        raise SimulationError("pieces added up to something else than their files")


QUICK: Final = (20_000, 80_000, 320_000, 640_000)
FULL: Final = (80_000, 160_000, 320_000, 1_000_000, 2_000_000, 4_000_000)

_SECONDS: Final = Panel("reports", "seconds")
_MEMORY: Final = Panel("reports", "MiB, peak of the collector")
_DISK: Final = Panel("reports", "MB of its database")
# What a transaction holds when the collector is busy, more or less, and a row of its tree.
_GROUP: Final = 50_000
_REPORT_BYTES: Final = 30
_PAGE_BYTES: Final = 4096
_GROUPS_MAX: Final = 10_000  # that are looked at one by one; more are sampled evenly
_CLIENTS: Final = 10**9
_COLLECTORS: Final = 100
_WORKERS: Final = 100
_HOUR: Final = 3600.0


def study_collect(
    collection: Collection,
    sizes: Sequence[int] = QUICK,
    *,
    workers: Sequence[int] = (1, 2),
    clock: Callable[[], float] = time.perf_counter,
    tell: Progress | None = None,
) -> Study:
    """Measure one collector and the tally of its files, for each number of reports.

    Args:
        collection: What is measured.
        sizes: Numbers of reports, ascending; at least four.
        workers: With how many workers of a Dask cluster on this machine files are added up.
        clock: Gives seconds.
        tell: Told how far it is.

    Raises:
        InputError: If there are too few sizes, or Dask is not installed.
        SimulationError: If the pieces' sums are not those of one pass.
    """
    require_sizes(sizes, 4, PIECES, f"four or more from {PIECES} up, ascending")
    found, total = list[Collected](), len(sizes) + 1 + len(workers)
    for done, size in enumerate(sizes):
        if tell is not None:
            tell(f"{size:,} reports", done, total)
        found.append(collection.collect(size))
    curves = [
        Curve.fitted(name, panel, {one.reports: of(one) for one in found}, basis)
        for name, panel, of, basis in _MEASURES
    ]
    curves += _tally_curves(
        collection,
        sizes,
        workers,
        clock=clock,
        tell=lambda doing, done: tell(doing, len(sizes) + done, total) if tell else None,
    )
    return Study(
        "collect",
        "Cost of a collector, by number of clients, and of a tally of its files",
        (
            "naive Bayes of the wine table, epsilon = 1, reports in batches over TLS",
            "pages: database pages written; each report of a group falls on a random page",
            f"cached: reports whose pages fit into the cache of {CACHE_BYTES_MAX >> 20} MiB",
            f"tallies by Dask: at least {PIECES} pieces, a running cluster; fastest of several",
            "the pieces add up to exactly the counts of a single pass over the files",
        ),
        simulated=False,
        curves=tuple(curves),
        findings=tuple(_findings(curves, found[-1])),
    )


def _findings(curves: Sequence[Curve], last: Collected) -> Iterator[str]:
    seconds, memory, disk, alone, *shared = (curve.fit for curve in curves)
    best = max(x / y for x, y in zip(curves[0].x, curves[0].y, strict=True))
    yield f"one collector took up to {best:,.0f} reports/s"
    yield f"a report takes {last.wire_bytes / last.reports:.1f} bytes on the wire"
    share = _CLIENTS // _COLLECTORS
    beyond = f"{_CLIENTS / last.reports:,.0f} times the largest measurement"
    yield f"the models, extrapolated to {_CLIENTS:,} clients, {beyond}, predict:"
    yield (
        f"  with one collector: {seconds(_CLIENTS) / _HOUR:.1f} hours, "
        f"{disk(_CLIENTS) / 1000:.1f} GB on disk and {memory(_CLIENTS) / 1024:.2g} GiB of memory"
    )
    yield (
        f"  with {_COLLECTORS} collectors: {seconds(share):.0f} s, {disk(share) / 1000:.2g} GB on "
        f"disk and {memory(share) / 1024:.2g} GiB of memory for each"
    )
    fixed = max((each.factors[0] for each in shared), default=0.0)
    merged = fixed + alone.factors[1] * _CLIENTS / _WORKERS
    yield (
        f"  tallying all reports: {alone(_CLIENTS):.0f} s in one process, or {merged:.0f} s with "
        f"{_WORKERS} workers that do not wait for each other"
    )


def pages_written(reports: float) -> float:
    """Return the number of pages that are written for reports in groups of `_GROUP`.

    The ids are random, so each report of a group falls on any page of the tree: a group writes
    P * (1 - exp(-G / P)) of P pages, at first every page, and in the end one page a report.
    """
    groups = max(1, round(reports / _GROUP))
    before = (np.arange(min(groups, _GROUPS_MAX)) + 0.5) / min(groups, _GROUPS_MAX)
    pages = np.maximum(before * reports * _REPORT_BYTES / _PAGE_BYTES, 1.0)
    return float(np.mean(-pages * np.expm1(-_GROUP / pages)) * reports / _GROUP)


_SECONDS_MODEL: Final[Basis] = (*LINE, Term("pages", pages_written))
_MEMORY_MODEL: Final[Basis] = (
    Term("", lambda _x: 1.0),
    Term("cached", lambda x: min(x, CACHE_BYTES_MAX / _REPORT_BYTES)),
)
_MEASURES: Final[tuple[tuple[str, Panel, Callable[[Collected], float], Basis], ...]] = (
    ("one collector", _SECONDS, lambda one: one.seconds, _SECONDS_MODEL),
    ("one collector", _MEMORY, lambda one: one.mib, _MEMORY_MODEL),
    ("one collector", _DISK, lambda one: one.disk_bytes / 1e6, LINE),
)

"""Tallies of files in pieces, by one process and by workers of a cluster: the same to a count."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from veilring.errors import InputError, SimulationError
from veilring.protocols.ldp.algorithm.survey import Tally
from veilring.protocols.ldp.task import Task
from veilring.scenarios.scale.curves import Curve, Panel
from veilring.scenarios.scale.fits import LINE
from veilring.scenarios.scale.machine import least_seconds
from veilring.scenarios.sweep import Engine

PIECES: Final = 8
"""Into how many pieces the files of each size are cut, for workers to share."""

_TALLY: Final = Panel("reports", "seconds of a tally")
_TIMES: Final = 3  # of which the quickest counts


class Tallied(Protocol):
    """What is measured. It stands above this room, which knows of deployments by this only."""

    def write(self, reports: int, folder: Path) -> tuple[Task, tuple[Path, ...]]:
        """Write so many reports as files."""

    def tally(
        self, task: Task, paths: tuple[Path, ...], engine: Engine | None, at_once: int | None
    ) -> Tally:
        """Add up files, in pieces of at most so many reports."""


def tally_curves(
    tallied: Tallied,
    sizes: Sequence[int],
    workers: Sequence[int],
    *,
    clock: Callable[[], float],
    tell: Callable[[str, int], None],
) -> list[Curve]:
    """Measure tallies of each size in one process, and on Dask clusters of this machine.

    Args:
        tallied: What is measured.
        sizes: Numbers of reports, ascending.
        workers: How many a cluster has, for each cluster.
        clock: Gives seconds.
        tell: Told how far it is.

    Raises:
        InputError: If Dask is not installed.
        SimulationError: If the pieces' sums are not those of one pass.
    """
    curves, expected = list[Curve](), dict[int, Tally]()
    with tempfile.TemporaryDirectory() as name:
        tell("files", 0)
        files = {size: tallied.write(size, Path(name, str(size))) for size in sizes}
        for done, count in enumerate((0, *workers)):
            way = f"Dask, {count} worker{'s' * (count > 1)}" if count else "one process"
            tell(f"tallies, {way}", done)
            with _engine(count) as engine:
                points = dict[float, float]()
                for size, (task, paths) in files.items():
                    at_once = -(-size // PIECES) if count else None
                    add_up = partial(tallied.tally, task, paths, engine, at_once)
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
        allowed = "none, or some after: pip install 'veilring[dask]'"
        raise InputError("workers", workers, allowed) from error
    with dask_backend.local_cluster(workers) as address:
        yield Engine("dask", dask_address=address)


def _require_same(one: Tally, other: Tally, reports: int) -> None:
    equal = one.counts == other.counts and all(map(np.array_equal, one.sums, other.sums))
    if not equal or other.clients != reports:
        raise SimulationError("pieces added up to something else than their files")

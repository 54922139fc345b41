"""Growth measured on this machine, with a known clock and a known collection."""

import itertools
import math
import os
import platform
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.collecting import Collected
from benchmarks.growth_collect import pages_written, study_collect
from benchmarks.growth_records import Table, seconds_by_predictor, seconds_by_server, study_records
from benchmarks.growth_serve import Asked, study_serve
from benchmarks.measurement import apart, describe_machine, least_seconds, peak_mib
from tests.protocols.ldp.collecting import batches, make_task

from veilring.deployment.estimating import tally_files
from veilring.errors import InputError, SimulationError
from veilring.protocols.ldp.algorithm.survey import Tally
from veilring.protocols.ldp.messages import Task
from veilring.protocols.ldp.parquet import write_parquet
from veilring.scenarios.sweep import Engine


class _Collection:
    """A collector of known speed, with real files."""

    def __init__(self, *, lost: int = 0) -> None:
        self._task, self._lost, self._calls = make_task(), lost, itertools.count()

    def collect(self, reports: int) -> Collected:
        """Take a tenth of a second and 2 us per report."""
        return Collected(reports, 0.1 + 2e-6 * reports, 30.0 * reports, 19.0 * reports, 100.0)

    def write(self, reports: int, folder: Path) -> tuple[Task, tuple[Path, ...]]:
        """Write reports of drawn clients."""
        made = ((batch.question, batch.reports) for batch in batches(self._task, reports))
        return self._task, write_parquet(self._task, made, folder)

    def tally(
        self, task: Task, paths: tuple[Path, ...], engine: Engine | None, at_once: int | None
    ) -> Tally:
        """Add up reports, except those lost from the second time on."""
        assert engine is None
        whole = tally_files(task, paths, at_once=at_once)
        if self._lost and next(self._calls):
            return Tally(whole.sums, (whole.counts[0] - self._lost, *whole.counts[1:]))
        return whole


def _ticks() -> Callable[[], float]:
    """Return a clock that advances by a second per call."""
    seconds = itertools.count()
    return lambda: float(next(seconds))


def test_a_known_collection_speed_is_recovered() -> None:
    """The fitted models have the collector's factors, and extrapolate to a billion clients."""
    study = study_collect(_Collection(), (40, 80, 160, 320), workers=(), clock=_ticks())
    seconds, memory, disk, tally = study.curves
    assert not study.simulated
    assert seconds.fit.factors[0] == pytest.approx(0.1, rel=1e-6)
    assert memory.fit(1e9) == pytest.approx(100.0)
    assert disk.fit(1e9) == pytest.approx(30_000.0)
    assert tally.y == (1.0, 1.0, 1.0, 1.0)
    assert any("30.0 GB on disk" in line for line in study.findings)


def test_a_tally_that_loses_a_report_is_refused() -> None:
    """The study ends if sums of pieces differ from those of one pass."""
    with pytest.raises(SimulationError, match="something else than their files"):
        study_collect(_Collection(lost=1), (40, 80, 160, 320), workers=())


@pytest.mark.parametrize("sizes", [(10, 20, 30), (40, 20, 80, 90), (1, 20, 30, 40)])
def test_invalid_sizes_of_a_collection_are_refused(sizes: tuple[int, ...]) -> None:
    """Too few sizes, sizes out of order, and sizes too small to be split are refused."""
    with pytest.raises(InputError, match="four or more from 8 up"):
        study_collect(_Collection(), sizes)


def test_pages_written_grow_from_all_to_one_per_report() -> None:
    """A group rewrites a small tree, and changes one page per report in a large tree."""
    assert pages_written(50_000) < 50_000 * 30 / 4096
    far = pages_written(2e9) - pages_written(1e9)
    assert far == pytest.approx(1e9, rel=0.02)
    assert pages_written(1e6) < pages_written(2e6) / 2


def test_a_prediction_server_is_measured_by_the_given_clock() -> None:
    """With a clock of one tick per call, a block takes a second, and so does a single query."""
    table = Table(features=8, classes=2)
    block, lone = seconds_by_server(table, 20, _ticks())
    assert block == 1.0 / table.rules.fitting
    assert lone == 1.0
    assert seconds_by_predictor(table, 20, _ticks()) == (1.0, 1.0)


def test_invalid_sizes_of_a_server_are_refused() -> None:
    """A line with one point left out needs three sizes."""
    with pytest.raises(InputError, match="three or more"):
        study_records(Table(), (16, 32))


@pytest.mark.slow
def test_every_deployment_is_measured() -> None:
    """Rings on all transports, an owner and a server answer each size, by the given clock."""
    study = study_serve(Asked(parties=3, clock=_ticks()), (1, 2, 4))
    assert [curve.name for curve in study.curves] == [
        "ring, in memory",
        "ring, over TLS",
        "ring, as processes",
        "owner",
        "prediction server",
    ]
    for curve in study.curves:
        assert curve.y == (1.0, 1.0, 1.0)
        assert curve.beside["queries/s"] == (1.0, 2.0, 4.0)
    with pytest.raises(InputError, match="three or more numbers"):
        study_serve(Asked(), (1, 2))
    with pytest.raises(InputError, match="ascending"):
        study_serve(Asked(), (1, 3, 2, 4))


def test_the_fastest_of_several_runs_counts() -> None:
    """One warm-up run precedes the given number of runs."""
    calls, moments = list[int](), iter([0.0, 5.0, 5.0, 7.0, 7.0, 10.0])
    assert least_seconds(lambda: calls.append(1), 3, lambda: next(moments)) == 2.0
    assert len(calls) == 4


def test_a_separate_process_computes_in_one_thread() -> None:
    """Its environment, restored afterwards, sets one thread; peak memory is its own."""
    before = os.environ.get("OMP_NUM_THREADS")
    assert apart(os.getenv, "OMP_NUM_THREADS") == "1"
    assert os.environ.get("OMP_NUM_THREADS") == before
    assert 0 < apart(peak_mib) < peak_mib()
    assert math.isnan(peak_mib(2**22 + 1))


def test_the_machine_is_described_without_its_name() -> None:
    """Cores, kind and Python version are described; the host's name is not."""
    line = describe_machine()
    assert f"{os.cpu_count()} cores" in line
    assert platform.python_version() in line
    assert "\n" not in line
    assert platform.node() not in line.split()

"""Growth on this machine: what is measured, with a clock and a collection that are known."""

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
from veilring.protocols.ldp.parquet import write_parquet
from veilring.protocols.ldp.task import Task
from veilring.scenarios.sweep import Engine


class _Collection:
    """A collector of known speed, and real files."""

    def __init__(self, *, lost: int = 0) -> None:
        self._task, self._lost, self._calls = make_task(), lost, itertools.count()

    def collect(self, reports: int) -> Collected:
        """Take a tenth of a second and 2 us a report."""
        return Collected(reports, 0.1 + 2e-6 * reports, 30.0 * reports, 19.0 * reports, 100.0)

    def write(self, reports: int, folder: Path) -> tuple[Task, tuple[Path, ...]]:
        """Write reports of clients that are drawn."""
        made = ((batch.question, batch.reports) for batch in batches(self._task, reports))
        return self._task, write_parquet(self._task, made, folder)

    def tally(
        self, task: Task, paths: tuple[Path, ...], engine: Engine | None, at_once: int | None
    ) -> Tally:
        """Add up, but for what is lost from the second time on."""
        assert engine is None
        whole = tally_files(task, paths, at_once=at_once)
        if self._lost and next(self._calls):
            return Tally(whole.sums, (whole.counts[0] - self._lost, *whole.counts[1:]))
        return whole


def _ticks() -> Callable[[], float]:
    """Return a clock that is a second later each time it is asked."""
    seconds = itertools.count()
    return lambda: float(next(seconds))


def test_a_collection_of_known_speed_is_found_again() -> None:
    """The models of a collector have its factors, and say what a billion clients would take."""
    study = study_collect(_Collection(), (40, 80, 160, 320), workers=(), clock=_ticks())
    seconds, memory, disk, tally = study.curves
    assert not study.simulated
    assert seconds.fit.factors[0] == pytest.approx(0.1, rel=1e-6)
    assert memory.fit(1e9) == pytest.approx(100.0)
    assert disk.fit(1e9) == pytest.approx(30_000.0)
    assert tally.y == (1.0, 1.0, 1.0, 1.0)
    assert any("30.0 GB on disk" in line for line in study.findings)


def test_a_tally_that_loses_a_report_is_no_measurement() -> None:
    """Sums of pieces that differ from those of one pass end the study."""
    with pytest.raises(SimulationError, match="something else than their files"):
        study_collect(_Collection(lost=1), (40, 80, 160, 320), workers=())


@pytest.mark.parametrize("sizes", [(10, 20, 30), (40, 20, 80, 90), (1, 20, 30, 40)])
def test_sizes_of_a_collection_are_met_at_the_edge(sizes: tuple[int, ...]) -> None:
    """Too few, out of order, and too small to be cut."""
    with pytest.raises(InputError, match="four or more from 8 up"):
        study_collect(_Collection(), sizes)


def test_pages_are_all_of_them_first_and_one_a_report_in_the_end() -> None:
    """A group rewrites a small tree, and touches a page for each report of a large one."""
    assert pages_written(50_000) < 50_000 * 30 / 4096
    far = pages_written(2e9) - pages_written(1e9)
    assert far == pytest.approx(1e9, rel=0.02)
    assert pages_written(1e6) < pages_written(2e6) / 2


def test_a_prediction_server_is_measured_by_the_clock_that_is_given() -> None:
    """Of a clock that ticks once a call, a block takes a second, and so does a lone query."""
    table = Table(features=8, classes=2)
    block, lone = seconds_by_server(table, 20, _ticks())
    assert block == 1.0 / table.rules.fitting
    assert lone == 1.0
    assert seconds_by_predictor(table, 20, _ticks()) == (1.0, 1.0)


def test_sizes_of_a_server_are_met_at_the_edge() -> None:
    """A line and a point to leave out take three."""
    with pytest.raises(InputError, match="three or more"):
        study_records(Table(), (16, 32))


@pytest.mark.slow
def test_every_deployment_is_asked() -> None:
    """Rings on all transports, an owner and a server answer each size, by the clock given."""
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


def test_the_quickest_of_several_counts() -> None:
    """It is done once for nothing, and then as often as said."""
    calls, moments = list[int](), iter([0.0, 5.0, 5.0, 7.0, 7.0, 10.0])
    assert least_seconds(lambda: calls.append(1), 3, lambda: next(moments)) == 2.0
    assert len(calls) == 4


def test_a_process_apart_computes_in_one_thread() -> None:
    """It is told so by its environment, which is as before here; its peak is its own."""
    before = os.environ.get("OMP_NUM_THREADS")
    assert apart(os.getenv, "OMP_NUM_THREADS") == "1"
    assert os.environ.get("OMP_NUM_THREADS") == before
    assert 0 < apart(peak_mib) < peak_mib()
    assert math.isnan(peak_mib(2**22 + 1))


def test_the_machine_is_described_without_its_name() -> None:
    """Cores, kind and Python are there; the host's name is not."""
    line = describe_machine()
    assert f"{os.cpu_count()} cores" in line
    assert platform.python_version() in line
    assert "\n" not in line
    assert platform.node() not in line.split()

"""Sweeps: equal files on every engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.scenarios.sweep.plans import PLAN

from veilring.scenarios.sweep import Engine, run_sweep
from veilring.scenarios.sweep.dask_backend import local_cluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """Return the address of a Dask cluster of two processes."""
    with local_cluster(2) as address:
        yield address


class TestEngines:
    """24 cells in one process, in two processes, on Dask and on Ray."""

    def test_two_processes_give_the_same_bytes(self, alone: Path, tmp_path: Path) -> None:
        """Results do not depend on the place and time of a cell's run."""
        done = run_sweep(PLAN, tmp_path / "two.parquet", engine=Engine(workers=2))
        assert done.files.results.read_bytes() == alone.read_bytes()

    def test_a_dask_cluster_gives_the_same_bytes(
        self, alone: Path, tmp_path: Path, scheduler: str
    ) -> None:
        """An existing Dask cluster gives byte-identical results."""
        engine = Engine("dask", dask_address=scheduler)
        done = run_sweep(PLAN, tmp_path / "dask.parquet", engine=engine)
        assert done.files.results.read_bytes() == alone.read_bytes()

    def test_dask_on_this_machine_gives_the_same_bytes(self, alone: Path, tmp_path: Path) -> None:
        """A Dask cluster that the sweep starts itself gives byte-identical results."""
        engine = Engine("dask", workers=2)
        done = run_sweep(PLAN, tmp_path / "dask.parquet", engine=engine)
        assert done.files.results.read_bytes() == alone.read_bytes()

    def test_ray_on_this_machine_gives_the_same_bytes(self, alone: Path, tmp_path: Path) -> None:
        """Ray, if it is installed, gives byte-identical results."""
        pytest.importorskip("ray", reason="Ray is an extra that not every Python has a wheel of")
        done = run_sweep(PLAN, tmp_path / "ray.parquet", engine=Engine("ray", workers=2))
        assert done.files.results.read_bytes() == alone.read_bytes()

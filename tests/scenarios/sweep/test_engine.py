"""Engines: equal files on each, and errors about missing and dead ones."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import dask
import pytest
from tests.scenarios.sweep.plans import PLAN

from veilring.errors import ClusterError, InputError, MissingExtra
from veilring.scenarios.sweep import Engine, run_sweep
from veilring.scenarios.sweep.dask_backend import local_cluster
from veilring.scenarios.sweep.engine import each_done


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """Return the address of a Dask cluster that gives up a task when its worker dies."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        local_cluster(2) as address,
    ):
        yield address


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "workers", "is_running"),
    [("local", 2, False), ("dask", None, True), ("dask", 2, False), ("ray", 2, False)],
)
def test_every_engine_gives_the_same_bytes(
    name: str, workers: int | None, *, is_running: bool, alone: Path, tmp_path: Path, scheduler: str
) -> None:
    """Results do not depend on the place and time of a cell's run: 24 cells, by each engine."""
    if name == "ray":
        pytest.importorskip("ray", reason="Ray is an extra that not every Python has a wheel of")
    engine = Engine(name, workers, scheduler if is_running else None)
    done = run_sweep(PLAN, tmp_path / "out.parquet", engine=engine)
    assert done.files.results.read_bytes() == alone.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "field", "allowed"),
    [
        (("cloud",), "engine", "local, dask, ray"),
        (("local", 0), "workers", "at least 1"),
        (("local", None, "tcp://127.0.0.1:1"), "dask_address", "needs the engine dask"),
        (("dask", 2, "tcp://127.0.0.1:1"), "workers", "workers of its own"),
    ],
)
def test_an_unknown_engine_is_refused(
    arguments: tuple[str, int | None, str | None], field: str, allowed: str
) -> None:
    """The error names the allowed engines."""
    with pytest.raises(InputError) as caught:
        Engine(*arguments)
    assert caught.value.field == field
    assert allowed in str(caught.value)


@pytest.mark.parametrize(("name", "module"), [("dask", "distributed"), ("ray", "ray")])
def test_a_missing_extra_is_reported_in_one_paragraph(
    name: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the package to install."""
    monkeypatch.setitem(sys.modules, module, None)  # which makes Python's import fail
    with pytest.raises(MissingExtra) as caught, each_done(abs, [-1], Engine(name)):
        pass
    command = f"pip install '.[{name}]'"
    assert str(caught.value) == f"{module} is not installed; run `{command}` in a clone of veilring"


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://x"])
def test_an_unreachable_scheduler_is_reported(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names its address after the time limit for an answer."""
    monkeypatch.setattr("veilring.scenarios.sweep.dask_backend.SCHEDULER_SECONDS", 1)
    with (
        pytest.raises(InputError, match=address),
        each_done(abs, [-1], Engine("dask", dask_address=address)),
    ):
        pass


@pytest.mark.parametrize("workers", [1, 2])
def test_every_item_is_called_once(workers: int) -> None:
    """Results arrive in any order."""
    items = list(range(-20, 0))
    with each_done(abs, items, Engine(workers=workers)) as results:
        assert sorted(results) == sorted(map(abs, items))


@pytest.mark.slow
def test_no_worker_outlives_its_sweep() -> None:
    """A worker that ended during the next sweep would lose a call of that sweep."""
    with each_done(_own_process, list(range(8)), Engine(workers=2)) as results:
        workers = set(results)
    assert workers
    for worker in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)


def _own_process(_: int) -> int:
    return os.getpid()


def test_leaving_early_ends_running_cells() -> None:
    """Leaving after the first result ends the other cells without a warning."""
    with each_done(abs, list(range(-200, 0)), Engine(workers=2)) as results:
        assert next(results) > 0


def test_a_process_that_dies_is_reported() -> None:
    """A worker killed by the system ends the sweep with an error instead of a hang."""
    with (
        pytest.raises(ClusterError, match="died"),
        each_done(os._exit, [3, 3], Engine(workers=2)) as results,
    ):
        list(results)


def test_a_dask_worker_that_dies_is_reported(scheduler: str) -> None:
    """The death of a Dask worker is reported, although joblib alone would wait forever."""
    engine = Engine("dask", dask_address=scheduler)
    with pytest.raises(ClusterError, match="died"), each_done(os._exit, [3], engine) as results:
        list(results)

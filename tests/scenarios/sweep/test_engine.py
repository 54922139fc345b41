"""Engines: the list of engines, and errors about missing and dead ones."""

import os
import sys
from collections.abc import Iterator

import dask
import pytest

from veilring.errors import ClusterError, InputError, MissingExtra
from veilring.scenarios.sweep import Engine
from veilring.scenarios.sweep.dask_backend import local_cluster
from veilring.scenarios.sweep.engine import each_done


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """Give the address of a Dask cluster that gives up a task when a worker dies over it."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        local_cluster(2) as address,
    ):
        yield address


@pytest.mark.parametrize(
    ("arguments", "field", "allowed"),
    [
        (("cloud",), "engine", "local, dask, ray"),
        (("local", 0), "workers", "at least 1"),
        (("local", None, "tcp://127.0.0.1:1"), "dask_address", "needs the engine dask"),
        (("dask", 2, "tcp://127.0.0.1:1"), "workers", "workers of its own"),
    ],
)
def test_one_that_cannot_be_is_refused(
    arguments: tuple[str, int | None, str | None], field: str, allowed: str
) -> None:
    """The mistake names what is allowed."""
    with pytest.raises(InputError) as caught:
        Engine(*arguments)
    assert caught.value.field == field
    assert allowed in str(caught.value)


@pytest.mark.parametrize(("name", "module"), [("dask", "distributed"), ("ray", "ray")])
def test_a_missing_extra_is_told_in_one_paragraph(
    name: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what to install."""
    monkeypatch.setitem(sys.modules, module, None)  # which makes Python's import fail
    with (
        pytest.raises(MissingExtra) as caught,
        each_done(abs, [-1], Engine(name)),
    ):
        pass
    assert str(caught.value) == f"{module} is not installed; run `pip install 'veilring[{name}]'`"


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://x"])
def test_a_scheduler_that_is_not_there_is_told(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names its address, after the time that a scheduler has to answer."""
    monkeypatch.setattr("veilring.scenarios.sweep.dask_backend.SCHEDULER_SECONDS", 1)
    with (
        pytest.raises(InputError, match=address),
        each_done(abs, [-1], Engine("dask", dask_address=address)),
    ):
        pass


@pytest.mark.parametrize("workers", [1, 2])
def test_every_item_is_called_once(workers: int) -> None:
    """Results come in any order."""
    items = list(range(-20, 0))
    with each_done(abs, items, Engine(workers=workers)) as results:
        assert sorted(results) == sorted(map(abs, items))


@pytest.mark.slow
def test_no_worker_outlives_its_sweep() -> None:
    """One that left while the next sweep gives it a call would leave that call undone."""
    with each_done(_own_process, list(range(8)), Engine(workers=2)) as results:
        workers = set(results)
    assert workers
    for worker in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)


def _own_process(_: int) -> int:
    return os.getpid()


def test_leaving_early_ends_what_still_runs() -> None:
    """Leaving after the first result ends the other cells without a warning."""
    with each_done(abs, list(range(-200, 0)), Engine(workers=2)) as results:
        assert next(results) > 0


def test_a_process_that_dies_is_told() -> None:
    """A worker that the system kills ends the sweep with an error, and not with a wait."""
    with (
        pytest.raises(ClusterError, match="died"),
        each_done(os._exit, [3, 3], Engine(workers=2)) as results,
    ):
        list(results)


def test_a_dask_worker_that_dies_is_told(scheduler: str) -> None:
    """The death of a Dask worker is reported, although joblib alone would wait for ever."""
    engine = Engine("dask", dask_address=scheduler)
    with pytest.raises(ClusterError, match="died"), each_done(os._exit, [3], engine) as results:
        list(results)

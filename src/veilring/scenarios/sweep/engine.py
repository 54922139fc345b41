"""Where cells are run: processes of this machine, Dask or Ray, all by way of joblib."""

import logging
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, TypeVar

from typing_extensions import override

from veilring.errors import ClusterError, InputError
from veilring.extras import name_missing_extras, require_extra

with name_missing_extras():
    import joblib
    from joblib.parallel import LokyBackend

# The manager's thread hands a call on in less than a millisecond. If it does not, it has died, and
# there is nothing to wait for.
HAND_ON_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.001


class LocalBackend(LokyBackend):  # type: ignore[misc]  # joblib is not typed
    """joblib's own backend, loky, stopped so that its manager does not trip over a call.

    loky's manager forgets all calls when it has to kill its workers, and then fails on one that it
    had not yet handed on: its thread ends with a `KeyError`, shown to whoever pressed Ctrl-C.

    joblib keeps the workers for the next sweep. One that leaves, having been idle, just as it is
    given a call makes the manager warn; where warnings are errors, that ends the manager's thread,
    and the sweep waits for ever.
    """

    _workers: Any  # loky's executor, or `None`

    @override
    def terminate(self) -> None:
        if self._workers is not None:
            self._workers.terminate()
            self._workers = None
        super().terminate()

    @override
    def abort_everything(self, ensure_ready: bool = True) -> None:
        with self.parallel._lock:  # noqa: SLF001  (a call that is just being given is given)
            pass
        # joblib gives no more calls from here on, and so none is left when none is waiting.
        waiting = self._workers._work_ids  # noqa: SLF001  (loky has no public word for it)
        deadline = time.monotonic() + HAND_ON_SECONDS
        while not waiting.empty() and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
        super().abort_everything(ensure_ready=ensure_ready)


ENGINES: Final = ("local", "dask", "ray")
# Ray's backend gives its results list by list, and so a sweep on Ray is kept list by list: long
# enough that few workers wait for the slowest, short enough that little is lost.
CELLS_PER_RAY_WORKER: Final = 8
# A worker whose parent was killed finds out by having nothing to do. No cell waits for so long, and
# a worker that ends too early is started again in a second or two.
IDLE_SECONDS: Final = 10

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Results = Generator[Any, None, None]
_Parallel = Callable[..., _Results]  # gives the results of joblib's delayed calls


@dataclass(frozen=True, slots=True)
class Engine:
    """Where cells are run.

    Attributes:
        name: `local` for processes of this machine, `dask` or `ray` for a cluster.
        workers: How many cells at a time; by default as many as there are cores.
        dask_address: Of a Dask scheduler that runs already, with workers of its own. Without it,
            Dask runs on this machine.

    Raises:
        InputError: If there is no such engine.
    """

    name: str = "local"
    workers: int | None = None
    dask_address: str | None = None

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            raise InputError("engine", self.name, ", ".join(ENGINES))
        if self.workers is not None and self.workers < 1:
            raise InputError("workers", self.workers, "a whole number of at least 1")
        if self.dask_address is not None and self.name != "dask":
            raise InputError.because("a dask_address needs the engine dask", field="dask_address")
        if self.dask_address is not None and self.workers is not None:
            raise InputError.because(
                "the cluster at dask_address has workers of its own; leave workers out",
                field="workers",
            )


@contextmanager
def each_done(
    function: Callable[[_Item], _Result], items: Sequence[_Item], engine: Engine
) -> Iterator[Iterator[_Result]]:
    """Give the results of a function, each as soon as it is there; leaving ends what still runs.

    Args:
        function: At the top level of a module, where every process finds it.
        items: What it is called with, each once.
        engine: Where.

    Raises:
        InputError: If the engine is not installed, or is not where it is said to be.
        ClusterError: If its workers died.
    """
    calls = [joblib.delayed(function)(item) for item in items]
    with _START[engine.name](engine, len(items)) as parallel:
        results = parallel(calls)
        try:
            yield results
        except BrokenProcessPool as error:
            raise ClusterError("a worker process died; was there enough memory?") from error
        finally:
            with warnings.catch_warnings():
                # joblib warns of results that nobody took: who interrupts a sweep knows of them.
                warnings.simplefilter("ignore", UserWarning)
                results.close()


def in_order(
    function: Callable[[_Item], _Result], items: Sequence[_Item], processes: int
) -> Iterator[_Result]:
    """Yield the result of a function for each item, in order, from processes of this machine.

    Args:
        function: At the top level of a module, where every process finds it.
        items: What it is called with, each once.
        processes: How many, at least 1; one is this process.
    """
    calls = [joblib.delayed(function)(item) for item in items]
    yield from _on_this_machine(processes, "generator")(calls)


@contextmanager
def _local(engine: Engine, items: int) -> Iterator[_Parallel]:
    workers = joblib.cpu_count() if engine.workers is None else engine.workers
    processes = max(1, min(workers, items))
    yield _on_this_machine(processes, "generator_unordered")


@contextmanager
def _dask(engine: Engine, items: int) -> Iterator[_Parallel]:
    require_extra("distributed")
    from veilring.scenarios.sweep import dask_backend

    local_workers = min(engine.workers or joblib.cpu_count(), items)
    with dask_backend.connect(engine.dask_address, local_workers) as backend:
        yield _parallel("generator_unordered", backend=backend, n_jobs=-1)


@contextmanager
def _ray(engine: Engine, items: int) -> Iterator[_Parallel]:
    require_extra("ray")
    ray = import_module("ray")  # no name: an extra need not be there to check types
    import_module("ray.util.joblib").register_ray()
    is_ours = not ray.is_initialized()
    if is_ours:
        ray.init(logging_level=logging.ERROR)  # at RAY_ADDRESS, if there is one
    try:
        workers = min(engine.workers or int(ray.cluster_resources()["CPU"]), items)
        with joblib.Parallel(backend="ray", n_jobs=workers, batch_size=1) as parallel:
            yield lambda calls: _in_slices(parallel, calls, CELLS_PER_RAY_WORKER * workers)
    finally:
        if is_ours:
            ray.shutdown()


_START: Final[Mapping[str, Callable[[Engine, int], AbstractContextManager[_Parallel]]]] = {
    "local": _local,
    "dask": _dask,
    "ray": _ray,
}


def _on_this_machine(processes: int, return_as: str) -> _Parallel:
    return _parallel(
        return_as, backend=LocalBackend(), n_jobs=processes, idle_worker_timeout=IDLE_SECONDS
    )


def _parallel(return_as: str, **backend: object) -> _Parallel:
    # One call a batch: a result is there when its cell is finished, not when others are.
    parallel: _Parallel = joblib.Parallel(batch_size=1, return_as=return_as, **backend)
    return parallel


def _in_slices(parallel: Callable[..., list[Any]], calls: Sequence[Any], size: int) -> _Results:
    for first in range(0, len(calls), size):
        yield from parallel(calls[first : first + size])

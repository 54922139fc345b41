"""The engines of a sweep: local processes or Dask, both through joblib."""

import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from typing_extensions import override

from veilring.errors import ClusterError, InputError
from veilring.extras import name_missing_extras, require_extra
from veilring.privacy.checks import require

with name_missing_extras():
    import joblib
    from joblib.parallel import LokyBackend

# The manager's thread hands a call on in less than a millisecond. If it has not, it has died, and
# waiting is pointless.
HAND_ON_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.001


class LocalBackend(LokyBackend):  # type: ignore[misc]  # joblib is not typed
    """joblib's own backend, loky, stopped so that its manager does not fail on a call.

    loky's manager forgets all calls when it has to kill its workers, and then fails on a call that
    it had not yet handed on: its thread ends with a `KeyError`, shown to the user who pressed
    Ctrl-C.

    joblib keeps the workers for the next sweep. An idle worker that leaves just as it is given a
    call makes the manager warn; if warnings are errors, that ends the manager's thread, and the
    sweep waits forever.
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
        with self.parallel._lock:  # noqa: SLF001  (a call that holds it is being made)
            pass
        # joblib makes no more calls from here on, so none is left once none is waiting.
        waiting = self._workers._work_ids  # noqa: SLF001  (loky has no public word for it)
        deadline = time.monotonic() + HAND_ON_SECONDS
        while not waiting.empty() and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
        super().abort_everything(ensure_ready=ensure_ready)


ENGINES: Final = ("local", "dask")
# A worker whose parent was killed notices when it is idle. No cell waits this long, and a worker
# that ends too early is restarted within a second or two.
IDLE_SECONDS: Final = 10

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Results = Generator[Any, None, None]
_Parallel = Callable[..., _Results]  # yields the results of joblib's delayed calls


@dataclass(frozen=True, slots=True)
class Engine:
    """The place where cells are run.

    Attributes:
        workers: The number of concurrent cells; by default the number of cores.
        dask_address: The address of a running Dask scheduler with workers of its own. Without it,
            Dask runs on this machine.
    """

    name: str = "local"
    workers: int | None = None
    dask_address: str | None = None

    def __post_init__(self) -> None:
        require(self.name in ENGINES, "engine", self.name, ", ".join(ENGINES))
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
    """Yield the results of a function as they become available; leaving ends the running calls.

    Raises:
        ClusterError: If its workers died.
    """
    calls = [joblib.delayed(function)(item) for item in items]
    with _START[engine.name](engine, len(items)) as parallel:
        results = parallel(calls)
        try:
            yield results
        except BrokenExecutor as error:
            raise ClusterError("a worker process died; was there enough memory?") from error
        finally:
            with warnings.catch_warnings():
                # joblib warns of unused results, but a user who interrupts a sweep knows of them
                warnings.simplefilter("ignore", UserWarning)
                results.close()


def in_order(
    function: Callable[[_Item], _Result], items: Sequence[_Item], processes: int | None = None
) -> Iterator[_Result]:
    """Yield the result of a function for each item, in order, from processes of this machine.

    Args:
        processes: The maximum number of processes, at least 1; one is this process. By default
            one per core.
    """
    calls = [joblib.delayed(function)(item) for item in items]
    yield from _on_this_machine(_processes(processes, len(items)), "generator")(calls)


def _processes(workers: int | None, items: int) -> int:
    return max(1, min(joblib.cpu_count() if workers is None else workers, items))


@contextmanager
def _local(engine: Engine, items: int) -> Iterator[_Parallel]:
    yield _on_this_machine(_processes(engine.workers, items), "generator_unordered")


@contextmanager
def _dask(engine: Engine, items: int) -> Iterator[_Parallel]:
    require_extra("distributed")
    from veilring.scenarios.sweep import dask_backend

    local_workers = _processes(engine.workers, items)
    with dask_backend.connect(engine.dask_address, local_workers) as backend:
        yield _parallel("generator_unordered", backend=backend, n_jobs=-1)


_START: Final[Mapping[str, Callable[[Engine, int], AbstractContextManager[_Parallel]]]] = {
    "local": _local,
    "dask": _dask,
}


def _on_this_machine(processes: int, return_as: str) -> _Parallel:
    return _parallel(
        return_as, backend=LocalBackend(), n_jobs=processes, idle_worker_timeout=IDLE_SECONDS
    )


def _parallel(return_as: str, **backend: object) -> _Parallel:
    # One call per batch: a result is available when its cell is finished, not when others are.
    parallel: _Parallel = joblib.Parallel(batch_size=1, return_as=return_as, **backend)
    return parallel

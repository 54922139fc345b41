"""joblib on Dask: an existing or a local cluster, with an error if workers die."""

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import distributed
from distributed import KilledWorker
from distributed.comm.addressing import get_address_host
from joblib._dask import DaskDistributedBackend
from tornado.ioloop import IOLoop
from typing_extensions import override

from veilring.errors import ClusterError, InputError

# A scheduler on another continent answers within a second; a missing one never does.
SCHEDULER_SECONDS: Final = 10

# the constructors are untyped
_Client: Any = distributed.Client
_LocalCluster: Any = distributed.LocalCluster


# The class has no public import name; joblib makes it for the string "dask".
class DaskBackend(DaskDistributedBackend):  # type: ignore[misc]  # joblib is not typed
    """Unlike joblib's own backend, fails instead of waiting forever if all workers of a task died.

    A task that raises an error returns it as a result. Only a task that Dask gives up raises one,
    and joblib does not report it.
    """

    @override
    def submit(self, func: object, callback: Callable[[object], None] | None = None) -> Any:
        def report_errors(done: Future[Any]) -> None:
            if callback is not None and done.exception() is not None:
                callback(done)

        future = super().submit(func, callback)
        future.add_done_callback(report_errors)
        return future

    @override
    def retrieve_result_callback(self, out: Any) -> Any:
        error = out.exception() if isinstance(out, Future) else None
        if isinstance(error, KilledWorker):
            text = f"Dask workers died {error.allowed_failures + 1} times while running one cell"
            raise ClusterError(f"{text}; was there enough memory?") from error
        if error is not None:
            raise error
        return super().retrieve_result_callback(out)


@contextmanager
def connect(address: str | None, local_workers: int) -> Iterator[DaskBackend]:
    """Use joblib's backend on a cluster, and leave the cluster when done.

    Args:
        address: The address of the scheduler, such as `tcp://10.0.0.5:8786`. Without it a cluster
            is started on this machine, reachable only locally, and stopped when done.
    """
    with ExitStack() as stack:
        if address is None:
            address = stack.enter_context(local_cluster(local_workers))
        loop = stack.enter_context(_event_loop())
        try:
            # refuses an unknown scheme, which a client finds too late to close itself
            get_address_host(address)
            found = _Client(address, timeout=SCHEDULER_SECONDS, set_as_default=False, loop=loop)
        except (OSError, ValueError) as error:
            allowed = f"the address of a reachable Dask scheduler ({error})"
            raise InputError("dask_address", address, allowed) from error
        yield DaskBackend(client=stack.enter_context(found))


@contextmanager
def local_cluster(workers: int) -> Iterator[str]:
    """Yield the address of a local cluster with the given number of processes.

    It ignores Ctrl-C, and stops when this context is left.
    """
    with ExitStack() as stack:
        loop = stack.enter_context(_event_loop())
        with _deaf_to_interrupts():
            cluster = _LocalCluster(
                n_workers=workers,
                threads_per_worker=1,  # a cell computes in Python, on one thread
                host="127.0.0.1",
                # Dask serves its health over HTTP and cannot be told not to: on loopback only, on
                # any port.
                dashboard_address="127.0.0.1:0",
                worker_dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False},
                silence_logs=logging.CRITICAL,
                loop=loop,
            )
        stack.enter_context(cluster)
        yield cluster.scheduler_address


@contextmanager
def _event_loop() -> Iterator[IOLoop]:
    """Yield an event loop that runs in a thread until this context is left.

    Dask would start one itself, and fail if a busy machine takes more than 10 s to start a thread.
    """
    running, left = Future[IOLoop](), asyncio.Event()

    async def run() -> None:
        running.set_result(IOLoop.current())
        await left.wait()

    with ThreadPoolExecutor(max_workers=1) as thread:
        ended = thread.submit(lambda: asyncio.run(run()))
        either: list[Future[Any]] = [running, ended]
        wait(either, return_when=FIRST_COMPLETED)
        if ended.done():
            ended.result()  # raises why there is no loop
        loop = running.result()
        try:
            yield loop
        finally:
            loop.add_callback(left.set)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Start processes that ignore Ctrl-C; their parent ends them.

    A terminal sends Ctrl-C to all processes, and each worker would print a traceback.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can set it, and a program without a terminal needs none
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

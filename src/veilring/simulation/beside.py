"""Running a coroutine from synchronous code, even if an event loop is already running.

In a notebook a loop runs in the thread of the cells, and asyncio allows one loop per thread. The
coroutine then runs on a loop of its own in another thread.
"""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar, cast

from veilring.simulation.loop import SimulatedLoop, simulate

_T = TypeVar("_T")
Start: TypeAlias = Callable[[], Coroutine[Any, Any, _T]]
"""A function that makes the coroutine."""
Runner: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]
"""A function that runs a coroutine on a new loop in this thread: `simulate` or `asyncio.run`."""


def complete(start: Start[_T], runner: Runner = simulate) -> _T:
    """Run a coroutine to its end and return its result. If interrupted, cancel it first."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return cast("_T", runner(start()))
    outcome, stop = begin(start, runner)
    try:
        return outcome.result()
    except KeyboardInterrupt:
        stop()
        wait([outcome])
        raise


def begin(start: Start[_T], runner: Runner) -> tuple[Future[_T], Callable[[], None]]:
    """Start a coroutine in a thread of its own.

    Returns:
        The future result, and a function that cancels the coroutine.
    """
    begun: Future[asyncio.Task[Any]] = Future()

    async def main() -> _T:
        begun.set_result(cast("asyncio.Task[Any]", asyncio.current_task()))
        return await start()

    def stop() -> None:
        either: tuple[Future[Any], ...] = (begun, outcome)
        wait(either, return_when=FIRST_COMPLETED)
        if begun.done():
            _cancel(begun.result())

    context = contextvars.copy_context()
    executor = ThreadPoolExecutor(1, "veilring-run")
    outcome: Future[_T] = executor.submit(lambda: context.run(lambda: runner(main())))
    executor.shutdown(wait=False)
    return outcome, stop


def _cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task of another thread's loop."""
    loop = task.get_loop()
    with suppress(RuntimeError):  # the task has ended meanwhile, and its loop is closed
        if isinstance(loop, SimulatedLoop):
            loop.cancel_from_outside(task)
        else:
            loop.call_soon_threadsafe(task.cancel)

"""The event loop of a party with its own process, and worker threads for slow calls."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Protocol, Self, TypeVar

_T = TypeVar("_T")


class Offload(Protocol):
    """Runs a callable and returns its result, while other tasks may continue."""

    async def __call__(self, call: Callable[[], _T], /) -> _T:
        """Run it."""


async def run_inline(call: Callable[[], _T]) -> _T:
    """Run a callable at once in this task, as in the simulation, where it takes no time."""
    return call()


class Threads:
    """Worker threads that run calls. Leaving the context waits for running calls."""

    def __init__(self, workers: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(workers, name)

    async def __call__(self, call: Callable[[], _T]) -> _T:
        """Run a callable in a worker thread. Cancelling the await does not stop it."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def close(self) -> None:
        """Refuse further calls, and wait for the running ones."""
        self._pool.shutdown()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def party_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the loop factory: uvloop's if the extra is installed, otherwise asyncio's own.

    Every transport passes the same checks on both loops; a hop over TLS is slightly faster on
    uvloop.
    """
    if find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop

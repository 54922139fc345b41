"""Calling what takes long beside the event loop, where there may be threads."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, Self, TypeVar

T = TypeVar("T")


class Aside(Protocol):
    """Calls something and returns what it returns, while other tasks may go on."""

    async def __call__(self, call: Callable[[], T], /) -> T:
        """Call it."""


async def at_once(call: Callable[[], T]) -> T:
    """Call something here and now: on a simulated clock, where it takes no time."""
    return call()


class Threads:
    """A few threads that calls take turns in. Leaving the context lets those end that run.

    Args:
        workers: How many threads there are.
        name: What they are called.
    """

    def __init__(self, workers: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(workers, name)

    async def __call__(self, call: Callable[[], T]) -> T:
        """Call something in a thread. Who stops waiting for it does not stop it."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def close(self) -> None:
        """Take no more calls, and wait for those that run."""
        self._pool.shutdown()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

"""Running a coroutine to its end from synchronous code, even inside a running loop."""

import asyncio
import threading

from veilring.simulation import SimulatedLoop
from veilring.simulation.beside import complete


async def _where() -> tuple[bool, str, float]:
    await asyncio.sleep(2.0)
    loop = asyncio.get_running_loop()
    return isinstance(loop, SimulatedLoop), threading.current_thread().name, loop.time()


def test_without_a_loop_it_runs_in_this_thread() -> None:
    """The simulated clock runs in the caller's thread."""
    assert complete(_where) == (True, threading.current_thread().name, 2.0)


async def test_beside_a_loop_it_runs_in_another_thread() -> None:
    """In a notebook cell, where a loop runs, the result of a simulation is returned."""
    simulated, thread, seconds = complete(_where)
    assert (simulated, seconds) == (True, 2.0)
    assert thread != threading.current_thread().name

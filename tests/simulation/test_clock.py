"""The loop with a SimPy environment as its clock: a run from its start to its end."""

import asyncio
import math
import signal
import threading
import warnings
from collections.abc import AsyncIterator

import pytest
from simpy import Environment
from tests.simulation.moments import now

from veilring.errors import SimulationError
from veilring.simulation import SimulatedLoop, running_environment, simulate
from veilring.simulation.loop import LoopTrace


def test_sleep_takes_simulated_time_only() -> None:
    """A sleep of a year ends exactly a year later on the simulated clock."""

    async def main() -> float:
        await asyncio.sleep(31_536_000)
        return now()

    assert simulate(main()) == 31_536_000


def test_environment_keeps_its_time() -> None:
    """A run starts at the time of the given environment and leaves it at its end time."""
    environment = Environment(initial_time=7)

    async def main() -> float:
        await asyncio.sleep(1.5)
        return now()

    assert simulate(main(), env=environment) == environment.now == 8.5


def test_a_result_is_not_formatted() -> None:
    """The result of a run is never formatted, since formatting could take as long as the run."""
    formatted: list[object] = []

    class Result:
        def __repr__(self) -> str:
            formatted.append(self)
            return "a result"

    async def main() -> Result:
        await asyncio.sleep(1)
        return Result()

    assert isinstance(simulate(main()), Result)
    assert not formatted


def test_interrupt_ends_the_run() -> None:
    """Ctrl-C cancels the main task, as in asyncio's own loop, and ends the run."""
    cancelled: list[bool] = []

    async def main() -> None:
        try:
            for second in range(10):
                await asyncio.sleep(1)
                if second == 5:
                    signal.raise_signal(signal.SIGINT)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with pytest.raises(KeyboardInterrupt):
        simulate(main())
    assert cancelled == [True]


def test_closed_loop_refuses_work() -> None:
    """A closed loop starts neither timers nor tasks."""
    loop = SimulatedLoop()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_later(1, print)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError, match="closed"):
            loop.create_task(asyncio.sleep(0))


def test_runner_shuts_down_asynchronous_generators() -> None:
    """A suspended generator is closed when the run ends."""
    closed: list[bool] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            closed.append(True)

    async def main() -> AsyncIterator[int]:
        generator = numbers()
        await anext(generator)
        return generator

    simulate(main())
    assert closed == [True]


async def test_real_loop_has_no_environment() -> None:
    """The error explains how to start a simulation, and inside a loop, not to nest one."""
    with pytest.raises(SimulationError, match=r"veilring\.simulation\.simulate"):
        running_environment()
    with pytest.raises(SimulationError, match="await"):
        simulate(asyncio.sleep(0))


def test_without_a_loop_there_is_no_environment() -> None:
    """The same error is raised without a running loop."""
    with pytest.raises(SimulationError, match=r"veilring\.simulation\.simulate"):
        running_environment()


def test_run_works_in_any_thread() -> None:
    """A simulation may run in a separate thread."""
    results: list[float] = []

    async def main() -> None:
        await asyncio.sleep(1)
        asyncio.get_running_loop().call_soon_threadsafe(lambda: None)
        results.append(now())

    thread = threading.Thread(target=lambda: simulate(main()))
    thread.start()
    thread.join()
    assert results == [1]


def test_trace_distinguishes_runs() -> None:
    """Equal runs have equal digests; a change in the last bit of one timer changes the digest."""

    def digest(seconds: float) -> str:
        trace = LoopTrace(keep=True)
        simulate(asyncio.sleep(seconds), trace=trace)
        assert len(trace.entries) == trace.count > 0
        return trace.digest

    assert digest(0.1) == digest(0.1) != digest(math.nextafter(0.1, 1))

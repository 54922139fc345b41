"""SimPy processes and events beside tasks, on one clock."""

import asyncio
from collections.abc import Generator
from typing import Any

import pytest
from simpy import Environment
from simpy.events import Event
from tests.simulation.moments import now

from veilring.errors import InputError
from veilring.simulation import running_environment, simulate, wait_event


def test_process_and_tasks_share_the_clock() -> None:
    """A task can wait for a SimPy process and get its result while other processes run."""
    log: list[float] = []

    def tick(environment: Environment, count: int) -> Generator[Event, Any, int]:
        for _ in range(count):
            yield environment.timeout(1)
            log.append(environment.now)
        return count

    async def main() -> tuple[int, float]:
        environment = running_environment()
        environment.process(tick(environment, 5))
        count = await wait_event(environment.process(tick(environment, 3)))
        return count, now()

    assert simulate(main()) == (3, 3)
    assert log == [1, 1, 2, 2, 3, 3]


def test_failed_event_raises_in_the_waiting_task() -> None:
    """A process's error reaches the task that waits for it, even afterwards."""

    def fail(environment: Environment) -> Generator[Event, Any, None]:
        yield environment.timeout(1)
        raise KeyError("broken")

    async def main() -> None:
        environment = running_environment()
        process = environment.process(fail(environment))
        for _ in range(2):
            with pytest.raises(KeyError, match="broken"):
                await wait_event(process)

    simulate(main())


def test_failed_event_without_a_waiter_ends_the_run() -> None:
    """A process's error is never lost, even if the waiting task gave up."""

    def fail(environment: Environment) -> Generator[Event, Any, None]:
        yield environment.timeout(1)
        raise KeyError("broken")

    async def main() -> None:
        environment = running_environment()
        process = environment.process(fail(environment))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await wait_event(process)
        await asyncio.sleep(1)

    with pytest.raises(KeyError, match="broken"):
        simulate(main())


def test_event_of_another_environment_is_refused() -> None:
    """An event of another environment could never happen here."""

    async def main() -> None:
        await wait_event(Environment().timeout(1))

    with pytest.raises(InputError, match="another environment"):
        simulate(main())

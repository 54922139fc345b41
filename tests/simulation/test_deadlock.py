"""Deadlocks: if all tasks wait and no event is due, the loop names the waiting tasks."""

import asyncio
import math

import pytest
from tests.simulation.moments import now

from veilring.errors import Deadlock
from veilring.simulation import SimulatedLoop, simulate


def test_deadlock_names_waiting_tasks() -> None:
    """Tasks that described their waits are named, in the order of registration."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        loop.describe_waits(lambda: ["alice waits for bob"])
        loop.describe_waits(lambda: ())
        loop.describe_waits(lambda: iter(["bob waits for alice"]))
        await asyncio.sleep(1)
        await asyncio.Event().wait()

    with pytest.raises(Deadlock) as caught:
        simulate(main())
    assert caught.value.waits == ("alice waits for bob", "bob waits for alice")


def test_deadlock_falls_back_on_tasks() -> None:
    """Without descriptions the pending tasks are named; all are then cancelled, and clean up."""
    cleaned: list[float] = []

    async def wait_for_ever() -> None:
        try:
            await asyncio.sleep(math.inf)
        finally:
            await asyncio.sleep(2)
            cleaned.append(now())

    async def main() -> None:
        child = asyncio.create_task(wait_for_ever(), name="child")
        await asyncio.sleep(1)
        await child

    with pytest.raises(Deadlock) as caught:
        simulate(main())
    main_task, child_task = caught.value.waits
    assert main_task.startswith("Task-1 (test_deadlock_falls_back_on_tasks.")
    assert child_task.endswith("wait_for_ever) is waiting")
    assert cleaned == [3]


def test_deadlock_leaves_a_usable_runner() -> None:
    """After a deadlock asyncio's own runner can run something else and close without a warning."""

    async def stuck() -> None:
        await asyncio.Event().wait()

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        with pytest.raises(Deadlock):
            runner.run(stuck())
        assert runner.run(asyncio.sleep(1, "done")) == "done"


def test_loop_without_tasks_is_a_deadlock() -> None:
    """A loop that has nothing left to do raises a deadlock."""
    loop = SimulatedLoop()
    with pytest.raises(Deadlock, match="without any task"):
        loop.run_forever()
    loop.close()

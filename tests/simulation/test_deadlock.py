"""Deadlocks: if all tasks wait and no event is due, the loop names the waiting tasks."""

import asyncio
import itertools
import math

import pytest
from simpy.events import Event
from tests.simulation.moments import now

from veilring.errors import Deadlock, SimulationError
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party
from veilring.simulation import SimulatedLoop, running_environment, simulate, wait_event
from veilring.simulation import loop as loops
from veilring.transport.messages import Message


class Ball(Message, kind="test.deadlock.ball"):
    """A message that goes to and fro."""


def test_a_deadlock_can_be_released() -> None:
    """At a deadlock, each function that may end a wait is asked; if one did, tasks go on."""
    asked: list[str] = []

    async def main() -> float:
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        assert isinstance(loop, SimulatedLoop)

        def release() -> bool:
            asked.append("ada")
            event.set()
            return True

        loop.at_deadlock(release)
        loop.at_deadlock(lambda: "bob" in asked)
        loop.limit(9, event.set)
        await asyncio.sleep(1)
        await event.wait()
        return loop.time()

    assert simulate(main()) == 1
    assert asked == ["ada"]


def test_a_limit_ends_a_loop_that_sleeps() -> None:
    """Where time passes, a limit is called at its time, unless it was cancelled."""
    called: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        loop.limit(2.5, lambda: called.append(loop.time()))
        loop.limit(1.5, lambda: called.append(loop.time())).cancel()
        for _ in range(4):
            await asyncio.sleep(1)

    simulate(main())
    assert called == [2.5]


def test_a_task_that_never_waits_is_named() -> None:
    """A loop without an event ends with an error that names its task, file and line."""

    async def spin() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.sleep(0.25)
        await asyncio.create_task(spin(), name="spinner")

    line = spin.__code__.co_firstlineno + 2
    with pytest.raises(
        SimulationError,
        match=rf"at 0\.25 s.*spinner, at .*{__name__.rpartition('.')[2]}\.py:{line};",
    ):
        simulate(main())


def test_a_task_that_waits_for_no_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop of events at one instant ends, too; a few of them do not end it."""
    monkeypatch.setattr(loops, "EVENTS_MAX", 50)

    async def spin(laps: int) -> None:
        for _ in range(laps):
            await wait_event(Event(running_environment()).succeed())

    async def main(laps: int) -> None:
        await asyncio.sleep(0.25)
        await asyncio.create_task(spin(laps), name="spinner")
        await asyncio.sleep(0.25)

    simulate(main(99))  # of two tasks
    line = spin.__code__.co_firstlineno + 2
    with pytest.raises(SimulationError, match=rf"10\d events at 0\.25 s.*spinner, at .*:{line};"):
        simulate(main(1_000))


async def ping_pong(party: Party) -> None:
    """Send a message to and fro for ever."""
    party.round(1)
    peer = next(name for name in party.peers)
    for _ in itertools.count():
        await party.send(peer, Ball())
        await party.receive(Ball, sender=peer)


def test_a_role_that_sends_for_ever_without_latency_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error names the role's own line, although its time limit is never reached."""
    monkeypatch.setattr(loops, "EVENTS_MAX", 100)

    async def main() -> None:
        async with Cluster(2, runtime="simulated", seed=1) as cluster:
            await cluster.run(ping_pong, seconds=5.0)

    line = ping_pong.__code__.co_firstlineno + 6
    with pytest.raises(SimulationError, match=rf"events at 0 s.*{line};"):
        simulate(main())


def test_deadlock_falls_back_on_tasks() -> None:
    """The pending tasks are named; all are then cancelled, and clean up."""
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

"""Clocks of simulated parties that drift and jump, and roles that take time to compute."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from time import thread_time
from typing import Literal

import pytest
from simpy import Environment
from tests.roles import Number

from veilring import simulation
from veilring.errors import Deadlock, InputError, RunFailed, SimulationError
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party, broadcast
from veilring.nodes.run import Run
from veilring.nodes.runtimes import Simulated
from veilring.simulation.clocks import Clock
from veilring.simulation.faults import Fault
from veilring.simulation.loop import running_environment

NAMES = ("ada", "bob")


async def read_clock(_party: Party) -> tuple[list[float], float]:
    """Return the readings after a sleep of 4 s and a time limit of 2 s, and the true time."""
    loop = asyncio.get_running_loop()
    readings = [loop.time()]
    await asyncio.sleep(4)
    readings.append(loop.time())
    try:
        async with asyncio.timeout(2):
            await asyncio.sleep(100)
    except TimeoutError:
        readings.append(loop.time())
    return readings, running_environment().now


@pytest.mark.parametrize(
    ("faults", "lasts"),
    [
        pytest.param([("skew", 0.0, 100.0, 2.0)], 12.0, id="slower"),
        pytest.param([("skew", 0.0, 100.0, 0.25)], 1.5, id="faster"),
        pytest.param([("skew", 1.0, 3.0, 2.0)], 7.0, id="slower for two seconds"),
        pytest.param([("skew", 1.0, 9.0, 4.0), ("skew", 2.0, 4.0, 2.0)], 11.5, id="latest rate"),
        pytest.param([("jump", 1.0, math.inf, 3.0)], 3.0, id="ahead"),
        pytest.param([("jump", 1.0, math.inf, 5.0)], 3.0, id="ahead of the sleep's end"),
        pytest.param([("skew", 0.0, 9.0, 2.0), ("jump", 2.0, math.inf, 3.0)], 6.0, id="both"),
    ],
)
def test_all_timers_of_a_party_keep_its_clock(
    faults: list[tuple[Literal["skew", "jump"], float, float, float]], lasts: float
) -> None:
    """Sleeps and limits last as long as the party's clock says; its peer's clock is right."""
    schedule = [Fault(kind, start, end, ("ada",), s) for kind, start, end, s in faults]
    runtime = Simulated(faults=schedule)

    async def main() -> Run[tuple[list[float], float]]:
        async with Cluster(NAMES, runtime=runtime) as cluster:
            return await cluster.run(read_clock)

    results = simulation.simulate(main()).results
    assert results["bob"] == ([0, 4, 6], 6)
    readings, true = results["ada"]
    late = 2.0 if lasts == 3.0 and faults[0][3] == 5.0 else 0.0  # it jumped over the end
    assert readings == pytest.approx([0, 4 + late, 6 + late])
    assert true == pytest.approx(lasts)
    assert runtime.struck == tuple(schedule)


def test_a_change_that_nobody_sees_has_no_effect() -> None:
    """A clock that jumps when no timer is set and is never read again did not matter."""
    runtime = Simulated(faults=[Fault("jump", 50.0, math.inf, ("ada",), 3.0)])

    async def main() -> None:
        async with Cluster(NAMES, runtime=runtime) as cluster:
            await cluster.run(read_clock)
            await asyncio.sleep(100)

    simulation.simulate(main())
    assert not runtime.struck


def test_every_change_before_a_reading_is_noticed() -> None:
    """Of several changes that nobody has seen, each one matters to the next reading."""
    clock, noticed = Clock(Environment()), list[str]()
    clock.change(lambda: noticed.append("slower"), rate=0.5)
    clock.change(lambda: noticed.append("ahead"), jump=1.0)
    assert not noticed
    assert clock.read() == 1.0
    assert noticed == ["slower", "ahead"]


@pytest.mark.parametrize("offset", [0.0, 0.9, 9.0])
def test_faults_of_clocks_strike_whenever_a_cluster_starts(offset: float) -> None:
    """Times count from the start of the cluster, whose sum with the present may round."""
    runtime = Simulated(faults=[Fault("skew", 0.1, 1.1, ("ada",), 2.0)])

    async def main() -> float:
        await asyncio.sleep(offset)
        async with Cluster(NAMES, runtime=runtime) as cluster:
            run = await cluster.run(read_clock)
        return run.results["ada"][1] - offset

    assert simulation.simulate(main()) == pytest.approx(6.5)


@pytest.mark.parametrize("times", [2.0, 3.0, 7.3])
def test_a_sleep_until_a_reading_ends(times: float) -> None:
    """No timer rings before its clock shows the time, even if that cannot be met exactly."""

    async def wait_until(_party: Party) -> float:
        loop = asyncio.get_running_loop()
        for _ in range(100):
            await asyncio.sleep(3.63 - loop.time())
            if loop.time() >= 3.63:
                break
        return loop.time()

    async def main() -> Run[float]:
        faults = [Fault("skew", 0.0, 100.0, ("ada",), times)]
        async with Cluster(NAMES, runtime=Simulated(faults=faults)) as cluster:
            return await cluster.run(wait_until)

    assert simulation.simulate(main()).results["ada"] >= 3.63


def test_a_deadlock_is_found_before_a_clock_changes() -> None:
    """The end of a fault of a clock is no event that could free a party."""

    async def main() -> None:
        faults = [Fault("skew", 0.0, 1e6, ("ada",), 2.0)]
        async with Cluster(NAMES, runtime=Simulated(faults=faults)) as cluster:
            try:
                await cluster.run(wait_in_vain)
            finally:
                assert running_environment().now == 0

    with pytest.raises(RunFailed) as failed:
        simulation.simulate(main())
    assert isinstance(failed.value.root, Deadlock)


async def wait_in_vain(party: Party) -> None:
    """Wait for a number that no party sends."""
    await party.receive(Number, sender=party.peers[0])


def test_the_limit_of_a_session_keeps_the_partys_clock() -> None:
    """A party with a fast clock gives up first."""

    async def main() -> None:
        runtime = Simulated(faults=[Fault("skew", 0.0, 100.0, ("ada",), 0.5)])
        async with Cluster(NAMES, runtime=runtime) as cluster:
            try:
                await cluster.run(wait_in_vain, seconds=8.0)
            finally:
                assert running_environment().now == 4.0

    with pytest.raises(RunFailed, match="not finished after 8 s: ada"):
        simulation.simulate(main())


async def compute(party: Party, own: float) -> int:
    """Compute for a time, and add up numbers of all parties."""
    party.round(1)
    start = thread_time()
    while thread_time() - start < own:
        pass
    await broadcast(party, Number(number=1))
    return sum([(await party.receive(Number, sender=peer)).number for peer in party.peers])


def computed(
    seconds: float | Literal["measured"], role: Callable[..., Awaitable[int]] = compute
) -> Run[int]:
    """Return a run of three parties that compute for different times."""

    async def main() -> Run[int]:
        async with Cluster(
            3, runtime=Simulated(compute=seconds), own=[0.01, 0.02, 0.05], seed=1
        ) as cluster:
            return await cluster.run(role)

    return simulation.simulate(main())


def test_each_call_takes_its_seconds() -> None:
    """Two sends, two receives and the end take five times as long; transcripts stay equal."""
    instant, slow = computed(0.0), computed(0.5)
    assert (instant.seconds, slow.seconds) == (0, 2.5)
    assert (instant.transcript, instant.cost) == (slow.transcript, slow.cost)


def test_measured_roles_take_at_least_their_time() -> None:
    """The run takes as long as its slowest party computes; results are as without."""
    measured = computed("measured")
    assert measured.seconds >= 0.05
    assert measured.results == computed(0.0).results


async def compute_in_tasks(party: Party, own: float) -> int:
    """Compute in a task beside one that is cancelled before it begins."""
    idle = asyncio.create_task(asyncio.sleep(math.inf))
    idle.cancel()
    async with asyncio.TaskGroup() as group:
        computing = group.create_task(compute(party, own))
    return computing.result()


def test_tasks_of_a_role_are_measured() -> None:
    """The time of each task that a role starts counts as much as its own."""
    assert computed("measured", compute_in_tasks).seconds >= 0.05


async def turn_for_ever(_party: Party, _own: float) -> int:
    """Never wait."""
    while True:  # noqa: ASYNC110  (the tested mistake)
        await asyncio.sleep(0)


def test_a_measured_loop_that_never_waits_is_named() -> None:
    """The error has its file and line, as without measurement."""
    with pytest.raises(SimulationError, match=r"a loop that never waits: .*test_clocks\.py"):
        computed("measured", turn_for_ever)


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan])
def test_other_times_are_refused(seconds: float) -> None:
    """Times are finite and not negative."""
    with pytest.raises(InputError, match=r'seconds of at least 0, or "measured"'):
        Simulated(compute=seconds)

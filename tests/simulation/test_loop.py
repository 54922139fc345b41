"""The loop with a SimPy environment as its clock: timers, tasks, refusals and deadlocks."""

import asyncio
import contextvars
import inspect
import itertools
import math
import signal
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simpy import Environment
from simpy.events import Event
from tests.roles import chat
from tests.simulation.running import simulated

from veilring.errors import Deadlock, InputError, SimulationError
from veilring.nodes.cluster import Cluster
from veilring.randomness import Streams
from veilring.simulation import Order, SimulatedLoop, running_environment, simulate, wait_event
from veilring.simulation import loop as loops
from veilring.simulation.loop import LoopTrace, complete


def now() -> float:
    """Return the running loop's time."""
    return asyncio.get_running_loop().time()


async def where() -> tuple[str, float]:
    """Return the name of the thread and the time after two seconds."""
    await asyncio.sleep(2.0)
    return threading.current_thread().name, now()


def test_sleep_takes_exact_simulated_time_in_the_given_environment() -> None:
    """A year's sleep ends a year later; a run leaves the environment at its end."""
    environment = Environment(initial_time=7)

    async def main() -> float:
        await asyncio.sleep(31_536_000.5)
        return now()

    assert simulate(main(), env=environment) == environment.now == 31_536_007.5


def test_a_result_is_not_formatted() -> None:
    """The result of a run is never formatted, since formatting could take as long as the run."""

    class Result:
        def __repr__(self) -> str:
            raise AssertionError("this result is large")

    assert isinstance(simulate(asyncio.sleep(1, Result())), Result)


def test_interrupt_ends_the_run() -> None:
    """Ctrl-C cancels the main task, as in asyncio's own loop, and ends the run."""
    seconds: list[float] = []

    async def main() -> None:
        try:
            while True:
                await asyncio.sleep(1)
                if now() == 5:
                    signal.raise_signal(signal.SIGINT)
        except asyncio.CancelledError:
            seconds.append(now())
            raise

    with pytest.raises(KeyboardInterrupt):
        simulate(main())
    assert seconds == [5]


def test_a_real_loop_has_no_environment() -> None:
    """The error explains how to start a simulation, and inside a loop, not to nest one."""

    async def nest() -> None:
        with pytest.raises(SimulationError, match=r"veilring\.simulation\.simulate"):
            running_environment()
        simulate(asyncio.sleep(0))

    with pytest.raises(SimulationError, match="await"):
        asyncio.run(nest())
    with pytest.raises(SimulationError, match=r"veilring\.simulation\.simulate"):
        running_environment()


def test_a_simulation_runs_in_any_one_thread() -> None:
    """It may run in a thread of its own; another one cannot wake it, which no replay would know."""
    assert complete(where) == (threading.current_thread().name, 2.0)

    async def main() -> tuple[str, float]:
        wake = asyncio.get_running_loop().call_soon_threadsafe
        wake(lambda: None)
        with ThreadPoolExecutor(1) as pool, pytest.raises(SimulationError, match="another thread"):
            pool.submit(wake, lambda: None).result()
        return await where()

    with ThreadPoolExecutor(1, "own") as pool:
        assert pool.submit(simulate, main()).result() == ("own_0", 2.0)


def test_trace_distinguishes_runs() -> None:
    """Equal runs have equal digests; a change in the last bit of one timer changes the digest."""

    def digest(seconds: float) -> str:
        trace = LoopTrace(keep=True)
        simulate(asyncio.sleep(seconds), trace=trace)
        assert len(trace.entries) == trace.count > 0
        return trace.digest

    assert digest(0.1) == digest(0.1) != digest(math.nextafter(0.1, 1))


# Sums of tenths round differently from different starts.
INSTANTS = st.floats(min_value=0, max_value=1e6) | st.sampled_from([0.0, 0.1, 0.2, 0.3])


@given(st.lists(st.tuples(INSTANTS, INSTANTS), max_size=40))
@simulated
async def test_timers_ring_on_time_and_in_order(timers: list[tuple[float, float]]) -> None:
    """Whenever it is set, a timer rings at its instant to the last bit, or now if it is overdue."""
    rung: list[tuple[float, int, float]] = []
    loop, numbers = asyncio.get_running_loop(), itertools.count()

    def ring(number: int, expected: float) -> None:
        rung.append((now(), number, expected))

    def set_timer(due: float) -> None:
        loop.call_at(due, ring, next(numbers), max(due, now()))

    for set_at, due in timers:
        loop.call_at(set_at, set_timer, due)
    await asyncio.sleep(2e6)
    assert len(rung) == len(timers)
    assert rung == sorted(rung)
    assert all(instant == expected for instant, _, expected in rung)


@simulated
async def test_cancelled_timer_does_not_ring() -> None:
    """A timer can be cancelled until its callback runs; it reports that, and others still ring."""
    rung: list[str] = []
    loop, environment = asyncio.get_running_loop(), running_environment()
    cancelled, kept, due = (loop.call_at(1, rung.append, name) for name in ("no", "yes", "due"))
    loop.call_later(0.5, cancelled.cancel)
    environment.timeout(1).callbacks.append(lambda _: due.cancel())
    await asyncio.sleep(0.75)
    environment.run(until=1.5)  # both events at 1 s, before the loop gets to run a callback
    await asyncio.sleep(1)
    kept.cancel()
    assert (cancelled.cancelled(), due.cancelled()) == (True, True)
    assert (cancelled.when(), kept.when()) == (1, 1)
    assert rung == ["yes"]


@simulated
async def test_timer_keeps_its_context() -> None:
    """A timer's callback runs in the context in which the timer was set."""
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    seen: list[int] = []
    loop = asyncio.get_running_loop()
    variable.set(1)
    loop.call_later(1, lambda: seen.append(variable.get()))
    loop.call_later(2, lambda: seen.append(variable.get()), context=contextvars.Context())
    variable.set(2)
    await asyncio.sleep(3)
    assert seen == [1, 0]


def test_primitives_work_unchanged() -> None:
    """Groups, limits, queues, events, semaphores, wait, gather and as_completed work in time."""

    async def main() -> list[object]:
        log: list[object] = []
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)
        turn, opened = asyncio.Semaphore(2), asyncio.Event()

        async def produce() -> None:
            for item in range(3):
                await asyncio.sleep(1)
                await queue.put(item)
            opened.set()

        async def work(seconds: float) -> float:
            async with turn:
                await asyncio.sleep(seconds)
            return seconds

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            for _ in range(3):
                item = await queue.get()
                log.append((now(), item))
            await opened.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await queue.get()
        log.append(now())
        log.append(await asyncio.gather(work(3), work(1), work(1)))
        log.append(now())
        tasks = [asyncio.create_task(work(seconds)) for seconds in (3, 2)]
        log.append([await task for task in asyncio.as_completed(tasks)])
        done, pending = await asyncio.wait(
            [asyncio.create_task(work(seconds)) for seconds in (2, 1)],
            return_when=asyncio.FIRST_COMPLETED,
        )
        log.append(([task.result() for task in done], len(pending)))
        return [*log, now()]

    expected = [(1, 0), (2, 1), (3, 2), 3.5, [3, 1, 1], 6.5, [2, 3], ([1], 1), 10.5]
    assert simulate(main()) == expected
    assert simulate(main(), debug=True) == expected


def test_tasks_left_over_are_cancelled_oldest_first() -> None:
    """Tasks still running at the end of the main coroutine are cancelled in order of creation."""
    ended: list[int] = []

    async def member(index: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            ended.append(index)

    async def main() -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(member(index)) for index in range(1_000)]
        await asyncio.sleep(0)
        for index, task in enumerate(tasks):
            if index % 37:  # those that stay have numbers far apart, which a set does not keep
                task.cancel()
        await asyncio.sleep(2)
        ended.clear()
        return tasks

    assert all(task.cancelled() for task in simulate(main()))
    assert ended == list(range(0, 1_000, 37))


@simulated
async def test_own_task_factory_is_used() -> None:
    """A task factory that the program sets is respected."""
    loop = asyncio.get_running_loop()

    def factory(loop: Any, coro: Any, **options: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=loop, **options)

    loop.set_task_factory(factory)
    task = asyncio.create_task(asyncio.sleep(0, "done"))
    assert type(task) is asyncio.Task
    assert await task == "done"


@pytest.mark.parametrize("by_timer", [True, False])
def test_an_order_permutes_what_one_instant_makes_ready(by_timer: bool) -> None:
    """Tasks woken at one instant run in every order, for timers and link events alike."""

    def play(seed: int) -> str:
        turns = ""

        async def take_turn(name: str) -> None:
            nonlocal turns
            due = asyncio.sleep(1) if by_timer else wait_event(running_environment().timeout(1))
            await due
            turns += name

        async def main() -> None:
            await asyncio.gather(*map(take_turn, "abc"))

        simulate(main(), order=Order(Streams(seed).generator("order")))
        return turns

    # That 100 permutations drawn at random miss one of six: below 6 (5/6)^100 = 7.3e-8.
    assert len({play(seed) for seed in range(100)}) == 6


def fail(environment: Environment) -> Generator[Event, Any, None]:
    """Fail after a second."""
    yield environment.timeout(1)
    raise KeyError("broken")


@simulated
async def test_process_and_tasks_share_the_clock() -> None:
    """A task gets the result or the error of a process, even afterwards, as other processes run."""
    log: list[float] = []

    def tick(environment: Environment, count: int) -> Generator[Event, Any, int]:
        for _ in range(count):
            yield environment.timeout(1)
            log.append(environment.now)
        return count

    environment = running_environment()
    environment.process(tick(environment, 5))
    process = environment.process(fail(environment))
    for _ in range(2):
        with pytest.raises(KeyError, match="broken"):
            await wait_event(process)
    assert (await wait_event(environment.process(tick(environment, 3))), now()) == (3, 4)
    assert log == [1, 2, 2, 3, 3, 4, 4]


def test_failed_event_without_a_waiter_ends_the_run() -> None:
    """A process's error is never lost, even if the waiting task gave up."""

    async def main() -> None:
        environment = running_environment()
        process = environment.process(fail(environment))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await wait_event(process)
        await asyncio.sleep(1)

    with pytest.raises(KeyError, match="broken"):
        simulate(main())


def complete_bare() -> None:
    """Wait for coroutines, which start in the order of their addresses."""
    coroutines = [asyncio.sleep(1), asyncio.sleep(2)]
    try:
        for _ in asyncio.as_completed(coroutines):
            pass
    finally:
        for coroutine in coroutines:
            coroutine.close()


LEAVES = "would leave the simulated clock"
NAMED = {
    name: lambda name=name: getattr(asyncio.get_running_loop(), name)() for name in loops.REFUSED
}
UNNAMED = [
    lambda: asyncio.open_connection("localhost", 1),
    lambda: asyncio.start_server(lambda _r, _w: None, "localhost", 0),
    lambda: asyncio.to_thread(print),
    lambda: asyncio.create_subprocess_exec(sys.executable),
    lambda: asyncio.create_subprocess_shell("true"),
]


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [(call, SimulationError, rf"loop\.{name} {LEAVES}; \w+") for name, call in NAMED.items()]
    + [(call, SimulationError, LEAVES) for call in UNNAMED]
    + [
        (complete_bare, SimulationError, "give it tasks"),
        (lambda: wait_event(Environment().timeout(1)), InputError, "another environment"),
        (lambda: asyncio.get_running_loop().call_at(math.nan, print), InputError, "instant is nan"),
    ],
)
@simulated
async def test_what_has_no_place_on_the_clock_is_refused(
    call: Callable[[], Any], error: type[Exception], says: str
) -> None:
    """Each access to the real world is refused with an alternative, without a warning."""
    with pytest.raises(error, match=says):
        await call()


def test_every_method_of_the_loop_is_listed() -> None:
    """Every public I/O coroutine of an event loop is in the table."""
    harmless = {"shutdown_asyncgens", "shutdown_default_executor"}
    loop_methods = vars(asyncio.AbstractEventLoop)
    coroutines = {name for name in loop_methods if inspect.iscoroutinefunction(loop_methods[name])}
    assert coroutines - harmless <= set(loops.REFUSED)


@simulated
async def test_a_deadlock_can_be_released_and_a_sleep_has_a_limit() -> None:
    """At a deadlock each release is asked; as time passes, a limit is called unless cancelled."""
    asked: list[str] = []
    called: list[float] = []
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    assert isinstance(loop, SimulatedLoop)

    def release() -> bool:
        asked.append("ada")
        event.set()
        return True

    loop.at_deadlock(release)
    loop.at_deadlock(lambda: "bob" in asked)
    loop.limit(2.5, lambda: called.append(now()))
    loop.limit(1.5, lambda: called.append(now())).cancel()
    await asyncio.sleep(1)
    await event.wait()
    assert (now(), asked, called) == (1, ["ada"], [])
    for _ in range(4):
        await asyncio.sleep(1)
    assert called == [2.5]


@pytest.mark.parametrize(
    ("step", "found"),
    [
        (lambda: asyncio.sleep(0), "100,000 steps"),
        (lambda: wait_event(Event(running_environment()).succeed()), r"10\d events"),
    ],
    ids=["no event", "events at one instant"],
)
def test_a_task_that_never_waits_is_named(
    step: Callable[[], Awaitable[object]], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop without end is an error that names its task, file and line; a few laps are none."""
    monkeypatch.setattr(loops, "EVENTS_MAX", 50)

    async def spin(laps: int) -> None:
        for _ in range(laps):
            await step()

    async def main(laps: int) -> None:
        await asyncio.sleep(0.25)
        await asyncio.create_task(spin(laps), name="spinner")
        await asyncio.sleep(0.25)

    simulate(main(99))  # of two tasks
    place = rf"{__name__.rpartition('.')[2]}\.py:{spin.__code__.co_firstlineno + 2}, in "
    with pytest.raises(SimulationError, match=rf"{found} at 0\.25 s.*spinner, at .*{place}"):
        simulate(main(1_000_000))


def test_a_role_that_sends_for_ever_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the role's own line, although its time limit is never reached."""
    monkeypatch.setattr(loops, "EVENTS_MAX", 100)

    async def main() -> None:
        async with Cluster(2, runtime="simulated", seed=1) as cluster:
            await cluster.run(chat, rounds=1_000_000_000, seconds=5.0)

    line = chat.__code__.co_firstlineno + 5
    with pytest.raises(SimulationError, match=rf"events at 0 s.*roles\.py:{line}, in chat;"):
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
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        with pytest.raises(Deadlock):
            runner.run(asyncio.sleep(math.inf))
        assert runner.run(asyncio.sleep(1, "done")) == "done"


def test_a_loop_without_tasks_is_a_deadlock_and_a_closed_one_refuses_work() -> None:
    """A loop that has nothing to do raises a deadlock; once closed, it starts nothing."""
    loop = SimulatedLoop()
    with pytest.raises(Deadlock, match="without any task"):
        loop.run_forever()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_later(1, print)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError, match="closed"):
            loop.create_task(asyncio.sleep(0))

"""The loop whose time is a SimPy environment."""

import asyncio
import contextvars
import math
import signal
import threading
import warnings
from collections.abc import AsyncIterator, Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simpy import Environment
from simpy.events import Event

from veilring.errors import Deadlock, InputError, SimulationError
from veilring.simulation import SimulatedLoop, Trace, run, running_environment, wait_event

INSTANTS = st.floats(min_value=0, max_value=1e6)


def now() -> float:
    """Return the running loop's time."""
    return asyncio.get_running_loop().time()


def test_sleep_takes_simulated_time_only() -> None:
    """A sleep of a year ends exactly a year later on the simulated clock."""

    async def main() -> float:
        await asyncio.sleep(31_536_000)
        return now()

    assert run(main()) == 31_536_000


def test_environment_keeps_its_time() -> None:
    """A run starts at the time of the environment that it is given and leaves it at its end."""
    environment = Environment(initial_time=7)

    async def main() -> float:
        await asyncio.sleep(1.5)
        return now()

    assert run(main(), env=environment) == environment.now == 8.5


@given(st.lists(INSTANTS, min_size=1), INSTANTS)
def test_timers_ring_exactly_on_time(instants: list[float], start: float) -> None:
    """A timer rings at its instant to the last bit, whenever it was set; a late one rings now."""
    rung: list[tuple[float, float]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(start)
        for instant in instants:
            loop.call_at(instant, lambda due: rung.append((due, now())), instant)
        await asyncio.sleep(1e6)
        await asyncio.sleep(1e6)

    run(main())
    assert len(rung) == len(instants)
    assert all(max(due, start) == time for due, time in rung)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40))
def test_timers_for_one_instant_ring_in_the_order_they_were_set(
    timers: list[tuple[int, int]],
) -> None:
    """Equal deadlines are first in, first out, even if set at different times."""
    rung: list[tuple[float, int]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        order = 0
        for set_at in range(4):
            for wanted, due in timers:
                if wanted == set_at:
                    # Tenths: sums of them round differently from different starts.
                    instant = max(due, set_at) / 10
                    loop.call_at(instant, rung.append, (instant, order))
                    order += 1
            await asyncio.sleep((set_at + 1) / 10 - now())
        await asyncio.sleep(1)

    run(main())
    assert len(rung) == len(timers)
    assert rung == sorted(rung)


def test_cancelled_timer_does_not_ring() -> None:
    """A timer that is cancelled in time does not ring, and says so; others are not touched."""
    rung: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        cancelled = loop.call_later(1, rung.append, "cancelled")
        kept = loop.call_later(1, rung.append, "kept")
        loop.call_later(0.5, cancelled.cancel)
        await asyncio.sleep(2)
        kept.cancel()
        assert cancelled.cancelled()
        assert (cancelled.when(), kept.when()) == (1, 1)

    run(main())
    assert rung == ["kept"]


def test_timer_cancelled_between_ringing_and_running_does_not_run() -> None:
    """A timer whose instant has come can still be cancelled until its callback runs."""
    rung: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        environment = running_environment()
        victim = loop.call_at(1, rung.append, "victim")
        environment.timeout(1).callbacks.append(lambda _: victim.cancel())
        environment.run(until=1.5)  # both events, before the loop gets to run a callback
        await asyncio.sleep(1)

    run(main())
    assert rung == []


def test_timer_keeps_its_context() -> None:
    """A timer's callback sees the context variables of when it was set."""
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    seen: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        variable.set(1)
        loop.call_later(1, lambda: seen.append(variable.get()))
        loop.call_later(2, lambda: seen.append(variable.get()), context=contextvars.Context())
        variable.set(2)
        await asyncio.sleep(3)

    run(main())
    assert seen == [1, 0]


def test_timer_refuses_what_is_no_number() -> None:
    """NaN is no instant."""

    async def main() -> None:
        asyncio.get_running_loop().call_at(math.nan, print)

    with pytest.raises(InputError, match="instant is nan"):
        run(main())


def test_primitives_work_unchanged() -> None:
    """Groups, limits, queues, events, semaphores, wait, gather and as_completed keep time."""

    async def main() -> list[object]:
        log: list[object] = []
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)
        turn, opened = asyncio.Semaphore(2), asyncio.Event()

        async def produce() -> None:
            for item in range(3):
                await asyncio.sleep(1)
                await queue.put(item)
            opened.set()

        async def consume() -> None:
            while len(log) < 3:
                item = await queue.get()
                log.append((now(), item))
            await opened.wait()

        async def work(seconds: float) -> float:
            async with turn:
                await asyncio.sleep(seconds)
            return seconds

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            group.create_task(consume())
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
    assert run(main()) == expected
    assert run(main(), debug=True) == expected


def test_failing_member_ends_its_group() -> None:
    """A group that aborts cancels all its members, in the same order each time."""

    def ended() -> list[int]:
        order: list[int] = []

        async def member(index: int) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                order.append(index)

        async def main() -> None:
            async with asyncio.TaskGroup() as group:
                for index in range(50):
                    group.create_task(member(index))
                await asyncio.sleep(1)
                raise ValueError

        with pytest.raises(ExceptionGroup):
            run(main())
        return order

    first = ended()
    assert sorted(first) == list(range(50))
    assert ended() == first


def test_tasks_left_over_are_cancelled_oldest_first() -> None:
    """What still runs when the main coroutine ends is cancelled in order of creation."""
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

    assert all(task.cancelled() for task in run(main()))
    assert ended == list(range(0, 1_000, 37))


def test_interrupt_ends_the_run() -> None:
    """Ctrl-C cancels the main task, as under asyncio's own loop, and the run ends by it."""
    cancelled: list[bool] = []

    async def main() -> None:
        try:
            while True:
                await asyncio.sleep(1)
                if now() == 5:
                    signal.raise_signal(signal.SIGINT)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with pytest.raises(KeyboardInterrupt):
        run(main())
    assert cancelled == [True]


def test_deadlock_names_who_waits() -> None:
    """Those that described their waits are named, in the order of registration."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        loop.describe_waits(lambda: ["alice waits for bob"])
        loop.describe_waits(lambda: ())
        loop.describe_waits(lambda: iter(["bob waits for alice"]))
        await asyncio.sleep(1)
        await asyncio.Event().wait()

    with pytest.raises(Deadlock) as caught:
        run(main())
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
        run(main())
    main_task, child_task = caught.value.waits
    assert main_task.startswith("Task-1 (test_deadlock_falls_back_on_tasks.")
    assert child_task.endswith("wait_for_ever) waits")
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
    """A loop that is left with nothing to do says so."""
    loop = SimulatedLoop()
    with pytest.raises(Deadlock, match="without any task"):
        loop.run_forever()
    loop.close()


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
    """A generator that was left suspended is closed when the run ends."""
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

    run(main())
    assert closed == [True]


def test_process_and_tasks_share_the_clock() -> None:
    """A task can wait for a process of SimPy and get its result while other processes run."""
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

    assert run(main()) == (3, 3)
    assert log == [1, 1, 2, 2, 3, 3]


def test_failed_event_raises_in_the_waiting_task() -> None:
    """A process's error reaches the task that waits for it, also after it happened."""

    def fail(environment: Environment) -> Generator[Event, Any, None]:
        yield environment.timeout(1)
        raise KeyError("broken")

    async def main() -> None:
        environment = running_environment()
        process = environment.process(fail(environment))
        for _ in range(2):
            with pytest.raises(KeyError, match="broken"):
                await wait_event(process)

    run(main())


def test_failed_event_that_nobody_waits_for_ends_the_run() -> None:
    """A process's error is never lost, even if the task that waited gave up."""

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
        run(main())


def test_event_of_another_environment_is_refused() -> None:
    """An event that could never happen here is not waited for."""

    async def main() -> None:
        await wait_event(Environment().timeout(1))

    with pytest.raises(InputError, match="another environment"):
        run(main())


async def test_real_loop_has_no_environment() -> None:
    """Outside a simulation one is told how to start one, and inside a loop not to nest."""
    with pytest.raises(SimulationError, match=r"veilring\.simulation\.run"):
        running_environment()
    with pytest.raises(SimulationError, match="await"):
        run(asyncio.sleep(0))


def test_without_a_loop_there_is_no_environment() -> None:
    """The same holds where no loop runs at all."""
    with pytest.raises(SimulationError, match=r"veilring\.simulation\.run"):
        running_environment()


def test_run_works_in_any_thread() -> None:
    """A simulation may run in a thread of its own."""
    results: list[float] = []

    async def main() -> None:
        await asyncio.sleep(1)
        asyncio.get_running_loop().call_soon_threadsafe(lambda: None)
        results.append(now())

    thread = threading.Thread(target=lambda: run(main()))
    thread.start()
    thread.join()
    assert results == [1]


def test_own_task_factory_is_used() -> None:
    """A task factory that the program sets is respected."""

    async def main() -> str:
        loop = asyncio.get_running_loop()

        def factory(loop: Any, coro: Any, **options: Any) -> asyncio.Task[Any]:  # noqa: ANN401  (asyncio's signature)
            return asyncio.Task(coro, loop=loop, **options)

        loop.set_task_factory(factory)
        task = asyncio.create_task(asyncio.sleep(0, "done"))
        assert type(task) is asyncio.Task
        return await task

    assert run(main()) == "done"


def test_trace_tells_runs_apart() -> None:
    """Equal runs have equal digests; one timer's last bit makes another."""

    def digest(seconds: float) -> str:
        trace = Trace(keep=True)
        run(asyncio.sleep(seconds), trace=trace)
        assert len(trace.entries) == trace.count > 0
        return trace.digest

    assert digest(0.1) == digest(0.1) != digest(math.nextafter(0.1, 1))

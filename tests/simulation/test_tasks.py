"""Tasks on the simulated loop: asyncio's primitives, and the order of completion."""

import asyncio
from typing import Any

import pytest
from tests.simulation.moments import now

from veilring.randomness import Streams
from veilring.simulation import Order, running_environment, simulate, wait_event


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
    assert simulate(main()) == expected
    assert simulate(main(), debug=True) == expected


def test_failing_member_ends_its_group() -> None:
    """A group that aborts cancels all its members, always in the same order."""

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
            simulate(main())
        return order

    first = ended()
    assert sorted(first) == list(range(50))
    assert ended() == first


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


def test_own_task_factory_is_used() -> None:
    """A task factory that the program sets is respected."""

    async def main() -> str:
        loop = asyncio.get_running_loop()

        def factory(loop: Any, coro: Any, **options: Any) -> asyncio.Task[Any]:
            return asyncio.Task(coro, loop=loop, **options)

        loop.set_task_factory(factory)
        task = asyncio.create_task(asyncio.sleep(0, "done"))
        assert type(task) is asyncio.Task
        return await task

    assert simulate(main()) == "done"


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

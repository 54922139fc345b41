"""Timers of the simulated loop: exact, in order and cancellable."""

import asyncio
import contextvars
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulation.moments import now

from veilring.errors import InputError
from veilring.simulation import running_environment, simulate

INSTANTS = st.floats(min_value=0, max_value=1e6)


@given(st.lists(INSTANTS, min_size=1), INSTANTS)
def test_timers_ring_exactly_on_time(instants: list[float], start: float) -> None:
    """A timer fires at its instant to the last bit; an overdue timer fires now."""
    rung: list[tuple[float, float]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(start)
        for instant in instants:
            loop.call_at(instant, lambda due: rung.append((due, now())), instant)
        await asyncio.sleep(1e6)
        await asyncio.sleep(1e6)

    simulate(main())
    assert len(rung) == len(instants)
    assert all(max(due, start) == time for due, time in rung)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40))
def test_timers_for_one_instant_ring_in_the_order_they_were_set(
    timers: list[tuple[int, int]],
) -> None:
    """Timers with equal deadlines fire in order of creation, even if set at different times."""
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

    simulate(main())
    assert len(rung) == len(timers)
    assert rung == sorted(rung)


def test_cancelled_timer_does_not_ring() -> None:
    """A timer cancelled in time does not fire and reports it; other timers are unaffected."""
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

    simulate(main())
    assert rung == ["kept"]


def test_timer_cancelled_between_ringing_and_running_does_not_run() -> None:
    """A due timer can be cancelled until its callback runs."""
    rung: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        environment = running_environment()
        victim = loop.call_at(1, rung.append, "victim")
        environment.timeout(1).callbacks.append(lambda _: victim.cancel())
        environment.run(until=1.5)  # both events, before the loop gets to run a callback
        await asyncio.sleep(1)

    simulate(main())
    assert rung == []


def test_timer_keeps_its_context() -> None:
    """A timer's callback runs in the context in which the timer was set."""
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    seen: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        variable.set(1)
        loop.call_later(1, lambda: seen.append(variable.get()))
        loop.call_later(2, lambda: seen.append(variable.get()), context=contextvars.Context())
        variable.set(2)
        await asyncio.sleep(3)

    simulate(main())
    assert seen == [1, 0]


def test_timer_refuses_nan() -> None:
    """NaN is no instant."""

    async def main() -> None:
        asyncio.get_running_loop().call_at(math.nan, print)

    with pytest.raises(InputError, match="instant is nan"):
        simulate(main())

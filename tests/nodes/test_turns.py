"""Clients that take turns at a party that opens sessions for them."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from veilring import simulation
from veilring.errors import Busy
from veilring.nodes.service import (
    CONVENED_MAX,
    CONVENED_PER_CLIENT_MAX,
    SESSIONS_PER_PEER_MAX,
    FairTurns,
)

LONG = 1e6


def test_a_party_opens_fewer_sessions_than_its_peers_accept() -> None:
    """A session that has ended here, and is about to end there, has a place."""
    assert CONVENED_PER_CLIENT_MAX < CONVENED_MAX < SESSIONS_PER_PEER_MAX


async def work(turns: FairTurns, client: str, order: list[str], seconds: float = 1.0) -> None:
    """Hold one turn for some seconds."""
    async with turns.turn(client, LONG):
        order.append(client)
        await asyncio.sleep(seconds)


def test_clients_take_turns_and_one_alone_makes_no_other_wait() -> None:
    """Between two requests of a client, each other client that waits has one."""

    async def main() -> tuple[list[str], float]:
        turns, order = FairTurns("ada"), list[str]()
        flood = [asyncio.create_task(work(turns, "eve", order)) for _ in range(16)]
        await asyncio.sleep(0)
        others = (work(turns, name, order) for name in ("ann", "bob", "cyd", "dan"))
        await asyncio.gather(*flood, *others)
        return order, asyncio.get_running_loop().time()

    order, seconds = simulation.simulate(main())
    assert order[:CONVENED_MAX] == ["eve"] * CONVENED_PER_CLIENT_MAX + ["ann", "bob", "cyd", "dan"]
    assert (order.count("eve"), seconds) == (16, 4.0)


def test_waiting_clients_are_served_in_the_order_of_their_last_turns() -> None:
    """Many requests of some clients do not delay another by more than one of each."""

    async def main() -> list[str]:
        turns, order = FairTurns("ada"), list[str]()
        crowd = [
            asyncio.create_task(work(turns, f"eve-{number % 4}", order)) for number in range(64)
        ]
        await asyncio.sleep(0)
        crowd.append(asyncio.create_task(work(turns, "ann", order)))
        await asyncio.gather(*crowd)
        return order

    order = simulation.simulate(main())
    assert order.index("ann") <= CONVENED_MAX + 4


def test_a_request_waits_for_a_limited_time_and_nobody_is_blamed() -> None:
    """The error names the busy party and the time; the turns of others are not affected."""

    async def main() -> Busy:
        turns, order = FairTurns("ada"), list[str]()
        async with AsyncExitStack() as held:
            for number in range(CONVENED_MAX):
                await held.enter_async_context(turns.turn(f"eve-{number}", LONG))
            with pytest.raises(Busy) as caught:
                async with turns.turn("ann", 30.0):
                    pass
        for _ in range(2):
            await asyncio.gather(*(work(turns, f"c{n}", order) for n in range(CONVENED_MAX)))
        assert asyncio.get_running_loop().time() == 32.0
        return caught.value

    error = simulation.simulate(main())
    assert (error.party, error.seconds) == ("ada", 30.0)
    assert str(error).startswith("ada is busy: the request waited 30 s")


@pytest.mark.parametrize("turns_of_the_loop", [0, 1, 2, 3])
def test_a_cancelled_request_leaves_no_turn_behind(turns_of_the_loop: int) -> None:
    """Cancelled before, with or after its turn, it frees the place and passes the turn on."""

    async def main() -> float:
        turns, order = FairTurns("ada"), list[str]()
        for _ in range(3 * CONVENED_MAX):
            first = asyncio.create_task(work(turns, "eve", order, 0.0))
            others = [
                asyncio.create_task(work(turns, "eve", order, 0.0))
                for _ in range(CONVENED_PER_CLIENT_MAX)
            ]
            for _ in range(turns_of_the_loop):
                await asyncio.sleep(0)
            first.cancel()
            others[-1].cancel()
            await asyncio.gather(first, *others, return_exceptions=True)
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*(work(turns, f"c{n}", order) for n in range(CONVENED_MAX)))
        return asyncio.get_running_loop().time() - began

    assert simulation.simulate(main()) == 1.0


def test_an_error_in_a_turn_is_passed_on() -> None:
    """A timeout of the work itself is not mistaken for a wait without a turn."""

    async def main() -> None:
        async with FairTurns("ada").turn("ann", 5.0):
            raise TimeoutError("of the work")

    with pytest.raises(TimeoutError, match="of the work"):
        simulation.simulate(main())

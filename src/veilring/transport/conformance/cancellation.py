"""Checks that a cancelled operation happened whole or not at all."""

import asyncio
from itertools import pairwise
from typing import Final

from veilring.transport.conformance.registry import (
    STALL_FRAME_BYTES,
    Maker,
    check,
    fill,
    numbered,
    raises,
    require,
    take,
    the_number,
)

_FRAMES: Final = 300


@check
async def a_cancelled_receive_loses_no_later_frame(maker: Maker) -> None:
    """A frame that arrives after a cancelled wait is received by the next."""
    async with maker(("alice", "bob")) as endpoints:
        waiting = asyncio.create_task(endpoints["bob"].receive())
        await asyncio.sleep(0)
        waiting.cancel()
        with raises(asyncio.CancelledError):
            await waiting
        await endpoints["alice"].send("bob", b"frame")
        await take(endpoints["bob"], "alice", b"frame")


@check
async def a_receive_cancelled_as_a_frame_arrives_loses_nothing(maker: Maker) -> None:
    """Cancelled at any moment, a receive has returned its frame or left it for the next."""
    async with maker(("alice", "bob")) as endpoints, asyncio.TaskGroup() as tasks:

        async def send() -> None:
            for number in range(_FRAMES):
                await endpoints["alice"].send("bob", numbered(number))
                await asyncio.sleep(0)

        tasks.create_task(send())
        numbers: list[int] = []
        turns = 0
        while len(numbers) < _FRAMES:
            receiving = asyncio.create_task(endpoints["bob"].receive())
            for _ in range(turns % 5):
                await asyncio.sleep(0)
            if turns % 7:
                receiving.cancel()
            await asyncio.wait((receiving,))
            if not receiving.cancelled():
                numbers.append(the_number(receiving.result()[1]))
            turns += 1
        require(numbers == list(range(_FRAMES)), "frames are missing, doubled or out of order")


@check
async def a_receive_that_timed_out_can_be_repeated(maker: Maker) -> None:
    """`receive` under a timeout loses nothing when time is up."""
    async with maker(("alice", "bob")) as endpoints:
        for number in range(10):
            with raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await endpoints["bob"].receive()
            await endpoints["alice"].send("bob", numbered(number))
            await take(endpoints["bob"], "alice", numbered(number))


@check
async def a_send_cancelled_before_it_began_sends_nothing(maker: Maker) -> None:
    """A task that is cancelled before its first step sends nothing."""
    async with maker(("alice", "bob")) as endpoints:
        sending = asyncio.create_task(endpoints["alice"].send("bob", b"never"))
        sending.cancel()
        with raises(asyncio.CancelledError):
            await sending
        await endpoints["alice"].send("bob", b"next")
        await take(endpoints["bob"], "alice", b"next")


@check
async def cancelled_sends_are_whole_or_nothing(maker: Maker) -> None:
    """Of sends that are cancelled while they wait, each arrives whole or not at all."""
    async with maker(("alice", "bob")) as endpoints:
        sent = await fill(endpoints["alice"], "bob")
        waiting = [
            asyncio.create_task(
                endpoints["alice"].send("bob", numbered(sent + 1 + i, STALL_FRAME_BYTES))
            )
            for i in range(20)
        ]
        await asyncio.sleep(0)
        for send in waiting[::2]:
            send.cancel()
        last = asyncio.create_task(endpoints["alice"].send("bob", numbered(sent + 99)))
        kept = {sent + 1 + i for i in range(1, 20, 2)} | {sent + 99} | set(range(sent))
        numbers: list[int] = []
        while not kept <= set(numbers):
            sender, frame = await endpoints["bob"].receive()
            numbers.append(the_number(frame))
            whole = numbered(numbers[-1], len(frame))
            require((sender, frame) == ("alice", whole), "a frame arrived in part")
        require(len(set(numbers)) == len(numbers), "a frame arrived twice")
        before = [number for number in numbers if number <= sent]
        require(all(a < b for a, b in pairwise(before)), "out of order")
        await asyncio.gather(*waiting, last, return_exceptions=True)

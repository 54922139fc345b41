"""Checks of backpressure and cancellation: a cancelled call is done completely or not at all."""

import asyncio
from itertools import pairwise
from typing import Final

from tests.transport.conformance.checking import (
    STALL_FRAME_BYTES,
    check,
    fill,
    number_of,
    numbered,
    raises,
    require,
    take,
)

from veilring.errors import EndpointClosed, PeerLost
from veilring.transport.endpoint import Endpoint


async def _drain(endpoint: Endpoint, sender: str, sent: int, last: int) -> None:
    """Receive numbers 0 to `sent` - 1 and then `last`; the number `sent` may come in between."""
    for number in range(sent):
        await take(endpoint, sender, numbered(number, STALL_FRAME_BYTES))
    frame = (await endpoint.receive())[1]
    if number_of(frame) == sent:  # the cancelled send may have been sent whole
        require(frame == numbered(sent, STALL_FRAME_BYTES), "a cancelled send arrived in part")
        frame = (await endpoint.receive())[1]
    require(frame == numbered(last), f"expected {last}, received {number_of(frame)}")


async def _wait_for(alice: Endpoint, count: int = 1) -> tuple[int, list[asyncio.Task[None]]]:
    """Stall the sends of alice to bob, who does not read, and leave some of them waiting."""
    sent = await fill(alice, "bob")
    waiting = [asyncio.create_task(alice.send("bob", numbered(sent + 1 + i))) for i in range(count)]
    await asyncio.sleep(0)
    return sent, waiting


@check
async def a_stalled_receiver_stops_its_sender(alice: Endpoint, _bob: Endpoint) -> None:
    """If the receiver does not read, a send waits before memory runs out."""
    require(await fill(alice, "bob"), "the very first send waited")


@check
async def a_stall_loses_nothing(alice: Endpoint, bob: Endpoint) -> None:
    """Every frame sent before and during a stall arrives in order."""
    sent, (waiting,) = await _wait_for(alice)
    await _drain(bob, "alice", sent, sent + 1)
    await waiting


@check
async def a_stall_ends_for_every_waiting_task(alice: Endpoint, bob: Endpoint) -> None:
    """All waiting sends continue once the receiver reads."""
    many = 20
    sent, waiting = await _wait_for(alice, many)
    late: list[int] = []
    while len(late) < many:
        number = number_of((await bob.receive())[1])
        if number > sent:
            late.append(number)
    await asyncio.gather(*waiting)
    require(sorted(late) == list(range(sent + 1, sent + 1 + many)), "a waiting send was lost")


@check
async def a_stall_does_not_stop_other_peers(
    alice: Endpoint, _bob: Endpoint, carol: Endpoint
) -> None:
    """While one peer does not read, frames of the same sender still reach another."""
    _, (waiting,) = await _wait_for(alice)
    for number in range(100):
        await alice.send("carol", numbered(number))
        await take(carol, "alice", numbered(number))
    waiting.cancel()


@check
async def a_stalled_sender_still_receives(alice: Endpoint, bob: Endpoint, carol: Endpoint) -> None:
    """An endpoint that is waiting to send can still receive."""
    _, (waiting,) = await _wait_for(alice)
    for sender in (bob, carol):
        await sender.send("alice", b"hello")
        await take(alice, sender.name, b"hello")
    waiting.cancel()


@check
async def two_senders_share_a_stalled_receiver(
    alice: Endpoint, bob: Endpoint, carol: Endpoint
) -> None:
    """When a receiver reads again, each of its stalled senders continues."""
    _, (waiting,) = await _wait_for(alice)
    other = asyncio.create_task(carol.send("bob", b"from carol"))
    heard: set[str] = set()
    while heard != {"alice", "carol"} or not waiting.done():
        sender, _ = await bob.receive()
        heard.add(sender)
    await asyncio.gather(waiting, other)


@check
async def a_stalled_send_learns_of_a_crash(alice: Endpoint, bob: Endpoint) -> None:
    """If the receiver vanishes, a waiting send raises `PeerLost`."""
    _, waiting = await _wait_for(alice, 2)
    bob.abort()
    for send in waiting:
        with raises(PeerLost):
            await send


@check
async def a_stalled_send_learns_of_its_own_close(alice: Endpoint, _bob: Endpoint) -> None:
    """If its own endpoint closes, a waiting send raises `EndpointClosed`."""
    _, waiting = await _wait_for(alice, 2)
    alice.abort()
    for send in waiting:
        with raises(EndpointClosed):
            await send


_RACED_FRAMES: Final = 300


@check
async def a_cancelled_receive_loses_no_later_frame(alice: Endpoint, bob: Endpoint) -> None:
    """A frame that arrives after a cancelled receive goes to the next receive."""
    waiting = asyncio.create_task(bob.receive())
    await asyncio.sleep(0)
    waiting.cancel()
    with raises(asyncio.CancelledError):
        await waiting
    await alice.send("bob", b"frame")
    await take(bob, "alice", b"frame")


@check
async def a_receive_cancelled_as_a_frame_arrives_loses_nothing(
    alice: Endpoint, bob: Endpoint
) -> None:
    """A receive cancelled at any moment has returned its frame or left it for the next receive."""
    async with asyncio.TaskGroup() as tasks:

        async def send() -> None:
            for number in range(_RACED_FRAMES):
                await alice.send("bob", numbered(number))
                await asyncio.sleep(0)

        tasks.create_task(send())
        numbers: list[int] = []
        turns = 0
        while len(numbers) < _RACED_FRAMES:
            receiving = asyncio.create_task(bob.receive())
            for _ in range(turns % 5):
                await asyncio.sleep(0)
            if turns % 7:
                receiving.cancel()
            await asyncio.wait((receiving,))
            if not receiving.cancelled():
                numbers.append(number_of(receiving.result()[1]))
            turns += 1
        require(
            numbers == list(range(_RACED_FRAMES)), "frames are missing, doubled or out of order"
        )


@check
async def a_receive_that_timed_out_can_be_repeated(alice: Endpoint, bob: Endpoint) -> None:
    """A `receive` that times out does not lose a frame."""
    for number in range(10):
        with raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await bob.receive()
        await alice.send("bob", numbered(number))
        await take(bob, "alice", numbered(number))


@check
async def a_send_cancelled_before_it_began_sends_nothing(alice: Endpoint, bob: Endpoint) -> None:
    """A task that is cancelled before its first step sends nothing."""
    sending = asyncio.create_task(alice.send("bob", b"never"))
    sending.cancel()
    with raises(asyncio.CancelledError):
        await sending
    await alice.send("bob", b"next")
    await take(bob, "alice", b"next")


@check
async def cancelled_sends_are_whole_or_nothing(alice: Endpoint, bob: Endpoint) -> None:
    """Each send that is cancelled while it waits arrives whole or not at all."""
    sent = await fill(alice, "bob")
    waiting = [
        asyncio.create_task(alice.send("bob", numbered(sent + 1 + i, STALL_FRAME_BYTES)))
        for i in range(20)
    ]
    await asyncio.sleep(0)
    for send in waiting[::2]:
        send.cancel()
    last = asyncio.create_task(alice.send("bob", numbered(sent + 99)))
    kept = {sent + 1 + i for i in range(1, 20, 2)} | {sent + 99} | set(range(sent))
    numbers: list[int] = []
    while not kept <= set(numbers):
        sender, frame = await bob.receive()
        numbers.append(number_of(frame))
        whole = numbered(numbers[-1], len(frame))
        require((sender, frame) == ("alice", whole), "a frame arrived in part")
    require(len(set(numbers)) == len(numbers), "a frame arrived twice")
    before = [number for number in numbers if number <= sent]
    require(all(a < b for a, b in pairwise(before)), "out of order")
    await asyncio.gather(*waiting, last, return_exceptions=True)

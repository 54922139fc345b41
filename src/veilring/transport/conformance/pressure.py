"""Checks that a receiver that does not read stops its senders, and nobody and nothing else."""

import asyncio

from veilring.errors import EndpointClosed, PeerLost
from veilring.transport.conformance.registry import (
    STALL_FRAME_BYTES,
    Endpoints,
    Maker,
    check,
    fill,
    numbered,
    raises,
    require,
    take,
    the_number,
)
from veilring.transport.endpoint import Endpoint


async def _drain(endpoint: Endpoint, sender: str, sent: int, last: int) -> None:
    """Receive numbers 0 to `sent` - 1, then `last`, with at most the number `sent` between."""
    for number in range(sent):
        await take(endpoint, sender, numbered(number, STALL_FRAME_BYTES))
    frame = (await endpoint.receive())[1]
    if the_number(frame) == sent:  # the send that was cancelled may have been sent whole
        require(frame == numbered(sent, STALL_FRAME_BYTES), "a cancelled send arrived in part")
        frame = (await endpoint.receive())[1]
    require(frame == numbered(last), f"{last} was due, {the_number(frame)} arrived")


async def _wait_for(endpoints: Endpoints, count: int = 1) -> tuple[int, list[asyncio.Task[None]]]:
    """Stall alice by a bob who does not read, and leave sends of hers waiting."""
    sent = await fill(endpoints["alice"], "bob")
    waiting = [
        asyncio.create_task(endpoints["alice"].send("bob", numbered(sent + 1 + i)))
        for i in range(count)
    ]
    await asyncio.sleep(0)
    return sent, waiting


@check
async def a_stalled_receiver_stops_its_sender(maker: Maker) -> None:
    """If nobody reads, a send waits before memory runs out."""
    async with maker(("alice", "bob")) as endpoints:
        require(await fill(endpoints["alice"], "bob"), "the very first send waited")


@check
async def a_stall_loses_nothing(maker: Maker) -> None:
    """All that was sent before and during a stall arrives, in order."""
    async with maker(("alice", "bob")) as endpoints:
        sent, (waiting,) = await _wait_for(endpoints)
        await _drain(endpoints["bob"], "alice", sent, sent + 1)
        await waiting


@check
async def a_stall_ends_for_every_waiting_task(maker: Maker) -> None:
    """All sends that wait go on once the receiver reads."""
    many = 20
    async with maker(("alice", "bob")) as endpoints:
        sent, waiting = await _wait_for(endpoints, many)
        late: list[int] = []
        while len(late) < many:
            number = the_number((await endpoints["bob"].receive())[1])
            if number > sent:
                late.append(number)
        await asyncio.gather(*waiting)
        require(sorted(late) == list(range(sent + 1, sent + 1 + many)), "a waiting send was lost")


@check
async def a_stall_does_not_stop_other_peers(maker: Maker) -> None:
    """While one peer does not read, its sender's frames reach another."""
    async with maker(("alice", "bob", "carol")) as endpoints:
        _, (waiting,) = await _wait_for(endpoints)
        for number in range(100):
            await endpoints["alice"].send("carol", numbered(number))
            await take(endpoints["carol"], "alice", numbered(number))
        waiting.cancel()


@check
async def a_stalled_sender_still_receives(maker: Maker) -> None:
    """Whoever waits to send can be sent to."""
    async with maker(("alice", "bob", "carol")) as endpoints:
        _, (waiting,) = await _wait_for(endpoints)
        for sender in ("bob", "carol"):
            await endpoints[sender].send("alice", b"hello")
            await take(endpoints["alice"], sender, b"hello")
        waiting.cancel()


@check
async def two_senders_share_a_stalled_receiver(maker: Maker) -> None:
    """When a receiver reads again, each of its stalled senders goes on."""
    async with maker(("alice", "bob", "carol")) as endpoints:
        _, (waiting,) = await _wait_for(endpoints)
        other = asyncio.create_task(endpoints["carol"].send("bob", b"from carol"))
        heard: set[str] = set()
        while heard != {"alice", "carol"} or not waiting.done():
            sender, _ = await endpoints["bob"].receive()
            heard.add(sender)
        await asyncio.gather(waiting, other)


@check
async def a_stalled_send_learns_of_a_crash(maker: Maker) -> None:
    """If the receiver vanishes, a waiting send raises `PeerLost`."""
    async with maker(("alice", "bob")) as endpoints:
        _, waiting = await _wait_for(endpoints, 2)
        endpoints["bob"].abort()
        for send in waiting:
            with raises(PeerLost):
                await send


@check
async def a_stalled_send_learns_of_its_own_close(maker: Maker) -> None:
    """If its own endpoint closes, a waiting send raises `EndpointClosed`."""
    async with maker(("alice", "bob")) as endpoints:
        _, waiting = await _wait_for(endpoints, 2)
        endpoints["alice"].abort()
        for send in waiting:
            with raises(EndpointClosed):
                await send

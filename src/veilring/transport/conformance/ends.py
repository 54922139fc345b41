"""Checks that an end is told: a goodbye from a crash, once, after all that arrived before."""

import asyncio
from typing import Final

from veilring.errors import EndpointClosed, PeerLost
from veilring.transport.conformance.registry import (
    Maker,
    check,
    numbered,
    raises,
    require,
    take,
    take_loss,
)

_FRAMES: Final = 50


@check
async def a_close_is_a_goodbye(maker: Maker) -> None:
    """Peers of an endpoint that closes lose it in an orderly way."""
    async with maker(("alice", "bob", "carol")) as endpoints:
        await endpoints["alice"].close()
        for peer in ("bob", "carol"):
            require(await take_loss(endpoints[peer], orderly=True) == "alice", "another was lost")


@check
async def frames_before_a_goodbye_arrive(maker: Maker) -> None:
    """All that was sent before a close is delivered before the loss."""
    async with maker(("alice", "bob")) as endpoints:
        for number in range(_FRAMES):
            await endpoints["alice"].send("bob", numbered(number, 10_000))
        await endpoints["alice"].close()
        for number in range(_FRAMES):
            await take(endpoints["bob"], "alice", numbered(number, 10_000))
        await take_loss(endpoints["bob"], orderly=True)


@check
async def a_goodbye_arrives_through_a_peers_stream(maker: Maker) -> None:
    """An endpoint that closes while its peer sends still says all of its own, and goodbye."""
    async with maker(("alice", "bob")) as endpoints, asyncio.TaskGroup() as tasks:

        async def send() -> None:
            with raises(PeerLost):
                while True:
                    await endpoints["bob"].send("alice", bytes(10_000))
                    await asyncio.sleep(0)

        tasks.create_task(send())
        await endpoints["alice"].receive()
        for number in range(_FRAMES):
            await endpoints["alice"].send("bob", numbered(number))
        tasks.create_task(endpoints["alice"].close())
        for number in range(_FRAMES):
            await take(endpoints["bob"], "alice", numbered(number))
        await take_loss(endpoints["bob"], orderly=True)


@check
async def a_close_may_be_repeated(maker: Maker) -> None:
    """`close` after `close` does nothing, also at the same time."""
    async with maker(("alice", "bob")) as endpoints:
        await asyncio.gather(endpoints["alice"].close(), endpoints["alice"].close())
        await endpoints["alice"].close()
        await take_loss(endpoints["bob"], orderly=True)


@check
async def both_sides_may_close_at_once(maker: Maker) -> None:
    """Two goodbyes that cross leave nobody waiting."""
    async with maker(("alice", "bob")) as endpoints:
        await asyncio.gather(endpoints["alice"].close(), endpoints["bob"].close())


@check
async def a_close_wakes_a_waiting_receive(maker: Maker) -> None:
    """A receive that waits when its endpoint closes raises `EndpointClosed`."""
    async with maker(("alice", "bob")) as endpoints:
        waiting = asyncio.create_task(endpoints["alice"].receive())
        await asyncio.sleep(0)
        await endpoints["alice"].close()
        with raises(EndpointClosed):
            await waiting


@check
async def a_closed_endpoint_neither_sends_nor_receives(maker: Maker) -> None:
    """After `close`, `send` and `receive` raise `EndpointClosed` each time."""
    async with maker(("alice", "bob")) as endpoints:
        await endpoints["bob"].send("alice", b"unread")
        await endpoints["alice"].close()
        for _ in range(2):
            with raises(EndpointClosed):
                await endpoints["alice"].send("bob", b"frame")
            with raises(EndpointClosed):
                await endpoints["alice"].receive()


@check
async def a_close_amid_sends_cuts_no_frame(maker: Maker) -> None:
    """Sends under way when an endpoint closes end; what arrives is whole and in order."""
    async with maker(("alice", "bob")) as endpoints, asyncio.TaskGroup() as tasks:

        async def send() -> None:
            with raises(EndpointClosed):
                for number in range(1 << 20):
                    await endpoints["alice"].send("bob", numbered(number, 5_000))
                    await asyncio.sleep(0)

        tasks.create_task(send())
        for number in range(_FRAMES):
            await take(endpoints["bob"], "alice", numbered(number, 5_000))
        tasks.create_task(endpoints["alice"].close())
        number = _FRAMES
        with raises(PeerLost):
            while True:
                await take(endpoints["bob"], "alice", numbered(number, 5_000))
                number += 1


@check
async def a_close_leaves_the_others_connected(maker: Maker) -> None:
    """When one leaves, the rest go on."""
    async with maker(("alice", "bob", "carol")) as endpoints:
        await endpoints["alice"].close()
        for endpoint in (endpoints["bob"], endpoints["carol"]):
            await take_loss(endpoint, orderly=True)
        for number in range(_FRAMES):
            await endpoints["bob"].send("carol", numbered(number))
            await take(endpoints["carol"], "bob", numbered(number))


@check
async def an_abort_is_a_crash(maker: Maker) -> None:
    """Peers of an endpoint that aborts lose it without a goodbye."""
    async with maker(("alice", "bob", "carol")) as endpoints:
        endpoints["alice"].abort()
        for peer in ("bob", "carol"):
            require(await take_loss(endpoints[peer], orderly=False) == "alice", "another was lost")


@check
async def an_abort_comes_after_what_arrived(maker: Maker) -> None:
    """Of what a crashed peer had sent, a beginning without gaps arrives, and then the loss."""
    async with maker(("alice", "bob")) as endpoints:
        for number in range(_FRAMES):
            await endpoints["alice"].send("bob", numbered(number))
        await take(endpoints["bob"], "alice", numbered(0))
        endpoints["alice"].abort()
        number = 1
        with raises(PeerLost):
            while True:
                await take(endpoints["bob"], "alice", numbered(number))
                number += 1


@check
async def an_abort_may_be_repeated(maker: Maker) -> None:
    """`abort` and `close` after `abort` do nothing; the crash stays a crash."""
    async with maker(("alice", "bob")) as endpoints:
        endpoints["alice"].abort()
        endpoints["alice"].abort()
        await endpoints["alice"].close()
        await take_loss(endpoints["bob"], orderly=False)


@check
async def an_abort_after_a_close_changes_nothing(maker: Maker) -> None:
    """A goodbye stays a goodbye."""
    async with maker(("alice", "bob")) as endpoints:
        await endpoints["alice"].close()
        endpoints["alice"].abort()
        await take_loss(endpoints["bob"], orderly=True)


@check
async def an_abort_wakes_a_waiting_receive(maker: Maker) -> None:
    """A receive that waits when its endpoint aborts raises `EndpointClosed`."""
    async with maker(("alice", "bob")) as endpoints:
        waiting = asyncio.create_task(endpoints["alice"].receive())
        await asyncio.sleep(0)
        endpoints["alice"].abort()
        with raises(EndpointClosed):
            await waiting


@check
async def an_aborted_endpoint_neither_sends_nor_receives(maker: Maker) -> None:
    """After `abort`, `send` and `receive` raise `EndpointClosed` each time."""
    async with maker(("alice", "bob")) as endpoints:
        endpoints["alice"].abort()
        for _ in range(2):
            with raises(EndpointClosed):
                await endpoints["alice"].send("bob", b"frame")
            with raises(EndpointClosed):
                await endpoints["alice"].receive()


@check
async def a_send_to_a_lost_peer_fails_each_time(maker: Maker) -> None:
    """`send` to a peer that is gone raises `PeerLost`, with `orderly` as it left, every time."""
    async with maker(("alice", "bob", "carol")) as endpoints:
        endpoints["alice"].abort()
        await take_loss(endpoints["bob"], orderly=False)
        await endpoints["carol"].close()
        await take_loss(endpoints["bob"], orderly=True)
        for peer, orderly in [("alice", False), ("carol", True)] * 2:
            try:
                await endpoints["bob"].send(peer, b"frame")
            except PeerLost as loss:
                told = (loss.peer, loss.orderly)
                require(told == (peer, orderly), f"the loss of {peer} was told as {told}")
            else:
                raise AssertionError(f"a frame was sent to {peer}, who is gone")


@check
async def a_loss_is_told_once(maker: Maker) -> None:
    """After a loss was told, `receive` serves the others and does not tell it again."""
    async with maker(("alice", "bob", "carol")) as endpoints:
        endpoints["alice"].abort()
        await take_loss(endpoints["bob"], orderly=False)
        for number in range(_FRAMES):
            await endpoints["carol"].send("bob", numbered(number))
            await take(endpoints["bob"], "carol", numbered(number))


@check
async def each_loss_is_told(maker: Maker) -> None:
    """When several peers are lost, each is told once."""
    gone = ("alice", "carol", "dave")
    async with maker(("bob", "erin", *gone)) as endpoints:
        for name in gone:
            endpoints[name].abort()
        told = [await take_loss(endpoints["bob"], orderly=False) for _ in gone]
        require(sorted(told) == sorted(gone), f"told were {told}")
        await endpoints["erin"].send("bob", b"after")
        await take(endpoints["bob"], "erin", b"after")


@check
async def a_lost_peer_stays_a_peer(maker: Maker) -> None:
    """`peers` lists all, gone or not."""
    async with maker(("alice", "bob", "carol")) as endpoints:
        endpoints["alice"].abort()
        await take_loss(endpoints["bob"], orderly=False)
        require(set(endpoints["bob"].peers) == {"alice", "carol"}, "a lost peer is not listed")


@check
async def a_lost_peer_is_not_connected(maker: Maker) -> None:
    """`connected` lists all peers at first, and after a loss was told, those that are left."""
    async with maker(("alice", "bob", "carol")) as endpoints:
        bob = endpoints["bob"]
        require(set(bob.connected) == {"alice", "carol"}, f"connected are {bob.connected}")
        endpoints["alice"].abort()
        await take_loss(bob, orderly=False)
        require(bob.connected == ("carol",), f"still connected are {bob.connected}")


@check
async def a_crash_does_not_disturb_a_stream(maker: Maker) -> None:
    """A stream between two others goes on, whole and in order, while a third crashes."""
    async with maker(("alice", "bob", "carol")) as endpoints, asyncio.TaskGroup() as tasks:

        async def send() -> None:
            for number in range(4 * _FRAMES):
                await endpoints["carol"].send("bob", numbered(number, 5_000))
                await asyncio.sleep(0)

        tasks.create_task(send())
        losses = number = 0
        while number < 4 * _FRAMES or not losses:
            if number == _FRAMES:
                endpoints["alice"].abort()
            try:
                await take(endpoints["bob"], "carol", numbered(number, 5_000))
                number += 1
            except PeerLost as loss:
                require(loss.peer == "alice", f"{loss.peer} was lost")
                losses += 1
        require(losses == 1, f"the loss was told {losses} times")

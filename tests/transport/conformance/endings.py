"""Checks of endings: a goodbye or crash is reported once, after all earlier frames."""

import asyncio
from typing import Final

from tests.transport.conformance.checking import (
    Maker,
    check,
    numbered,
    raises,
    require,
    take,
    take_loss,
)

from veilring.errors import EndpointClosed, PeerLost
from veilring.transport.endpoint import Endpoint

_LAST_FRAMES: Final = 50


async def _refuse_twice(ended: Endpoint, peer: str) -> None:
    """Fail the check unless every call on a closed endpoint raises `EndpointClosed`."""
    for _ in range(2):
        with raises(EndpointClosed):
            await ended.send(peer, b"frame")
        with raises(EndpointClosed):
            await ended.receive()


@check
async def a_close_is_a_goodbye(alice: Endpoint, bob: Endpoint, carol: Endpoint) -> None:
    """Peers of an endpoint that closes receive an orderly loss."""
    await alice.close()
    for peer in (bob, carol):
        require(await take_loss(peer, orderly=True) == "alice", "another peer was lost")


@check
async def frames_before_a_goodbye_arrive(alice: Endpoint, bob: Endpoint) -> None:
    """Every frame sent before a close is delivered before the loss."""
    for number in range(_LAST_FRAMES):
        await alice.send("bob", numbered(number, 10_000))
    await alice.close()
    for number in range(_LAST_FRAMES):
        await take(bob, "alice", numbered(number, 10_000))
    await take_loss(bob, orderly=True)


@check
async def a_goodbye_arrives_through_a_peers_stream(alice: Endpoint, bob: Endpoint) -> None:
    """An endpoint that closes while its peer sends still delivers all its frames and a goodbye."""
    async with asyncio.TaskGroup() as tasks:

        async def send() -> None:
            with raises(PeerLost):
                while True:
                    await bob.send("alice", bytes(10_000))
                    await asyncio.sleep(0)

        tasks.create_task(send())
        await alice.receive()
        for number in range(_LAST_FRAMES):
            await alice.send("bob", numbered(number))
        tasks.create_task(alice.close())
        for number in range(_LAST_FRAMES):
            await take(bob, "alice", numbered(number))
        await take_loss(bob, orderly=True)


@check
async def a_close_may_be_repeated(alice: Endpoint, bob: Endpoint) -> None:
    """A second `close` does nothing, even at the same time as the first."""
    await asyncio.gather(alice.close(), alice.close())
    await alice.close()
    await take_loss(bob, orderly=True)


@check
async def both_sides_may_close_at_once(alice: Endpoint, bob: Endpoint) -> None:
    """Two goodbyes that cross do not leave either side waiting."""
    await asyncio.gather(alice.close(), bob.close())


@check
async def a_close_wakes_a_waiting_receive(alice: Endpoint, _bob: Endpoint) -> None:
    """A receive that is waiting when its endpoint closes raises `EndpointClosed`."""
    waiting = asyncio.create_task(alice.receive())
    await asyncio.sleep(0)
    await alice.close()
    with raises(EndpointClosed):
        await waiting


@check
async def a_closed_endpoint_neither_sends_nor_receives(alice: Endpoint, bob: Endpoint) -> None:
    """After `close`, `send` and `receive` raise `EndpointClosed` each time."""
    await bob.send("alice", b"unread")
    await alice.close()
    await _refuse_twice(alice, "bob")


@check
async def a_close_amid_sends_cuts_no_frame(alice: Endpoint, bob: Endpoint) -> None:
    """Pending sends end when their endpoint closes; delivered frames are whole and in order."""
    async with asyncio.TaskGroup() as tasks:

        async def send() -> None:
            with raises(EndpointClosed):
                for number in range(1 << 20):
                    await alice.send("bob", numbered(number, 5_000))
                    await asyncio.sleep(0)

        tasks.create_task(send())
        for number in range(_LAST_FRAMES):
            await take(bob, "alice", numbered(number, 5_000))
        tasks.create_task(alice.close())
        number = _LAST_FRAMES
        with raises(PeerLost):
            while True:
                await take(bob, "alice", numbered(number, 5_000))
                number += 1


@check
async def a_close_leaves_the_others_connected(
    alice: Endpoint, bob: Endpoint, carol: Endpoint
) -> None:
    """When one party leaves, the others continue."""
    await alice.close()
    for endpoint in (bob, carol):
        await take_loss(endpoint, orderly=True)
    for number in range(_LAST_FRAMES):
        await bob.send("carol", numbered(number))
        await take(carol, "bob", numbered(number))


@check
async def an_abort_is_a_crash(alice: Endpoint, bob: Endpoint, carol: Endpoint) -> None:
    """Peers of an endpoint that aborts receive a loss without a goodbye."""
    alice.abort()
    for peer in (bob, carol):
        require(await take_loss(peer, orderly=False) == "alice", "another peer was lost")


@check
async def an_abort_comes_after_what_arrived(alice: Endpoint, bob: Endpoint) -> None:
    """A prefix of a crashed peer's frames arrives without gaps, followed by the loss."""
    for number in range(_LAST_FRAMES):
        await alice.send("bob", numbered(number))
    await take(bob, "alice", numbered(0))
    alice.abort()
    number = 1
    with raises(PeerLost):
        while True:
            await take(bob, "alice", numbered(number))
            number += 1


@check
async def an_abort_may_be_repeated(alice: Endpoint, bob: Endpoint) -> None:
    """`abort` and `close` after `abort` do nothing; peers still see a crash."""
    alice.abort()
    alice.abort()
    await alice.close()
    await take_loss(bob, orderly=False)


@check
async def an_abort_after_a_close_changes_nothing(alice: Endpoint, bob: Endpoint) -> None:
    """An `abort` after a goodbye does not turn the goodbye into a crash."""
    await alice.close()
    alice.abort()
    await take_loss(bob, orderly=True)


@check
async def an_abort_wakes_a_waiting_receive(alice: Endpoint, _bob: Endpoint) -> None:
    """A receive that is waiting when its endpoint aborts raises `EndpointClosed`."""
    waiting = asyncio.create_task(alice.receive())
    await asyncio.sleep(0)
    alice.abort()
    with raises(EndpointClosed):
        await waiting


@check
async def an_aborted_endpoint_neither_sends_nor_receives(alice: Endpoint, _bob: Endpoint) -> None:
    """After `abort`, `send` and `receive` raise `EndpointClosed` each time."""
    alice.abort()
    await _refuse_twice(alice, "bob")


@check
async def a_send_to_a_lost_peer_fails_each_time(
    alice: Endpoint, bob: Endpoint, carol: Endpoint
) -> None:
    """`send` to a lost peer always raises `PeerLost`, with `orderly` as in the reported loss."""
    alice.abort()
    await take_loss(bob, orderly=False)
    await carol.close()
    await take_loss(bob, orderly=True)
    for peer, orderly in [("alice", False), ("carol", True)] * 2:
        try:
            await bob.send(peer, b"frame")
        except PeerLost as loss:
            told = (loss.peer, loss.orderly)
            require(told == (peer, orderly), f"the loss of {peer} was reported as {told}")
        else:
            raise AssertionError(f"a frame was sent to {peer}, which is lost")


@check
async def a_loss_is_reported_once(alice: Endpoint, bob: Endpoint, carol: Endpoint) -> None:
    """After a loss was reported, `receive` serves the other peers and does not report it again."""
    alice.abort()
    await take_loss(bob, orderly=False)
    for number in range(_LAST_FRAMES):
        await carol.send("bob", numbered(number))
        await take(bob, "carol", numbered(number))


@check
async def each_loss_is_reported(maker: Maker) -> None:
    """When several peers are lost, each loss is reported once."""
    gone = ("alice", "carol", "dave")
    async with maker(("bob", "erin", *gone)) as endpoints:
        for name in gone:
            endpoints[name].abort()
        told = [await take_loss(endpoints["bob"], orderly=False) for _ in gone]
        require(sorted(told) == sorted(gone), f"the reported losses are {told}")
        await endpoints["erin"].send("bob", b"after")
        await take(endpoints["bob"], "erin", b"after")


@check
async def a_lost_peer_stays_a_peer(alice: Endpoint, bob: Endpoint, _carol: Endpoint) -> None:
    """`peers` lists all peers, including lost ones."""
    alice.abort()
    await take_loss(bob, orderly=False)
    require(set(bob.peers) == {"alice", "carol"}, "a lost peer is not listed")


@check
async def a_lost_peer_is_not_connected(alice: Endpoint, bob: Endpoint, _carol: Endpoint) -> None:
    """`connected` lists all peers at first, and the remaining ones after a loss was reported."""
    require(set(bob.connected) == {"alice", "carol"}, f"the connected peers are {bob.connected}")
    alice.abort()
    await take_loss(bob, orderly=False)
    require(bob.connected == ("carol",), f"the peers still connected are {bob.connected}")


@check
async def a_crash_does_not_disturb_a_stream(
    alice: Endpoint, bob: Endpoint, carol: Endpoint
) -> None:
    """A stream between two peers continues, whole and in order, while a third one crashes."""
    async with asyncio.TaskGroup() as tasks:

        async def send() -> None:
            for number in range(4 * _LAST_FRAMES):
                await carol.send("bob", numbered(number, 5_000))
                await asyncio.sleep(0)

        tasks.create_task(send())
        losses = number = 0
        while number < 4 * _LAST_FRAMES or not losses:
            if number == _LAST_FRAMES:
                alice.abort()
            try:
                await take(bob, "carol", numbered(number, 5_000))
                number += 1
            except PeerLost as loss:
                require(loss.peer == "alice", f"{loss.peer} was lost")
                losses += 1
        require(losses == 1, f"the loss was reported {losses} times")

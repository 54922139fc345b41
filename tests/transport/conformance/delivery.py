"""Checks of order: each sender's frames arrive in order, to `receive` and to a sink alike."""

import asyncio
from itertools import pairwise
from typing import Final

from tests.transport.conformance.checking import Maker, check, number_of, numbered, require, take

from veilring.errors import PeerLost
from veilring.transport.endpoint import Endpoint

_STREAM_FRAMES: Final = 500
_RING: Final = 16
_MESH: Final = 8
_ROUNDS: Final = 50


async def _stream(endpoint: Endpoint, to: str, start: int = 0, size: int = 4) -> None:
    for number in range(start, start + _STREAM_FRAMES):
        await endpoint.send(to, numbered(number, size))


async def _collect(endpoint: Endpoint, count: int) -> dict[str, list[int]]:
    """Receive frames and return their numbers by sender."""
    numbers: dict[str, list[int]] = {}
    for _ in range(count):
        sender, frame = await endpoint.receive()
        numbers.setdefault(sender, []).append(number_of(frame))
    return numbers


@check
async def one_sender_keeps_its_order(alice: Endpoint, bob: Endpoint) -> None:
    """Frames of one sender arrive in the order in which it sent them."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_stream(alice, "bob"))
        numbers = await _collect(bob, _STREAM_FRAMES)
        require(numbers["alice"] == list(range(_STREAM_FRAMES)), "out of order")


@check
async def sizes_do_not_change_the_order(alice: Endpoint, bob: Endpoint) -> None:
    """A small frame does not overtake a large one."""
    sizes = [100_000, 4, 20_000, 5, 1_000, 70_000, 6, 7] * 10
    async with asyncio.TaskGroup() as tasks:

        async def send() -> None:
            for number, size in enumerate(sizes):
                await alice.send("bob", numbered(number, size))

        tasks.create_task(send())
        for number, size in enumerate(sizes):
            await take(bob, "alice", numbered(number, size))


@check
async def each_of_many_senders_keeps_its_order(maker: Maker) -> None:
    """Frames of several senders interleave, and each sender's frames stay in order."""
    senders = ("bob", "carol", "dave", "erin")
    async with maker(("alice", *senders)) as endpoints, asyncio.TaskGroup() as tasks:
        for sender in senders:
            tasks.create_task(_stream(endpoints[sender], "alice"))
        numbers = await _collect(endpoints["alice"], _STREAM_FRAMES * len(senders))
        for sender in senders:
            require(numbers.get(sender) == list(range(_STREAM_FRAMES)), f"{sender} out of order")


@check
async def tasks_that_send_at_once_keep_their_order(alice: Endpoint, bob: Endpoint) -> None:
    """Any number of tasks may send to one peer; each task's frames stay whole and in order."""
    many = 10
    async with asyncio.TaskGroup() as tasks:
        for task in range(many):
            tasks.create_task(_stream(alice, "bob", task * _STREAM_FRAMES, size=900))
        numbers = (await _collect(bob, many * _STREAM_FRAMES))["alice"]
        require(
            sorted(numbers) == list(range(many * _STREAM_FRAMES)), "frames are missing or doubled"
        )
        for task in range(many):
            own = [number for number in numbers if number // _STREAM_FRAMES == task]
            require(all(a < b for a, b in pairwise(own)), "a task's frames are out of order")


@check
async def one_sender_serves_many_receivers(maker: Maker) -> None:
    """Streams of one sender to several peers do not mix."""
    receivers = ("bob", "carol", "dave")
    async with maker(("alice", *receivers)) as endpoints, asyncio.TaskGroup() as tasks:
        for receiver in receivers:
            tasks.create_task(_stream(endpoints["alice"], receiver))
        for receiver in receivers:
            numbers = await _collect(endpoints[receiver], _STREAM_FRAMES)
            require(numbers == {"alice": list(range(_STREAM_FRAMES))}, f"{receiver} out of order")


@check
async def both_directions_carry_at_once(alice: Endpoint, bob: Endpoint) -> None:
    """Two peers may stream to each other at the same time."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_stream(alice, "bob", size=5_000))
        tasks.create_task(_stream(bob, "alice", size=5_000))
        at_bob = tasks.create_task(_collect(bob, _STREAM_FRAMES))
        at_alice = await _collect(alice, _STREAM_FRAMES)
        require(at_alice["bob"] == list(range(_STREAM_FRAMES)), "to alice out of order")
        require((await at_bob)["alice"] == list(range(_STREAM_FRAMES)), "to bob out of order")


@check
async def an_answer_reaches_the_client(alice: Endpoint, bob: Endpoint) -> None:
    """A frame can be answered using the name that `receive` returned."""
    async with asyncio.TaskGroup() as tasks:

        async def answer() -> None:
            for _ in range(_ROUNDS):
                sender, frame = await bob.receive()
                await bob.send(sender, frame[::-1])

        tasks.create_task(answer())
        for number in range(_ROUNDS):
            await alice.send("bob", numbered(number))
            await take(alice, "bob", numbered(number)[::-1])


@check
async def a_ring_of_many_passes_a_token(maker: Maker) -> None:
    """A frame goes around a ring of many endpoints many times."""
    names = tuple(f"p{position}" for position in range(_RING))
    laps = 3
    async with maker(names) as endpoints, asyncio.TaskGroup() as tasks:

        async def carry(position: int) -> None:
            endpoint = endpoints[names[position]]
            for _ in range(laps):
                sender, frame = await endpoint.receive()
                require(sender == names[position - 1], f"the token came from {sender}")
                onward = names[(position + 1) % _RING]
                await endpoint.send(onward, numbered(number_of(frame) + 1))

        for position in range(1, _RING):
            tasks.create_task(carry(position))
        for lap in range(laps):
            await endpoints[names[0]].send(names[1], numbered(lap * _RING))
            await take(endpoints[names[0]], names[-1], numbered(lap * _RING + _RING - 1))


@check
async def everyone_speaks_to_everyone(maker: Maker) -> None:
    """In a full mesh, each endpoint receives one frame from every other."""
    names = tuple(f"p{position}" for position in range(_MESH))
    async with maker(names) as endpoints:
        for name, endpoint in endpoints.items():
            for peer in endpoint.peers:
                await endpoint.send(peer, f"{name} to {peer}".encode())
        for name, endpoint in endpoints.items():
            heard = dict([await endpoint.receive() for _ in endpoint.peers])
            expected = {p: f"{p} to {name}".encode() for p in endpoint.peers}
            require(heard == expected, f"{name} did not hear each peer once")


_HANDED_FRAMES: Final = 1_000

_Item = tuple[str, bytes | PeerLost]


class _Sink:
    """Stores the items it is given, and lets a task wait until it has a given number of them."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.items: list[_Item] = []
        self._changed = asyncio.Event()
        endpoint.attach(self._take)

    def _take(self, peer: str, item: bytes | PeerLost) -> None:
        self.items.append((peer, item))
        self._changed.set()

    async def until(self, count: int) -> list[_Item]:
        """Wait for this many items."""
        while len(self.items) < count:
            self._changed.clear()
            await self._changed.wait()
        return self.items


@check
async def a_sink_is_given_each_frame_in_order(alice: Endpoint, bob: Endpoint) -> None:
    """Each frame is handed to the sink once, with its sender, in the order of sending."""
    sink = _Sink(bob)
    for number in range(_HANDED_FRAMES):
        await alice.send("bob", numbered(number))
    items = await sink.until(_HANDED_FRAMES)
    require(
        items == [("alice", numbered(n)) for n in range(_HANDED_FRAMES)], "other frames arrived"
    )


@check
async def a_sink_is_given_first_what_came_before_it(
    alice: Endpoint, bob: Endpoint, carol: Endpoint
) -> None:
    """Frames that arrived before the sink was set are handed over before later frames."""
    await alice.send("carol", b"ready")
    await alice.send("bob", b"one")
    await take(carol, "alice", b"ready")
    sink = _Sink(bob)
    await alice.send("bob", b"two")
    require(await sink.until(2) == [("alice", b"one"), ("alice", b"two")], "out of order")


@check
async def a_sink_is_given_a_loss_once_and_last(
    alice: Endpoint, bob: Endpoint, carol: Endpoint
) -> None:
    """A loss is handed over once, after all frames of the peer."""
    sink = _Sink(bob)
    await alice.send("bob", b"last words")
    await alice.close()
    await sink.until(2)
    await carol.send("bob", b"still here")
    first, second, third = await sink.until(3)
    require(first == ("alice", b"last words"), "a frame was lost")
    peer, loss = second
    told = peer == "alice" and isinstance(loss, PeerLost) and loss.orderly
    require(told, "the loss was reported incorrectly")
    require(third == ("carol", b"still here"), "something else was handed over")


@check
async def a_closed_endpoint_hands_over_nothing(
    alice: Endpoint, bob: Endpoint, carol: Endpoint
) -> None:
    """After it is closed, an endpoint no longer calls its sink."""
    sink = _Sink(bob)
    await alice.send("bob", b"before")
    await sink.until(1)
    await bob.close()
    count = len(sink.items)
    for sender in (alice, carol):
        try:
            await sender.send("bob", b"after")
        except PeerLost:
            continue
    await alice.send("carol", b"on")
    await _take_frame(carol)
    require(len(sink.items) == count, "something was handed over")


async def _take_frame(endpoint: Endpoint) -> bytes:
    while True:
        try:
            return (await endpoint.receive())[1]
        except PeerLost:
            continue

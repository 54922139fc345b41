"""Checks that frames keep their order however many send, and that many endpoints work together."""

import asyncio
from itertools import pairwise
from typing import Final

from veilring.transport.conformance.registry import (
    Maker,
    check,
    numbered,
    require,
    take,
    the_number,
)
from veilring.transport.endpoint import Endpoint

_FRAMES: Final = 500
_RING: Final = 16
_MESH: Final = 8
_ROUNDS: Final = 50


async def _stream(endpoint: Endpoint, to: str, start: int = 0, size: int = 4) -> None:
    for number in range(start, start + _FRAMES):
        await endpoint.send(to, numbered(number, size))


async def _collect(endpoint: Endpoint, count: int) -> dict[str, list[int]]:
    """Receive frames and return their numbers by sender."""
    numbers: dict[str, list[int]] = {}
    for _ in range(count):
        sender, frame = await endpoint.receive()
        numbers.setdefault(sender, []).append(the_number(frame))
    return numbers


@check
async def one_sender_keeps_its_order(maker: Maker) -> None:
    """Frames of one sender arrive in the order in which it sent them."""
    async with maker(("alice", "bob")) as endpoints, asyncio.TaskGroup() as tasks:
        tasks.create_task(_stream(endpoints["alice"], "bob"))
        numbers = await _collect(endpoints["bob"], _FRAMES)
        require(numbers["alice"] == list(range(_FRAMES)), "out of order")


@check
async def sizes_do_not_change_the_order(maker: Maker) -> None:
    """A small frame does not overtake a large one."""
    sizes = [100_000, 4, 20_000, 5, 1_000, 70_000, 6, 7] * 10
    async with maker(("alice", "bob")) as endpoints, asyncio.TaskGroup() as tasks:

        async def send() -> None:
            for number, size in enumerate(sizes):
                await endpoints["alice"].send("bob", numbered(number, size))

        tasks.create_task(send())
        for number, size in enumerate(sizes):
            await take(endpoints["bob"], "alice", numbered(number, size))


@check
async def each_of_many_senders_keeps_its_order(maker: Maker) -> None:
    """Senders interleave, and each one's frames stay in order."""
    senders = ("bob", "carol", "dave", "erin")
    async with maker(("alice", *senders)) as endpoints, asyncio.TaskGroup() as tasks:
        for sender in senders:
            tasks.create_task(_stream(endpoints[sender], "alice"))
        numbers = await _collect(endpoints["alice"], _FRAMES * len(senders))
        for sender in senders:
            require(numbers.get(sender) == list(range(_FRAMES)), f"{sender} out of order")


@check
async def tasks_that_send_at_once_keep_their_order(maker: Maker) -> None:
    """Any number of tasks may send to one peer; each one's frames stay whole and in order."""
    many = 10
    async with maker(("alice", "bob")) as endpoints, asyncio.TaskGroup() as tasks:
        for task in range(many):
            tasks.create_task(_stream(endpoints["alice"], "bob", task * _FRAMES, size=900))
        numbers = (await _collect(endpoints["bob"], many * _FRAMES))["alice"]
        require(sorted(numbers) == list(range(many * _FRAMES)), "frames are missing or doubled")
        for task in range(many):
            own = [number for number in numbers if number // _FRAMES == task]
            require(all(a < b for a, b in pairwise(own)), "a task's frames are out of order")


@check
async def one_sender_serves_many_receivers(maker: Maker) -> None:
    """Streams of one sender to several peers do not mix."""
    receivers = ("bob", "carol", "dave")
    async with maker(("alice", *receivers)) as endpoints, asyncio.TaskGroup() as tasks:
        for receiver in receivers:
            tasks.create_task(_stream(endpoints["alice"], receiver))
        for receiver in receivers:
            numbers = await _collect(endpoints[receiver], _FRAMES)
            require(numbers == {"alice": list(range(_FRAMES))}, f"{receiver} out of order")


@check
async def both_directions_carry_at_once(maker: Maker) -> None:
    """Two peers may stream to each other at the same time."""
    async with maker(("alice", "bob")) as endpoints, asyncio.TaskGroup() as tasks:
        tasks.create_task(_stream(endpoints["alice"], "bob", size=5_000))
        tasks.create_task(_stream(endpoints["bob"], "alice", size=5_000))
        at_bob = tasks.create_task(_collect(endpoints["bob"], _FRAMES))
        at_alice = await _collect(endpoints["alice"], _FRAMES)
        require(at_alice["bob"] == list(range(_FRAMES)), "to alice out of order")
        require((await at_bob)["alice"] == list(range(_FRAMES)), "to bob out of order")


@check
async def an_answer_reaches_the_asker(maker: Maker) -> None:
    """A frame can be answered by the name that `receive` gave."""
    async with maker(("alice", "bob")) as endpoints, asyncio.TaskGroup() as tasks:

        async def answer() -> None:
            for _ in range(_ROUNDS):
                sender, frame = await endpoints["bob"].receive()
                await endpoints["bob"].send(sender, frame[::-1])

        tasks.create_task(answer())
        for number in range(_ROUNDS):
            await endpoints["alice"].send("bob", numbered(number))
            await take(endpoints["alice"], "bob", numbered(number)[::-1])


@check
async def a_ring_of_many_passes_a_token(maker: Maker) -> None:
    """A frame goes around a ring of many endpoints, again and again."""
    names = tuple(f"p{position}" for position in range(_RING))
    laps = 3
    async with maker(names) as endpoints, asyncio.TaskGroup() as tasks:

        async def carry(position: int) -> None:
            endpoint = endpoints[names[position]]
            for _ in range(laps):
                sender, frame = await endpoint.receive()
                require(sender == names[position - 1], f"the token came from {sender}")
                onward = names[(position + 1) % _RING]
                await endpoint.send(onward, numbered(the_number(frame) + 1))

        for position in range(1, _RING):
            tasks.create_task(carry(position))
        for lap in range(laps):
            await endpoints[names[0]].send(names[1], numbered(lap * _RING))
            await take(endpoints[names[0]], names[-1], numbered(lap * _RING + _RING - 1))


@check
async def everyone_speaks_to_everyone(maker: Maker) -> None:
    """In a full mesh each hears each other once."""
    names = tuple(f"p{position}" for position in range(_MESH))
    async with maker(names) as endpoints:
        for name, endpoint in endpoints.items():
            for peer in endpoint.peers:
                await endpoint.send(peer, f"{name} to {peer}".encode())
        for name, endpoint in endpoints.items():
            heard = dict([await endpoint.receive() for _ in endpoint.peers])
            expected = {p: f"{p} to {name}".encode() for p in endpoint.peers}
            require(heard == expected, f"{name} did not hear each peer once")

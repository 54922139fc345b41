"""Checks of endpoints that hand over what arrives by a call."""

import asyncio
from typing import Final

from veilring.errors import PeerLost
from veilring.transport.conformance.registry import Maker, check, numbered, require, take
from veilring.transport.endpoint import Endpoint

_FRAMES: Final = 1_000

_Item = tuple[str, bytes | PeerLost]


class _Sink:
    """Keeps what it is given, and lets one wait for how much that is."""

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
async def a_sink_is_given_each_frame_in_order(maker: Maker) -> None:
    """Frames are handed over once each, with their sender, in the order of sending."""
    async with maker(("alice", "bob")) as endpoints:
        sink = _Sink(endpoints["bob"])
        for number in range(_FRAMES):
            await endpoints["alice"].send("bob", numbered(number))
        items = await sink.until(_FRAMES)
        require(items == [("alice", numbered(n)) for n in range(_FRAMES)], "other frames arrived")


@check
async def a_sink_is_given_first_what_came_before_it(maker: Maker) -> None:
    """What arrived before the sink was there is handed over before what comes later."""
    async with maker(("alice", "bob", "carol")) as endpoints:
        await endpoints["alice"].send("carol", b"ready")
        await endpoints["alice"].send("bob", b"one")
        await take(endpoints["carol"], "alice", b"ready")
        sink = _Sink(endpoints["bob"])
        await endpoints["alice"].send("bob", b"two")
        require(await sink.until(2) == [("alice", b"one"), ("alice", b"two")], "out of order")


@check
async def a_sink_is_told_of_a_loss_once_and_last(maker: Maker) -> None:
    """A loss is handed over behind all frames of the peer, and once."""
    async with maker(("alice", "bob", "carol")) as endpoints:
        sink = _Sink(endpoints["bob"])
        await endpoints["alice"].send("bob", b"last words")
        await endpoints["alice"].close()
        await sink.until(2)
        await endpoints["carol"].send("bob", b"still here")
        first, second, third = await sink.until(3)
        require(first == ("alice", b"last words"), "a frame was lost")
        peer, loss = second
        told = peer == "alice" and isinstance(loss, PeerLost) and loss.orderly
        require(told, "the loss was not told as it was")
        require(third == ("carol", b"still here"), "something else was handed over")


@check
async def a_closed_endpoint_hands_over_nothing(maker: Maker) -> None:
    """After its close an endpoint calls its sink no more."""
    async with maker(("alice", "bob", "carol")) as endpoints:
        sink = _Sink(endpoints["bob"])
        await endpoints["alice"].send("bob", b"before")
        await sink.until(1)
        await endpoints["bob"].close()
        count = len(sink.items)
        for name in ("alice", "carol"):
            try:
                await endpoints[name].send("bob", b"after")
            except PeerLost:
                continue
        await endpoints["alice"].send("carol", b"on")
        await _take_frame(endpoints["carol"])
        require(len(sink.items) == count, "something was handed over")


async def _take_frame(endpoint: Endpoint) -> bytes:
    while True:
        try:
            return (await endpoint.receive())[1]
        except PeerLost:
            continue

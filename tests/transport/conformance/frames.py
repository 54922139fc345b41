"""Checks of frames: they arrive whole, and invalid ones are refused."""

import asyncio
import hashlib
from typing import Final, cast

from tests.transport.conformance.checking import (
    Maker,
    check,
    number_of,
    numbered,
    raises,
    require,
    take,
)

from veilring.errors import FrameError, InputError
from veilring.transport.endpoint import Endpoint
from veilring.transport.frames import FRAME_BYTES_MAX, PREFIX_BYTES

_VOLUME_FRAMES: Final = 512  # of 64 KiB: 32 MiB, more than any buffer between two endpoints holds
_SMALL_FRAMES: Final = 5_000


async def _survive(alice: Endpoint, bob: Endpoint, *frames: bytes) -> None:
    for frame in frames:
        sending = asyncio.create_task(alice.send("bob", frame))
        await take(bob, "alice", frame)
        await sending


@check
async def a_frame_arrives_whole(alice: Endpoint, bob: Endpoint) -> None:
    """A frame arrives with the bytes that were sent."""
    await _survive(alice, bob, b"one frame")


@check
async def the_smallest_frame_arrives(alice: Endpoint, bob: Endpoint) -> None:
    """A frame may have a single byte."""
    await _survive(alice, bob, b"\x01")


@check
async def the_largest_frame_arrives(alice: Endpoint, bob: Endpoint) -> None:
    """A frame may have `FRAME_BYTES_MAX` bytes."""
    await _survive(alice, bob, bytes(range(256)) * (FRAME_BYTES_MAX // 256))


@check
async def frames_near_every_power_of_two_arrive(alice: Endpoint, bob: Endpoint) -> None:
    """No size is special, including those near the size of a buffer or a TLS record."""
    powers = [1 << k for k in range(1, FRAME_BYTES_MAX.bit_length())]
    sizes = {size + off for size in powers for off in (-1, 0, 1)}
    allowed = sorted(size for size in sizes if 0 < size <= FRAME_BYTES_MAX)
    await _survive(alice, bob, *(b"\xa5" * size for size in allowed))


@check
async def every_byte_arrives_unaltered(alice: Endpoint, bob: Endpoint) -> None:
    """Each of the 256 byte values arrives unchanged."""
    await _survive(alice, bob, *(bytes([byte]) for byte in range(256)), bytes(range(256)))


@check
async def a_frame_of_zeros_is_only_a_frame(alice: Endpoint, bob: Endpoint) -> None:
    """Zero bytes inside a frame are data, although a stream could take them for a goodbye."""
    await _survive(alice, bob, *(bytes(size) for size in range(1, 4 * PREFIX_BYTES + 1)), b"after")


@check
async def a_frame_that_looks_like_lengths_is_only_a_frame(alice: Endpoint, bob: Endpoint) -> None:
    """Bytes that look like another frame's prefix, short or far too long, are data."""
    await _survive(alice, bob, b"\x00\x00\x00\x01A", b"\xff" * 64, b"\x00\x10\x00\x01", b"after")


@check
async def a_received_frame_is_bytes(alice: Endpoint, bob: Endpoint) -> None:
    """A frame is received as immutable `bytes`."""
    await alice.send("bob", b"frame")
    _, frame = await bob.receive()
    require(type(frame) is bytes, f"a frame was received as {type(frame).__name__}")


@check
async def a_buffer_may_be_used_again(alice: Endpoint, bob: Endpoint) -> None:
    """A change to a buffer after it was sent does not change the frame."""
    buffer = bytearray(b"before")
    await alice.send("bob", cast("bytes", buffer))
    buffer[:] = b"behind"
    await take(bob, "alice", b"before")


@check
async def equal_frames_arrive_each(alice: Endpoint, bob: Endpoint) -> None:
    """A frame that is sent three times arrives three times."""
    for _ in range(3):
        await alice.send("bob", b"again")
    await alice.send("bob", b"last")
    for _ in range(3):
        await take(bob, "alice", b"again")
    await take(bob, "alice", b"last")


@check
async def the_sender_is_named(alice: Endpoint, bob: Endpoint, carol: Endpoint) -> None:
    """`receive` returns the sender of each frame."""
    for sender in (carol, alice):
        await sender.send("bob", sender.name.encode())
        await take(bob, sender.name, sender.name.encode())


@check
async def a_claim_does_not_change_the_sender(
    _alice: Endpoint, bob: Endpoint, carol: Endpoint
) -> None:
    """A frame that names another party is still attributed to its sender."""
    await carol.send("bob", b"alice")
    await take(bob, "carol", b"alice")


@check
async def only_the_receiver_receives(alice: Endpoint, bob: Endpoint, carol: Endpoint) -> None:
    """A frame for one peer does not reach any other peer."""
    await alice.send("bob", b"for bob")
    await alice.send("carol", b"for carol")
    await take(carol, "alice", b"for carol")
    await take(bob, "alice", b"for bob")


@check
async def a_large_volume_arrives_unaltered(alice: Endpoint, bob: Endpoint) -> None:
    """A payload of 32 MiB arrives with the digest that it was sent with."""
    sent, got = hashlib.sha256(), hashlib.sha256()

    async def send() -> None:
        for number in range(_VOLUME_FRAMES):
            frame = numbered(number) * (1 << 14)
            sent.update(frame)
            await alice.send("bob", frame)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(send())
        for _ in range(_VOLUME_FRAMES):
            got.update((await bob.receive())[1])
    require(
        sent.digest() == got.digest(), "the payload that arrived differs from the one that was sent"
    )


@check
async def many_small_frames_arrive_each(alice: Endpoint, bob: Endpoint) -> None:
    """Thousands of small frames arrive without merging, loss or duplication."""

    async def send() -> None:
        for number in range(_SMALL_FRAMES):
            await alice.send("bob", numbered(number))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(send())
        numbers = [number_of((await bob.receive())[1]) for _ in range(_SMALL_FRAMES)]
        require(
            numbers == list(range(_SMALL_FRAMES)), "frames are missing, doubled or out of order"
        )


async def _refuse(
    alice: Endpoint, bob: Endpoint, to: str, frame: bytes, error: type[Exception]
) -> None:
    with raises(error):
        await alice.send(to, frame)
    await alice.send("bob", b"next")
    await take(bob, "alice", b"next")


@check
async def an_empty_frame_is_refused(alice: Endpoint, bob: Endpoint) -> None:
    """An empty frame is a `FrameError`, nothing is sent, and the endpoint still works."""
    await _refuse(alice, bob, "bob", b"", FrameError)


@check
async def a_frame_too_large_is_refused(alice: Endpoint, bob: Endpoint) -> None:
    """One byte more than `FRAME_BYTES_MAX` is a `FrameError`, and nothing is sent."""
    await _refuse(alice, bob, "bob", bytes(FRAME_BYTES_MAX + 1), FrameError)


@check
async def an_unknown_peer_is_refused(alice: Endpoint, bob: Endpoint) -> None:
    """A name that is not a peer's is an `InputError`."""
    await _refuse(alice, bob, "mallory", b"frame", InputError)


@check
async def oneself_is_refused(alice: Endpoint, bob: Endpoint) -> None:
    """An endpoint is not its own peer."""
    await _refuse(alice, bob, "alice", b"frame", InputError)


@check
async def an_empty_name_is_refused(alice: Endpoint, bob: Endpoint) -> None:
    """An empty name is an `InputError`."""
    await _refuse(alice, bob, "", b"frame", InputError)


@check
async def an_endpoint_knows_names(maker: Maker) -> None:
    """`name` is the endpoint's own name; `peers` lists every other endpoint once."""
    async with maker(("alice", "bob", "carol")) as endpoints:
        for name, endpoint in endpoints.items():
            require(endpoint.name == name, f"{name} calls itself {endpoint.name}")
            others = sorted(set(endpoints) - {name})
            require(sorted(endpoint.peers) == others, f"{name} has the peers {endpoint.peers}")

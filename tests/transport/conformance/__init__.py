"""Conformance checks for transports, which you can run on your own transport.

    async def test_my_transport() -> None:
        await check_transport(my_endpoints)

The checks are the contract of `veilring.transport.endpoint.Endpoint` in executable form, in the
spirit of the stream checks that Trio ships. They wait with `asyncio` only, so a transport on a
simulated clock passes them too.
"""

import asyncio
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from itertools import pairwise
from typing import Any, Final, TypeAlias, cast

from veilring.errors import EndpointClosed, FrameError, InputError, PeerLost
from veilring.transport.endpoint import Endpoint
from veilring.transport.frames import FRAME_BYTES_MAX, PREFIX_BYTES

Endpoints: TypeAlias = Mapping[str, Endpoint]
Maker: TypeAlias = Callable[[Sequence[str]], AbstractAsyncContextManager[Endpoints]]
"""Opens one connected endpoint for each name, and closes them all at the end."""
Check: TypeAlias = Callable[[Maker], Awaitable[None]]
_Function: TypeAlias = Callable[..., Awaitable[None]]

# Each check takes under a second; a check that hangs must end and give its name.
CHECK_SECONDS: Final = 60.0
# A send that takes longer is waiting for its receiver. On a slow machine, a send may only seem to
# wait; the check is then weaker, but never fails for that reason.
STALL_SECONDS: Final = 0.2
# A receiver that never reads must stop its sender before 256 MiB are under way. Queues count
# frames and networks count bytes, so these limits are a compromise.
STALL_FRAME_BYTES: Final = 1 << 16
STALL_FRAMES_MAX: Final = 1 << 12

_NUMBER_BYTES: Final = 4
_STREAM_FRAMES: Final = 500
_VOLUME_FRAMES: Final = 512  # of 64 KiB: 32 MiB, more than any buffer between two endpoints holds
_SMALL_FRAMES: Final = 5_000
_HANDED_FRAMES: Final = 1_000
_RACED_FRAMES: Final = 300
_LAST_FRAMES: Final = 50
_RING: Final = 16

CHECKS: dict[str, Check] = {}
"""All checks by name, in the order in which they run."""


async def check_transport(maker: Maker) -> tuple[str, ...]:
    """Run all checks, each on fresh endpoints, and return their names.

    Args:
        maker: A function that takes names and returns an asynchronous context of connected
            endpoints by name; on exit it closes them, whatever state they are in.

    Raises:
        AssertionError: If a check fails; the message starts with its name.
    """
    for name in CHECKS:
        await run_check(name, maker)
    return tuple(CHECKS)


async def run_check(name: str, maker: Maker) -> None:
    """Run one check by its name in `CHECKS`.

    Raises:
        AssertionError: If it fails; the message starts with the name.
    """
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await CHECKS[name](maker)
    except Exception as error:
        raise AssertionError(f"{name}: {_cause(error)}") from error


def _cause(error: BaseException) -> str:
    """Return the first error, taken out of any exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{error}" if isinstance(error, AssertionError) else repr(error)


def check(function: _Function, **fixed: Any) -> _Function:
    """Register a check under its function's name.

    The check's parameters are either a maker or the names of the endpoints that it needs.
    """
    parameters = inspect.signature(function).parameters.values()
    names = tuple(each.name.lstrip("_") for each in parameters if each.kind != each.KEYWORD_ONLY)

    async def run(maker: Maker) -> None:
        async with maker(names) as endpoints:
            await function(*(endpoints[name] for name in names), **fixed)

    name = getattr(function, "__name__", "") + "".join(f"[{value}]" for value in fixed.values())
    CHECKS[name] = function if names == ("maker",) else run
    return function


def check_both_ends(function: _Function) -> _Function:
    """Register a check twice: for an endpoint that closes, and for one that aborts."""
    for how in ("close", "abort"):
        check(function, how=how)
    return function


async def _end(endpoint: Endpoint, how: str) -> bool:
    """Close or abort an endpoint; return whether its peers see an orderly loss."""
    if how == "close":
        await endpoint.close()
    else:
        endpoint.abort()
    return how == "close"


def require(condition: object, message: str) -> None:
    """Fail the check unless the condition holds."""
    if not condition:
        raise AssertionError(message)


@contextmanager
def raises(*errors: type[BaseException]) -> Iterator[None]:
    """Fail the check unless the block raises one of the errors."""
    try:
        yield
    except errors:
        return
    raise AssertionError(f"nothing was raised where {errors[0].__name__} was expected")


async def take(endpoint: Endpoint, sender: str, frame: bytes) -> None:
    """Receive a frame, and fail the check unless it is this frame from this sender."""
    got_sender, got = await endpoint.receive()
    require(got_sender == sender, f"a frame of {sender} was attributed to {got_sender}")
    require(got == frame, f"{len(frame)} bytes were sent, {len(got)} other bytes arrived")


async def take_loss(endpoint: Endpoint, *, orderly: bool) -> str:
    """Receive a loss, and fail the check unless it is of this kind; return the lost peer."""
    try:
        sender, frame = await endpoint.receive()
    except PeerLost as loss:
        require(loss.orderly is orderly, f"orderly is {loss.orderly}, not {orderly}")
        return loss.peer
    raise AssertionError(f"{len(frame)} bytes of {sender} arrived where a loss was expected")


def numbered(number: int, size: int = _NUMBER_BYTES) -> bytes:
    """Return a frame of this size that encodes a number."""
    return number.to_bytes(_NUMBER_BYTES, "big").ljust(size, b"\x5a")


def number_of(frame: bytes) -> int:
    """Return the number that a frame encodes."""
    return int.from_bytes(frame[:_NUMBER_BYTES], "big")


async def _stream(
    endpoint: Endpoint, to: str, count: int = _STREAM_FRAMES, *, start: int = 0, size: int = 4
) -> None:
    """Send numbered frames, and let others have a turn after each."""
    for number in range(start, start + count):
        await endpoint.send(to, numbered(number, size))
        await asyncio.sleep(0)


async def _collect(endpoint: Endpoint, count: int) -> dict[str, list[int]]:
    """Receive frames and return their numbers by sender."""
    numbers: dict[str, list[int]] = {}
    for _ in range(count):
        sender, frame = await endpoint.receive()
        numbers.setdefault(sender, []).append(number_of(frame))
    return numbers


async def fill(sender: Endpoint, to: str) -> int:
    """Send numbered frames until a send has to wait; return the number surely sent.

    The send that waited is cancelled: its frame, with the next number, was sent whole or not at
    all.
    """
    for number in range(STALL_FRAMES_MAX):
        try:
            async with asyncio.timeout(STALL_SECONDS):
                await sender.send(to, numbered(number, STALL_FRAME_BYTES))
        except TimeoutError:
            return number
    raise AssertionError(f"{STALL_FRAMES_MAX} frames were sent to a peer that reads none")


# Frames: they arrive whole, and invalid ones are refused.


async def _survive(alice: Endpoint, bob: Endpoint, *frames: bytes) -> None:
    for frame in frames:
        sending = asyncio.create_task(alice.send("bob", frame))
        await take(bob, "alice", frame)
        await sending


@check
async def a_frame_arrives_whole(alice: Endpoint, bob: Endpoint) -> None:
    """A frame arrives with the bytes that were sent: each of the 256 values, one or many."""
    await _survive(alice, bob, b"one frame", *(bytes([byte]) for byte in range(256)))
    await _survive(alice, bob, bytes(range(256)))


@check
async def frames_near_every_power_of_two_arrive(alice: Endpoint, bob: Endpoint) -> None:
    """No size is special, neither those near a buffer or a TLS record nor the largest."""
    powers = [1 << k for k in range(1, FRAME_BYTES_MAX.bit_length())]
    sizes = {size + off for size in powers for off in (-1, 0, 1)}
    allowed = sorted(size for size in sizes if 0 < size <= FRAME_BYTES_MAX)
    await _survive(alice, bob, *(b"\xa5" * size for size in allowed))


@check
async def a_frame_that_looks_like_a_stream_is_only_a_frame(alice: Endpoint, bob: Endpoint) -> None:
    """Zeros like a goodbye, and bytes like the prefix of another frame, are data."""
    await _survive(alice, bob, *(bytes(size) for size in range(1, 4 * PREFIX_BYTES + 1)), b"after")
    await _survive(alice, bob, b"\x00\x00\x00\x01A", b"\xff" * 64, b"\x00\x10\x00\x01", b"after")


@check
async def a_buffer_may_be_used_again(alice: Endpoint, bob: Endpoint) -> None:
    """A received frame is immutable, and its sender may change its buffer later."""
    buffer = bytearray(b"before")
    await alice.send("bob", cast("bytes", buffer))
    buffer[:] = b"behind"
    _, frame = await bob.receive()
    require(type(frame) is bytes, f"a frame was received as {type(frame).__name__}")
    require(frame == b"before", "the frame changed with its buffer")


@check
async def equal_frames_arrive_each(alice: Endpoint, bob: Endpoint) -> None:
    """A frame that is sent three times arrives three times."""
    for frame in (*[b"again"] * 3, b"last"):
        await alice.send("bob", frame)
    for frame in (*[b"again"] * 3, b"last"):
        await take(bob, "alice", frame)


@check
async def a_claim_does_not_change_the_sender(
    alice: Endpoint, bob: Endpoint, carol: Endpoint
) -> None:
    """`receive` returns the sender of each frame, even if the frame names another party."""
    for sender, claim in ((carol, b"alice"), (alice, b"alice"), (alice, b"carol")):
        await sender.send("bob", claim)
        await take(bob, sender.name, claim)


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
    require(sent.digest() == got.digest(), "another payload arrived than was sent")


@check
async def a_send_that_is_refused_sends_nothing(alice: Endpoint, bob: Endpoint) -> None:
    """Impossible frames and receivers are refused, and the endpoint still works."""
    for to, frame, error in (
        ("bob", b"", FrameError),
        ("bob", bytes(FRAME_BYTES_MAX + 1), FrameError),
        ("mallory", b"frame", InputError),
        ("alice", b"frame", InputError),
        ("", b"frame", InputError),
    ):
        with raises(error):
            await alice.send(to, frame)
        await alice.send("bob", b"next")
        await take(bob, "alice", b"next")


@check
async def an_endpoint_knows_names(maker: Maker) -> None:
    """`name` is the endpoint's own name; `peers` lists every other endpoint once."""
    async with maker(("alice", "bob", "carol")) as endpoints:
        for name, endpoint in endpoints.items():
            require(endpoint.name == name, f"{name} calls itself {endpoint.name}")
            others = sorted(set(endpoints) - {name})
            require(sorted(endpoint.peers) == others, f"{name} has the peers {endpoint.peers}")


# Order: each sender's frames arrive in order, to `receive` and to a sink alike.


@check
async def one_sender_keeps_its_order(alice: Endpoint, bob: Endpoint) -> None:
    """Thousands of small frames of one sender arrive in order, without merging or duplication."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_stream(alice, "bob", _SMALL_FRAMES))
        numbers = await _collect(bob, _SMALL_FRAMES)
        require(numbers["alice"] == list(range(_SMALL_FRAMES)), "out of order")


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
async def streams_in_a_full_mesh_keep_their_order(maker: Maker) -> None:
    """If all stream to all at once, each of the streams stays whole and in order."""
    names = ("alice", "bob", "carol", "dave")
    async with maker(names) as endpoints, asyncio.TaskGroup() as tasks:
        for endpoint in endpoints.values():
            for peer in endpoint.peers:
                tasks.create_task(_stream(endpoint, peer, size=2_000))
        count = _STREAM_FRAMES * (len(names) - 1)
        heard = [tasks.create_task(_collect(each, count)) for each in endpoints.values()]
        for name, numbers in zip(endpoints, await asyncio.gather(*heard), strict=True):
            expected = {peer: list(range(_STREAM_FRAMES)) for peer in names if peer != name}
            require(numbers == expected, f"out of order at {name}")


@check
async def tasks_that_send_at_once_keep_their_order(alice: Endpoint, bob: Endpoint) -> None:
    """Any number of tasks may send to one peer; each task's frames stay whole and in order."""
    many = 10
    async with asyncio.TaskGroup() as tasks:
        for task in range(many):
            tasks.create_task(_stream(alice, "bob", start=task * _STREAM_FRAMES, size=900))
        numbers = (await _collect(bob, many * _STREAM_FRAMES))["alice"]
        complete = sorted(numbers) == list(range(many * _STREAM_FRAMES))
        require(complete, "frames are missing or doubled")
        for task in range(many):
            own = [number for number in numbers if number // _STREAM_FRAMES == task]
            require(all(a < b for a, b in pairwise(own)), "a task's frames are out of order")


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


class _Sink:
    """Stores the items it is given, and lets a task wait until it has a given number of them."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.items: list[tuple[str, bytes | PeerLost]] = []
        self._changed = asyncio.Event()
        endpoint.attach(self._take)

    def _take(self, peer: str, item: bytes | PeerLost) -> None:
        self.items.append((peer, item))
        self._changed.set()

    async def until(self, count: int) -> list[tuple[str, bytes | PeerLost]]:
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
    expected = [("alice", numbered(number)) for number in range(_HANDED_FRAMES)]
    require(items == expected, "other frames arrived")


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
    first, (peer, loss), third = await sink.until(3)
    require(first == ("alice", b"last words"), "a frame was lost")
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
    heard = b""
    while heard != b"on":
        try:
            heard = (await carol.receive())[1]
        except PeerLost:
            continue
    require(len(sink.items) == count, "something was handed over")


# Endings: a goodbye or crash is reported once, after all earlier frames.


@check_both_ends
async def a_loss_says_whether_it_was_orderly(
    alice: Endpoint, bob: Endpoint, carol: Endpoint, *, how: str
) -> None:
    """A close is a goodbye to all peers, and an abort is a crash."""
    orderly = await _end(alice, how)
    for peer in (bob, carol):
        require(await take_loss(peer, orderly=orderly) == "alice", "another peer was lost")


@check_both_ends
async def a_loss_is_reported_once(
    alice: Endpoint, bob: Endpoint, carol: Endpoint, *, how: str
) -> None:
    """After a loss was reported, `receive` serves the other peers and does not report it again."""
    orderly = await _end(alice, how)
    await take_loss(bob, orderly=orderly)
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


@check_both_ends
async def an_end_may_be_repeated(alice: Endpoint, bob: Endpoint, *, how: str) -> None:
    """A later `close` or `abort` does nothing, even at the same time; the first one counts."""
    await asyncio.gather(_end(alice, how), alice.close())
    alice.abort()
    await alice.close()
    await take_loss(bob, orderly=how == "close")


@check
async def both_sides_may_close_at_once(alice: Endpoint, bob: Endpoint) -> None:
    """Two goodbyes that cross do not leave either side waiting."""
    await asyncio.gather(alice.close(), bob.close())


@check_both_ends
async def an_end_wakes_a_waiting_receive(alice: Endpoint, _bob: Endpoint, *, how: str) -> None:
    """A receive that is waiting when its endpoint ends raises `EndpointClosed`."""
    waiting = asyncio.create_task(alice.receive())
    await asyncio.sleep(0)
    await _end(alice, how)
    with raises(EndpointClosed):
        await waiting


@check_both_ends
async def an_ended_endpoint_neither_sends_nor_receives(
    alice: Endpoint, bob: Endpoint, *, how: str
) -> None:
    """After an end, `send` and `receive` raise `EndpointClosed` each time."""
    await bob.send("alice", b"unread")
    await _end(alice, how)
    for _ in range(2):
        with raises(EndpointClosed):
            await alice.send("bob", b"frame")
        with raises(EndpointClosed):
            await alice.receive()


@check
async def frames_before_a_goodbye_arrive(alice: Endpoint, bob: Endpoint) -> None:
    """Every frame sent before a close is delivered before the loss."""
    await _stream(alice, "bob", _LAST_FRAMES, size=10_000)
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
                await _stream(bob, "alice", 1 << 30, size=10_000)

        tasks.create_task(send())
        await alice.receive()
        for number in range(_LAST_FRAMES):
            await alice.send("bob", numbered(number))
        tasks.create_task(alice.close())
        for number in range(_LAST_FRAMES):
            await take(bob, "alice", numbered(number))
        await take_loss(bob, orderly=True)


@check
async def a_close_amid_sends_cuts_no_frame(alice: Endpoint, bob: Endpoint) -> None:
    """Pending sends end when their endpoint closes; delivered frames are whole and in order."""
    async with asyncio.TaskGroup() as tasks:

        async def send() -> None:
            with raises(EndpointClosed):
                await _stream(alice, "bob", 1 << 20, size=5_000)

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
async def a_lost_peer_is_not_connected(alice: Endpoint, bob: Endpoint, _carol: Endpoint) -> None:
    """`peers` lists all peers, and `connected` those that are not lost."""
    require(set(bob.connected) == {"alice", "carol"}, f"the connected peers are {bob.connected}")
    alice.abort()
    await take_loss(bob, orderly=False)
    require(bob.connected == ("carol",), f"the peers still connected are {bob.connected}")
    require(set(bob.peers) == {"alice", "carol"}, "a lost peer is not listed")


@check
async def a_crash_does_not_disturb_a_stream(
    alice: Endpoint, bob: Endpoint, carol: Endpoint
) -> None:
    """A stream between two peers continues, whole and in order, while a third one crashes."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_stream(carol, "bob", 4 * _LAST_FRAMES, size=5_000))
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


# Backpressure and cancellation: a cancelled call is done completely or not at all.


async def _wait_for(alice: Endpoint, count: int = 1) -> tuple[int, list[asyncio.Task[None]]]:
    """Stall the sends of alice to bob, who does not read, and leave some of them waiting."""
    sent = await fill(alice, "bob")
    waiting = [asyncio.create_task(alice.send("bob", numbered(sent + 1 + i))) for i in range(count)]
    await asyncio.sleep(0)
    return sent, waiting


@check
async def a_stalled_receiver_stops_its_sender(alice: Endpoint, bob: Endpoint) -> None:
    """If the receiver does not read, a send waits before memory runs out, and loses nothing."""
    sent, (waiting,) = await _wait_for(alice)
    require(sent, "the very first send waited")
    for number in range(sent):
        await take(bob, "alice", numbered(number, STALL_FRAME_BYTES))
    frame = (await bob.receive())[1]
    if number_of(frame) == sent:  # the cancelled send may have been sent whole
        require(frame == numbered(sent, STALL_FRAME_BYTES), "a cancelled send arrived in part")
        frame = (await bob.receive())[1]
    require(frame == numbered(sent + 1), f"expected {sent + 1}, received {number_of(frame)}")
    await waiting


@check
async def a_stall_ends_for_every_waiting_task(
    alice: Endpoint, bob: Endpoint, carol: Endpoint
) -> None:
    """All waiting sends, of both senders, continue once the receiver reads."""
    many = 20
    sent, waiting = await _wait_for(alice, many)
    waiting.append(asyncio.create_task(carol.send("bob", b"from carol")))
    late: dict[str, list[int]] = {"alice": [], "carol": []}
    while len(late["alice"]) < many or not late["carol"]:
        sender, frame = await bob.receive()
        if sender == "carol" or number_of(frame) > sent:
            late[sender].append(number_of(frame))
    await asyncio.gather(*waiting)
    expected = list(range(sent + 1, sent + 1 + many))
    require(sorted(late["alice"]) == expected, "a waiting send was lost")


@check
async def a_stall_does_not_stop_other_peers(
    alice: Endpoint, bob: Endpoint, carol: Endpoint
) -> None:
    """While one peer does not read, others hear its sender, which can receive as well."""
    _, (waiting,) = await _wait_for(alice)
    for number in range(100):
        await alice.send("carol", numbered(number))
        await take(carol, "alice", numbered(number))
    for sender in (bob, carol):
        await sender.send("alice", b"hello")
        await take(alice, sender.name, b"hello")
    waiting.cancel()


@check
async def a_stalled_send_learns_of_an_end(maker: Maker) -> None:
    """A waiting send raises `PeerLost` for its receiver's end, `EndpointClosed` for its own."""
    for gone, error in (("bob", PeerLost), ("alice", EndpointClosed)):
        async with maker(("alice", "bob")) as endpoints:
            _, waiting = await _wait_for(endpoints["alice"], 2)
            endpoints[gone].abort()
            for send in waiting:
                with raises(error):
                    await send


@check
async def a_receive_cancelled_as_a_frame_arrives_loses_nothing(
    alice: Endpoint, bob: Endpoint
) -> None:
    """A receive cancelled at any moment has returned its frame or left it for the next receive."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_stream(alice, "bob", _RACED_FRAMES))
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
        require(numbers == list(range(_RACED_FRAMES)), "frames are missing, doubled or unordered")


@check
async def cancelled_sends_are_whole_or_nothing(alice: Endpoint, bob: Endpoint) -> None:
    """Each send that is cancelled, before or while it waits, arrives whole or not at all."""
    sent = await fill(alice, "bob")
    never = asyncio.create_task(alice.send("bob", numbered(sent + 98)))
    never.cancel()
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
    require(sent + 98 not in numbers, "a send that had not begun was sent")
    before = [number for number in numbers if number <= sent]
    require(all(a < b for a, b in pairwise(before)), "out of order")
    await asyncio.gather(never, *waiting, last, return_exceptions=True)

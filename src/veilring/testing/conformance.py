"""What every transport must do, as checks that anyone can run on theirs.

    async def test_my_transport() -> None:
        await check_transport(my_endpoints)

The checks are the contract of `veilring.transport.endpoint.Endpoint` in executable form, in the
spirit of the stream checks that Trio ships. They wait by `asyncio` alone, so that a transport on a
simulated clock passes them too.
"""

import asyncio
import functools
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from itertools import pairwise
from typing import Final, TypeAlias, cast

from veilring.errors import EndpointClosed, FrameError, InputError, PeerLost
from veilring.transport.endpoint import Endpoint
from veilring.transport.frames import FRAME_BYTES_MAX, PREFIX_BYTES

Endpoints: TypeAlias = Mapping[str, Endpoint]
Maker: TypeAlias = Callable[[Sequence[str]], AbstractAsyncContextManager[Endpoints]]
"""Opens one connected endpoint for each name, and frees them all at the end."""
Check: TypeAlias = Callable[[Maker], Awaitable[None]]

# Each check takes under a second; one that waits forever must end and say which it was.
CHECK_SECONDS: Final = 60.0
# A send that takes longer waits for its receiver. A slow machine may make it seem so too soon; the
# check then asks less, but never fails for it.
STALL_SECONDS: Final = 0.2
# A receiver that never reads must stop its sender before 256 MiB are under way: queues count
# frames, networks bytes, so that these are a compromise.
STALL_FRAME_BYTES: Final = 1 << 16
STALL_FRAMES_MAX: Final = 1 << 12

_NUMBER_BYTES: Final = 4

CHECKS: dict[str, Check] = {}
"""All checks by name, in the order in which they run."""


async def check_transport(maker: Maker) -> tuple[str, ...]:
    """Run all checks, each on fresh endpoints, and return their names.

    Args:
        maker: Given names, opens an asynchronous context of connected endpoints by name, and frees
            them at its end whatever state they are in.

    Raises:
        AssertionError: From the first check that fails; the message starts with its name.
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
    """Return what went wrong first, from inside a task group if need be."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{error}" if isinstance(error, AssertionError) else repr(error)


def _check(function: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Enter a check in the table under its own name.

    It is given a maker, or the endpoints that its parameters name.
    """
    names = tuple(name.lstrip("_") for name in inspect.signature(function).parameters)

    @functools.wraps(function)
    async def run(maker: Maker) -> None:
        async with maker(names) as endpoints:
            await function(*(endpoints[name] for name in names))

    CHECKS[getattr(function, "__name__", repr(function))] = function if names == ("maker",) else run
    return function


def _require(condition: object, message: str) -> None:
    """Fail the check unless the condition holds."""
    if not condition:
        raise AssertionError(message)


@contextmanager
def _raises(*errors: type[BaseException]) -> Iterator[None]:
    """Fail the check unless the block raises one of the errors."""
    try:
        yield
    except errors:
        return
    raise AssertionError(f"nothing was raised where {errors[0].__name__} was due")


async def _take(endpoint: Endpoint, sender: str, frame: bytes) -> None:
    """Receive, and fail the check unless it is this frame of this sender."""
    got_sender, got = await endpoint.receive()
    _require(got_sender == sender, f"a frame of {sender} came as one of {got_sender}")
    _require(got == frame, f"{len(frame)} bytes were sent, {len(got)} other bytes arrived")


async def _take_loss(endpoint: Endpoint, *, orderly: bool) -> str:
    """Receive, and fail the check unless it is a loss of this kind; return who is lost."""
    try:
        sender, frame = await endpoint.receive()
    except PeerLost as loss:
        _require(loss.orderly is orderly, f"orderly is {loss.orderly}, not {orderly}")
        return loss.peer
    raise AssertionError(f"{len(frame)} bytes of {sender} arrived where a loss was due")


def _numbered(number: int, size: int = _NUMBER_BYTES) -> bytes:
    """Return a frame of this size that carries a number."""
    return number.to_bytes(_NUMBER_BYTES, "big").ljust(size, b"\x5a")


def _number_of(frame: bytes) -> int:
    """Return the number that a frame carries."""
    return int.from_bytes(frame[:_NUMBER_BYTES], "big")


async def fill(sender: Endpoint, to: str) -> int:
    """Send numbered frames until a send has to wait; return how many were sent for sure.

    The send that waited is cancelled: its frame, the next number, was sent whole or not at all.
    """
    for number in range(STALL_FRAMES_MAX):
        try:
            async with asyncio.timeout(STALL_SECONDS):
                await sender.send(to, _numbered(number, STALL_FRAME_BYTES))
        except TimeoutError:
            return number
    raise AssertionError(f"{STALL_FRAMES_MAX} frames were sent to a peer that reads none")


# Frames arrive whole, and only those that are allowed.

_VOLUME_FRAMES: Final = 512  # of 64 KiB: 32 MiB, more than any buffer between two endpoints holds
_SMALL_FRAMES: Final = 5_000


async def _survive(alice: Endpoint, bob: Endpoint, *frames: bytes) -> None:
    for frame in frames:
        sending = asyncio.create_task(alice.send("bob", frame))
        await _take(bob, "alice", frame)
        await sending


@_check
async def a_frame_arrives_whole(alice: Endpoint, bob: Endpoint) -> None:
    """What one sends is what the other receives."""
    await _survive(alice, bob, b"one frame")


@_check
async def the_smallest_frame_arrives(alice: Endpoint, bob: Endpoint) -> None:
    """A frame may have a single byte."""
    await _survive(alice, bob, b"\x01")


@_check
async def the_largest_frame_arrives(alice: Endpoint, bob: Endpoint) -> None:
    """A frame may have `FRAME_BYTES_MAX` bytes."""
    await _survive(alice, bob, bytes(range(256)) * (FRAME_BYTES_MAX // 256))


@_check
async def frames_near_every_power_of_two_arrive(alice: Endpoint, bob: Endpoint) -> None:
    """No size is special, in particular none near a buffer's or a TLS record's."""
    powers = [1 << k for k in range(1, FRAME_BYTES_MAX.bit_length())]
    sizes = {size + off for size in powers for off in (-1, 0, 1)}
    allowed = sorted(size for size in sizes if 0 < size <= FRAME_BYTES_MAX)
    await _survive(alice, bob, *(b"\xa5" * size for size in allowed))


@_check
async def every_byte_arrives_unaltered(alice: Endpoint, bob: Endpoint) -> None:
    """Each of the 256 bytes arrives as itself."""
    await _survive(alice, bob, *(bytes([byte]) for byte in range(256)), bytes(range(256)))


@_check
async def a_frame_of_zeros_is_only_a_frame(alice: Endpoint, bob: Endpoint) -> None:
    """Zeros, which on a stream could be lengths or a goodbye, are data inside a frame."""
    await _survive(alice, bob, *(bytes(size) for size in range(1, 4 * PREFIX_BYTES + 1)), b"after")


@_check
async def a_frame_that_looks_like_lengths_is_only_a_frame(alice: Endpoint, bob: Endpoint) -> None:
    """Bytes that could be another frame's prefix, short or far too long, are data."""
    await _survive(alice, bob, b"\x00\x00\x00\x01A", b"\xff" * 64, b"\x00\x10\x00\x01", b"after")


@_check
async def a_received_frame_is_bytes(alice: Endpoint, bob: Endpoint) -> None:
    """A frame is received as `bytes`, which nobody can change."""
    await alice.send("bob", b"frame")
    _, frame = await bob.receive()
    _require(type(frame) is bytes, f"a frame came as {type(frame).__name__}")


@_check
async def a_buffer_may_be_used_again(alice: Endpoint, bob: Endpoint) -> None:
    """What happens to a buffer after it was sent does not change the frame."""
    buffer = bytearray(b"before")
    await alice.send("bob", cast("bytes", buffer))
    buffer[:] = b"behind"
    await _take(bob, "alice", b"before")


@_check
async def equal_frames_arrive_each(alice: Endpoint, bob: Endpoint) -> None:
    """A frame that is sent three times arrives three times."""
    for _ in range(3):
        await alice.send("bob", b"again")
    await alice.send("bob", b"last")
    for _ in range(3):
        await _take(bob, "alice", b"again")
    await _take(bob, "alice", b"last")


@_check
async def the_sender_is_named(alice: Endpoint, bob: Endpoint, carol: Endpoint) -> None:
    """`receive` tells whose frame it is."""
    for sender in (carol, alice):
        await sender.send("bob", sender.name.encode())
        await _take(bob, sender.name, sender.name.encode())


@_check
async def a_claim_does_not_change_the_sender(
    _alice: Endpoint, bob: Endpoint, carol: Endpoint
) -> None:
    """A frame that names another party is still its sender's."""
    await carol.send("bob", b"alice")
    await _take(bob, "carol", b"alice")


@_check
async def only_the_receiver_receives(alice: Endpoint, bob: Endpoint, carol: Endpoint) -> None:
    """A frame for one peer does not reach another."""
    await alice.send("bob", b"for bob")
    await alice.send("carol", b"for carol")
    await _take(carol, "alice", b"for carol")
    await _take(bob, "alice", b"for bob")


@_check
async def a_large_volume_arrives_unaltered(alice: Endpoint, bob: Endpoint) -> None:
    """32 MiB arrive with the digest with which they were sent."""
    sent, got = hashlib.sha256(), hashlib.sha256()

    async def send() -> None:
        for number in range(_VOLUME_FRAMES):
            frame = _numbered(number) * (1 << 14)
            sent.update(frame)
            await alice.send("bob", frame)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(send())
        for _ in range(_VOLUME_FRAMES):
            got.update((await bob.receive())[1])
    _require(sent.digest() == got.digest(), "what arrived is not what was sent")


@_check
async def many_small_frames_arrive_each(alice: Endpoint, bob: Endpoint) -> None:
    """Thousands of small frames are neither merged nor lost nor doubled."""

    async def send() -> None:
        for number in range(_SMALL_FRAMES):
            await alice.send("bob", _numbered(number))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(send())
        numbers = [_number_of((await bob.receive())[1]) for _ in range(_SMALL_FRAMES)]
        _require(
            numbers == list(range(_SMALL_FRAMES)), "frames are missing, doubled or out of order"
        )


async def _refuse(
    alice: Endpoint, bob: Endpoint, to: str, frame: bytes, error: type[Exception]
) -> None:
    with _raises(error):
        await alice.send(to, frame)
    await alice.send("bob", b"next")
    await _take(bob, "alice", b"next")


@_check
async def an_empty_frame_is_refused(alice: Endpoint, bob: Endpoint) -> None:
    """An empty frame is a `FrameError`, nothing is sent, and the endpoint goes on."""
    await _refuse(alice, bob, "bob", b"", FrameError)


@_check
async def a_frame_too_large_is_refused(alice: Endpoint, bob: Endpoint) -> None:
    """One byte more than `FRAME_BYTES_MAX` is a `FrameError`, and nothing is sent."""
    await _refuse(alice, bob, "bob", bytes(FRAME_BYTES_MAX + 1), FrameError)


@_check
async def an_unknown_peer_is_refused(alice: Endpoint, bob: Endpoint) -> None:
    """A name that no peer has is an `InputError`."""
    await _refuse(alice, bob, "mallory", b"frame", InputError)


@_check
async def oneself_is_refused(alice: Endpoint, bob: Endpoint) -> None:
    """An endpoint is not its own peer."""
    await _refuse(alice, bob, "alice", b"frame", InputError)


@_check
async def an_empty_name_is_refused(alice: Endpoint, bob: Endpoint) -> None:
    """An empty name is an `InputError`."""
    await _refuse(alice, bob, "", b"frame", InputError)


@_check
async def an_endpoint_knows_names(maker: Maker) -> None:
    """`name` is its own; `peers` are all others, each once."""
    async with maker(("alice", "bob", "carol")) as endpoints:
        for name, endpoint in endpoints.items():
            _require(endpoint.name == name, f"{name} calls itself {endpoint.name}")
            others = sorted(set(endpoints) - {name})
            _require(sorted(endpoint.peers) == others, f"{name} has the peers {endpoint.peers}")


# Each sender's frames keep their order.

_STREAM_FRAMES: Final = 500
_RING: Final = 16
_MESH: Final = 8
_ROUNDS: Final = 50


async def _stream(endpoint: Endpoint, to: str, start: int = 0, size: int = 4) -> None:
    for number in range(start, start + _STREAM_FRAMES):
        await endpoint.send(to, _numbered(number, size))


async def _collect(endpoint: Endpoint, count: int) -> dict[str, list[int]]:
    """Receive frames and return their numbers by sender."""
    numbers: dict[str, list[int]] = {}
    for _ in range(count):
        sender, frame = await endpoint.receive()
        numbers.setdefault(sender, []).append(_number_of(frame))
    return numbers


@_check
async def one_sender_keeps_its_order(alice: Endpoint, bob: Endpoint) -> None:
    """Frames of one sender arrive in the order in which it sent them."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_stream(alice, "bob"))
        numbers = await _collect(bob, _STREAM_FRAMES)
        _require(numbers["alice"] == list(range(_STREAM_FRAMES)), "out of order")


@_check
async def sizes_do_not_change_the_order(alice: Endpoint, bob: Endpoint) -> None:
    """A small frame does not overtake a large one."""
    sizes = [100_000, 4, 20_000, 5, 1_000, 70_000, 6, 7] * 10
    async with asyncio.TaskGroup() as tasks:

        async def send() -> None:
            for number, size in enumerate(sizes):
                await alice.send("bob", _numbered(number, size))

        tasks.create_task(send())
        for number, size in enumerate(sizes):
            await _take(bob, "alice", _numbered(number, size))


@_check
async def each_of_many_senders_keeps_its_order(maker: Maker) -> None:
    """Senders interleave, and each one's frames stay in order."""
    senders = ("bob", "carol", "dave", "erin")
    async with maker(("alice", *senders)) as endpoints, asyncio.TaskGroup() as tasks:
        for sender in senders:
            tasks.create_task(_stream(endpoints[sender], "alice"))
        numbers = await _collect(endpoints["alice"], _STREAM_FRAMES * len(senders))
        for sender in senders:
            _require(numbers.get(sender) == list(range(_STREAM_FRAMES)), f"{sender} out of order")


@_check
async def tasks_that_send_at_once_keep_their_order(alice: Endpoint, bob: Endpoint) -> None:
    """Any number of tasks may send to one peer; each one's frames stay whole and in order."""
    many = 10
    async with asyncio.TaskGroup() as tasks:
        for task in range(many):
            tasks.create_task(_stream(alice, "bob", task * _STREAM_FRAMES, size=900))
        numbers = (await _collect(bob, many * _STREAM_FRAMES))["alice"]
        _require(
            sorted(numbers) == list(range(many * _STREAM_FRAMES)), "frames are missing or doubled"
        )
        for task in range(many):
            own = [number for number in numbers if number // _STREAM_FRAMES == task]
            _require(all(a < b for a, b in pairwise(own)), "a task's frames are out of order")


@_check
async def one_sender_serves_many_receivers(maker: Maker) -> None:
    """Streams of one sender to several peers do not mix."""
    receivers = ("bob", "carol", "dave")
    async with maker(("alice", *receivers)) as endpoints, asyncio.TaskGroup() as tasks:
        for receiver in receivers:
            tasks.create_task(_stream(endpoints["alice"], receiver))
        for receiver in receivers:
            numbers = await _collect(endpoints[receiver], _STREAM_FRAMES)
            _require(numbers == {"alice": list(range(_STREAM_FRAMES))}, f"{receiver} out of order")


@_check
async def both_directions_carry_at_once(alice: Endpoint, bob: Endpoint) -> None:
    """Two peers may stream to each other at the same time."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_stream(alice, "bob", size=5_000))
        tasks.create_task(_stream(bob, "alice", size=5_000))
        at_bob = tasks.create_task(_collect(bob, _STREAM_FRAMES))
        at_alice = await _collect(alice, _STREAM_FRAMES)
        _require(at_alice["bob"] == list(range(_STREAM_FRAMES)), "to alice out of order")
        _require((await at_bob)["alice"] == list(range(_STREAM_FRAMES)), "to bob out of order")


@_check
async def an_answer_reaches_the_asker(alice: Endpoint, bob: Endpoint) -> None:
    """A frame can be answered by the name that `receive` gave."""
    async with asyncio.TaskGroup() as tasks:

        async def answer() -> None:
            for _ in range(_ROUNDS):
                sender, frame = await bob.receive()
                await bob.send(sender, frame[::-1])

        tasks.create_task(answer())
        for number in range(_ROUNDS):
            await alice.send("bob", _numbered(number))
            await _take(alice, "bob", _numbered(number)[::-1])


@_check
async def a_ring_of_many_passes_a_token(maker: Maker) -> None:
    """A frame goes around a ring of many endpoints, again and again."""
    names = tuple(f"p{position}" for position in range(_RING))
    laps = 3
    async with maker(names) as endpoints, asyncio.TaskGroup() as tasks:

        async def carry(position: int) -> None:
            endpoint = endpoints[names[position]]
            for _ in range(laps):
                sender, frame = await endpoint.receive()
                _require(sender == names[position - 1], f"the token came from {sender}")
                onward = names[(position + 1) % _RING]
                await endpoint.send(onward, _numbered(_number_of(frame) + 1))

        for position in range(1, _RING):
            tasks.create_task(carry(position))
        for lap in range(laps):
            await endpoints[names[0]].send(names[1], _numbered(lap * _RING))
            await _take(endpoints[names[0]], names[-1], _numbered(lap * _RING + _RING - 1))


@_check
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
            _require(heard == expected, f"{name} did not hear each peer once")


# A receiver that does not read stops its senders, and nothing is dropped.


async def _drain(endpoint: Endpoint, sender: str, sent: int, last: int) -> None:
    """Receive numbers 0 to `sent` - 1, then `last`, with at most the number `sent` between."""
    for number in range(sent):
        await _take(endpoint, sender, _numbered(number, STALL_FRAME_BYTES))
    frame = (await endpoint.receive())[1]
    if _number_of(frame) == sent:  # the send that was cancelled may have been sent whole
        _require(frame == _numbered(sent, STALL_FRAME_BYTES), "a cancelled send arrived in part")
        frame = (await endpoint.receive())[1]
    _require(frame == _numbered(last), f"{last} was due, {_number_of(frame)} arrived")


async def _wait_for(alice: Endpoint, count: int = 1) -> tuple[int, list[asyncio.Task[None]]]:
    """Stall alice by a bob who does not read, and leave sends of hers waiting."""
    sent = await fill(alice, "bob")
    waiting = [
        asyncio.create_task(alice.send("bob", _numbered(sent + 1 + i))) for i in range(count)
    ]
    await asyncio.sleep(0)
    return sent, waiting


@_check
async def a_stalled_receiver_stops_its_sender(alice: Endpoint, _bob: Endpoint) -> None:
    """If nobody reads, a send waits before memory runs out."""
    _require(await fill(alice, "bob"), "the very first send waited")


@_check
async def a_stall_loses_nothing(alice: Endpoint, bob: Endpoint) -> None:
    """All that was sent before and during a stall arrives, in order."""
    sent, (waiting,) = await _wait_for(alice)
    await _drain(bob, "alice", sent, sent + 1)
    await waiting


@_check
async def a_stall_ends_for_every_waiting_task(alice: Endpoint, bob: Endpoint) -> None:
    """All sends that wait go on once the receiver reads."""
    many = 20
    sent, waiting = await _wait_for(alice, many)
    late: list[int] = []
    while len(late) < many:
        number = _number_of((await bob.receive())[1])
        if number > sent:
            late.append(number)
    await asyncio.gather(*waiting)
    _require(sorted(late) == list(range(sent + 1, sent + 1 + many)), "a waiting send was lost")


@_check
async def a_stall_does_not_stop_other_peers(
    alice: Endpoint, _bob: Endpoint, carol: Endpoint
) -> None:
    """While one peer does not read, its sender's frames reach another."""
    _, (waiting,) = await _wait_for(alice)
    for number in range(100):
        await alice.send("carol", _numbered(number))
        await _take(carol, "alice", _numbered(number))
    waiting.cancel()


@_check
async def a_stalled_sender_still_receives(alice: Endpoint, bob: Endpoint, carol: Endpoint) -> None:
    """Whoever waits to send can be sent to."""
    _, (waiting,) = await _wait_for(alice)
    for sender in (bob, carol):
        await sender.send("alice", b"hello")
        await _take(alice, sender.name, b"hello")
    waiting.cancel()


@_check
async def two_senders_share_a_stalled_receiver(
    alice: Endpoint, bob: Endpoint, carol: Endpoint
) -> None:
    """When a receiver reads again, each of its stalled senders goes on."""
    _, (waiting,) = await _wait_for(alice)
    other = asyncio.create_task(carol.send("bob", b"from carol"))
    heard: set[str] = set()
    while heard != {"alice", "carol"} or not waiting.done():
        sender, _ = await bob.receive()
        heard.add(sender)
    await asyncio.gather(waiting, other)


@_check
async def a_stalled_send_learns_of_a_crash(alice: Endpoint, bob: Endpoint) -> None:
    """If the receiver vanishes, a waiting send raises `PeerLost`."""
    _, waiting = await _wait_for(alice, 2)
    bob.abort()
    for send in waiting:
        with _raises(PeerLost):
            await send


@_check
async def a_stalled_send_learns_of_its_own_close(alice: Endpoint, _bob: Endpoint) -> None:
    """If its own endpoint closes, a waiting send raises `EndpointClosed`."""
    _, waiting = await _wait_for(alice, 2)
    alice.abort()
    for send in waiting:
        with _raises(EndpointClosed):
            await send


# A cancelled operation happened whole or not at all.

_RACED_FRAMES: Final = 300


@_check
async def a_cancelled_receive_loses_no_later_frame(alice: Endpoint, bob: Endpoint) -> None:
    """A frame that arrives after a cancelled wait is received by the next."""
    waiting = asyncio.create_task(bob.receive())
    await asyncio.sleep(0)
    waiting.cancel()
    with _raises(asyncio.CancelledError):
        await waiting
    await alice.send("bob", b"frame")
    await _take(bob, "alice", b"frame")


@_check
async def a_receive_cancelled_as_a_frame_arrives_loses_nothing(
    alice: Endpoint, bob: Endpoint
) -> None:
    """Cancelled at any moment, a receive has returned its frame or left it for the next."""
    async with asyncio.TaskGroup() as tasks:

        async def send() -> None:
            for number in range(_RACED_FRAMES):
                await alice.send("bob", _numbered(number))
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
                numbers.append(_number_of(receiving.result()[1]))
            turns += 1
        _require(
            numbers == list(range(_RACED_FRAMES)), "frames are missing, doubled or out of order"
        )


@_check
async def a_receive_that_timed_out_can_be_repeated(alice: Endpoint, bob: Endpoint) -> None:
    """`receive` under a timeout loses nothing when time is up."""
    for number in range(10):
        with _raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await bob.receive()
        await alice.send("bob", _numbered(number))
        await _take(bob, "alice", _numbered(number))


@_check
async def a_send_cancelled_before_it_began_sends_nothing(alice: Endpoint, bob: Endpoint) -> None:
    """A task that is cancelled before its first step sends nothing."""
    sending = asyncio.create_task(alice.send("bob", b"never"))
    sending.cancel()
    with _raises(asyncio.CancelledError):
        await sending
    await alice.send("bob", b"next")
    await _take(bob, "alice", b"next")


@_check
async def cancelled_sends_are_whole_or_nothing(alice: Endpoint, bob: Endpoint) -> None:
    """Of sends that are cancelled while they wait, each arrives whole or not at all."""
    sent = await fill(alice, "bob")
    waiting = [
        asyncio.create_task(alice.send("bob", _numbered(sent + 1 + i, STALL_FRAME_BYTES)))
        for i in range(20)
    ]
    await asyncio.sleep(0)
    for send in waiting[::2]:
        send.cancel()
    last = asyncio.create_task(alice.send("bob", _numbered(sent + 99)))
    kept = {sent + 1 + i for i in range(1, 20, 2)} | {sent + 99} | set(range(sent))
    numbers: list[int] = []
    while not kept <= set(numbers):
        sender, frame = await bob.receive()
        numbers.append(_number_of(frame))
        whole = _numbered(numbers[-1], len(frame))
        _require((sender, frame) == ("alice", whole), "a frame arrived in part")
    _require(len(set(numbers)) == len(numbers), "a frame arrived twice")
    before = [number for number in numbers if number <= sent]
    _require(all(a < b for a, b in pairwise(before)), "out of order")
    await asyncio.gather(*waiting, last, return_exceptions=True)


# An end is reported: a goodbye as one, a crash as one, once, after all that arrived before.

_LAST_FRAMES: Final = 50


@_check
async def a_close_is_a_goodbye(alice: Endpoint, bob: Endpoint, carol: Endpoint) -> None:
    """Peers of an endpoint that closes lose it in an orderly way."""
    await alice.close()
    for peer in (bob, carol):
        _require(await _take_loss(peer, orderly=True) == "alice", "another was lost")


@_check
async def frames_before_a_goodbye_arrive(alice: Endpoint, bob: Endpoint) -> None:
    """All that was sent before a close is delivered before the loss."""
    for number in range(_LAST_FRAMES):
        await alice.send("bob", _numbered(number, 10_000))
    await alice.close()
    for number in range(_LAST_FRAMES):
        await _take(bob, "alice", _numbered(number, 10_000))
    await _take_loss(bob, orderly=True)


@_check
async def a_goodbye_arrives_through_a_peers_stream(alice: Endpoint, bob: Endpoint) -> None:
    """An endpoint that closes while its peer sends still says all of its own, and goodbye."""
    async with asyncio.TaskGroup() as tasks:

        async def send() -> None:
            with _raises(PeerLost):
                while True:
                    await bob.send("alice", bytes(10_000))
                    await asyncio.sleep(0)

        tasks.create_task(send())
        await alice.receive()
        for number in range(_LAST_FRAMES):
            await alice.send("bob", _numbered(number))
        tasks.create_task(alice.close())
        for number in range(_LAST_FRAMES):
            await _take(bob, "alice", _numbered(number))
        await _take_loss(bob, orderly=True)


@_check
async def a_close_may_be_repeated(alice: Endpoint, bob: Endpoint) -> None:
    """`close` after `close` does nothing, also at the same time."""
    await asyncio.gather(alice.close(), alice.close())
    await alice.close()
    await _take_loss(bob, orderly=True)


@_check
async def both_sides_may_close_at_once(alice: Endpoint, bob: Endpoint) -> None:
    """Two goodbyes that cross leave nobody waiting."""
    await asyncio.gather(alice.close(), bob.close())


@_check
async def a_close_wakes_a_waiting_receive(alice: Endpoint, _bob: Endpoint) -> None:
    """A receive that waits when its endpoint closes raises `EndpointClosed`."""
    waiting = asyncio.create_task(alice.receive())
    await asyncio.sleep(0)
    await alice.close()
    with _raises(EndpointClosed):
        await waiting


@_check
async def a_closed_endpoint_neither_sends_nor_receives(alice: Endpoint, bob: Endpoint) -> None:
    """After `close`, `send` and `receive` raise `EndpointClosed` each time."""
    await bob.send("alice", b"unread")
    await alice.close()
    for _ in range(2):
        with _raises(EndpointClosed):
            await alice.send("bob", b"frame")
        with _raises(EndpointClosed):
            await alice.receive()


@_check
async def a_close_amid_sends_cuts_no_frame(alice: Endpoint, bob: Endpoint) -> None:
    """Sends under way when an endpoint closes end; what arrives is whole and in order."""
    async with asyncio.TaskGroup() as tasks:

        async def send() -> None:
            with _raises(EndpointClosed):
                for number in range(1 << 20):
                    await alice.send("bob", _numbered(number, 5_000))
                    await asyncio.sleep(0)

        tasks.create_task(send())
        for number in range(_LAST_FRAMES):
            await _take(bob, "alice", _numbered(number, 5_000))
        tasks.create_task(alice.close())
        number = _LAST_FRAMES
        with _raises(PeerLost):
            while True:
                await _take(bob, "alice", _numbered(number, 5_000))
                number += 1


@_check
async def a_close_leaves_the_others_connected(
    alice: Endpoint, bob: Endpoint, carol: Endpoint
) -> None:
    """When one leaves, the rest go on."""
    await alice.close()
    for endpoint in (bob, carol):
        await _take_loss(endpoint, orderly=True)
    for number in range(_LAST_FRAMES):
        await bob.send("carol", _numbered(number))
        await _take(carol, "bob", _numbered(number))


@_check
async def an_abort_is_a_crash(alice: Endpoint, bob: Endpoint, carol: Endpoint) -> None:
    """Peers of an endpoint that aborts lose it without a goodbye."""
    alice.abort()
    for peer in (bob, carol):
        _require(await _take_loss(peer, orderly=False) == "alice", "another was lost")


@_check
async def an_abort_comes_after_what_arrived(alice: Endpoint, bob: Endpoint) -> None:
    """Of what a crashed peer had sent, a beginning without gaps arrives, and then the loss."""
    for number in range(_LAST_FRAMES):
        await alice.send("bob", _numbered(number))
    await _take(bob, "alice", _numbered(0))
    alice.abort()
    number = 1
    with _raises(PeerLost):
        while True:
            await _take(bob, "alice", _numbered(number))
            number += 1


@_check
async def an_abort_may_be_repeated(alice: Endpoint, bob: Endpoint) -> None:
    """`abort` and `close` after `abort` do nothing; the crash stays a crash."""
    alice.abort()
    alice.abort()
    await alice.close()
    await _take_loss(bob, orderly=False)


@_check
async def an_abort_after_a_close_changes_nothing(alice: Endpoint, bob: Endpoint) -> None:
    """A goodbye stays a goodbye."""
    await alice.close()
    alice.abort()
    await _take_loss(bob, orderly=True)


@_check
async def an_abort_wakes_a_waiting_receive(alice: Endpoint, _bob: Endpoint) -> None:
    """A receive that waits when its endpoint aborts raises `EndpointClosed`."""
    waiting = asyncio.create_task(alice.receive())
    await asyncio.sleep(0)
    alice.abort()
    with _raises(EndpointClosed):
        await waiting


@_check
async def an_aborted_endpoint_neither_sends_nor_receives(alice: Endpoint, _bob: Endpoint) -> None:
    """After `abort`, `send` and `receive` raise `EndpointClosed` each time."""
    alice.abort()
    for _ in range(2):
        with _raises(EndpointClosed):
            await alice.send("bob", b"frame")
        with _raises(EndpointClosed):
            await alice.receive()


@_check
async def a_send_to_a_lost_peer_fails_each_time(
    alice: Endpoint, bob: Endpoint, carol: Endpoint
) -> None:
    """`send` to a peer that is gone raises `PeerLost`, with `orderly` as it left, every time."""
    alice.abort()
    await _take_loss(bob, orderly=False)
    await carol.close()
    await _take_loss(bob, orderly=True)
    for peer, orderly in [("alice", False), ("carol", True)] * 2:
        try:
            await bob.send(peer, b"frame")
        except PeerLost as loss:
            told = (loss.peer, loss.orderly)
            _require(told == (peer, orderly), f"the loss of {peer} was told as {told}")
        else:
            raise AssertionError(f"a frame was sent to {peer}, who is gone")


@_check
async def a_loss_is_told_once(alice: Endpoint, bob: Endpoint, carol: Endpoint) -> None:
    """After a loss was told, `receive` serves the others and does not tell it again."""
    alice.abort()
    await _take_loss(bob, orderly=False)
    for number in range(_LAST_FRAMES):
        await carol.send("bob", _numbered(number))
        await _take(bob, "carol", _numbered(number))


@_check
async def each_loss_is_told(maker: Maker) -> None:
    """When several peers are lost, each is told once."""
    gone = ("alice", "carol", "dave")
    async with maker(("bob", "erin", *gone)) as endpoints:
        for name in gone:
            endpoints[name].abort()
        told = [await _take_loss(endpoints["bob"], orderly=False) for _ in gone]
        _require(sorted(told) == sorted(gone), f"told were {told}")
        await endpoints["erin"].send("bob", b"after")
        await _take(endpoints["bob"], "erin", b"after")


@_check
async def a_lost_peer_stays_a_peer(alice: Endpoint, bob: Endpoint, _carol: Endpoint) -> None:
    """`peers` lists all, gone or not."""
    alice.abort()
    await _take_loss(bob, orderly=False)
    _require(set(bob.peers) == {"alice", "carol"}, "a lost peer is not listed")


@_check
async def a_lost_peer_is_not_connected(alice: Endpoint, bob: Endpoint, _carol: Endpoint) -> None:
    """`connected` lists all peers at first, and after a loss was told, those that are left."""
    _require(set(bob.connected) == {"alice", "carol"}, f"connected are {bob.connected}")
    alice.abort()
    await _take_loss(bob, orderly=False)
    _require(bob.connected == ("carol",), f"still connected are {bob.connected}")


@_check
async def a_crash_does_not_disturb_a_stream(
    alice: Endpoint, bob: Endpoint, carol: Endpoint
) -> None:
    """A stream between two others goes on, whole and in order, while a third crashes."""
    async with asyncio.TaskGroup() as tasks:

        async def send() -> None:
            for number in range(4 * _LAST_FRAMES):
                await carol.send("bob", _numbered(number, 5_000))
                await asyncio.sleep(0)

        tasks.create_task(send())
        losses = number = 0
        while number < 4 * _LAST_FRAMES or not losses:
            if number == _LAST_FRAMES:
                alice.abort()
            try:
                await _take(bob, "carol", _numbered(number, 5_000))
                number += 1
            except PeerLost as loss:
                _require(loss.peer == "alice", f"{loss.peer} was lost")
                losses += 1
        _require(losses == 1, f"the loss was told {losses} times")


# An endpoint hands over to a sink what `receive` would return.

_HANDED_FRAMES: Final = 1_000

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


@_check
async def a_sink_is_given_each_frame_in_order(alice: Endpoint, bob: Endpoint) -> None:
    """Frames are handed over once each, with their sender, in the order of sending."""
    sink = _Sink(bob)
    for number in range(_HANDED_FRAMES):
        await alice.send("bob", _numbered(number))
    items = await sink.until(_HANDED_FRAMES)
    _require(
        items == [("alice", _numbered(n)) for n in range(_HANDED_FRAMES)],
        "other frames arrived",
    )


@_check
async def a_sink_is_given_first_what_came_before_it(
    alice: Endpoint, bob: Endpoint, carol: Endpoint
) -> None:
    """What arrived before the sink was there is handed over before what comes later."""
    await alice.send("carol", b"ready")
    await alice.send("bob", b"one")
    await _take(carol, "alice", b"ready")
    sink = _Sink(bob)
    await alice.send("bob", b"two")
    _require(await sink.until(2) == [("alice", b"one"), ("alice", b"two")], "out of order")


@_check
async def a_sink_is_told_of_a_loss_once_and_last(
    alice: Endpoint, bob: Endpoint, carol: Endpoint
) -> None:
    """A loss is handed over behind all frames of the peer, and once."""
    sink = _Sink(bob)
    await alice.send("bob", b"last words")
    await alice.close()
    await sink.until(2)
    await carol.send("bob", b"still here")
    first, second, third = await sink.until(3)
    _require(first == ("alice", b"last words"), "a frame was lost")
    peer, loss = second
    told = peer == "alice" and isinstance(loss, PeerLost) and loss.orderly
    _require(told, "the loss was not told as it was")
    _require(third == ("carol", b"still here"), "something else was handed over")


@_check
async def a_closed_endpoint_hands_over_nothing(
    alice: Endpoint, bob: Endpoint, carol: Endpoint
) -> None:
    """After its close an endpoint calls its sink no more."""
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
    _require(len(sink.items) == count, "something was handed over")


async def _take_frame(endpoint: Endpoint) -> bytes:
    while True:
        try:
            return (await endpoint.receive())[1]
        except PeerLost:
            continue

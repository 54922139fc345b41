"""Conformance checks for transports, which you can run on your own transport.

    async def test_my_transport() -> None:
        await check_transport(my_endpoints)

The checks are the contract of `veilring.transport.endpoint.Endpoint` in executable form, in the
spirit of the stream checks that Trio ships. They wait with `asyncio` only, so a transport on a
simulated clock passes them too.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from itertools import count
from typing import Final, TypeAlias, cast

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
# Thousands of small frames, sizes that alternate, and 32 MiB, which no buffer between two endpoints
# holds.
_SIZES: Final = (4,) * 5_000 + (100_000, 4, 20_000, 5, 1_000, 70_000, 6, 7) * 10 + (1 << 16,) * 512
_TASKS: Final = 10
_TASK_FRAMES: Final = 40
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


def check(function: _Function) -> _Function:
    """Register a check under its function's name.

    Its parameters are either a maker or the names of the endpoints that it needs. A check with the
    further parameter `how` is registered for an endpoint that closes and for one that aborts.
    """
    parameters = inspect.signature(function).parameters
    names = tuple(name for name in parameters if name != "how")

    def register(name: str, **fixed: str) -> None:
        async def run(maker: Maker) -> None:
            async with maker(names) as endpoints:
                await function(*(endpoints[name] for name in names), **fixed)

        CHECKS[name] = function if names == ("maker",) else run

    name = getattr(function, "__name__", "")
    if "how" in parameters:
        for how in ("close", "abort"):
            register(f"{name}[{how}]", how=how)
    else:
        register(name)
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
def raises(error: type[BaseException]) -> Iterator[None]:
    """Fail the check unless the block raises the error."""
    try:
        yield
    except error:
        return
    raise AssertionError(f"nothing was raised where {error.__name__} was expected")


async def take(endpoint: Endpoint, sender: str, *frames: bytes) -> None:
    """Receive frames, and fail the check unless they are these frames from this sender."""
    for frame in frames:
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
    """Return a frame of this size that repeats a number."""
    return (number.to_bytes(_NUMBER_BYTES, "big") * -(-size // _NUMBER_BYTES))[:size]


def number_of(frame: bytes) -> int:
    """Return the number that a frame encodes, and fail the check unless the frame is whole."""
    number = int.from_bytes(frame[:_NUMBER_BYTES], "big")
    require(frame == numbered(number, len(frame)), f"frame {number} arrived in part")
    return number


async def _send(endpoint: Endpoint, to: str, numbers: Iterable[int], size: int = 4) -> None:
    """Send numbered frames, and let others have a turn after each."""
    for number in numbers:
        await endpoint.send(to, numbered(number, size))
        await asyncio.sleep(0)


async def _take_rest(endpoint: Endpoint, size: int, start: int) -> tuple[int, bool]:
    """Receive alice's frames up to her loss; return the next number and if it was orderly."""
    for number in count(start):
        try:
            await take(endpoint, "alice", numbered(number, size))
        except PeerLost as loss:
            return number, loss.orderly
    raise AssertionError("unreachable")


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


async def _stall(sender: Endpoint, to: str, count: int) -> tuple[int, list[asyncio.Task[None]]]:
    """Send until a receiver stalls that does not read; return the number sent, and later sends."""
    sent = await fill(sender, to)
    require(sent, "the very first send waited")
    waiting = [
        asyncio.create_task(sender.send(to, numbered(sent + 1 + i, STALL_FRAME_BYTES)))
        for i in range(count)
    ]
    await asyncio.sleep(0)
    return sent, waiting


# Frames: they arrive whole, and invalid ones are refused.


async def _survive(alice: Endpoint, bob: Endpoint, *frames: bytes) -> None:
    for frame in frames:
        sending = asyncio.create_task(alice.send("bob", frame))
        await take(bob, "alice", frame)
        await sending


@check
async def a_frame_arrives_whole(alice: Endpoint, bob: Endpoint) -> None:
    """Each byte arrives; zeros like a goodbye, a prefix and an equal frame are data like others."""
    await _survive(alice, bob, *(bytes([byte]) for byte in range(256)), bytes(range(256)))
    await _survive(alice, bob, *(bytes(size) for size in range(1, 4 * PREFIX_BYTES + 1)))
    await _survive(alice, bob, b"\x00\x00\x00\x01A", b"\xff" * 64, b"\x00\x10\x00\x01")
    await _survive(alice, bob, b"again", b"again", b"again", b"last")


@check
async def frames_near_every_power_of_two_arrive(alice: Endpoint, bob: Endpoint) -> None:
    """No size is special, neither those near a buffer or a TLS record nor the largest."""
    powers = [1 << k for k in range(1, FRAME_BYTES_MAX.bit_length())]
    sizes = {size + off for size in powers for off in (-1, 0, 1)}
    allowed = sorted(size for size in sizes if 0 < size <= FRAME_BYTES_MAX)
    await _survive(alice, bob, *(b"\xa5" * size for size in allowed))


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
async def a_frame_has_one_sender(alice: Endpoint, bob: Endpoint, carol: Endpoint) -> None:
    """Each endpoint knows its name and its peers, and no frame that names another misleads it."""
    endpoints = {"alice": alice, "bob": bob, "carol": carol}
    for name, endpoint in endpoints.items():
        require(endpoint.name == name, f"{name} calls itself {endpoint.name}")
        others = sorted(set(endpoints) - {name})
        require(sorted(endpoint.peers) == others, f"{name} has the peers {endpoint.peers}")
    await alice.send("bob", b"carol")
    await alice.send("carol", b"bob")
    await take(carol, "alice", b"bob")
    await take(bob, "alice", b"carol")
    await carol.send("bob", b"alice")
    await take(bob, "carol", b"alice")


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


# Order: each sender's frames arrive in order, to `receive` and to a sink alike.


@check
async def one_sender_keeps_its_order(alice: Endpoint, bob: Endpoint) -> None:
    """Any number of frames of any sizes arrive in order, and no small one overtakes a large one."""
    frames = [numbered(number, size) for number, size in enumerate(_SIZES)]

    async def send() -> None:
        for frame in frames:
            await alice.send("bob", frame)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(send())
        await take(bob, "alice", *frames)


@check
async def tasks_in_a_full_mesh_keep_their_order(
    alice: Endpoint, bob: Endpoint, carol: Endpoint, dave: Endpoint
) -> None:
    """If many tasks of all send to all at once, each task's frames arrive whole and in order."""
    tasks_frames = [range(_TASK_FRAMES * task, _TASK_FRAMES * (task + 1)) for task in range(_TASKS)]

    async def hear(endpoint: Endpoint) -> None:
        numbers: dict[str, list[int]] = {peer: [] for peer in endpoint.peers}
        for _ in range(len(numbers) * _TASKS * _TASK_FRAMES):
            sender, frame = await endpoint.receive()
            numbers[sender].append(number_of(frame))
        for peer, heard in numbers.items():
            for frames in tasks_frames:
                own = [number for number in heard if number in frames]
                require(own == list(frames), f"out of order at {endpoint.name}, from {peer}")

    async with asyncio.TaskGroup() as tasks:
        for endpoint in (alice, bob, carol, dave):
            tasks.create_task(hear(endpoint))
            for peer in endpoint.peers:
                for frames in tasks_frames:
                    tasks.create_task(_send(endpoint, peer, frames, 2_000))


@check
async def a_ring_of_many_passes_a_token(maker: Maker) -> None:
    """A frame goes around a ring of many endpoints many times."""
    names = tuple(f"p{position}" for position in range(_RING))
    async with maker(names) as endpoints:
        for hop in range(3 * _RING):
            sender, receiver = names[hop % _RING], names[(hop + 1) % _RING]
            await endpoints[sender].send(receiver, numbered(hop))
            await take(endpoints[receiver], sender, numbered(hop))


def _sink(endpoint: Endpoint) -> asyncio.Queue[tuple[str, bytes | PeerLost]]:
    """Return a queue into which the endpoint's sink puts what it is given."""
    items = asyncio.Queue[tuple[str, bytes | PeerLost]]()
    endpoint.attach(lambda peer, item: items.put_nowait((peer, item)))
    return items


@check
async def a_sink_is_given_all_in_order(alice: Endpoint, bob: Endpoint, carol: Endpoint) -> None:
    """A sink gets each frame once, also those that came before it, and a loss once and last."""
    await alice.send("bob", numbered(0))
    await alice.send("carol", b"ready")
    await take(carol, "alice", b"ready")
    items = _sink(bob)
    await _send(alice, "bob", range(1, _HANDED_FRAMES))
    for number in range(_HANDED_FRAMES):
        require(await items.get() == ("alice", numbered(number)), "another frame arrived")
    await alice.close()
    peer, loss = await items.get()
    told = peer == "alice" and isinstance(loss, PeerLost) and loss.orderly
    require(told, "the loss was reported incorrectly")
    await carol.send("bob", b"still here")
    require(await items.get() == ("carol", b"still here"), "something else was handed over")


@check
async def a_closed_sink_is_given_nothing(alice: Endpoint, bob: Endpoint, carol: Endpoint) -> None:
    """After it is closed, an endpoint no longer calls its sink."""
    items = _sink(bob)
    await alice.send("bob", b"before")
    await items.get()
    await bob.close()
    for sender in (alice, carol):
        with suppress(PeerLost):
            await sender.send("bob", b"after")
    await alice.send("carol", b"on")
    heard = b""
    while heard != b"on":
        with suppress(PeerLost):
            heard = (await carol.receive())[1]
    require(items.empty(), "something was handed over")


# Endings: a goodbye or crash is reported once, after all earlier frames.


@check
async def a_loss_is_reported_once_and_last(
    alice: Endpoint, bob: Endpoint, carol: Endpoint, how: str
) -> None:
    """A goodbye follows all of a peer's frames, a crash a prefix of them; others are then heard."""
    await _send(alice, "bob", range(_LAST_FRAMES), 10_000)
    await take(bob, "alice", numbered(0, 10_000))
    orderly = await _end(alice, how)
    arrived, told = await _take_rest(bob, 10_000, 1)
    require(told is orderly, f"orderly is {told}, not {orderly}")
    require(arrived == _LAST_FRAMES or not orderly, "a goodbye came before a frame")
    require(await take_loss(carol, orderly=orderly) == "alice", "another peer was lost")
    for number in range(_LAST_FRAMES):
        await carol.send("bob", numbered(number))
        await take(bob, "carol", numbered(number))


@check
async def a_lost_peer_is_neither_connected_nor_sent_to(
    alice: Endpoint, bob: Endpoint, carol: Endpoint, dave: Endpoint, erin: Endpoint
) -> None:
    """Each loss is reported once; each send to the lost peer raises a loss of the same kind."""
    everyone = {"alice", "carol", "dave", "erin"}
    require(set(bob.connected) == everyone, f"the connected peers are {bob.connected}")
    crashed = {"alice", "dave"}
    for endpoint in (alice, dave):
        endpoint.abort()
    told = {await take_loss(bob, orderly=False) for _ in crashed}
    require(told == crashed, f"the reported crashes are {told}")
    await carol.close()
    require(await take_loss(bob, orderly=True) == "carol", "another peer was lost")
    for peer in ("alice", "carol", "dave") * 2:
        try:
            await bob.send(peer, b"frame")
        except PeerLost as loss:
            as_reported = (loss.peer, loss.orderly) == (peer, peer == "carol")
            require(as_reported, f"the loss of {peer} became another, of {loss.peer}")
        else:
            raise AssertionError(f"a frame was sent to {peer}, which is lost")
    require(bob.connected == ("erin",), f"the peers still connected are {bob.connected}")
    require(set(bob.peers) == everyone, "a lost peer is not listed")
    await erin.send("bob", b"after")
    await take(bob, "erin", b"after")


@check
async def an_end_may_be_repeated(alice: Endpoint, bob: Endpoint, carol: Endpoint, how: str) -> None:
    """The first of several ends counts, even at the same time; goodbyes that cross do not wait."""
    await asyncio.gather(_end(alice, how), alice.close())
    alice.abort()
    await alice.close()
    await take_loss(bob, orderly=how == "close")
    await asyncio.gather(bob.close(), carol.close())


@check
async def an_ended_endpoint_neither_sends_nor_receives(
    alice: Endpoint, bob: Endpoint, carol: Endpoint, how: str
) -> None:
    """After an end, `send` and `receive`, also one that waits, raise `EndpointClosed` each time."""
    waiting = asyncio.create_task(carol.receive())
    await bob.send("alice", b"unread")
    await asyncio.sleep(0)
    await _end(carol, how)
    with raises(EndpointClosed):
        await waiting
    await _end(alice, how)
    for _ in range(2):
        with raises(EndpointClosed):
            await alice.send("bob", b"frame")
        with raises(EndpointClosed):
            await alice.receive()


@check
async def a_close_amid_sends_cuts_no_frame(alice: Endpoint, bob: Endpoint) -> None:
    """All sent frames arrive whole, then the goodbye, though their sender reads nothing more."""
    sent = 0
    _, waiting = await _stall(bob, "alice", 2)

    async def send() -> None:
        nonlocal sent
        with raises(EndpointClosed):
            while True:
                await _send(alice, "bob", (sent,), 5_000)
                sent += 1

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(send())
        await take(bob, "alice", *(numbered(number, 5_000) for number in range(_LAST_FRAMES)))
        tasks.create_task(alice.close())
        arrived, orderly = await _take_rest(bob, 5_000, _LAST_FRAMES)
    require(arrived >= sent, f"{sent} frames were sent, {arrived} arrived")
    require(orderly, "a close was reported as a crash")
    for stalled in waiting:
        with raises(PeerLost):
            await stalled


@check
async def a_crash_disturbs_no_stream(alice: Endpoint, bob: Endpoint, carol: Endpoint) -> None:
    """A stream between two peers continues, whole and in order, while a third one crashes."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_send(carol, "bob", range(4 * _LAST_FRAMES), 5_000))
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


async def _take_all(bob: Endpoint, sent: int, late: set[int]) -> list[int]:
    """Receive frames, whole and once, up to the late ones; the first arrive in order."""
    numbers: list[int] = []
    while not late <= set(numbers):
        numbers.append(number_of((await bob.receive())[1]))
    require(len(set(numbers)) == len(numbers), "a frame arrived twice")
    first = [number for number in numbers if number < sent]
    require(first == list(range(sent)), "frames are missing or out of order")
    return numbers


@check
async def a_stall_stops_its_senders_only(alice: Endpoint, bob: Endpoint, carol: Endpoint) -> None:
    """Sends to a peer that does not read wait, and arrive once it reads; other peers are heard."""
    many = 20
    sent, waiting = await _stall(alice, "bob", many)
    waiting.append(asyncio.create_task(carol.send("bob", numbered(sent + 1 + many))))
    for number in range(100):
        await alice.send("carol", numbered(number))
        await take(carol, "alice", numbered(number))
    for sender in (bob, carol):
        await sender.send("alice", b"hello")
        await take(alice, sender.name, b"hello")
    await _take_all(bob, sent, set(range(sent + 1, sent + 2 + many)))
    await asyncio.gather(*waiting)


@check
async def a_stalled_send_learns_of_an_end(maker: Maker) -> None:
    """A waiting send raises `PeerLost` for its receiver's end, `EndpointClosed` for its own."""
    for gone, error in (("bob", PeerLost), ("alice", EndpointClosed)):
        async with maker(("alice", "bob")) as endpoints:
            _, waiting = await _stall(endpoints["alice"], "bob", 2)
            endpoints[gone].abort()
            for send in waiting:
                with raises(error):
                    await send


@check
async def a_cancelled_receive_loses_nothing(alice: Endpoint, bob: Endpoint) -> None:
    """A receive cancelled at any moment has returned its frame or left it for the next receive."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_send(alice, "bob", range(_RACED_FRAMES)))
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
    sent, waiting = await _stall(alice, "bob", 20)
    never = asyncio.create_task(alice.send("bob", numbered(sent + 98)))
    for send in (never, *waiting[::2]):
        send.cancel()
    last = asyncio.create_task(alice.send("bob", numbered(sent + 99)))
    numbers = await _take_all(bob, sent, {*range(sent + 2, sent + 21, 2), sent + 99})
    require(sent + 98 not in numbers, "a send that had not begun was sent")
    await asyncio.gather(never, *waiting, last, return_exceptions=True)

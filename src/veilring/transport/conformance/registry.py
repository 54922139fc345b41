"""The table of checks, and the few words that checks are written in."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Final, TypeAlias

from veilring.errors import PeerLost
from veilring.transport.endpoint import Endpoint

Endpoints: TypeAlias = Mapping[str, Endpoint]
Maker: TypeAlias = Callable[[Sequence[str]], AbstractAsyncContextManager[Endpoints]]
"""Opens one connected endpoint for each name, and frees them all at the end."""
Check: TypeAlias = Callable[[Maker], Awaitable[None]]

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


def check(function: Check) -> Check:
    """Enter a check in the table under its own name."""
    CHECKS[getattr(function, "__name__", repr(function))] = function
    return function


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
    raise AssertionError(f"nothing was raised where {errors[0].__name__} was due")


async def take(endpoint: Endpoint, sender: str, frame: bytes) -> None:
    """Receive, and fail the check unless it is this frame of this sender."""
    got_sender, got = await endpoint.receive()
    require(got_sender == sender, f"a frame of {sender} came as one of {got_sender}")
    require(got == frame, f"{len(frame)} bytes were sent, {len(got)} other bytes arrived")


async def take_loss(endpoint: Endpoint, *, orderly: bool) -> str:
    """Receive, and fail the check unless it is a loss of this kind; return who is lost."""
    try:
        sender, frame = await endpoint.receive()
    except PeerLost as loss:
        require(loss.orderly is orderly, f"orderly is {loss.orderly}, not {orderly}")
        return loss.peer
    raise AssertionError(f"{len(frame)} bytes of {sender} arrived where a loss was due")


def numbered(number: int, size: int = _NUMBER_BYTES) -> bytes:
    """Return a frame of this size that carries a number."""
    return number.to_bytes(_NUMBER_BYTES, "big").ljust(size, b"\x5a")


def the_number(frame: bytes) -> int:
    """Return the number that a frame carries."""
    return int.from_bytes(frame[:_NUMBER_BYTES], "big")


async def fill(sender: Endpoint, to: str) -> int:
    """Send numbered frames until a send has to wait; return how many were sent for sure.

    The send that waited is cancelled: its frame, the next number, was sent whole or not at all.
    """
    for number in range(STALL_FRAMES_MAX):
        try:
            async with asyncio.timeout(STALL_SECONDS):
                await sender.send(to, numbered(number, STALL_FRAME_BYTES))
        except TimeoutError:
            return number
    raise AssertionError(f"{STALL_FRAMES_MAX} frames were sent to a peer that reads none")

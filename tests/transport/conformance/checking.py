"""The registry of checks, and helpers to write and run them."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Final, TypeAlias

from veilring.errors import PeerLost
from veilring.transport.endpoint import Endpoint

Endpoints: TypeAlias = Mapping[str, Endpoint]
Maker: TypeAlias = Callable[[Sequence[str]], AbstractAsyncContextManager[Endpoints]]
"""Opens one connected endpoint for each name, and closes them all at the end."""
Check: TypeAlias = Callable[[Maker], Awaitable[None]]

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


def check(function: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Register a check under its function's name.

    The check's parameters are either a maker or the names of the endpoints that it needs.
    """
    names = tuple(name.lstrip("_") for name in inspect.signature(function).parameters)

    @functools.wraps(function)
    async def run(maker: Maker) -> None:
        async with maker(names) as endpoints:
            await function(*(endpoints[name] for name in names))

    CHECKS[getattr(function, "__name__", repr(function))] = function if names == ("maker",) else run
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

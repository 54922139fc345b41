"""Helpers for tests of refused connections, which both sides report."""

import asyncio
from collections.abc import Callable

from tests.transport.rosters import Town

from veilring.errors import HandshakeError
from veilring.transport.tls import TlsEndpoint

# What takes milliseconds may take very long on a machine with much else to do.
NAMED_WITHIN_SECONDS = 120.0


async def both_fail(town: Town, seconds: float = 2.0) -> tuple[str, str]:
    """Start alice as dialler and bob as listener; return the reasons that they report."""
    async with asyncio.timeout(NAMED_WITHIN_SECONDS):
        errors = await asyncio.gather(
            town.start("alice", seconds=seconds),
            town.start("bob", seconds=seconds),
            return_exceptions=True,
        )
    alice, bob = errors
    assert isinstance(alice, HandshakeError)
    assert isinstance(bob, HandshakeError)
    assert (alice.peer, bob.peer) == ("bob", "alice")
    return alice.reason, bob.reason


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, turn by turn of the loop."""
    async with asyncio.timeout(NAMED_WITHIN_SECONDS):
        while not condition():  # noqa: ASYNC110  (a deque has no notification)
            await asyncio.sleep(0.005)


async def refused(town: Town, name: str, by: TlsEndpoint, reason: str) -> None:
    """Start a member, and wait until it is refused for a reason and gives up."""
    by.refusals.clear()
    trying = town.start(name)
    await until(lambda: any(reason in error.reason for error in by.refusals))
    trying.cancel()
    await asyncio.gather(trying, return_exceptions=True)

"""What every transport must do, as checks that anyone can run on theirs.

    async def test_my_transport() -> None:
        await check_transport(my_endpoints)

The checks are the contract of `veilring.transport.endpoint.Endpoint` in executable form, in the
spirit of the stream checks that Trio ships. They wait by `asyncio` alone, so that a transport on a
simulated clock passes them too.
"""

import asyncio
from typing import Final

from veilring.transport.conformance import cancellation, ends, frames, handover, order, pressure
from veilring.transport.conformance.registry import CHECKS, Check, Endpoints, Maker

__all__ = ("CHECKS", "CHECK_SECONDS", "Check", "Endpoints", "Maker", "check_transport", "run_check")

# Each takes under a second; one that waits forever must end and say which it was.
CHECK_SECONDS: Final = 60.0

# Importing a module enters its checks in the table.
_ = (frames, order, pressure, cancellation, ends, handover)


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

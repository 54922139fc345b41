"""Conformance checks for transports, which you can run on your own transport.

    async def test_my_transport() -> None:
        await check_transport(my_endpoints)

The checks are the contract of `veilring.transport.endpoint.Endpoint` in executable form, in the
spirit of the stream checks that Trio ships. They wait with `asyncio` only, so a transport on a
simulated clock passes them too.
"""

from tests.transport.conformance import delivery, endings, frames, waiting
from tests.transport.conformance.checking import (
    CHECKS,
    Check,
    Endpoints,
    Maker,
    check_transport,
    fill,
    run_check,
)

__all__ = (
    "CHECKS",
    "Check",
    "Endpoints",
    "Maker",
    "check_transport",
    "delivery",
    "endings",
    "fill",
    "frames",
    "run_check",
    "waiting",
)

"""The event loop of a party that has a process to itself."""

import asyncio
from collections.abc import Callable
from importlib.util import find_spec


def party_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the loop: uvloop's if the extra is installed, else asyncio's own.

    Every transport passes the same checks on both; a hop over TLS takes a little less on uvloop.
    """
    if find_spec("uvloop") is None:
        return None
    import uvloop  # noqa: PLC0415  (an extra)

    return uvloop.new_event_loop

"""The current time, for tests."""

import asyncio


def now() -> float:
    """Return the running loop's time."""
    return asyncio.get_running_loop().time()

"""The time that a session has."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from veilring.errors import SessionTimeout
from veilring.nodes.session import Session

__all__ = ("within",)


@asynccontextmanager
async def within(seconds: float | None, session: Session) -> AsyncIterator[None]:
    """Fail a session that takes longer than `seconds`, saying what it was waiting for.

    Raises:
        TimeoutError: When time is up; the session has its `SessionTimeout` by then.
    """
    if seconds is None:
        yield
        return
    # Set before the timeout, and so called before that unwinds what the role is waiting for.
    timer = asyncio.get_running_loop().call_later(seconds, _expire, session, seconds)
    try:
        async with asyncio.timeout(seconds):
            yield
    finally:
        timer.cancel()


def _expire(session: Session, seconds: float) -> None:
    waits = "; ".join(session.standing().sentences()) or f"{session.me} is at its own work"
    session.fail(SessionTimeout(seconds, waits))

"""How long parties wait for each other: all limits of sessions come from here."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from veilring.errors import SessionTimeout
from veilring.nodes.session import Session

# A batch of a thousand queries in a ring of fifty on a WAN takes some 30 s; a session that is still
# open after two minutes waits for a silent peer.
SESSION_SECONDS: Final = 120.0
# A peer that is asked where it stands answers at once, unless it computes: a second or two at most.
ANSWER_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the sessions that hang on each other in a deployment, in seconds.

    The party that convenes the others gives up first. It asks where all of them stand, finds who is
    at fault, and tells the others and its client, who therefore wait longer.

    Attributes:
        session: For a session that a party convenes.
        answer: For the answer of a peer that is asked where it stands.
    """

    session: float = SESSION_SECONDS
    answer: float = ANSWER_SECONDS

    @property
    def joined(self) -> float:
        """For a session that another party convenes."""
        return self.session + 2 * self.answer

    @property
    def served(self) -> float:
        """For a session with a client, at the party that it asks."""
        return self.session + 4 * self.answer

    @property
    def client(self) -> float:
        """For the same session, at the client."""
        return self.session + 6 * self.answer


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
    session.expire(SessionTimeout(seconds, waits))

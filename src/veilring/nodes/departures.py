"""The announcement of a party that stops: its peers hear it before it refuses a session.

A session that one party refuses fails at all of its parties, and no client repeats it: see
`veilring.nodes.service.begun`. A party that stops therefore tells all connected peers first, and
joins the sessions of each peer until that one has confirmed. Connections keep the order of frames,
so a peer opens no session at this party after its confirmation.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from veilring.transport.messages import Message, encode
from veilring.transport.pacing import loop_time

# A party that stops is gone, and its connections with it, within ten seconds. Where another process
# has taken over its name meanwhile, its connections stay, and only the time ends its departure.
LEAVING_SECONDS: Final = 30.0


class Leaving(Message, kind="session.leaving"):
    """Announces that its sender joins no more sessions, or confirms such an announcement.

    It is no message of a session: the name of its session is zero.
    """

    confirms: bool


_NO_SESSION: Final = bytes(16)
ANNOUNCEMENT: Final = encode(_NO_SESSION, Leaving(confirms=False))
CONFIRMATION: Final = encode(_NO_SESSION, Leaving(confirms=True))


class Departures:
    """The announcements that a node has heard, and the confirmations of its own."""

    def __init__(self, clock: Callable[[], float] = loop_time) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        self._unaware: set[str] = set()
        self._change = asyncio.Event()

    def announce(self, peers: Iterable[str]) -> None:
        """Begin to wait for confirmations of peers."""
        self._unaware = set(peers)

    def may_open(self, peer: str) -> bool:
        """Return whether a peer has not confirmed the announcement of this node."""
        return peer in self._unaware

    async def all_confirmed(self) -> None:
        """Wait until each peer has confirmed, or is lost."""
        while self._unaware:
            self._change.clear()
            await self._change.wait()

    def is_leaving(self, peer: str) -> bool:
        """Return whether a connected peer has announced that it joins no more sessions."""
        return peer in self._until and self._clock() < self._until[peer]

    def hear(self, peer: str, notice: Leaving) -> None:
        """Record a notice of a peer."""
        if notice.confirms:
            self._excuse(peer)
        else:
            self._until[peer] = self._clock() + LEAVING_SECONDS

    def forget(self, peer: str) -> None:
        """Forget a peer that is lost."""
        self._until.pop(peer, None)
        self._excuse(peer)

    def _excuse(self, peer: str) -> None:
        self._unaware.discard(peer)
        self._change.set()

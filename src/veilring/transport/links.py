"""Which peers are connected, which are gone, and what the node has heard of it."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from veilring.errors import EndpointClosed, InputError, PeerLost, VeilringError
from veilring.transport.connection import Connection
from veilring.transport.handshake import Refusal
from veilring.transport.inbox import Inbox
from veilring.transport.pacing import Budgets, SparingLog, Turns, loop_time
from veilring.transport.roster import Roster

# A peer that broke the rules is not listened to for this long. It may have been a mistake, so that
# it can come back; what it can do to us in an hour is 360 times what it can do once.
CUT_SECONDS: Final = 10.0
# Connections of one peer: a shell loop of short commands makes one or two in a second, and each
# costs us a handshake of a millisecond or two.
CONNECTS_MAX: Final = 32
CONNECTS_PER_SECOND: Final = 2.0

_log = logging.getLogger("veilring.transport")


class Links:
    """The state of one endpoint's connections; a `connection.Hub`.

    A peer that was lost may come back, but not before its node was told that it was lost: until
    then a message for the old process could reach the new one.

    Args:
        me: The name of the endpoint's party.
        roster: All members.
        terms: What is run, as a greeting says it; empty if peers may believe what they like.
        clock: The time in seconds.
    """

    def __init__(
        self,
        me: str,
        roster: Roster,
        terms: str = "",
        clock: Callable[[], float] = loop_time,
    ) -> None:
        self.me, self.roster, self.terms = me, roster, terms
        self._turns = Turns()
        self.inbox = Inbox(me, self._turns.unblock)
        self._clock = clock
        self._connects = Budgets(CONNECTS_MAX, CONNECTS_PER_SECOND, clock)
        self._refused_until: dict[str, float] = {}
        self._lines = SparingLog(_log, clock)
        self._is_handed_out = False
        self._open: dict[str, Connection] = {}
        self._gone: dict[str, bool] = {}
        self._untold: set[str] = set()
        self._alive: set[Connection] = set()
        self._pulse = asyncio.Event()

    @property
    def connected(self) -> frozenset[str]:
        """The names of the peers that are connected now."""
        return frozenset(self._open)

    @property
    def seen(self) -> frozenset[str]:
        """The names of the peers that are or were connected since the node has this endpoint."""
        return frozenset((*self._open, *self._gone))

    def to(self, peer: str) -> Connection:
        """Return the open connection with a peer.

        Raises:
            InputError: If it is not a peer.
            EndpointClosed: If the endpoint was closed.
            PeerLost: If it is gone.
        """
        connection = self._open.get(peer)
        if connection is not None and not self.inbox.closed:
            return connection
        if connection is None and peer not in self._gone:
            raise InputError("to", ascii(peer), "a peer that is or was connected")
        raise self.loss(peer)

    def loss(self, peer: str) -> EndpointClosed | PeerLost:
        """Return the error of a send that came too late."""
        if self.inbox.closed:
            return EndpointClosed(f"the endpoint of {self.me} is closed")
        return PeerLost(peer, orderly=self._gone.get(peer, False))

    def objection(self, peer: str) -> Refusal | None:
        """Say why a connection with a peer cannot start now, if so."""
        if peer == self.me:
            return Refusal(f"{peer} reached itself")
        if self.inbox.closed:
            return Refusal(f"{self.me} is leaving", again=True)
        if peer in self._open:
            return Refusal(f"{peer} is connected already", again=True)
        if peer in self._untold:
            return Refusal(f"{self.me} has yet to notice that {peer} was lost", again=True)
        if self._refused_until.get(peer, 0.0) > self._clock():
            broke = f"{peer} broke the rules and is refused for {CUT_SECONDS:g} s"
            return Refusal(broke, again=True)
        return None

    def haste(self, peer: str) -> Refusal | None:
        """Say whether a peer that connects does so too often."""
        if self._connects.spend(peer):
            return None
        often = f"{peer} connects too often: more than {CONNECTS_PER_SECOND:g} times a second"
        return Refusal(often, again=True)

    def alive(self, connection: Connection) -> None:
        """Take note that a connection has a socket."""
        self._alive.add(connection)

    def opened(self, connection: Connection) -> None:
        """Take a connection whose greeting went well."""
        peer = connection.peer
        self._open[peer] = connection
        was_gone = self._gone.pop(peer, None) is not None
        if was_gone and peer in self.roster.parties:  # clients come and go
            self._lines.say(logging.INFO, peer, "again", "%s reaches %s again", self.me, peer)
        self.pulse()

    def arrived(self, peer: str, frame: bytes) -> None:
        """Take a frame."""
        self.inbox.put((peer, frame))

    @property
    def is_full(self) -> bool:
        """Whether the node has enough to read."""
        return self.inbox.is_full

    def turn(self, connection: Connection) -> None:
        """Let a connection take the frames that it has, when it is its turn."""
        self._turns.join(connection)

    def cut(self, peer: str, why: VeilringError) -> None:
        """End the connection with a peer that broke the rules, and refuse it for `CUT_SECONDS`."""
        connection = self._open.get(peer)
        if connection is None:
            return
        line = "%s has cut off %s and refuses it for %g s: %s"
        self._lines.say(logging.WARNING, peer, str(why), line, self.me, peer, CUT_SECONDS, why)
        self._refused_until[peer] = self._clock() + CUT_SECONDS
        asyncio.get_running_loop().call_later(CUT_SECONDS, self.pulse)
        connection.cut(why)

    def rest(self, peer: str, seconds: float) -> None:
        """Take nothing of a peer for a while, if it is connected."""
        if peer in self._open:
            self._open[peer].rest(seconds)

    def lost(self, connection: Connection, *, orderly: bool, cause: Exception | None) -> None:
        """Take note that an open connection is not open any more, and tell the node."""
        peer = connection.peer
        del self._open[peer]
        if not self._is_handed_out:
            self.inbox.forget(peer)  # the node has never heard of it, and is to meet the next one
            self.pulse()
            return
        self._gone[peer] = orderly
        self._untold.add(peer)
        loss = PeerLost(peer, orderly=orderly)
        loss.__cause__ = cause
        self.inbox.put(loss)
        self.pulse()

    def hand_out(self) -> None:
        """Take note that the node has the endpoint: what arrived and what was lost is its own."""
        self._is_handed_out = True

    def told(self, peer: str) -> None:
        """Take note that the node knows that a peer was lost: it may come back."""
        self._untold.discard(peer)
        self.pulse()

    def ended(self, connection: Connection) -> None:
        """Take note that a connection's socket is gone."""
        self._alive.discard(connection)
        self.pulse()

    def pulse(self) -> None:
        """Wake all that wait for a `change`."""
        self._pulse.set()
        self._pulse.clear()

    async def change(self) -> None:
        """Wait until a peer connects or is lost, or a socket ends."""
        await self._pulse.wait()

    async def leave(self, seconds: float) -> None:
        """Say goodbye to all and wait for their answers, but no longer than this."""
        for connection in self._open.values():
            connection.say_goodbye()
        try:
            async with asyncio.timeout(seconds):
                await self._silence()
        except TimeoutError:
            pass
        finally:
            self.abort()
        await self._silence()  # an aborted socket ends in the loop's next turn

    async def _silence(self) -> None:
        while self._alive:
            await self.change()

    def abort(self) -> None:
        """End all connections at once."""
        for connection in self._alive:
            connection.abort()

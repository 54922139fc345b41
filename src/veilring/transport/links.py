"""Which peers are connected, which are gone, and what the node has heard of it."""

import asyncio
import logging

from veilring.errors import EndpointClosed, InputError, PeerLost
from veilring.transport.connection import Connection
from veilring.transport.handshake import Refusal
from veilring.transport.inbox import Inbox
from veilring.transport.roster import Roster

__all__ = ("Links",)

_log = logging.getLogger("veilring.transport")


class Links:
    """The state of one endpoint's connections; a `connection.Hub`.

    A peer that was lost may come back, but not before its node was told that it was lost: until
    then a message for the old process could reach the new one.

    Args:
        me: The name of the endpoint's party.
        roster: All members.
    """

    def __init__(self, me: str, roster: Roster) -> None:
        self.me, self.roster = me, roster
        self.inbox = Inbox(me, self._resume)
        self._open: dict[str, Connection] = {}
        self._gone: dict[str, bool] = {}
        self._untold: set[str] = set()
        self._paused: set[Connection] = set()
        self._alive: set[Connection] = set()
        self._pulse = asyncio.Event()

    @property
    def connected(self) -> frozenset[str]:
        """The names of the peers that are connected now."""
        return frozenset(self._open)

    @property
    def seen(self) -> frozenset[str]:
        """The names of the peers that are or were connected."""
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
        return None

    def alive(self, connection: Connection) -> None:
        """Take note that a connection has a socket."""
        self._alive.add(connection)

    def opened(self, connection: Connection) -> None:
        """Take a connection whose greeting went well."""
        peer = connection.peer
        self._open[peer] = connection
        was_gone = self._gone.pop(peer, None) is not None
        if was_gone and peer in self.roster.parties:  # clients come and go
            _log.info("%s reaches %s again", self.me, peer)
        self.pulse()

    def arrived(self, peer: str, frame: bytes) -> None:
        """Take a frame."""
        self.inbox.put((peer, frame))

    def settle(self, connection: Connection) -> None:
        """Stop the connection from reading if the node has enough to read."""
        if self.inbox.is_full:
            self._paused.add(connection)
            connection.pause()

    def _resume(self) -> None:
        while self._paused:
            self._paused.pop().resume()

    def lost(self, connection: Connection, *, orderly: bool, cause: Exception | None) -> None:
        """Take note that an open connection is not open any more, and tell the node."""
        peer = connection.peer
        del self._open[peer]
        self._gone[peer] = orderly
        self._untold.add(peer)
        loss = PeerLost(peer, orderly=orderly)
        loss.__cause__ = cause
        self.inbox.put(loss)
        self.pulse()

    def told(self, peer: str) -> None:
        """Take note that the node knows that a peer was lost: it may come back."""
        self._untold.discard(peer)
        self.pulse()

    def ended(self, connection: Connection) -> None:
        """Take note that a connection's socket is gone."""
        self._alive.discard(connection)
        self._paused.discard(connection)
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

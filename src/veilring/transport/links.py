"""The connections of one endpoint: peers that are open, lost or refused, or change their key."""

import asyncio
import datetime as dt
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from veilring.errors import EndpointClosed, HandshakeError, InputError, PeerLost, VeilringError
from veilring.transport.endpoint import Inbox, Sink
from veilring.transport.handshake import About, ConnectionRefusal
from veilring.transport.pacing import SparingLog, TokenBuckets, Turns, loop_time
from veilring.transport.roster import Identity, Roster, utc_now

if TYPE_CHECKING:
    from veilring.transport.connection import Connection

# A peer that violated the protocol is ignored for this long. It may have been a mistake, so it can
# return; the damage of an hour is at most 360 times that of one violation.
CUT_SECONDS: Final = 10.0
# Connections of one peer: a shell loop of short commands makes one or two per second, and each
# costs us a handshake of a millisecond or two.
CONNECTS_MAX: Final = 32
CONNECTS_PER_SECOND: Final = 2.0
# A peer that changes to another connection has at most some 100 KiB under way on the earlier one. A
# second process with its other key never says goodbye there, and must not stop the first for long.
HANDOVER_SECONDS: Final = 10.0
_log = logging.getLogger("veilring.transport")


class Links:
    """The connections of one endpoint, and their interface to it.

    A peer that was lost may return, but only after its node has noticed the loss: until then a
    message for the old process could reach the new one.

    When a party changes its key, the side that dials opens a second connection with the new key.
    Once that is greeted, both sides send only there, and the dialler says goodbye on the first.
    Each side delivers all frames of the first before those of the second, so no session notices.

    Args:
        identity: Our own identity.
        terms: The terms, key by key; empty if they are not compared.
        wall: A clock in UTC, which peers compare with theirs.

    Attributes:
        open: The connection to each peer, until its loss is recorded.
    """

    def __init__(
        self,
        identity: Identity,
        roster: Roster,
        terms: Mapping[str, str] = MappingProxyType({}),
        clock: Callable[[], float] = loop_time,
        wall: Callable[[], dt.datetime] = utc_now,
    ) -> None:
        self.me, self.own, self.roster = identity.name, identity.fingerprint, roster
        self._about, self._wall = About.of_terms(terms), wall
        self.turns = Turns()
        self.inbox = Inbox(self.me, self.turns.unblock)
        self._clock = clock
        self._connects = TokenBuckets(CONNECTS_MAX, CONNECTS_PER_SECOND, clock)
        self._refused_until: dict[str, float] = {}
        self._lines = SparingLog(_log, clock)
        self._is_handed_out = False
        self.open: dict[str, Connection] = {}
        self._ending: dict[str, Connection] = {}  # those that the open ones replace
        self._gone: dict[str, bool] = {}
        self._unacknowledged: set[str] = set()
        self._alive: set[Connection] = set()
        self._pulse = asyncio.Event()

    @property
    def about(self) -> About:
        """Our own description."""
        return self._about.at(self._wall().timestamp())

    @property
    def today(self) -> dt.date:
        """The current day in UTC."""
        return self._wall().date()

    def compare(self, peer: str, theirs: About) -> None:
        """Log what differs between a peer and us and may explain later failures."""
        for difference in self.about.differences(peer, theirs):
            self._lines.say(logging.WARNING, peer, difference, "%s: %s", self.me, difference)

    @property
    def connected(self) -> frozenset[str]:
        """The names of the currently connected peers."""
        return frozenset(self.open)

    @property
    def seen(self) -> frozenset[str]:
        """The names of all peers that have connected since the node began to use this endpoint."""
        return frozenset((*self.open, *self._gone))

    def connection_to(self, peer: str) -> "Connection":
        """Return the open connection to a peer."""
        connection = self.open.get(peer)
        if connection is not None and not self.inbox.closed:
            return connection
        if connection is None and peer not in self._gone:
            raise InputError.because(f"{peer!a} is not, and was never, connected", field="to")
        raise self.loss_of(peer)

    def loss_of(self, peer: str) -> EndpointClosed | PeerLost:
        """Return the error of a send to a lost peer."""
        if self.inbox.closed:
            return EndpointClosed(f"the endpoint of {self.me} is closed")
        return PeerLost(peer, orderly=self._gone.get(peer, False))

    def objection(
        self, peer: str, following: "Connection | None" = None
    ) -> ConnectionRefusal | None:
        """Return the reason why a connection to a peer cannot start now, or `None`.

        Args:
            following: The connection, if the peer has opened it already.
        """
        if peer == self.me:
            return ConnectionRefusal(f"{peer} reached itself")
        if self.inbox.closed:
            return ConnectionRefusal(f"{self.me} is shutting down", again=True)
        if peer in self.open and not self._may_replace(self.open[peer], following):
            return ConnectionRefusal(f"{peer} is connected already", again=True)
        if peer in self._unacknowledged:
            earlier = f"{self.me} has not yet dropped its earlier connection with {peer}"
            return ConnectionRefusal(earlier, again=True)
        if self._refused_until.get(peer, 0.0) > self._clock():
            broke = f"{peer} violated the protocol and is refused for {CUT_SECONDS:g} s"
            return ConnectionRefusal(broke, again=True)
        return None

    def _may_replace(self, before: "Connection", following: "Connection | None") -> bool:
        """Return whether a connection was opened with another key than one is or would be now."""
        if before.peer in self._ending or not before.is_open:
            return False
        if following is None:
            return before.own != self.own or not self._has_key(before)
        return (before.key, before.own) != (following.key, following.own)

    def _has_key(self, connection: "Connection") -> bool:
        """Return whether the roster has the key by which a peer was authenticated."""
        owner = self.roster.owner(connection.key)
        return owner is not None and owner.name == connection.peer

    def renew(self, identity: Identity, roster: Roster) -> None:
        """Use another key and roster for new connections; end those whose key leaves the roster.

        A previous key leaves as planned after its last day, and is revoked if it leaves before.
        """
        before, self.own, self.roster = self.roster, identity.fingerprint, roster
        for connection in list(self._alive):
            is_leaving = before.owner(connection.key) is not None and not self._has_key(connection)
            if is_leaving and not self._is_planned(connection, before):
                self._end_unknown(connection)
        self.pulse()

    def _is_planned(self, connection: "Connection", before: Roster) -> bool:
        """Return whether a previous key has left after its last day, and its connection may stay.

        One that we have dialled stays until it is replaced, and one that is replaced until its end.
        """
        peer = connection.peer
        member = before.member(peer) if peer in self.roster.names else None
        was_previous = member is not None and member.previous_fingerprint == connection.key
        if member is None or not was_previous or member.accepts_previous(self.today):
            return False
        is_replaced = self._ending.get(peer) is connection
        return is_replaced or (connection.has_dialled and connection.is_open)

    def drop_unknown(self, peer: str) -> None:
        """End the connection with a peer if its key has left the roster."""
        if peer in self.open and not self._has_key(self.open[peer]):
            self._end_unknown(self.open[peer])

    def _end_unknown(self, connection: "Connection") -> None:
        reason = "its key is no longer in the roster"
        line = "%s has ended the connection with %s: %s"
        self._lines.say(
            logging.WARNING, connection.peer, reason, line, self.me, connection.peer, reason
        )
        if connection.greeted.done():
            connection.cut(HandshakeError(connection.peer, reason))
        else:
            connection.refuse(ConnectionRefusal(reason))

    def rate_objection(self, peer: str) -> ConnectionRefusal | None:
        """Return a refusal if a peer connects too often."""
        if self._connects.spend(peer):
            return None
        often = f"{peer} connects too often: more than {CONNECTS_PER_SECOND:g} times a second"
        return ConnectionRefusal(often, again=True)

    def track(self, connection: "Connection") -> None:
        """Record that a connection has a socket."""
        self._alive.add(connection)

    def opened(self, connection: "Connection") -> None:
        """Accept a connection after its greeting."""
        peer = connection.peer
        if peer in self.open:
            before = self._ending[peer] = self.open[peer]
            connection.hold()
            before.hand_over(HANDOVER_SECONDS)
        self.open[peer] = connection
        was_gone = self._gone.pop(peer, None) is not None
        if was_gone and peer in self.roster.parties:  # clients come and go
            self._lines.say(
                logging.INFO, peer, "again", "%s is connected to %s again", self.me, peer
            )
        self.pulse()

    def cut(self, peer: str, why: VeilringError) -> None:
        """End the connection with a peer that broke the rules, and refuse it for `CUT_SECONDS`."""
        connection = self.open.get(peer)
        if connection is None:
            return
        line = "%s has cut off %s and refuses it for %g s: %s"
        self._lines.say(logging.WARNING, peer, str(why), line, self.me, peer, CUT_SECONDS, why)
        self._refused_until[peer] = self._clock() + CUT_SECONDS
        asyncio.get_running_loop().call_later(CUT_SECONDS, self.pulse)
        connection.cut(why)

    def rest(self, peer: str, seconds: float) -> None:
        """Process nothing of a peer for a while, if it is connected."""
        if peer in self.open:
            self.open[peer].rest(seconds)

    def lost(self, connection: "Connection", *, orderly: bool, cause: Exception | None) -> None:
        """Record that a connection is no longer open, and tell the node."""
        peer = connection.peer
        before = self._ending.pop(peer, None)
        is_revoked = isinstance(cause, HandshakeError)  # and nothing more is due from its key
        if before is connection and (orderly or is_revoked):
            self.open[peer].release()
            return
        for other in (before, self.open.pop(peer)):
            if other not in {None, connection}:
                other.abort()  # frames between the two are missing, so both are lost
        if not self._is_handed_out:
            self.inbox.forget(peer)  # the node does not know of it yet, and will meet the next one
            self.pulse()
            return
        self._gone[peer] = orderly
        if self.inbox.sink is None:  # otherwise the node hears of it at once
            self._unacknowledged.add(peer)
        loss = PeerLost(peer, orderly=orderly)
        loss.__cause__ = cause
        self.inbox.put(peer, loss)
        self.pulse()

    def hand_out(self) -> None:
        """Record that the node uses the endpoint: from now on losses are reported to it."""
        self._is_handed_out = True

    def attach(self, sink: Sink) -> None:
        """Pass frames and losses to the node as they arrive."""
        self.inbox.attach(sink)
        self._unacknowledged.clear()
        self.pulse()

    def acknowledge_loss(self, peer: str) -> None:
        """Record that the node noticed a peer's loss: the peer may return."""
        self._unacknowledged.discard(peer)
        self.pulse()

    def ended(self, connection: "Connection") -> None:
        """Record that a connection's socket is gone."""
        self._alive.discard(connection)
        self.pulse()

    def pulse(self) -> None:
        """Wake all tasks that wait for a `change`."""
        self._pulse.set()
        self._pulse.clear()

    async def change(self) -> None:
        """Wait until a peer connects or is lost, or a socket ends."""
        await self._pulse.wait()

    async def leave(self, seconds: float) -> None:
        """Say goodbye to all peers and wait for their answers, up to a time limit."""
        for connection in self.open.values():
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

"""A node: one party's endpoint, shared by any number of sessions at once.

Frames that arrive before their session is opened here are kept as bytes, within limits.
"""

import asyncio
import logging
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import isawaitable
from itertools import count
from operator import itemgetter
from types import EllipsisType
from typing import Final, Self, TypeVar

from veilring.errors import (
    ClusterError,
    EndpointClosed,
    FrameError,
    InputError,
    NotReady,
    PeerLost,
    ProtocolViolation,
    SessionAborted,
    SessionTimeout,
    TransportError,
    VeilringError,
)
from veilring.nodes.departures import ANNOUNCEMENT, CONFIRMATION, Departures, Leaving
from veilring.nodes.inquiry import Inquiry, StandingReport, StandingRequest, encode_standing
from veilring.nodes.journal import Observer
from veilring.nodes.party import Parties, Standing
from veilring.nodes.session import (
    SESSION_SECONDS,
    Abort,
    Open,
    Session,
    SessionLimits,
    SessionTimeLimit,
    abort_notice,
    public_error,
)
from veilring.randomness import Streams
from veilring.transport.endpoint import Endpoint
from veilring.transport.messages import Envelope
from veilring.transport.pacing import REST_SECONDS, SparingLog, TokenBuckets, loop_time

_R = TypeVar("_R")
Opener = Callable[[str, bytes, Open], None]
"""Called when a peer opens a session here: `(peer, session, its request)`."""
# Telling the others that we give up is a courtesy: a peer that does not read must not delay us.
ABORT_SECONDS: Final = 1.0
# Late frames of a session that ended here arrive within seconds; this many ids are 64 KiB.
ENDED_SESSIONS_MAX: Final = 4096
# Peers ask for this party's state while their own ends of the session are still open.
STANDINGS_KEPT: Final = 64
# Frames of one peer for sessions that ended here or are not its own, or early ones beyond the
# limits. An honest peer sends until it hears of the end: some thousands, in a session of many small
# messages. They are skipped, which takes a few percent of a core at this rate.
STRAYS_MAX: Final = 4096
STRAYS_PER_SECOND: Final = 10_000.0
# A request for a session names its parties: a thousand of the longest names fit.
OPEN_BYTES_MAX: Final = 1 << 16
# A peer has 16 sessions open here, and asks once for our state in each.
REPLIES_WAITING_MAX: Final = 16
# Peers confirm at once that they know of our end, unless they compute, for a second or two at most.
ANNOUNCING_SECONDS: Final = 2.0
# Parties dial each other within two seconds after a restart.
MEETING_SECONDS: Final = 5.0
_MEETING_PAUSE: Final = 0.05
# A session's first frames arrive early if its opener told another party first. That is a handful
# per session, within milliseconds. A malicious opener can also make an honest party send us frames
# of a session that never opens here, so a peer with more is not accused: its oldest are dropped.
EARLY_FRAMES_MAX: Final = 1024
# Names of sessions of one peer whose early frames were dropped: a later frame without the earlier
# ones would be misread. This many are 64 KiB.
EARLY_DROPPED_MAX: Final = 4096
# Eight of the largest frames: one can contain the queries of a batch.
EARLY_BYTES_MAX: Final = 8 << 20
# The limit in bytes for all peers together, so that colluding peers gain nothing.
EARLY_TOTAL_BYTES_MAX: Final = 32 << 20
# A session that was not opened here two minutes after its first frame has failed at its sender. Its
# frames are not an attack, and must not add up to one.
EARLY_SECONDS: Final = 120.0
DROPPED: Final = b""
"""Stands for all frames of a peer in a session for which there was no room. No frame is empty."""
_APART: Final = frozenset({StandingRequest.kind, StandingReport.kind, Leaving.kind, Abort.kind})
"""The kinds of messages that are not, or not only, for a session at this node."""
_log = logging.getLogger("veilring.node")


class Node:
    """One party on the network. It sorts frames into sessions, and runs roles in them.

    Use it as an asynchronous context manager: leaving it says goodbye to all peers.

    Args:
        seconds: The time limit of a session, unless it has its own.
        limits: The time limits of a deployment: when a session's time is up, this node asks all its
            parties for their state. Without them, the launcher of the nodes observes it.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        streams: Streams,
        *,
        seconds: float = SESSION_SECONDS,
        limits: SessionLimits | None = None,
    ) -> None:
        self.endpoint, self.name = endpoint, endpoint.name
        self._streams = streams
        self._seconds, self._limits = seconds, limits
        self._inquiries: dict[bytes, Inquiry] = {}
        self._replies: dict[str, set[asyncio.Task[None]]] = {}
        self._opener: Opener | None = None
        self._sessions: dict[bytes, Session] = {}
        self._ended: OrderedDict[bytes, None] = OrderedDict()
        self._stood: OrderedDict[bytes, Standing] = OrderedDict()
        self._early = EarlyFrames()
        self._strays = TokenBuckets(STRAYS_MAX, STRAYS_PER_SECOND)
        self._lines = SparingLog(_log)
        self._lost: dict[str, PeerLost] = {}
        self.departures = Departures()
        self._stopped = False

    def start(self) -> None:
        """Start to receive."""
        self.endpoint.attach(self._dispatch)

    def answer(self, opener: Opener) -> None:
        """Set the callback for sessions that peers open here.

        By default the node has no callback: the launcher of the nodes opens each session at every
        node.
        """
        self._opener = opener

    async def close(self) -> None:
        """Say goodbye to all peers; sessions that are open here fail. Idempotent."""
        await self.endpoint.close()
        self._stop()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def abort(self) -> None:
        """Disappear at once, as if the process had been killed."""
        self.endpoint.abort()
        self._stop()

    def _stop(self) -> None:
        self._stopped = True
        for session in self._sessions.values():
            session.fail(EndpointClosed(f"{self.name} is shutting down"))

    async def run(
        self,
        role: Callable[..., Awaitable[_R]],
        session: bytes,
        parties: Parties,
        *given: object,
        observers: Sequence[Observer] = (),
        seconds: float | EllipsisType | None = ...,
        tolerant: bool = False,
        **public: object,
    ) -> _R:
        """Play a role in a session; all its participants use the same session name.

        If the role fails, all peers are told; if any peer fails, so does the role.

        Args:
            role: The role of this party: ``await role(party, *given, **public)``.
            session: The public name of the session, never used before.
            seconds: The time limit of the whole session, or none; by default the node's.
            tolerant: Whether the session begins even if peers are lost, or were never connected:
                see `Party.tolerate_losses`.
        """
        opened = self._open(session, parties, observers, tolerant=tolerant)
        try:
            with SessionTimeLimit(self._seconds if seconds is ... else seconds, opened):
                result = await _begun(role, role(opened, *given, **public))
            opened.finish()
        except BaseException as error:
            known = opened.error
            cause = opened.fail(public_error(error, opened))
            if isinstance(cause, SessionTimeout) and opened.is_late and self._limits is not None:
                cause = await self._inquire(opened, cause, self._limits.answer)
            elif cause is not error and isinstance(error, VeilringError):
                level = logging.DEBUG if isinstance(error, EndpointClosed) else logging.WARNING
                _log.log(level, "%s: %s", self.name, error)  # the peer that asked has left before
            await self._notify_peers(opened, cause)
            # a timeout may also be the role's own error
            is_late = isinstance(error, TimeoutError) and known is not None
            if is_late or isinstance(error, VeilringError):
                raise cause from None
            raise
        finally:
            self._end(session)
        return result

    def _open(
        self, name: bytes, parties: Parties, observers: Sequence[Observer], *, tolerant: bool
    ) -> Session:
        if name in self._sessions or name in self._ended:
            raise ClusterError(f"{self.name} has used this session name before")
        make_rng = partial(self._streams.generator, "party", self.name, "session", name.hex())
        session = Session(self.endpoint, name, parties, make_rng, observers)
        self._sessions[name] = session
        if self._stopped:
            session.fail(EndpointClosed(f"{self.name} has shut down"))
        lost = self._still_lost()
        if tolerant:
            session.tolerate_losses()
            here = {self.name, *self.endpoint.connected}
            lost = {peer: PeerLost(peer) for peer in parties if peer not in here} | lost
        for peer, loss in lost.items():
            if peer in parties:
                session.lose(peer, loss)
        for sender, frame in self._early.take(name):
            if frame != DROPPED:
                session.deliver(sender, self.endpoint.open(frame), frame)
            elif sender in parties:
                session.fail(SessionAborted(self.name, "EarlyFramesDropped"))
        return session

    def _still_lost(self) -> dict[str, PeerLost]:
        """Forget the loss of peers that have returned, and return the losses of the others."""
        if self._lost:
            for peer in self._lost.keys() & self.endpoint.connected:
                del self._lost[peer]
        return self._lost

    def _end(self, name: bytes) -> None:
        self._stood[name] = self._sessions.pop(name).standing()
        if len(self._stood) > (1 if self._opener is None else STANDINGS_KEPT):
            self._stood.popitem(last=False)
        self.shut(name)

    def shut(self, name: bytes) -> None:
        """Ignore further frames of a session that has ended, or is not joined here."""
        self._early.drop(name)
        self._ended[name] = None
        if len(self._ended) > ENDED_SESSIONS_MAX:
            self._ended.popitem(last=False)

    async def _inquire(
        self, session: Session, cause: SessionTimeout, seconds: float
    ) -> SessionTimeout:
        """Ask all peers for their state, and return the error completed with the findings."""
        inquiry = self._inquiries[session.session] = Inquiry(session)
        frame = self.endpoint.encode(session.session, StandingRequest())
        try:
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(self._try_to_send(peer, frame) for peer in session.peers))
                await inquiry.all_answered()
        except TimeoutError:
            _log.debug("%s: not all peers reported their state", self.name)
        finally:
            del self._inquiries[session.session]
        return session.judge(inquiry.conclude(cause, seconds))

    async def _notify_peers(self, session: Session, cause: VeilringError) -> None:
        """Tell all reachable peers that this party gives up, so that they abort as well."""
        abort = abort_notice(session, cause)
        if abort is None:
            return
        frame, until = self.endpoint.encode(session.session, abort), loop_time() + ABORT_SECONDS
        try:
            for peer in session.peers:
                await self._try_to_send(peer, frame, until)
        except TimeoutError:
            line = "%s: a peer did not accept the notice of an aborted session"
            self._lines.say(logging.WARNING, self.name, "news", line, self.name)

    async def _try_to_send(self, peer: str, frame: bytes, until: float | None = None) -> None:
        try:
            if not self.endpoint.send_now(peer, frame):
                async with asyncio.timeout_at(until):
                    await self.endpoint.send(peer, frame)
        except (TransportError, InputError):  # it was lost, or was never connected
            _log.debug("%s: %s is gone and needs no notice", self.name, peer)

    def _dispatch(self, sender: str, frame: bytes | PeerLost) -> None:
        if isinstance(frame, PeerLost):
            self._lose(sender, frame)
            return
        try:
            envelope = self.endpoint.open(frame)
            if envelope.kind in _APART and self._handled(sender, envelope):
                return
            session = self._sessions.get(envelope.session)
            if session is None and envelope.session not in self._ended:
                self._meet(sender, envelope, frame)
            elif session is None or not session.deliver(sender, envelope, frame):
                self._skip(sender)
        except FrameError as error:
            self.accuse(ProtocolViolation(sender, str(error)))

    def _lose(self, peer: str, loss: PeerLost) -> None:
        self._lost[peer] = loss
        self._early.forget(peer)
        self.departures.forget(peer)
        for session in self._sessions.values():
            if peer in session.parties:
                session.lose(peer, loss)

    def _skip(self, sender: str) -> None:
        if not self._strays.spend(sender):
            self.endpoint.rest(sender, REST_SECONDS)

    def _handled(self, sender: str, envelope: Envelope) -> bool:
        """Handle a frame of an inquiry or a departure; return whether it was one."""
        if envelope.kind == StandingRequest.kind:
            name = envelope.session
            self._reply(sender, self.endpoint.encode(name, encode_standing(self.standing(name))))
            return True
        if envelope.kind == Leaving.kind:
            if isinstance(notice := envelope.message(), Leaving):
                self.departures.hear(sender, notice)
                if not notice.confirms:
                    self._reply(sender, CONFIRMATION)
            return True
        inquiry = self._inquiries.get(envelope.session)
        if envelope.kind == StandingReport.kind:
            if inquiry is not None and isinstance(answer := envelope.message(), StandingReport):
                inquiry.take(sender, answer)
            return True
        if inquiry is not None and envelope.kind == Abort.kind:
            inquiry.excuse(sender)  # it gives up, too, and has forgotten the session
        return False

    def _reply(self, sender: str, frame: bytes) -> None:
        """Reply to a peer, unless it does not read the replies before this one."""
        waiting = self._replies.setdefault(sender, set())
        if len(waiting) < REPLIES_WAITING_MAX:
            reply = asyncio.create_task(self._try_to_send(sender, frame))
            waiting.add(reply)
            reply.add_done_callback(waiting.discard)

    def _meet(self, sender: str, envelope: Envelope, frame: bytes) -> None:
        """Handle a frame of a session that is not open here."""
        if envelope.kind != Open.kind or self._opener is None:
            if not self._early.keep(sender, envelope.session, frame):
                self._skip(sender)
        elif len(frame) > OPEN_BYTES_MAX:
            self.accuse(ProtocolViolation(sender, f"requested a session with {len(frame)} bytes"))
        elif isinstance(request := envelope.message(), Open):
            self._opener(sender, envelope.session, request)

    def accuse(self, violation: ProtocolViolation) -> None:
        """Act against a peer that violated the protocol outside of any session.

        Every session that needs the peer fails, and it is refused for a while if the transport can.
        """
        culprit = violation.culprit
        self._lines.say(logging.WARNING, culprit, str(violation), "%s: %s", self.name, violation)
        for session in self._sessions.values():
            if culprit in session.parties:
                session.fail(violation)
        self.endpoint.cut(culprit, violation)

    async def announce_end(self, seconds: float = ANNOUNCING_SECONDS) -> None:
        """Tell all peers that this node joins no more sessions, until each has confirmed that.

        A peer that has not confirmed may open sessions here, until that time is over.
        """
        peers = self.endpoint.connected
        self.departures.announce(peers)
        telling = asyncio.create_task(self._tell_of_end(peers))
        try:
            # In a task that is cancelled, the end of `asyncio.timeout` is a cancellation in 3.11.2.
            await asyncio.wait((telling,), timeout=seconds)
        finally:
            telling.cancel()
            self.departures.announce(())

    async def _tell_of_end(self, peers: Sequence[str]) -> None:
        await asyncio.gather(*(self._try_to_send(peer, ANNOUNCEMENT) for peer in peers))
        await self.departures.all_confirmed()

    def require(self, parties: Iterable[str], spare: int = 0) -> None:
        """Require that parties are connected now, and join sessions.

        Raises:
            NotReady: If more than `spare` parties are missing, or one announced that it stops.
        """
        missing = [name for name in parties if self._lacks(name)]
        leaving = [name for name in parties if self.departures.is_leaving(name)]
        if leaving or len(missing) > spare:
            raise NotReady(self.name, (leaving or missing)[0])

    async def meet(self, parties: Sequence[str], spare: int = 0) -> None:
        """Wait until parties are connected that another one has connected to: one may be starting.

        Raises:
            NotReady: If more than `spare` parties are missing after `MEETING_SECONDS`.
        """
        end = loop_time() + MEETING_SECONDS
        while len(missing := [name for name in parties if self._lacks(name)]) > spare:
            if loop_time() >= end:
                raise NotReady(self.name, missing[0])
            await asyncio.sleep(_MEETING_PAUSE)

    def _lacks(self, name: str) -> bool:
        return name != self.name and name not in self.endpoint.connected

    @property
    def open_sessions(self) -> tuple[Session, ...]:
        """The sessions in which this node plays now."""
        return tuple(self._sessions.values())

    def standing(self, name: bytes) -> Standing | None:
        """Return this party's state in a session that is open here, or has just ended."""
        session = self._sessions.get(name)
        return self._stood.get(name) if session is None else session.standing()


def _begun(role: object, playing: Awaitable[_R]) -> Awaitable[_R]:
    """Return the result of calling a role, if it can be awaited."""
    if isawaitable(playing):
        return playing
    name = getattr(role, "__qualname__", type(role).__name__)
    raise InputError.because(
        f"the role {name} is not a coroutine function; define it with `async def`", field="role"
    )


class EarlyFrames:
    """Keeps early frames, as bytes and within limits, until their session is opened."""

    def __init__(self, clock: Callable[[], float] = loop_time) -> None:
        self._clock = clock
        self._peers: defaultdict[str, _Peer] = defaultdict(_Peer)
        self._arrived = count(1)
        self._lines = SparingLog(_log, clock)

    def keep(self, sender: str, session: bytes, frame: bytes) -> bool:
        """Keep a frame, and return whether there was room for it without dropping others.

        Nobody is at fault if there was not: another party may have opened the session at the sender
        and not here, and all peers together may have sent too much. The oldest frames of the sender
        are dropped, or of the peer that sent most.
        """
        now = self._clock()
        peer = self._peers[sender]
        peer.forget_before(now - EARLY_SECONDS)
        if not peer.add(session, frame, next(self._arrived), now):
            return False
        had_room = True
        while peer.frame_count > EARLY_FRAMES_MAX or peer.byte_count > EARLY_BYTES_MAX:
            self._drop_oldest(sender)
            had_room = False
        if self._total() > EARLY_TOTAL_BYTES_MAX:
            for each in self._peers.values():
                each.forget_before(now - EARLY_SECONDS)
        while self._total() > EARLY_TOTAL_BYTES_MAX:
            self._drop_oldest(max(self._peers, key=lambda name: self._peers[name].byte_count))
        return had_room

    def take(self, session: bytes) -> Iterator[tuple[str, bytes]]:
        """Yield the frames of a session in order of arrival, and keep the rest.

        A sender whose frames were dropped yields only `DROPPED`.
        """
        if not self._peers:
            return
        taken: list[tuple[int, str, bytes]] = []
        for sender, peer in list(self._peers.items()):
            taken += [(number, sender, frame) for number, frame in peer.pop(session)]
            if not peer.sessions and not peer.dropped:
                self.forget(sender)
        for _, sender, frame in sorted(taken, key=itemgetter(0)):
            yield sender, frame

    def drop(self, session: bytes) -> None:
        """Forget the frames of a session that is not joined here."""
        for _ in self.take(session):
            pass

    def forget(self, sender: str) -> None:
        """Forget all frames of a peer."""
        self._peers.pop(sender, None)

    def _total(self) -> int:
        return sum(peer.byte_count for peer in self._peers.values())

    def _drop_oldest(self, sender: str) -> None:
        self._peers[sender].make_room()
        line = "dropped frames of %s, sent before their session was opened: there was no room"
        self._lines.say(logging.WARNING, sender, "no room", line, sender)


@dataclass(slots=True)
class _Session:
    """The early frames of one peer for one session."""

    since: float
    frames: list[tuple[int, bytes]] = field(default_factory=list)
    """Each with its number among all early frames."""


@dataclass(slots=True)
class _Peer:
    """The early frames of one peer: its sessions, and those without their frames, oldest first."""

    sessions: dict[bytes, _Session] = field(default_factory=dict)
    dropped: dict[bytes, float] = field(default_factory=dict)
    frame_count: int = 0
    byte_count: int = 0

    def add(self, session: bytes, frame: bytes, number: int, now: float) -> bool:
        if session in self.dropped:
            return False
        self.sessions.setdefault(session, _Session(now)).frames.append((number, frame))
        self.frame_count += 1
        self.byte_count += len(frame)
        return True

    def pop(self, session: bytes) -> list[tuple[int, bytes]]:
        if self.dropped.pop(session, None) is not None:
            return [(0, DROPPED)]
        kept = self.sessions.pop(session, None)
        if kept is None:
            return []
        self.frame_count -= len(kept.frames)
        self.byte_count -= sum(len(frame) for _, frame in kept.frames)
        return kept.frames

    def forget_before(self, horizon: float) -> None:
        while self.sessions and next(iter(self.sessions.values())).since <= horizon:
            self.pop(next(iter(self.sessions)))
        while self.dropped and next(iter(self.dropped.values())) <= horizon:
            del self.dropped[next(iter(self.dropped))]

    def make_room(self) -> None:
        """Drop the frames of the oldest session."""
        session, kept = next(iter(self.sessions.items()))
        self.pop(session)
        self.dropped[session] = kept.since
        if len(self.dropped) > EARLY_DROPPED_MAX:
            del self.dropped[next(iter(self.dropped))]

"""A session: one protocol run at one party, the path of all its messages, and its time limits.

A failed session ends with an abort notice to peers and the search for the culprit. An abort names
the class of an error and a culprit, never data; a party that received one does not repeat it. When
a session's time is up, a deployed party asks all others for their state. Each peer answers with
names, kinds, rounds and counts of messages, never with their content. A peer that does not answer
is stopped, cut off or busy, and is named. Otherwise the earliest missing message decides. If this
party is waiting for it, its sender is named. If a peer is, either of the two may be lying, and both
are named as suspects; see `veilring.nodes.party`.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from operator import itemgetter
from types import TracebackType
from typing import Annotated, Final, Self, TypeVar, cast

from numpy.random import Generator
from pydantic import Field
from typing_extensions import override

from veilring.errors import (
    BudgetExhausted,
    Busy,
    Deadlock,
    EndpointClosed,
    FrameError,
    InputError,
    InternalError,
    PeerGivenUp,
    PeerLost,
    PolicyRefused,
    ProtocolViolation,
    SessionAborted,
    SessionTimeout,
    StoreFailed,
    Tampered,
    TooFarAhead,
    VeilringError,
    listed,
)
from veilring.nodes.journal import SETUP_ROUND, Observer
from veilring.nodes.party import ANYBODY, OneOf, Parties, Party, Standing, Wait, expected_kinds
from veilring.places import place_of_task
from veilring.transport.endpoint import Endpoint
from veilring.transport.messages import Envelope, Message, join_messages

_M = TypeVar("_M", bound=Message)
# A batch of a thousand queries in a ring of fifty on a WAN takes some 30 s; a session that is still
# open after two minutes is waiting for a silent peer.
SESSION_SECONDS: Final = 120.0
# The share of that time that a request of a client may wait for its turn. Thirty seconds are some
# hundreds of batches of other clients.
WAITING_SHARE: Final = 0.25
# A peer answers a request for its state at once, unless it is computing: a second or two at most.
ANSWER_SECONDS: Final = 5.0
# Parties of one protocol run in step, so at most a few messages queue up; a peer that is a thousand
# ahead is broken or malicious, and would fill our memory.
UNREAD_MESSAGES_MAX: Final = 1024
# The same in bytes, for large messages: four of the largest frames. With as many sessions as a peer
# may open, that is 64 MiB.
UNREAD_BYTES_MAX: Final = 4 << 20
# A role that continues without lost peers meets each loss a few times in each round. A loop that
# meets one this often, and sends and receives nothing in between, has no end, and may never wait.
REFUSALS_MAX: Final = 100_000
# The name of an error's class. It comes from a peer, and ends in our log.
REASON_CHARACTERS_MAX: Final = 64
# All peers that are silent are named at once: a dozen of the longest names.
CULPRIT_CHARACTERS_MAX: Final = 1024


class Abort(Message, kind="session.abort"):
    """Announces that a party ended the session. It names an error and a culprit, never data."""

    reason: Annotated[str, Field(max_length=REASON_CHARACTERS_MAX)]
    culprit: Annotated[str, Field(max_length=CULPRIT_CHARACTERS_MAX)]

    @classmethod
    def of(cls, reason: str, culprit: str = "") -> Self:
        """Return the abort for a reason and a culprit, cut if they are too long."""
        return cls(reason=reason[:REASON_CHARACTERS_MAX], culprit=culprit[:CULPRIT_CHARACTERS_MAX])


class Open(Message, kind="session.open"):
    """Asks a peer to join a session.

    Attributes:
        service: The name of the peer's offer.
        terms: The SHA-256 of the public parameters: a peer with different ones refuses.
    """

    service: str
    parties: tuple[str, ...]
    terms: bytes


_NEWS: Final[frozenset[type[Message]]] = frozenset({Abort, Open})
_arrived: Final = count()
"""Numbers all messages of all sessions of this process, in order of arrival."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Time limits of sessions that depend on each other in a deployment, in seconds.

    The party that opens the session gives up first. It asks all parties for their state, finds the
    culprit, and informs the others and its client, which therefore wait longer.
    """

    session: float = SESSION_SECONDS
    answer: float = ANSWER_SECONDS

    @property
    def joined(self) -> float:
        """The limit of a session that another party opened."""
        return self.session + 2 * self.answer

    @property
    def waiting(self) -> float:
        """The time that a client's request may wait for its turn at the queried party."""
        return WAITING_SHARE * self.session

    @property
    def served(self) -> float:
        """The limit of a session with a client, at the queried party."""
        return self.waiting + self.session + 4 * self.answer

    @property
    def client(self) -> float:
        """The limit of the same session, at the client."""
        return self.waiting + self.session + 6 * self.answer


class Session(Party):
    """One party's end of one protocol run.

    Args:
        make_rng: A function that makes the party's randomness for this run when a role first uses
            it.
    """

    was_aborted = is_late = False
    limit: "SessionTimeLimit | None" = None  # while the role plays
    role_task: asyncio.Task[object] | None = None  # likewise
    loop: asyncio.AbstractEventLoop  # once the role plays: to ask for it takes a system call
    _rng: Generator | None = None
    _round = SETUP_ROUND
    _task: asyncio.Task[object] | None = None  # which sent the first message
    _is_concurrent = False
    _lost: dict[str, PeerLost | SessionAborted] | None = None  # if losses are tolerated
    _stood: Standing | None = None
    _leaves_unread = _over = False
    _has_opened = False  # otherwise a second opener may have copied the name of the first

    def __init__(
        self,
        endpoint: Endpoint,
        session: bytes,
        parties: Parties,
        make_rng: Callable[[], Generator],
        observers: Sequence[Observer] = (),
    ) -> None:
        if endpoint.name not in parties:
            raise InputError.because(
                f"{endpoint.name} is not among the parties of its own session", field="parties"
            )
        self._endpoint = endpoint
        self.error: VeilringError | None = None
        self._is_troubled = False  # whether it has an error, or lost a peer
        self._arrivals: deque[_Exchange] | None = None  # once the role receives from anybody
        self.me, self.session, self.parties = endpoint.name, session, parties
        self._make_rng = make_rng
        self._observers = tuple(observers)
        self._exchanges: dict[str, _Exchange] = {}  # by peer, in the order of their beginning
        self._anybody: tuple[_Anybody, ...] = ()
        self._refusals: dict[str, int] = {}  # by peer, since a message was sent or received

    @property
    @override
    def rng(self) -> Generator:
        if self._rng is None:
            self._rng = self._make_rng()
        return self._rng

    @override
    def round(self, number: int) -> None:
        if number < self._round:
            raise InputError.because(
                f"rounds must not decrease: round {number} comes after round {self._round}",
                field="round",
            )
        self._round = number

    @override
    async def send(self, to: str, message: Message) -> None:
        exchange = self._exchanges.get(to) or self._exchange("to", to)
        frame = self._pass(exchange, message, b"")
        if exchange.waiting or not self._endpoint.send_now(to, frame):
            await self._send(exchange, frame)
        self._count(exchange, message)

    @override
    async def send_all(self, peers: Iterable[str], message: Message) -> None:
        frame, send_now = b"", self._endpoint.send_now
        for to in peers:
            exchange = self._exchanges.get(to) or self._exchange("to", to)
            frame = self._pass(exchange, message, frame)
            if exchange.waiting or not send_now(to, frame):
                await self._send(exchange, frame)
            self._count(exchange, message)

    def _pass(self, exchange: "_Exchange", message: Message, frame: bytes) -> bytes:
        """Show the observers a message before it is sent, and return its frame, if not given."""
        if self._is_troubled:
            self._check(exchange.peer)
        frame = frame or self._endpoint.encode(self.session, message)
        if self._observers:
            if asyncio.current_task(self.loop) is not self._task:
                self._note_another_task()
            channel, number = exchange.there, self._round
            for observe in self._observers:
                observe(channel, number, message, frame)
        if type(message) is Open:
            self._has_opened = True  # and is no message of the role
        return frame

    def _count(self, exchange: "_Exchange", message: Message) -> None:
        """Count a message that was sent."""
        exchange.sent += type(message) is not Open
        if self._is_troubled:
            self._refusals.clear()

    async def _send(self, exchange: "_Exchange", frame: bytes) -> None:
        """Send a message after those that wait, because the observers were shown these before."""
        turn = exchange.turn = exchange.turn or asyncio.Lock()
        exchange.waiting += 1
        try:
            async with turn:
                await self._endpoint.send(exchange.peer, frame)
        finally:
            exchange.waiting -= 1

    @override
    async def receive(self, message_type: type[_M], *, sender: str, due: int | None = None) -> _M:
        exchange = self._exchanges.get(sender) or self._exchange("sender", sender)
        while not exchange.unread:
            arrival = self._await(exchange, message_type, due)
            try:
                await arrival
            finally:
                exchange.arrival = None
        return self._take(exchange, (message_type,))

    def _await(
        self, exchange: "_Exchange", message_type: type[Message], due: int | None
    ) -> asyncio.Future[None]:
        """Return the arrival of the next message, which the exchange has to forget afterwards."""
        sender = exchange.peer
        if self._is_troubled:
            self._check(sender)
        if self._anybody and any(sender in each.among for each in self._anybody):
            raise _already_awaited(sender)
        if exchange.arrival is not None:
            raise _already_awaited(sender)
        exchange.type, exchange.due = message_type, due
        arrival: asyncio.Future[None] = asyncio.Future(loop=self.loop)
        exchange.arrival = arrival
        return arrival

    @override
    async def receive_joined(self, message_type: type[_M], *, sender: str) -> Sequence[_M]:
        exchange = self._exchanges.get(sender) or self._exchange("sender", sender)
        exchange.joins = message_type.kind
        while not exchange.unread:
            arrival = self._await(exchange, message_type, None)
            try:
                await arrival
            finally:
                exchange.arrival = None
        count = exchange.count_joined()
        if self._observers or self._arrivals is not None or not count:  # each message by itself
            return [self._take(exchange, (message_type,)) for _ in range(max(1, count))]
        self._check()
        self._refusals.clear()
        try:
            return cast(Sequence[_M], join_messages(exchange.take(count)))
        except FrameError as error:
            raise self.fail(ProtocolViolation(sender, str(error))) from None

    @override
    async def receive_any(
        self, types: OneOf[_M], *, senders: Iterable[str] | None = None, needed: int = 1
    ) -> tuple[str, _M]:
        allowed = types if isinstance(types, tuple) else (types,)
        among = frozenset(self.peers if senders is None else senders)
        if senders is not None:
            for name in among:
                self._require_peer("senders", name)
        if not among:
            raise InputError("senders", (), "at least one peer")
        queue = self._in_order()
        while (place := self._first(queue, among)) is None:
            self._check_any(among, needed)
            anybody = _Anybody(among, allowed)
            self._anybody = (*self._anybody, anybody)
            try:
                await anybody.arrival
            finally:
                self._anybody = tuple([each for each in self._anybody if each is not anybody])
        exchange = queue[place]
        return exchange.peer, self._take(exchange, allowed)

    def _in_order(self) -> "deque[_Exchange]":
        """Return an entry for each unread message, in order of arrival."""
        if self._arrivals is None:
            exchanges = self._exchanges.values()
            unread = [(number, each) for each in exchanges for number, *_ in each.unread]
            self._arrivals = deque(each for _, each in sorted(unread, key=itemgetter(0)))
        return self._arrivals

    @staticmethod
    def _first(queue: "deque[_Exchange]", among: Collection[str]) -> int | None:
        each = enumerate(queue)
        return next(
            (place for place, exchange in each if exchange.unread and exchange.peer in among), None
        )

    def _take(self, exchange: "_Exchange", types: tuple[type[_M], ...]) -> _M:
        if self._is_troubled:
            self._check()
            self._refusals.clear()
        _, envelope, frame = exchange.unread.pop(0)
        exchange.unread_bytes -= len(frame)
        if self._arrivals is not None:
            self._arrivals.remove(exchange)
        try:
            message = envelope.message()
        except FrameError as error:
            raise self.fail(ProtocolViolation(exchange.peer, str(error))) from None
        if not isinstance(message, types):
            expected = f"sent {message.kind} where {expected_kinds(types)} was expected"
            raise self.fail(ProtocolViolation(exchange.peer, expected))
        if self._observers:
            channel, number = exchange.back, self._round
            for observe in self._observers:
                observe(channel, number, message, frame)
        return message

    def _check_any(self, among: frozenset[str], needed: int) -> None:
        self._check()
        lost = [name for name in self._lost or () if name in among]
        if lost and len(among) - len(lost) < needed:
            self._check(lost[0])
        named = [
            exchange.peer for exchange in self._exchanges.values() if exchange.arrival is not None
        ]
        awaited = frozenset(named).union(*(each.among for each in self._anybody))
        if among & awaited:
            raise _already_awaited(min(among & awaited))

    @override
    def leave_unread(self) -> None:
        self._leaves_unread = True

    @override
    def accuse(self, error: VeilringError) -> None:
        raise self.fail(error)

    @override
    def tolerate_losses(self) -> None:
        if self._lost is None:
            self._lost = {}

    @override
    def give_up(self, peer: str) -> None:
        if self._lost is None:
            raise InputError.because(
                f"{peer} cannot be given up in a session that tolerates no loss", field="peer"
            )
        exchange = self._exchange("peer", peer)
        self.lose(peer, PeerGivenUp(peer))
        exchange.forget()

    def _note_another_task(self) -> None:
        if self._task is None:
            self._task = asyncio.current_task(self.loop)
        else:
            self._is_concurrent = True

    def _exchange(self, field: str, peer: str) -> "_Exchange":
        """Return the messages exchanged with a peer, which a field of the role's call names."""
        self._require_peer(field, peer)
        return self._exchanges.setdefault(peer, _Exchange(self.me, peer))

    def _require_peer(self, field: str, name: str) -> None:
        if name == self.me or name not in self.parties.positions:
            raise InputError(field, name, f"a peer of {self.me}: {listed(self.peers)}")

    def _check(self, peer: str = "") -> None:
        error = self.error or (self._lost or {}).get(peer)
        if error is None:
            return
        self._refusals[peer] = refusals = self._refusals.get(peer, 0) + 1
        if refusals > REFUSALS_MAX:
            raise self._endless(error, refusals)
        raise error.with_traceback(None)  # which grows each time that it is raised

    def _endless(self, error: VeilringError, refusals: int) -> Exception:
        """Return the error that ends a loop, or another one if the loop catches that as well."""
        said = f"the role met one error {REFUSALS_MAX:,} times: a loop without end"
        endless = InputError.because(f"{said}; let it end, or go on without the peer: {error}")
        self.fail(endless)
        # `Node.run` replaces the second by the session's own error.
        return endless if refusals == REFUSALS_MAX + 1 else TimeoutError()

    def deliver(self, sender: str, envelope: Envelope, frame: bytes) -> bool:
        """Handle a frame for this session, and return whether its sender takes part.

        An outsider knows the session's name: all its frames are ignored.
        """
        exchange = self._exchanges.get(sender)
        if exchange is None and sender not in self.parties.positions:
            return False
        if self._is_troubled and (self.error is not None or sender in (self._lost or ())):
            return True  # the role has yet to notice the error, or continues without the peer
        exchange = exchange or self._exchange("sender", sender)
        if envelope.kind != exchange.joins:  # otherwise it is decoded when it is received
            try:
                message = envelope.message()
            except FrameError as error:
                self.fail(ProtocolViolation(sender, str(error)))
                return True
            if type(message) in _NEWS and self._heed(sender, message):
                return True
        fits = exchange.put(envelope, frame, next(_arrived))
        if self._arrivals is not None:
            self._arrivals.append(exchange)
        if not fits:
            self.interrupt(TooFarAhead(sender, exchange.excess))
        exchange.wake()
        if self._anybody:
            self._wake_anybody(sender)
        return True

    def _heed(self, sender: str, message: Message) -> bool:
        """Handle a message about the session itself; return whether it was one for this session."""
        if isinstance(message, Abort):
            self.was_aborted = self.was_aborted or self._lost is None
            culprit = message.culprit
            if culprit in self.parties and message.reason.startswith(_OWN):
                culprit = sender
            self.lose(sender, SessionAborted(sender, message.reason, culprit))
        elif not self._has_opened and len(self.peers) > 1:
            self.fail(Tampered(self.peers, "opened a session under the name of another one"))
        else:
            return False
        return True

    def _wake_anybody(self, sender: str) -> None:
        for each in self._anybody:
            if sender in each.among:
                each.wake()

    def lose(self, peer: str, error: PeerLost | SessionAborted) -> None:
        """Continue without a peer if the role tolerates that; otherwise end the session."""
        if self._lost is None:
            self.fail(error)
            return
        self._lost.setdefault(peer, error)
        self._is_troubled = True
        if peer in self._exchanges:
            self._exchanges[peer].wake()
        self._wake_anybody(peer)

    def fail(self, error: VeilringError) -> VeilringError:
        """End the session with an error unless it has one, and return the first error."""
        if self.error is None:
            self._stood = self.standing()
            self.error, self._is_troubled = error, True
            for exchange in self._exchanges.values():
                exchange.wake()
            for each in self._anybody:
                each.wake()
        return self.error

    def expire(self, seconds: float) -> None:
        """End the session, unless it has ended, because its time limit of `seconds` is over."""
        waits = "; ".join(self.standing().sentences()) or self._doing()
        self.is_late = self.error is None
        self.interrupt(SessionTimeout(seconds, waits))

    def _doing(self) -> str:
        """Describe a role that waits for no peer."""
        at = "" if self.role_task is None else f" at {place_of_task(self.role_task)}"
        return f"{self.me} is computing{at}"

    def interrupt(self, error: VeilringError) -> bool:
        """End the session, unless it has ended, and its role, even if that waits for no message.

        Returns:
            Whether this is the role's first interruption.
        """
        self.fail(error)
        return self.limit is not None and self.limit.interrupt()

    def judge(self, error: SessionTimeout) -> SessionTimeout:
        """Replace the error of an expired session by a more specific one, and return it."""
        self.error = error
        return error

    def finish(self) -> None:
        """Blame the sender of the first unread message: honest parties send only expected ones."""
        self._check()
        self._over = True
        if self._leaves_unread:
            return
        lost = self._lost or ()
        firsts = [
            (*each.unread[0], each.peer)
            for each in self._exchanges.values()
            if each.unread and each.peer not in lost
        ]
        if firsts:
            _, envelope, _, sender = min(firsts, key=itemgetter(0))
            extra = (
                f"sent {envelope.kind}, which was not due; if it is, receive it"
                " before the role ends, or call `leave_unread`"
            )
            raise self.fail(ProtocolViolation(sender, extra))

    def standing(self) -> Standing:
        """Return the state of this party, or its state when the session failed."""
        if self._stood is not None:
            return self._stood
        exchanges = self._exchanges
        waits = [
            Wait(each.peer, each.type.kind, each.due)
            for each in exchanges.values()
            if each.arrival is not None and not each.unread
        ]
        for each in self._anybody:
            if not each.arrival.done():
                waits += [Wait(ANYBODY, kind.kind, None) for kind in each.types]
        return Standing(
            self.me,
            waits=tuple(waits),
            blocked=tuple(peer for peer, each in exchanges.items() if each.waiting),
            over=self._over,
            sent={peer: each.sent for peer, each in exchanges.items()},
            received={peer: each.received for peer, each in exchanges.items()},
            without=None if self._lost is None else tuple(self._lost),
            is_concurrent=self._is_concurrent,
            leaves_unread=self._leaves_unread,
        )


class _Exchange:
    """The messages that a party sent to one peer, and those that it has not read, or waits for."""

    __slots__ = (
        "arrival",
        "back",
        "due",
        "joins",
        "peer",
        "received",
        "sent",
        "there",
        "turn",
        "type",
        "unread",
        "unread_bytes",
        "waiting",
    )

    def __init__(self, me: str, peer: str) -> None:
        self.peer, self.there, self.back = peer, (me, peer), (peer, me)
        self.sent = self.received = self.unread_bytes = 0
        self.waiting = 0
        """The number of sends that wait for room."""
        self.turn: asyncio.Lock | None = None
        """Gives one of them its turn, once a send has waited."""
        # Seldom more than a few: a deque would take ten times the memory in each of many lists.
        self.unread: list[tuple[int, Envelope, bytes]] = []
        self.type: type[Message] = Message
        self.due: int | None = None
        self.arrival: asyncio.Future[None] | None = None
        """Done when a message arrives or the session fails, if the role is waiting."""
        self.joins = ""
        """The kind of messages that the role receives joined, if it does."""

    @property
    def excess(self) -> str:
        """A statement about a sender whose messages do not fit."""
        most = f"at most {UNREAD_MESSAGES_MAX:,} or {UNREAD_BYTES_MAX >> 20} MiB may wait"
        limits = "UNREAD_MESSAGES_MAX and UNREAD_BYTES_MAX of veilring.nodes.session"
        return (
            f"sent {len(self.unread):,} messages ({self.unread_bytes:,} bytes) ahead of its turn:"
            f" {most} until the role receives them; let its sender wait for an answer in between,"
            f" or set {limits} before the run"
        )

    def put(self, envelope: Envelope, frame: bytes, number: int) -> bool:
        """Append a message, and return whether the unread ones are within the limits."""
        unread = self.unread
        unread.append((number, envelope, frame))
        self.received += 1
        self.unread_bytes = size = self.unread_bytes + len(frame)
        return len(unread) <= UNREAD_MESSAGES_MAX and size <= UNREAD_BYTES_MAX

    def count_joined(self) -> int:
        """Return the number of messages of the kind `joins` before the first of another kind."""
        count = 0
        for _, envelope, _ in self.unread:
            if envelope.kind != self.joins:
                break
            count += 1
        return count

    def take(self, count: int) -> list[Envelope]:
        """Take the first messages."""
        taken, self.unread = self.unread[:count], self.unread[count:]
        self.unread_bytes -= sum([len(frame) for *_, frame in taken])
        return [envelope for _, envelope, _ in taken]

    def forget(self) -> None:
        """Drop the unread messages."""
        self.unread.clear()
        self.unread_bytes = 0

    def wake(self) -> None:
        if self.arrival is not None and not self.arrival.done():
            self.arrival.set_result(None)


class _Anybody:
    """The wait for the next message of any of some peers."""

    def __init__(self, among: Collection[str], types: tuple[type[Message], ...]) -> None:
        self.among, self.types = among, types
        self.arrival: asyncio.Future[None] = asyncio.Future()

    def wake(self) -> None:
        if not self.arrival.done():
            self.arrival.set_result(None)


def _already_awaited(sender: str) -> InputError:
    said = f"another task is already waiting for a message from {sender}"
    return InputError.because(said, field="sender")


class SessionTimeLimit:
    """Fails a session that takes longer than `seconds`, if given, naming the messages it awaits.

    Like `asyncio.timeout`, but it takes no coroutine to begin or end, as almost every session does
    without an interruption.

    Raises:
        TimeoutError: After the time limit, or if the session was interrupted; it has its error.
    """

    def __init__(self, seconds: float | None, session: Session) -> None:
        self._seconds, self._session = seconds, session
        self._timer: asyncio.TimerHandle | None = None
        self._interruption: asyncio.Handle | None = None
        self._has_cancelled = False

    def __enter__(self) -> None:
        session, seconds = self._session, self._seconds
        loop = session.loop = asyncio.get_running_loop()
        if seconds is not None:
            self._timer = loop.call_at(loop.time() + seconds, session.expire, seconds)
        self._task = session.role_task = cast("asyncio.Task[object]", asyncio.current_task(loop))
        self._cancels = self._task.cancelling()
        session.limit = self

    def interrupt(self) -> bool:
        """Cancel the role in the next turn of the loop; return whether it was not to be before."""
        if self._interruption is not None:
            return False
        self._interruption = asyncio.get_running_loop().call_soon(self._cancel)
        return True

    def _cancel(self) -> None:
        self._task.cancel()
        self._has_cancelled = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._session.limit = self._session.role_task = None
        if self._timer is not None:
            self._timer.cancel()
        if self._interruption is not None:
            self._interruption.cancel()
        if not self._has_cancelled:
            return
        is_alone = self._task.uncancel() <= self._cancels
        if is_alone and kind is asyncio.CancelledError:
            raise TimeoutError from error


TOO_MANY_SESSIONS: Final = "TooManySessions"
"""A reason for which a refused peer repeats its request, as it should."""
IS_STOPPING: Final = "Stopping"
PEER_STOPPED: Final = "PeerStopped"
"""The reason of a party that finishes its sessions and begins no more."""
REFUSALS: Final = frozenset(
    {"NotOffered", "OtherTerms", "WrongParties", TOO_MANY_SESSIONS, IS_STOPPING}
)
"""The reasons for which a party refuses to join a session. Only the opener is told."""
# Reasons of which the party that gives them is the reporter, not the cause.
_BLAMELESS: Final = frozenset({Busy.__name__, SessionTimeout.__name__, Tampered.__name__})
# Reasons that only the party itself can have: no participant speaks for another one.
_OWN: Final = (PolicyRefused.__name__, BudgetExhausted.__name__, StoreFailed.__name__)


def public_error(error: BaseException, session: Session) -> VeilringError:
    """Return veilring's error for any error that ended a role: a class that a peer can understand.

    Args:
        error: The error that a role raised. The text of a foreign error is not passed on.
    """
    if isinstance(error, VeilringError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return SessionAborted(session.me, PEER_STOPPED)
    # without a number, the limit of a custom role, and no error of a system
    is_limit = isinstance(error, TimeoutError) and error.errno is None
    family = StoreFailed if _is_of_store(error) and not is_limit else InternalError
    return SessionAborted(session.me, family.__name__)


def _is_of_store(error: BaseException) -> bool:
    """Return whether a disk or a database failed; one that was never loaded did not."""
    sqlite3 = sys.modules.get("sqlite3")
    databases = () if sqlite3 is None else (sqlite3.Error,)
    return isinstance(error, (OSError, MemoryError, *databases))


def abort_notice(session: Session, cause: VeilringError) -> Abort | None:
    """Return the abort to send to the peers of a failed session, or `None` if they know.

    A party that aborts informs all peers, and no peer repeats the notice. A refusal is sent to the
    opener only, which passes it on. An error in another session of this party is new to all peers:
    the party that ended that session is blamed here, unless it blamed another one itself, or its
    reason blames nobody.
    """
    if isinstance(cause, EndpointClosed | Deadlock):
        return None  # a closed endpoint has said goodbye; a deadlock is everybody's
    if not isinstance(cause, SessionAborted):
        culprit = getattr(cause, "culprit", getattr(cause, "peer", ""))
        return Abort.of(cause.kind, culprit)
    if cause.reason == TOO_MANY_SESSIONS:
        return Abort.of(Busy.__name__)
    refused = cause.reason in REFUSALS and not cause.culprit
    if session.was_aborted and not refused:
        return None
    is_blameless = cause.by == session.me or cause.reason in _BLAMELESS
    return Abort.of(cause.reason, cause.culprit or ("" if is_blameless else cause.by))

"""A long-lived node: peers open sessions here, and the node plays the roles that it offers.

A party with its own process has its own event loop, and worker threads for slow calls.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Final, Protocol, Self, TypeVar

from veilring.errors import (
    Busy,
    InputError,
    NotReady,
    PeerLost,
    ProtocolViolation,
    SessionAborted,
    TransportError,
    VeilringError,
)
from veilring.nodes.node import ANNOUNCING_SECONDS, Node
from veilring.nodes.party import Parties, Party, broadcast, broadcast_to_rest
from veilring.nodes.session import IS_STOPPING, PEER_STOPPED, TOO_MANY_SESSIONS, Abort, Open
from veilring.transport.messages import encode
from veilring.transport.pacing import REST_SECONDS, SparingLog, TokenBuckets, loop_time

_T = TypeVar("_T")


class Offload(Protocol):
    """Runs a callable and returns its result, while other tasks may continue."""

    async def __call__(self, call: Callable[[], _T], /) -> _T:
        """Run it."""


async def run_inline(call: Callable[[], _T]) -> _T:
    """Run a callable at once in this task, as in the simulation, where it takes no time."""
    return call()


class Threads:
    """Worker threads that run calls. Leaving the context waits for running calls."""

    def __init__(self, workers: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(workers, name)

    async def __call__(self, call: Callable[[], _T]) -> _T:
        """Run a callable in a worker thread. Cancelling the await does not stop it."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def close(self) -> None:
        """Refuse further calls, and wait for the running ones."""
        self._pool.shutdown()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def party_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the loop factory: uvloop's if the extra is installed, otherwise asyncio's own.

    Every transport passes the same checks on both loops. On uvloop a small message between two
    nodes takes 40 % less processor time, and one of 40 kB 20 % less.
    """
    if find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop


# A peer that opens more sessions than this at once is broken or malicious; each costs us a task and
# its arrays. A client that labels a large file keeps one or two open.
SESSIONS_PER_PEER_MAX: Final = 16
# Sessions that a party opens at once at the same peers, for all its clients. A peer counts a
# session until its own end has finished, a moment later, so this is half of what peers accept.
CONVENED_MAX: Final = SESSIONS_PER_PEER_MAX // 2
# Those for one client: while it asks alone, any other client starts at once.
CONVENED_PER_CLIENT_MAX: Final = CONVENED_MAX // 2
# Sessions of one peer that are joined, or refused because too many are open. A client that asks one
# question at a time never reaches this over a network; a faster one is read less often, and loses
# nothing.
OPENS_MAX: Final = 512
OPENS_PER_SECOND: Final = 500.0
# Requests of one peer that are refused for any other reason. A client with other terms stops; one
# that continues costs more than its answers.
REFUSALS_MAX: Final = 256
REFUSALS_PER_SECOND: Final = 16.0
# Refusals waiting for a peer that does not read. Each is a task and a frame.
REFUSALS_WAITING_MAX: Final = 16
# The same for a peer that has too many sessions open. A client behind a slow line may be honest:
# while refusals wait, it is read 20 times a second, so this many take longer than ten seconds.
EXCESS_WAITING_MAX: Final = 256

SESSION: Final = ContextVar("veilring_session", default="")
"""The name of the session that this task plays, in hexadecimal, for its lines in a log."""
_DOES_NOT_READ: Final = "did not read the reasons for the refusals"

_R = TypeVar("_R")

_log = logging.getLogger("veilring.service")


@dataclass(frozen=True, slots=True)
class Offer:
    """A role that a node plays when a peer asks for it.

    Attributes:
        play: The role: ``await play(party, opener)``, where the opener is the peer that asked.
        terms: The SHA-256 of the public parameters; a peer with different ones is refused.
        seconds: The time limit of a session; by default the node's.
        parties: All participants of its sessions, in order; by default this node and the opener
            alone. A request that names others is refused: the abort of a session goes to all its
            parties, and must not reach one that the opener has only named.
        spare: The number of participants that may be missing when a session begins.
    """

    play: Callable[[Party, str], Awaitable[object]]
    terms: bytes
    may_open: Callable[[str], bool]
    seconds: float | None = None
    parties: Parties | None = None
    spare: int = 0

    def is_for(self, parties: tuple[str, ...], me: str, opener: str) -> bool:
        """Return whether these are exactly the participants of a session that a peer opens."""
        if self.parties is not None:
            return parties == self.parties
        return sorted(parties) == sorted((me, opener))


@dataclass(slots=True)
class Counts:
    """The number of sessions that peers have opened at a node.

    Attributes:
        finished: Those that succeeded.
        failed: Those that failed, by the name of the error, such as `BudgetExhausted`.
        refused: The requests that were refused, by the reason.
        last_error: The last failure and its time on the loop's clock, if there was one.
    """

    running: int = 0
    finished: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    last_error: tuple[float, str] | None = None


class Service:
    """Answers the sessions that peers open at a node, until it is closed or its context is left.

    Args:
        patience: The time in seconds for which it finishes open sessions if its task is cancelled.

    Attributes:
        counts: The sessions so far.
    """

    def __init__(self, node: Node, offers: Mapping[str, Offer], *, patience: float = 0.0) -> None:
        self._node, self._patience, self._is_stopping = node, patience, False
        self._offers = dict(offers)
        self.counts = Counts()
        self._open: Counter[str] = Counter()
        self._opens = TokenBuckets(OPENS_MAX, OPENS_PER_SECOND)
        self._refusals = TokenBuckets(REFUSALS_MAX, REFUSALS_PER_SECOND)
        self._refusing: Counter[str] = Counter()
        self._lines = SparingLog(_log)
        self._tasks: set[asyncio.Task[None]] = set()
        node.answer(self._opened)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is asyncio.CancelledError and self._patience:
                await self._finish()
        finally:
            await self.close()

    async def _finish(self) -> None:
        """Announce the end, refuse new sessions, and wait for those that are open."""
        end = loop_time() + self._patience
        self._is_stopping = True
        await self._node.announce_end(min(ANNOUNCING_SECONDS, self._patience))
        if self._tasks:
            line = "%s finishes %d sessions before it stops"
            _log.info(line, self._node.name, self.counts.running)
            await asyncio.wait(self._tasks, timeout=end - loop_time())

    def _opened(self, peer: str, session: bytes, request: Open) -> None:
        reason = self._objection(peer, request)
        if reason:
            self._turn_down(peer, session, reason)
        else:
            if not self._opens.spend(peer):
                self._node.endpoint.rest(peer, REST_SECONDS)
            self._begin(self._join(peer, session, request), f"{request.service} for {peer}")

    def _begin(self, work: Coroutine[None, None, None], name: str) -> None:
        running = asyncio.create_task(work, name=name)
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)

    def _objection(self, peer: str, request: Open) -> str:
        offer = self._offers.get(request.service)
        if offer is None or not offer.may_open(peer):
            return "NotOffered"
        if offer.terms != request.terms:
            return "OtherTerms"
        if not offer.is_for(request.parties, self._node.name, peer):
            return "WrongParties"
        if self._is_stopping and not self._node.departures.may_open(peer):
            return IS_STOPPING
        if self._open[peer] >= SESSIONS_PER_PEER_MAX:
            return TOO_MANY_SESSIONS
        return ""

    async def _join(self, peer: str, session: bytes, request: Open) -> None:
        SESSION.set(session.hex())
        offer = self._offers[request.service]
        has_answered = False

        async def play(party: Party, opener: str) -> None:
            nonlocal has_answered
            await offer.play(party, opener)
            has_answered = True

        self._open[peer] += 1
        self.counts.running += 1
        try:
            if offer.parties is not None:
                await self._meet(peer, session, offer.parties, offer.spare)
            parties = Parties(request.parties)
            seconds = ... if offer.seconds is None else offer.seconds
            await self._node.run(
                play, session, parties, peer, seconds=seconds, tolerant=offer.spare > 0
            )
            self.counts.finished += 1
        except VeilringError as error:
            has_left = isinstance(error, PeerLost) and error.orderly and error.peer == peer
            if has_answered and has_left:
                self.counts.finished += 1
                return  # its goodbye arrived before our session ended
            self._count_failure(error, request.service, peer)
            line = "%s for %s failed: %s"
            what = f"{request.service}: {error}"
            self._lines.say(logging.WARNING, peer, what, line, request.service, peer, error)
        except Exception as error:  # noqa: BLE001  (a bug in one session may not end the service)
            what = f"{request.service}: {type(error).__name__}"
            self._count_failure(error, request.service, peer)
            line = "%s for %s failed"
            self._lines.say(logging.ERROR, peer, what, line, request.service, peer, trace=True)
        finally:
            self._open[peer] -= 1
            self.counts.running -= 1

    async def _meet(self, peer: str, session: bytes, parties: Parties, spare: int) -> None:
        """Wait for participants that are starting, before this party takes part in a session."""
        try:
            await self._node.meet(parties, spare)
        except NotReady:
            self._node.shut(session)
            await self._refuse(peer, session, NotReady.__name__)
            raise

    def _count_failure(self, error: Exception, service: str, peer: str) -> None:
        name = type(error).__name__
        self.counts.failed[name] += 1
        # The text of any other error may contain a value of a request.
        is_plain = isinstance(error, VeilringError) and not isinstance(error, InputError)
        text = f"{service} for {peer} failed: {error if is_plain else name}"
        self.counts.last_error = loop_time(), text

    def _turn_down(self, peer: str, session: bytes, reason: str) -> None:
        self._node.shut(session)
        self.counts.refused[reason] += 1
        line = "refused a session to %s: %s"
        self._lines.say(logging.WARNING, peer, reason, line, peer, reason)
        if reason == IS_STOPPING and self._refusing[peer] >= REFUSALS_WAITING_MAX:
            return  # it hears of the end by a goodbye
        if reason == IS_STOPPING:
            self._begin(self._refuse(peer, session, reason), f"refusal for {peer}")
        elif fault := self._excess(peer) if reason == TOO_MANY_SESSIONS else self._insistence(peer):
            self._node.accuse(ProtocolViolation(peer, f"was refused sessions, and {fault}"))
        else:
            self._begin(self._refuse(peer, session, reason), f"refusal for {peer}")

    def _excess(self, peer: str) -> str:
        """Slow down a peer that has too many sessions open; return its offence, if any."""
        waiting = self._refusing[peer]
        if not self._opens.spend(peer) or waiting >= REFUSALS_WAITING_MAX:
            self._node.endpoint.rest(peer, REST_SECONDS)
        return _DOES_NOT_READ if waiting >= EXCESS_WAITING_MAX else ""

    def _insistence(self, peer: str) -> str:
        """Return the offence, if any, of a peer that repeats a request that is always refused."""
        if self._refusing[peer] >= REFUSALS_WAITING_MAX:
            return _DOES_NOT_READ
        return "" if self._refusals.spend(peer) else "repeated its request too often"

    async def _refuse(self, peer: str, session: bytes, reason: str) -> None:
        self._refusing[peer] += 1
        try:
            await self._node.endpoint.send(peer, encode(session, Abort.of(reason)))
        except TransportError:
            _log.debug("%s is gone and needs no refusal", peer)
        finally:
            self._refusing[peer] -= 1

    async def close(self) -> None:
        """End the sessions that are open."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class FairTurns:
    """Limits the sessions that a party opens for its clients; clients take turns.

    Each client's requests keep their order. The next turn is that of the client that has waited
    longest since its last one, so that the number of its requests gains a client nothing.
    """

    def __init__(self, party: str, at_once: int = CONVENED_MAX) -> None:
        self._party, self._at_once = party, at_once
        self._open: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, client: str, seconds: float) -> AsyncIterator[None]:
        """Wait for a turn, and hold it in the context."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        self._admit()
        try:
            async with asyncio.timeout(seconds) as limit:
                await turn
            yield
        except TimeoutError:
            if limit.expired():
                raise Busy(self._party, seconds) from None
            raise
        finally:
            if turn.cancelled():
                self._forget(client, turn)
            else:
                self._open[client] -= 1
                self._admit()

    def _admit(self) -> None:
        while self._open.total() < self._at_once:
            free = (name for name in self._waiting if self._open[name] < CONVENED_PER_CLIENT_MAX)
            client = next(free, None)
            if client is None:
                return
            turns = self._waiting.pop(client)
            turn = turns.popleft()
            if turns:
                self._waiting[client] = turns  # behind all other clients
            if not turn.cancelled():
                self._open[client] += 1
                turn.set_result(None)

    def _forget(self, client: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(client, deque())
        if turn in turns:
            turns.remove(turn)
        if not turns:
            self._waiting.pop(client, None)


UNBEGUN: Final = frozenset({NotReady.__name__, IS_STOPPING})
"""The reasons of aborts before anything was sent, which a client may believe of the party that it
asked, and of no other."""


@contextmanager
def begun() -> Iterator[None]:
    """Take part in what others may have begun, too: no abort of theirs is one before that.

    A peer chooses the reason of its abort. A client that believed it would ask again, and honest
    parties that have paid for the first session, or revealed something there, would do so again.
    """
    try:
        yield
    except SessionAborted as error:
        if error.reason in UNBEGUN:
            raise SessionAborted(error.by, PEER_STOPPED, error.culprit) from error
        raise


def opening(
    role: Callable[..., Awaitable[_R]], service: str, terms: bytes, *, tolerant: bool = False
) -> Callable[..., Awaitable[_R]]:
    """Return the role of the party that opens a session: it asks all peers to join, then plays."""

    async def convene(party: Party, *given: object, **public: object) -> _R:
        request = Open(service=service, parties=tuple(party.parties), terms=terms)
        await (broadcast_to_rest if tolerant else broadcast)(party, request)
        return await role(party, *given, **public)

    return convene

"""How a failed session ends: the abort that peers are sent, and the search for the culprit.

An abort names an error's class and a culprit, never data; a party that was told already repeats
nothing. When a session's time is up, a deployed party asks all others where they stand. Each peer
answers with names, kinds, rounds and counts of messages, never with what they said. One that does
not answer is stopped, cut off or busy, and is named. Otherwise the earliest message that is missing
decides. If it is this party that misses it, its sender is named. If it is a peer, either of the two
may lie, and both are named as suspects; see `veilring.nodes.blame`.
"""

import asyncio
import sqlite3
from collections.abc import Iterable
from typing import Annotated, Final

from pydantic import Field

from veilring.errors import (
    EndpointClosed,
    InternalError,
    PeerSilent,
    SessionAborted,
    SessionTimeout,
    StoreFailed,
    VeilringError,
)
from veilring.nodes.blame import Standing, Wait, find_fault
from veilring.nodes.session import Abort, Session
from veilring.transport.identity import NAME_CHARACTERS_MAX
from veilring.transport.messages import Message

REFUSALS: Final = frozenset({"NotOffered", "OtherTerms", "WrongParties", "TooManySessions"})
"""Why a party does not join a session. It says so to the opener alone."""
# What a disk or a database raises, in our own words: a peer cannot know those of our libraries.
_STORES: Final = (OSError, sqlite3.Error, MemoryError)
# A kind of message as an error shows it; it comes from a peer.
_KIND_CHARACTERS_MAX: Final = 64
_Name = Annotated[str, Field(max_length=NAME_CHARACTERS_MAX)]
_Kind = Annotated[str, Field(max_length=_KIND_CHARACTERS_MAX, pattern=r"^[a-z0-9._-]*$")]


def public_error(error: BaseException, session: Session) -> VeilringError:
    """Return the error of the tree for whatever ended a role: a class that a peer can understand.

    Args:
        error: The error that a role raised. If it is not ours, its text is not passed on.
        session: The session of the role.
    """
    if isinstance(error, VeilringError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return SessionAborted(session.me, type(error).__name__)
    is_limit = isinstance(error, TimeoutError) and error.errno is None  # a role's own, of no system
    is_store = isinstance(error, _STORES) and not is_limit
    family = StoreFailed if is_store else InternalError
    return SessionAborted(session.me, family.__name__)


def abort_notice(session: Session, cause: VeilringError) -> Abort | None:
    """Return the abort to send to the peers of a failed session, or `None` if they know.

    Whoever aborts tells everybody, and is not repeated. A refusal is told to the opener alone,
    which passes it on. What another session of this party failed of is new to all: whoever ended
    that one is blamed here, unless it blamed somebody itself.

    Args:
        session: The failed session.
        cause: The error that ended it.
    """
    if isinstance(cause, EndpointClosed):
        return None  # a closed endpoint has said goodbye
    if not isinstance(cause, SessionAborted):
        culprit = getattr(cause, "culprit", getattr(cause, "peer", ""))
        return Abort(reason=type(cause).__name__, culprit=culprit)
    refused = cause.reason in REFUSALS and not cause.culprit
    if session.was_aborted and not refused:
        return None
    blamed = cause.culprit or (cause.by if cause.by != session.me else "")
    return Abort(reason=cause.reason, culprit=blamed)


class WhereDoYouStand(Message, kind="session.inquiry"):
    """Asks a peer where it stands in the session."""


class Stands(Message, kind="session.standing"):
    """Says where a party stands: the fields of `Standing`, in few lists, as a frame has to be.

    Attributes:
        known: Whether it knows the session at all.
        senders: The sender of each message that it waits for.
        kinds: The kind of each.
        dues: The round in which each is due, if the role says so.
        blocked: See `Standing`.
        over: See `Standing`.
        peers: The peers that the counts are of.
        sent: The number of messages sent to each of them.
        received: The number of messages received from each.
    """

    known: bool
    senders: tuple[_Name, ...] = ()
    kinds: tuple[_Kind, ...] = ()
    dues: tuple[int | None, ...] = ()
    blocked: tuple[_Name, ...] = ()
    over: bool = False
    peers: tuple[_Name, ...] = ()
    sent: tuple[int, ...] = ()
    received: tuple[int, ...] = ()


def encode_standing(standing: Standing | None) -> Stands:
    """Return a party's answer to an inquiry: its standing, or that the session is unknown."""
    if standing is None:
        return Stands(known=False)
    peers = tuple({**standing.sent, **standing.received})
    return Stands(
        known=True,
        senders=tuple(wait.sender for wait in standing.waits),
        kinds=tuple(wait.kind for wait in standing.waits),
        dues=tuple(wait.due for wait in standing.waits),
        blocked=standing.blocked,
        over=standing.over,
        peers=peers,
        sent=tuple(standing.sent.get(peer, 0) for peer in peers),
        received=tuple(standing.received.get(peer, 0) for peer in peers),
    )


class Inquiry:
    """Collects the answers of all peers of a session.

    Args:
        session: The session whose time is up.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._left = set(session.peers)
        self._standings = {session.me: session.standing()}
        self._done = asyncio.Event()

    def take(self, sender: str, answer: Stands) -> None:
        """Take an answer. Only a peer's first answer counts, and only names of parties in it."""
        if answer.known and sender in self._session.peers:
            standing = _decode_standing(sender, answer, self._session.parties)
            self._standings.setdefault(sender, standing)
        self.excuse(sender)

    def excuse(self, sender: str) -> None:
        """Take note that a peer is there, though it does not say where it stands."""
        self._left.discard(sender)
        if not self._left:
            self._done.set()

    async def all_answered(self) -> None:
        """Wait until all peers have answered."""
        await self._done.wait()

    def conclude(self, timeout: SessionTimeout, seconds: float) -> SessionTimeout:
        """Return the error of the session, completed with what the answers say of the fault.

        Args:
            timeout: The error so far.
            seconds: The time for which answers were awaited.
        """
        silent = [peer for peer in self._session.peers if peer in self._left]
        if silent:
            names, have = ", ".join(silent), "has" if len(silent) == 1 else "have"
            said = f"{names} {have} not answered for {seconds:g} s: stopped, cut off or busy"
            return PeerSilent(timeout.seconds, timeout.waiting_for, names, said)
        blame = find_fault(self._standings.values(), self._session.me)
        return SessionTimeout(timeout.seconds, timeout.waiting_for, *blame)


def _decode_standing(sender: str, answer: Stands, parties: Iterable[str]) -> Standing:
    known = frozenset(parties)
    return Standing(
        sender,
        waits=tuple(
            Wait(*wait)
            for wait in zip(answer.senders, answer.kinds, answer.dues, strict=False)
            if wait[0] in known
        ),
        blocked=tuple(peer for peer in answer.blocked if peer in known),
        over=answer.over,
        sent=dict(zip(answer.peers, answer.sent, strict=False)),
        received=dict(zip(answer.peers, answer.received, strict=False)),
    )

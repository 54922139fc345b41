"""The end of a failed session: the abort notice to peers, and the search for the culprit.

An abort names the class of an error and a culprit, never data; a party that received one does not
repeat it. When a session's time is up, a deployed party asks all others for their state. Each peer
answers with names, kinds, rounds and counts of messages, never with their content. A peer that does
not answer is stopped, cut off or busy, and is named. Otherwise the earliest missing message
decides. If this party is waiting for it, its sender is named. If a peer is, either of the two may
be lying, and both are named as suspects; see `veilring.nodes.party`.
"""

import asyncio
import sqlite3
from collections.abc import Iterable
from typing import Annotated, Final

from pydantic import Field

from veilring.errors import (
    Busy,
    Deadlock,
    EndpointClosed,
    InternalError,
    PeerSilent,
    SessionAborted,
    SessionTimeout,
    StoreFailed,
    Tampered,
    VeilringError,
)
from veilring.nodes.party import Standing, Wait, find_fault
from veilring.nodes.session import Abort, Session
from veilring.transport.identity import NAME_CHARACTERS_MAX
from veilring.transport.messages import Message

TOO_MANY_SESSIONS: Final = "TooManySessions"
"""The only reason for which a refused peer repeats its request, as it should."""
REFUSALS: Final = frozenset({"NotOffered", "OtherTerms", "WrongParties", TOO_MANY_SESSIONS})
"""The reasons for which a party refuses to join a session. Only the opener is told."""
# Reasons of which the party that gives them is the reporter, not the cause.
_BLAMELESS: Final = frozenset({Busy.__name__, SessionTimeout.__name__, Tampered.__name__})
# Errors of a disk or a database, in our own terms: a peer does not know our libraries.
_STORES: Final = (OSError, sqlite3.Error, MemoryError)
# A kind of message as shown in an error; it comes from a peer.
_KIND_CHARACTERS_MAX: Final = 64
_Name = Annotated[str, Field(max_length=NAME_CHARACTERS_MAX)]
_Kind = Annotated[str, Field(max_length=_KIND_CHARACTERS_MAX, pattern=r"^[a-z0-9._-]*$")]


def public_error(error: BaseException, session: Session) -> VeilringError:
    """Return veilring's error for any error that ended a role: a class that a peer can understand.

    Args:
        error: The error that a role raised. The text of a foreign error is not passed on.
    """
    if isinstance(error, VeilringError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return SessionAborted(session.me, "PeerStopped")
    is_limit = (
        isinstance(error, TimeoutError) and error.errno is None
    )  # an error of a custom role, unknown to any system
    is_store = isinstance(error, _STORES) and not is_limit
    family = StoreFailed if is_store else InternalError
    return SessionAborted(session.me, family.__name__)


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
        return Abort.of(type(cause).__name__, culprit)
    if cause.reason == TOO_MANY_SESSIONS:
        return Abort.of(Busy.__name__)
    refused = cause.reason in REFUSALS and not cause.culprit
    if session.was_aborted and not refused:
        return None
    is_blameless = cause.by == session.me or cause.reason in _BLAMELESS
    return Abort.of(cause.reason, cause.culprit or ("" if is_blameless else cause.by))


class StandingRequest(Message, kind="session.inquiry"):
    """Asks a peer for its state in the session."""


class StandingReport(Message, kind="session.standing"):
    """Reports a party's state: the fields of `Standing`, in few lists, because frames limit them.

    Attributes:
        known: Whether it knows the session at all.
        senders: The sender of each message that the party is waiting for.
        kinds: The kind of each of these messages.
        dues: The round in which each is due, if the role declares it.
        blocked: See `Standing`.
        over: See `Standing`.
        peers: The peers of the counts.
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


def encode_standing(standing: Standing | None) -> StandingReport:
    """Return a party's answer to an inquiry: its state, or that the session is unknown."""
    if standing is None:
        return StandingReport(known=False)
    peers = tuple({**standing.sent, **standing.received})
    return StandingReport(
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
    """Collects the answers of all peers of a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._left = set(session.peers)
        self._standings = {session.me: session.standing()}
        self._done = asyncio.Event()

    def take(self, sender: str, answer: StandingReport) -> None:
        """Accept an answer. Only a peer's first answer counts, and only names of parties in it."""
        if answer.known and sender in self._session.peers:
            standing = _decode_standing(sender, answer, self._session.parties)
            self._standings.setdefault(sender, standing)
        self.excuse(sender)

    def excuse(self, sender: str) -> None:
        """Record that a peer is present although it does not report its state."""
        self._left.discard(sender)
        if not self._left:
            self._done.set()

    async def all_answered(self) -> None:
        """Wait until all peers have answered."""
        await self._done.wait()

    def conclude(self, timeout: SessionTimeout, seconds: float) -> SessionTimeout:
        """Return the error of the session, completed with the findings."""
        silent = [peer for peer in self._session.peers if peer in self._left]
        if silent:
            names, have = ", ".join(silent), "has" if len(silent) == 1 else "have"
            said = f"{names} {have} not answered for {seconds:g} s: stopped, cut off or busy"
            return PeerSilent(timeout.seconds, timeout.waiting_for, names, said)
        blame = find_fault(self._standings.values(), self._session.me)
        return SessionTimeout(timeout.seconds, timeout.waiting_for, *blame)


def _decode_standing(sender: str, answer: StandingReport, parties: Iterable[str]) -> Standing:
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

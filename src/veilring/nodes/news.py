"""What a party that gives up tells its peers: nothing, if another has told them already."""

import asyncio
import sqlite3
from typing import Final

from veilring.errors import (
    EndpointClosed,
    InternalError,
    SessionAborted,
    StoreFailed,
    VeilringError,
)
from veilring.nodes.session import Abort, Session

REFUSALS: Final = frozenset({"NotOffered", "OtherTerms", "WrongParties", "TooManySessions"})
"""Why a party does not join a session. It says so to the opener alone."""
# What a disk or a database raises, in our own words: a peer cannot know those of our libraries.
_STORES: Final = (OSError, sqlite3.Error, MemoryError)


def named(error: BaseException, session: Session) -> VeilringError:
    """Return the error of the tree for whatever ended a role: a class that a peer can understand.

    Args:
        error: What a role raised. If it is none of ours, nothing of its text is passed on.
        session: Where.
    """
    if isinstance(error, VeilringError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return SessionAborted(session.me, type(error).__name__)
    family = StoreFailed if isinstance(error, _STORES) else InternalError
    return SessionAborted(session.me, family.__name__)


def news(session: Session, cause: VeilringError) -> Abort | None:
    """Return what the peers of a failed session have to be told, if they do not know.

    Whoever aborts tells everybody, and is not repeated. A refusal is told to the opener alone,
    which passes it on. What another session of this party failed of is new to all: whoever ended
    that one is blamed here, unless it blamed somebody itself.

    Args:
        session: What has failed.
        cause: Of what.
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

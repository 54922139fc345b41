"""What a party that gives up tells its peers: nothing, if another has told them already."""

from typing import Final

from veilring.errors import EndpointClosed, SessionAborted, VeilringError
from veilring.nodes.session import Abort, Session

__all__ = ("REFUSALS", "news")

REFUSALS: Final = frozenset({"NotOffered", "OtherTerms", "WrongParties", "TooManySessions"})
"""Why a party does not join a session. It says so to the opener alone."""


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

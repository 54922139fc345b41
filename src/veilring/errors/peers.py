"""A peer's fault: it sent what an honest party never sends, or is not whom we know."""

from typing import Final

from veilring.errors.root import TransportError, VeilringError

__all__ = ("FrameError", "HandshakeError", "ProtocolViolation", "Tampered")


# A ring of a thousand would fill a screen with names.
_SUSPECTS_SHOWN: Final = 8


class FrameError(TransportError):
    """Raised when bytes are not a frame or message that we understand, or are too large."""


class HandshakeError(TransportError):
    """Raised when a connection was refused, by us or by the other side, before any message passed.

    Attributes:
        peer: The roster name if known, else the network address.
        reason: What was wrong, for a person.
    """

    def __init__(self, peer: str, reason: str) -> None:
        self.peer, self.reason = peer, reason
        super().__init__(peer, reason)

    def __str__(self) -> str:
        return f"no connection with {self.peer}: {self.reason}"


class ProtocolViolation(VeilringError):
    """Raised when a peer sent what an honest party never sends.

    Attributes:
        culprit: The authenticated roster name of the peer.
        reason: What it did.
    """

    def __init__(self, culprit: str, reason: str) -> None:
        self.culprit, self.reason = culprit, reason
        super().__init__(culprit, reason)

    def __str__(self) -> str:
        return f"{self.culprit} broke the protocol: {self.reason}"


class Tampered(VeilringError):
    """Raised when one of several peers broke the protocol, and the party cannot know which.

    Attributes:
        suspects: Those among whom the culprit is, at least two; the others had no part in it.
        reason: What one of them did.
    """

    def __init__(self, suspects: tuple[str, ...], reason: str) -> None:
        self.suspects, self.reason = suspects, reason
        super().__init__(suspects, reason)

    def __str__(self) -> str:
        shown = ", ".join(self.suspects[:_SUSPECTS_SHOWN])
        more = ", …" if len(self.suspects) > _SUSPECTS_SHOWN else ""
        return f"one of {len(self.suspects)} ({shown}{more}) broke the protocol: {self.reason}"

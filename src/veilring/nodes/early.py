"""Frames that came before their session was opened here."""

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Final

from veilring.errors import ProtocolViolation
from veilring.transport.messages import Envelope

__all__ = ("EARLY_BYTES_MAX", "EARLY_FRAMES_MAX", "EarlyFrames")

# A session's first frames arrive early when the one who opened it told another party first. That is
# a handful a session; a thousand from one peer is an attack on our memory.
EARLY_FRAMES_MAX: Final = 1024
# Eight of the largest frames: one can be the queries of a batch.
EARLY_BYTES_MAX: Final = 8 << 20


class EarlyFrames:
    """Keeps what each peer has sent too early, within limits, until its session is opened."""

    def __init__(self) -> None:
        self._frames: defaultdict[str, deque[tuple[Envelope, bytes]]] = defaultdict(deque)
        self._bytes: defaultdict[str, int] = defaultdict(int)

    def keep(self, sender: str, envelope: Envelope, frame: bytes) -> None:
        """Keep a frame.

        Raises:
            ProtocolViolation: If the peer has sent too much; all that it sent is forgotten.
        """
        frames = self._frames[sender]
        self._bytes[sender] += len(frame)
        if len(frames) >= EARLY_FRAMES_MAX or self._bytes[sender] > EARLY_BYTES_MAX:
            self.forget(sender)
            raise ProtocolViolation(sender, "fills sessions that nobody has opened")
        frames.append((envelope, frame))

    def take(self, session: bytes) -> Iterator[tuple[str, Envelope, bytes]]:
        """Give what has come for a session, each sender's frames in order, and keep the rest."""
        for sender, frames in list(self._frames.items()):
            self.forget(sender)
            for envelope, frame in frames:
                if envelope.session == session:
                    yield sender, envelope, frame
                else:
                    self.keep(sender, envelope, frame)

    def forget(self, sender: str) -> None:
        """Forget all that a peer has sent."""
        self._frames.pop(sender, None)
        self._bytes.pop(sender, None)

"""Frames that came before their session was opened here."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from veilring.errors import ProtocolViolation
from veilring.transport.pacing import loop_time

__all__ = (
    "EARLY_BYTES_MAX",
    "EARLY_FRAMES_MAX",
    "EARLY_SECONDS",
    "EARLY_TOTAL_BYTES_MAX",
    "EarlyFrames",
)

# A session's first frames arrive early when the one who opened it told another party first. That is
# a handful a session; a thousand from one peer is an attack on our memory.
EARLY_FRAMES_MAX: Final = 1024
# Eight of the largest frames: one can be the queries of a batch.
EARLY_BYTES_MAX: Final = 8 << 20
# The same of all peers together: four that fill our memory hand in hand get no further.
EARLY_TOTAL_BYTES_MAX: Final = 32 << 20
# A session that was not opened here two minutes after its first frame has failed at its sender. Its
# frames are no attack, and may not add up to one.
EARLY_SECONDS: Final = 120.0


class _Early(NamedTuple):
    """What has come for one session."""

    since: float
    frames: list[tuple[str, bytes]]


class EarlyFrames:
    """Keeps what peers have sent too early, as bytes, within limits, until its session is opened.

    Args:
        clock: The time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = loop_time) -> None:
        self._clock = clock
        self._sessions: dict[bytes, _Early] = {}  # the oldest first
        self._count: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def keep(self, sender: str, session: bytes, frame: bytes) -> None:
        """Keep a frame.

        Raises:
            ProtocolViolation: If a peer, most often this one, has sent too much; all that it sent
                is forgotten.
        """
        self._forget_old()
        early = self._sessions.setdefault(session, _Early(self._clock(), []))
        early.frames.append((sender, frame))
        self._count[sender] += 1
        self._bytes[sender] += len(frame)
        if self._count[sender] > EARLY_FRAMES_MAX or self._bytes[sender] > EARLY_BYTES_MAX:
            self._reject(sender)
        if self._bytes.total() > EARLY_TOTAL_BYTES_MAX:
            self._reject(max(self._bytes, key=self._bytes.__getitem__))

    def take(self, session: bytes) -> Iterator[tuple[str, bytes]]:
        """Give what has come for a session, each sender's frames in order, and keep the rest."""
        if session in self._sessions:
            for sender, frame in self._sessions.pop(session).frames:
                self._discount(sender, frame)
                yield sender, frame

    def drop(self, session: bytes) -> None:
        """Forget what has come for a session that is not joined here."""
        for _ in self.take(session):
            pass

    def forget(self, sender: str) -> None:
        """Forget all that a peer has sent."""
        if not self._count.pop(sender, 0):
            return
        del self._bytes[sender]
        for session, early in list(self._sessions.items()):
            early.frames[:] = [each for each in early.frames if each[0] != sender]
            if not early.frames:
                del self._sessions[session]

    def _reject(self, sender: str) -> None:
        self.forget(sender)
        raise ProtocolViolation(sender, "fills sessions that nobody has opened")

    def _discount(self, sender: str, frame: bytes) -> None:
        self._count[sender] -= 1
        self._bytes[sender] -= len(frame)
        if not self._count[sender]:
            del self._count[sender], self._bytes[sender]

    def _forget_old(self) -> None:
        horizon = self._clock() - EARLY_SECONDS
        while self._sessions:
            session = next(iter(self._sessions))
            if self._sessions[session].since > horizon:
                return
            self.drop(session)

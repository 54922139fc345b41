"""Frames that came before their session was opened here."""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from veilring.errors import ProtocolViolation
from veilring.transport.pacing import SparingLog, loop_time

# A session's first frames arrive early when the one who opened it told another party first. That is
# a handful a session; a thousand from one peer is an attack on our memory.
EARLY_FRAMES_MAX: Final = 1024
# Eight of the largest frames: one can be the queries of a batch.
EARLY_BYTES_MAX: Final = 8 << 20
# The limit in bytes for all peers together, so that colluding peers gain nothing.
EARLY_TOTAL_BYTES_MAX: Final = 32 << 20
# A session that was not opened here two minutes after its first frame has failed at its sender. Its
# frames are no attack, and may not add up to one.
EARLY_SECONDS: Final = 120.0


DROPPED: Final = b""
"""Stands for all frames of a peer in a session that there was no room for. No frame is empty."""

_log = logging.getLogger("veilring.node")


@dataclass(slots=True)
class _Session:
    """What one peer has sent for one session."""

    since: float
    frames: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class _Peer:
    """What one peer has sent: its sessions, the oldest first."""

    sessions: dict[bytes, _Session] = field(default_factory=dict)
    frame_count: int = 0
    byte_count: int = 0

    def add(self, session: bytes, frame: bytes, now: float) -> None:
        kept = self.sessions.setdefault(session, _Session(now))
        if kept.frames != [DROPPED]:  # a later frame without those before it would be misread
            kept.frames.append(frame)
            self.frame_count += 1
            self.byte_count += len(frame)

    def pop(self, session: bytes) -> list[bytes]:
        kept = self.sessions.pop(session, None)
        if kept is None:
            return []
        self.frame_count -= len(kept.frames)
        self.byte_count -= sum(map(len, kept.frames))
        return kept.frames

    def forget_before(self, horizon: float) -> None:
        while self.sessions:
            session, kept = next(iter(self.sessions.items()))
            if kept.since > horizon:
                return
            self.pop(session)

    def make_room(self) -> None:
        """Drop what was sent for the oldest session of which there is anything left."""
        session = next(name for name, kept in self.sessions.items() if kept.frames != [DROPPED])
        kept = self.sessions[session]
        self.frame_count -= len(kept.frames) - 1
        self.byte_count -= sum(map(len, kept.frames))
        kept.frames[:] = [DROPPED]


class EarlyFrames:
    """Keeps what peers have sent too early, as bytes, within limits, until its session is opened.

    Args:
        clock: The time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = loop_time) -> None:
        self._clock = clock
        self._peers: defaultdict[str, _Peer] = defaultdict(_Peer)
        self._lines = SparingLog(_log, clock)

    def keep(self, sender: str, session: bytes, frame: bytes) -> None:
        """Keep a frame.

        If all peers together have sent too much, nobody is at fault: some may be honest, and each
        has kept within its limits. The oldest frames of the peer that has sent most are dropped.

        Raises:
            ProtocolViolation: If this peer has sent too much; all that it sent is forgotten.
        """
        now = self._clock()
        peer = self._peers[sender]
        peer.forget_before(now - EARLY_SECONDS)
        peer.add(session, frame, now)
        if peer.frame_count > EARLY_FRAMES_MAX or peer.byte_count > EARLY_BYTES_MAX:
            self.forget(sender)
            raise ProtocolViolation(sender, "fills sessions that nobody has opened")
        if self._total() > EARLY_TOTAL_BYTES_MAX:
            self._make_room(now - EARLY_SECONDS)

    def take(self, session: bytes) -> Iterator[tuple[str, bytes]]:
        """Give what has come for a session, each sender's frames in order, and keep the rest.

        Of a sender whose frames were dropped it gives `DROPPED` alone.
        """
        for sender, peer in list(self._peers.items()):
            for frame in peer.pop(session):
                yield sender, frame
            if not peer.sessions:
                self.forget(sender)

    def drop(self, session: bytes) -> None:
        """Forget what has come for a session that is not joined here."""
        for _ in self.take(session):
            pass

    def forget(self, sender: str) -> None:
        """Forget all that a peer has sent."""
        self._peers.pop(sender, None)

    def _total(self) -> int:
        return sum(peer.byte_count for peer in self._peers.values())

    def _make_room(self, horizon: float) -> None:
        for peer in self._peers.values():
            peer.forget_before(horizon)
        while self._total() > EARLY_TOTAL_BYTES_MAX:
            sender = max(self._peers, key=lambda name: self._peers[name].byte_count)
            self._peers[sender].make_room()
            line = "dropped frames of %s, sent before their session was opened: no room for all"
            self._lines.say(logging.WARNING, sender, "no room", line, sender)

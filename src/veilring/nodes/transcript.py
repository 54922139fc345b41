"""Records of a session's channel: events, hashes of transcripts, and a party's view as data."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from veilring.errors import ClusterError
from veilring.transport.frames import prefix
from veilring.transport.messages import Message

SETUP_ROUND: Final = 0
"""The round of messages before a role's first `round(n)`, which are set-up and counted
separately."""


class Event(NamedTuple):
    """A message that a party sent, or that its role took out of the channel."""

    sent: bool
    party: str
    peer: str
    round: int
    """The round of the party."""
    message: Message
    frame: bytes
    """The body as it crossed the wire."""


Observer = Callable[[Event], None]
"""Called with each message that passes a channel; must not change anything."""


Channel = tuple[str, str]

# Hashing a hundred bytes costs mostly the call: small frames are collected.
_HASHED_AT_ONCE_BYTES: Final = 4096


@dataclass(slots=True)
class Transcript:
    """An observer that hashes each channel of one party, outgoing and incoming.

    The hash of a channel is SHA-256 over its frames in order, each with its length. Both ends of a
    channel compute it independently.
    """

    party: str
    _sent: dict[str, "_Running"] = field(default_factory=dict)
    _received: dict[str, "_Running"] = field(default_factory=dict)

    def __call__(self, event: Event) -> None:
        """Add a message to the hash of its channel."""
        channels = self._sent if event.sent else self._received
        running = channels.get(event.peer)
        if running is None:
            running = channels[event.peer] = _Running()
        running.add(event.frame)

    def digests(self) -> dict[Channel, str]:
        """Return the hash of each channel, by (sender, receiver)."""
        sent = {(self.party, peer): running.digest() for peer, running in self._sent.items()}
        received = {(peer, self.party): r.digest() for peer, r in self._received.items()}
        return sent | received


class _Running:
    """The hash of one channel so far."""

    __slots__ = ("_hash", "_waiting")

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._waiting = bytearray()

    def add(self, frame: bytes) -> None:
        self._waiting += prefix(frame)
        self._waiting += frame
        if len(self._waiting) >= _HASHED_AT_ONCE_BYTES:
            self._hash.update(self._waiting)
            self._waiting.clear()

    def digest(self) -> str:
        whole = self._hash.copy()
        whole.update(self._waiting)
        return whole.hexdigest()


def join_transcripts(parts: Iterable[Mapping[Channel, str]]) -> dict[Channel, str]:
    """Join the hashes of all parties, and compare the two ends of each channel.

    Raises:
        ClusterError: If the two ends of a channel disagree on its messages.
    """
    joined: dict[Channel, str] = {}
    for part in parts:
        for channel, digest in part.items():
            if joined.setdefault(channel, digest) != digest:
                sender, receiver = channel
                raise ClusterError(
                    f"{sender} and {receiver} disagree on the messages that {sender} sent"
                )
    return dict(sorted(joined.items()))


def transcript_hash(channels: Mapping[Channel, str]) -> str:
    """Return one hash over the hashes of all channels."""
    lines = (f"{sender}\n{receiver}\n{d}\n" for (sender, receiver), d in sorted(channels.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


class Seen(NamedTuple):
    """One message of a view."""

    round: int
    sender: str
    message: Message


@dataclass(slots=True)
class View:
    """The view of a party, kept by an observer: everything a semi-honest adversary there learns.

    Attributes:
        party: The name of the party.
        received: The messages that the party received, in order.
        sent: The messages that it sent, each with its receiver instead of the sender.
    """

    party: str
    received: list[Seen] = field(default_factory=list)
    sent: list[Seen] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        """Keep a message."""
        kept = self.sent if event.sent else self.received
        kept.append(Seen(event.round, event.peer, event.message))

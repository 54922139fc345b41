"""What was said on each channel, as a hash, and what a party saw, as data."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from veilring.errors import ClusterError
from veilring.measure.events import Event
from veilring.transport.frames import on_stream
from veilring.transport.messages import Message

__all__ = ("Seen", "Transcript", "View", "join_transcripts", "transcript_hash")

Channel = tuple[str, str]


@dataclass(slots=True)
class Transcript:
    """A tap that hashes each channel of one party, outgoing and incoming.

    The hash of a channel is SHA-256 over its frames in order, each with its length. Both ends of a
    channel compute it on their own.
    """

    _hashes: dict[Channel, "hashlib._Hash"] = field(default_factory=dict)

    def __call__(self, event: Event) -> None:
        """Add a message to the hash of its channel."""
        channel = (event.party, event.peer) if event.sent else (event.peer, event.party)
        running = self._hashes.get(channel)
        if running is None:
            running = self._hashes[channel] = hashlib.sha256()
        running.update(on_stream(event.frame))

    def digests(self) -> dict[Channel, str]:
        """Return the hash of each channel, by (sender, receiver)."""
        return {channel: running.hexdigest() for channel, running in self._hashes.items()}


def join_transcripts(parts: Iterable[Mapping[Channel, str]]) -> dict[Channel, str]:
    """Join what all parties hashed, and hold the two ends of each channel against each other.

    Raises:
        ClusterError: If two ends of a channel disagree on what passed it.
    """
    joined: dict[Channel, str] = {}
    for part in parts:
        for channel, digest in part.items():
            if joined.setdefault(channel, digest) != digest:
                sender, receiver = channel
                raise ClusterError(f"{sender} and {receiver} disagree on what {sender} sent")
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
    """A tap that keeps all that a party saw: what a semi-honest adversary at that party learns.

    Attributes:
        party: Whose view it is.
        received: The messages that the party received, in order.
        sent: The messages that it sent, with their receivers in place of the sender.
    """

    party: str
    received: list[Seen] = field(default_factory=list)
    sent: list[Seen] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        """Keep a message."""
        kept = self.sent if event.sent else self.received
        kept.append(Seen(event.round, event.peer, event.message))

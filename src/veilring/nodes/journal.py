"""The journal of a run: its trace, its transcript, the view of a party, and the cost.

A trace has the messages and events of a run with their times, never content. A transcript is a hash
of a session's channel. A view is everything that one party sent and received. The cost counts
messages, bytes and rounds, by party, by round and by kind of message.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from veilring.errors import ClusterError
from veilring.transport.frames import frame_size, prefix
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
    """Join the hashes of all parties, and compare the two ends of each channel."""
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
        sent: The messages that it sent, each with its receiver instead of the sender.
    """

    party: str
    received: list[Seen] = field(default_factory=list)
    sent: list[Seen] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        """Keep a message."""
        kept = self.sent if event.sent else self.received
        kept.append(Seen(event.round, event.peer, event.message))


class Traffic(NamedTuple):
    """Messages and the bytes of their frames, prefix included, equal on every transport."""

    messages: int = 0
    bytes: int = 0

    def plus(self, other: "Traffic") -> "Traffic":
        """Return the sum of two traffics."""
        return Traffic(self.messages + other.messages, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a run. `messages`, `bytes` and `rounds` are the protocol's; `setup` is separate.

    Rounds are communication rounds: a message of round r depends only on messages of earlier
    rounds, so with a latency of L between all parties a run takes rounds · L.
    """

    by_round: dict[int, Traffic]
    by_party: dict[str, Traffic]
    by_kind: dict[str, Traffic]
    setup: Traffic

    @property
    def messages(self) -> int:
        """Messages of the protocol, without its set-up."""
        return sum(traffic.messages for traffic in self.by_round.values())

    @property
    def bytes(self) -> int:
        """Bytes of the protocol's frames, without its set-up."""
        return sum(traffic.bytes for traffic in self.by_round.values())

    @property
    def rounds(self) -> int:
        """Communication rounds of the protocol, without its set-up."""
        return max(self.by_round, default=SETUP_ROUND)


@dataclass(slots=True)
class Meter:
    """An observer that counts the messages of one party; picklable, for use in processes."""

    party: str
    sent: dict[tuple[int, str], list[int]] = field(default_factory=dict)
    """Messages and bytes, by round and kind."""

    def __call__(self, event: Event) -> None:
        """Count an event if its message was sent by this party."""
        if event.sent:
            traffic = self.sent.setdefault((event.round, event.message.kind), [0, 0])
            traffic[0] += 1
            traffic[1] += frame_size(event.frame)


def total_cost(meters: Iterable[Meter]) -> Cost:
    """Add up the messages of all parties; each is counted once, at its sender."""
    by_round: dict[int, Traffic] = {}
    by_party: dict[str, Traffic] = {}
    by_kind: dict[str, Traffic] = {}
    for meter in meters:
        by_party.setdefault(meter.party, Traffic())
        for (number, kind), sent in sorted(meter.sent.items()):
            traffic = Traffic(*sent)
            by_round[number] = by_round.get(number, Traffic()).plus(traffic)
            if number != SETUP_ROUND:
                by_party[meter.party] = by_party[meter.party].plus(traffic)
                by_kind[kind] = by_kind.get(kind, Traffic()).plus(traffic)
    setup = by_round.pop(SETUP_ROUND, Traffic())
    return Cost(dict(sorted(by_round.items())), by_party, by_kind, setup)


class Passed(NamedTuple):
    """A message at one end of its channel."""

    seconds: float
    """The time at which the party's role sent it, or took it out of the channel."""
    sent: bool
    peer: str
    round: int
    """The round of the party."""
    kind: str
    bytes: int
    """The size of its frame, prefix included."""
    number: int
    """Its number among all messages of the channel in this direction, from 0."""


class TracedMessage(NamedTuple):
    """A message from end to end. Seconds count from the start of the journal."""

    sender: str
    receiver: str
    sent_seconds: float | None
    """`None` if the sender's record is lost: its process died."""
    received_seconds: float | None
    """`None` if the receiver's role never took it out of the channel, or its record is lost."""
    round: int
    """The round of its sender, or of the receiver if the sender's record is lost."""
    kind: str
    bytes: int
    """The size of its frame, prefix included."""
    number: int
    """Its number among all messages from the sender to the receiver in this session, from 0."""
    session: str
    """The public name of the session, in hexadecimal digits."""

    @property
    def seconds(self) -> float:
        """The time when it was first seen at either end."""
        return min(s for s in (self.sent_seconds, self.received_seconds) if s is not None)


class Mark(NamedTuple):
    """An event at a party.

    Text before a colon is the kind of event, as in `lost: it crashed`. Marks of the kinds
    `adversary` and `coalition` mean that the party is corrupted.
    """

    seconds: float
    party: str
    what: str
    until: float | None = None
    """The end of a fault; `None` if it never ended, and for marks without a duration."""
    waits: tuple[str, ...] = ()
    """The messages that the party awaited when its role ended, such as `ring.commit from bob`."""

    @property
    def kind(self) -> str:
        """The text before the first colon, or the whole text."""
        return self.what.partition(":")[0]


@dataclass(slots=True)
class Trace:
    """The messages that passed one party's channels in one session; picklable.

    Args:
        since: The origin of times, in seconds on the party's clock.
    """

    party: str
    session: str
    since: float
    passed: list[Passed] = field(default_factory=list)

    def observer(self, clock: Callable[[], float]) -> Observer:
        """Return an observer that records messages, with a clock in seconds."""
        numbers: Counter[tuple[bool, str]] = Counter()
        record, since = self.passed.append, self.since

        def observe(event: Event) -> None:
            sent, peer, kind = event.sent, event.peer, event.message.kind
            number, size = numbers[sent, peer], frame_size(event.frame)
            numbers[sent, peer] = number + 1
            record(Passed(clock() - since, sent, peer, event.round, kind, size, number))

        return observe


@dataclass(slots=True)
class Journal:
    """The events of one run or of several, sequential or concurrent.

    It is filled even if a run fails.

    Attributes:
        messages: All messages, those of a run in order of time.
        marks: The events at parties. Callers may add their own.
        origin: The origin of times, in seconds on the clock of the runs; by default the start of
            the first run.
    """

    messages: list[TracedMessage] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    origin: float | None = None

    def start(self, now: float) -> float:
        """Return the origin of times: now, if nothing was run before."""
        if self.origin is None:
            self.origin = now
        return self.origin

    def note(self, states: Iterable[Mark]) -> None:
        """Add marks of lasting states, each once per party."""
        known = {(mark.party, mark.what) for mark in self.marks}
        self.marks += [mark for mark in states if (mark.party, mark.what) not in known]

    def add(self, traces: Iterable[Trace], faults: Iterable[Mark] = ()) -> None:
        """Add the events of one run.

        Args:
            faults: The faults so far, in seconds on the clock of the runs. Those added before are
                skipped.
        """
        self.messages += join_traces(traces)
        for fault in faults:
            origin = self.origin or 0.0
            until = None if fault.until is None else fault.until - origin
            mark = fault._replace(seconds=fault.seconds - origin, until=until)
            if mark not in self.marks:
                self.marks.append(mark)


def join_traces(traces: Iterable[Trace]) -> list[TracedMessage]:
    """Join the traces of all parties into one table of messages, in order of time.

    Records of the two ends belong together if number, kind and size agree. A message that was
    changed or dropped on the way may have two rows: one that was never received, and one without a
    known sending.
    """
    joined: dict[tuple[object, ...], TracedMessage] = {}
    for trace in traces:
        for end in trace.passed:
            ends = (trace.party, end.peer) if end.sent else (end.peer, trace.party)
            facts = (end.kind, end.bytes, end.number, trace.session)
            known = joined.get((ends, facts)) or TracedMessage(
                *ends, None, None, end.round, end.kind, end.bytes, end.number, trace.session
            )
            joined[ends, facts] = (
                known._replace(sent_seconds=end.seconds, round=end.round)
                if end.sent
                else known._replace(received_seconds=end.seconds)
            )
    return sorted(joined.values(), key=_in_time)


def _in_time(message: TracedMessage) -> tuple[object, ...]:
    ends = (message.session, message.sender, message.receiver)
    return message.seconds, *ends, message.number, message.sent_seconds is None

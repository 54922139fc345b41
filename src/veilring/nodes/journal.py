"""The journal of a run: its trace, its transcript, the view of a party, and the cost.

A trace has the messages and events of a run with their times, never content. A transcript is a hash
of a session's channel. A view is everything that one party sent and received. The cost counts
messages, bytes and rounds, by party, by round and by kind of message.
"""

import hashlib
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

from veilring.errors import ClusterError
from veilring.transport.frames import as_stream, frame_size
from veilring.transport.messages import Message

_K = TypeVar("_K", bound=Hashable)
SETUP_ROUND: Final = 0
"""The round of messages before a role's first `round(n)`, which are set-up and counted
separately."""


Channel = tuple[str, str]
"""The sender and the receiver of messages."""
Observer = Callable[[Channel, int, Message, bytes], None]
"""Called with each message that a party sent, or that its role took out of the channel.

The arguments are the channel, the round of this party, the message, and its frame: the body as it
crossed the wire. An observer must not change anything.
"""

# Hashing a hundred bytes costs mostly the call: this many frames are collected, if they are small.
_HASHED_AT_ONCE: Final = 32
_SMALL_BYTES: Final = 256


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

    def __call__(self, channel: Channel, number: int, message: Message, _frame: bytes) -> None:
        """Keep a message."""
        sender, receiver = channel
        if sender == self.party:
            self.sent.append(Seen(number, receiver, message))
        else:
            self.received.append(Seen(number, sender, message))


class Traffic(NamedTuple):
    """Messages and the bytes of their frames, prefix included, equal on every transport."""

    messages: int = 0
    bytes: int = 0

    def plus(self, other: "Traffic") -> "Traffic":
        """Return the sum of two traffics."""
        return Traffic(self.messages + other.messages, self.bytes + other.bytes)


class Link(NamedTuple):
    """A message of a chain: before its sender sent it, its role had received the one before."""

    sender: str
    receiver: str
    round: int
    """The round of the sender."""
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} from {self.sender} to {self.receiver} in round {self.round}"


@dataclass(frozen=True)
class Cost:
    """The cost of a run. `messages`, `bytes` and `rounds` are the protocol's; `setup` is separate.

    Everything that was sent counts, also by parties that were lost. If the record of a party is
    lost with its process, the messages that others received from it count.

    Rounds are communication rounds, as the role declares them: a message of round r depends only on
    messages of earlier rounds. With a latency of L between all parties, a run takes rounds · L. The
    depth is their number as measured: the length of the longest chain of messages in which each
    depends on the one before.

    Attributes:
        by_party: The traffic that each party sent.
        received: The traffic that each party's role received.
        lost: The traffic that was sent and that no role is known to have received.
        is_concurrent: Whether several tasks of one party sent messages.
    """

    by_round: dict[int, Traffic]
    by_party: dict[str, Traffic]
    by_kind: dict[str, Traffic]
    setup: Traffic
    received: dict[str, Traffic]
    lost: Traffic
    is_concurrent: bool = field(default=False, compare=False)
    meters: tuple["Meter", ...] = field(default=(), repr=False, compare=False)

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
        """Communication rounds of the protocol as declared, without its set-up."""
        return max(self.by_round, default=SETUP_ROUND)

    @property
    def depth(self) -> int:
        """Communication rounds of the protocol as measured, without its set-up."""
        return len(self.chain)

    @property
    def rounds_taken(self) -> int:
        """The depth, or the declared rounds if several tasks of a party make it too large."""
        return self.rounds if self.is_concurrent else self.depth

    @cached_property
    def chain(self) -> tuple[Link, ...]:
        """A longest chain of the protocol's messages."""
        return longest_chain(self.meters)

    @property
    def rounds_differ(self) -> str:
        """How the declared rounds differ from the depth, in a sentence; empty if they are equal.

        It is empty as well if several tasks of one party sent messages: they have one order, in
        which a message seems to depend on others that merely came before it.
        """
        if self.is_concurrent:
            return ""
        said = f"rounds: {self.rounds:,} declared, {self.depth:,} measured"
        if self.depth > self.rounds:
            before, after = next(pair for pair in pairwise(self.chain) if _stays(*pair))
            return f"{said}; {after} was sent after {before} was received"
        if self.depth < self.rounds:
            links = {link.round for link in self.chain}
            number = next(n for n in range(1, self.rounds + 1) if n not in links)
            return f"{said}; no message of round {number} is in the longest chain of messages"
        return ""

    @cached_property
    def setup_depth(self) -> int:
        """Communication rounds that the set-up adds, as measured."""
        return len(longest_chain(self.meters, setup=True)) - self.depth


def _stays(before: Link, after: Link) -> bool:
    return after.round <= before.round


_End = tuple[Channel, int, str]
"""One end of a message: its channel, the round of the party at this end, and its kind."""


@dataclass(slots=True)
class Meter:
    """An observer that counts the messages of one party, and keeps their order; picklable."""

    party: str
    _alike: dict[tuple[_End, int], int] = field(default_factory=dict)
    """The number of each distinct end with a size of its frame, prefix included."""
    order: "array[int]" = field(default_factory=partial(array, "I"))
    """That number for each message."""

    def __call__(self, channel: Channel, number: int, message: Message, frame: bytes) -> None:
        """Count a message."""
        self.order.append(self.alike(channel, number, message.kind, frame_size(frame)))

    def alike(self, channel: Channel, number: int, kind: str, size: int) -> int:
        """Return the number of the messages with this end and this size."""
        return self._alike.setdefault(((channel, number, kind), size), len(self._alike))

    def totals(self) -> Iterator[tuple[_End, int, int]]:
        """Yield each end, with the number of its messages of one size, and their bytes."""
        counts = Counter(self.order)
        for (end, size), number in self._alike.items():
            yield end, counts[number], counts[number] * size

    def passed(self) -> list[_End]:
        """Return the ends of all messages in order."""
        ends = [end for end, _ in self._alike]
        return [ends[number] for number in self.order]

    def last_sent(self, counts: dict[str, int]) -> Iterator[tuple[str, int]]:
        """Yield the receiver and the size of the protocol's messages among the last to some peers.

        Args:
            counts: The number of last messages to each of them.
        """
        left, alike = dict(counts), list(self._alike)
        for ((sender, receiver), number, _), size in map(alike.__getitem__, reversed(self.order)):
            if sender == self.party and left.get(receiver, 0) > 0:
                left[receiver] -= 1
                if number != SETUP_ROUND:
                    yield receiver, size


class Record:
    """An observer that counts the messages of one party and hashes its channels, both ways.

    The hash of a channel is SHA-256 over its frames in order, each with its length. Both ends of a
    channel compute it independently.

    Attributes:
        meter: The count.
    """

    __slots__ = ("_channels", "_order", "meter")

    def __init__(self, party: str) -> None:
        self.meter = Meter(party)
        self._order = self.meter.order
        self._channels: dict[Channel, _Passing] = {}

    def __call__(self, channel: Channel, number: int, message: Message, frame: bytes) -> None:
        """Count a message, and add it to the hash of its channel."""
        passing = self._channels.get(channel) or self._channels.setdefault(channel, _Passing())
        size, of = len(frame), type(message)
        if size != passing.size or number != passing.round or of is not passing.type:
            passing.size, passing.round, passing.type = size, number, of
            passing.alike = self.meter.alike(channel, number, of.kind, frame_size(frame))
        self._order.append(passing.alike)
        waiting = passing.waiting
        waiting.append(frame)
        if size > _SMALL_BYTES or len(waiting) == _HASHED_AT_ONCE:
            passing.hashed()

    def digests(self) -> dict[Channel, str]:
        """Return the hash of each channel, its own first."""
        party = self.meter.party
        own_first = sorted(self._channels, key=lambda channel: channel[0] != party)
        return {channel: self._channels[channel].hashed().hexdigest() for channel in own_first}


class _Passing:
    """A channel in a record: its hash, the frames that this lacks, and facts of the latest one."""

    __slots__ = ("alike", "hash", "round", "size", "type", "waiting")

    def __init__(self) -> None:
        self.waiting: list[bytes] = []
        self.hash: hashlib._Hash | None = None  # most channels pass a few small frames
        self.type, self.round, self.size, self.alike = Message, SETUP_ROUND, 0, 0

    def hashed(self) -> "hashlib._Hash":
        self.hash = self.hash or hashlib.sha256()
        self.hash.update(as_stream(self.waiting))
        self.waiting.clear()
        return self.hash


class _Totals(defaultdict[_K, list[int]]):
    """Messages and bytes by a key."""

    def __init__(self, keys: Iterable[_K] = ()) -> None:
        super().__init__(lambda: [0, 0], {key: [0, 0] for key in keys})

    def add(self, key: _K, messages: int, size: int) -> None:
        total = self[key]
        total[0] += messages
        total[1] += size

    def traffic(self) -> dict[_K, Traffic]:
        return {key: Traffic(*total) for key, total in self.items()}


def total_cost(meters: Iterable[Meter], *, is_concurrent: bool = False) -> Cost:
    """Add up the messages of all parties; each is counted once, at its sender if that is known.

    Args:
        is_concurrent: Whether several tasks of one party sent messages.
    """
    kept = {meter.party: meter for meter in meters}
    by_round, by_kind = _Totals[int](), _Totals[str]()
    by_party, received = _Totals(kept), _Totals(kept)
    under_way: Counter[Channel] = Counter()
    for meter in kept.values():
        for (channel, number, kind), messages, size in meter.totals():
            sender, receiver = channel
            under_way[channel] += messages if sender == meter.party else -messages
            if sender != meter.party and sender in kept:
                continue
            by_round.add(number, messages, size)
            by_party.add(sender, 0, 0)
            if number != SETUP_ROUND:
                by_party.add(sender, messages, size)
                by_kind.add(kind, messages, size)
                received.add(receiver, messages, size)
    missing: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for (sender, receiver), count in under_way.items():
        if count > 0:
            missing[sender][receiver] = count
    lost = [each for sender in missing for each in kept[sender].last_sent(missing[sender])]
    for receiver, size in lost:
        received.add(receiver, -1, -size)
    rounds = dict(sorted(by_round.traffic().items()))
    setup = rounds.pop(SETUP_ROUND, Traffic())
    return Cost(
        rounds,
        by_party.traffic(),
        by_kind.traffic(),
        setup,
        received.traffic(),
        Traffic(len(lost), sum(size for _, size in lost)),
        is_concurrent,
        tuple(kept.values()),
    )


class _Chain(NamedTuple):
    length: int = 0
    last: Link | None = None
    before: "_Chain | None" = None


def longest_chain(meters: Iterable[Meter], *, setup: bool = False) -> tuple[Link, ...]:
    """Return a longest chain of messages in which each depends on the one before.

    A message depends on every message that its sender's role received before it (Lamport, "Time,
    clocks, and the ordering of events in a distributed system", 1978). This replays the order of
    messages at each party afterwards, so no message carries a counter. A role that plays several
    tasks at once has one order, too: links of equal latency give the right one.

    Args:
        setup: Whether to count the messages of the set-up as well as the protocol's.
    """
    steps = {meter.party: meter.passed() for meter in meters}
    places = dict.fromkeys(steps, 0)
    reached = dict.fromkeys(steps, _Chain())
    sent = (end[0] for who, ends in steps.items() for end in ends if end[0][0] == who)
    to_come = Counter(sent)
    wires: defaultdict[Channel, deque[_Chain]] = defaultdict(deque)
    waiting: set[Channel] = set()
    ready, longest = deque(steps), _Chain()
    while ready:
        party = ready.popleft()
        for place in range(places[party], len(steps[party])):
            channel, number, kind = steps[party][place]
            sender, receiver = channel
            if sender == party:
                chain = reached[party]
                if setup or number != SETUP_ROUND:
                    chain = _Chain(chain.length + 1, Link(sender, receiver, number, kind), chain)
                    longest = max(longest, chain, key=_length)
                wires[channel].append(chain)
                to_come[channel] -= 1
                if channel in waiting:
                    waiting.remove(channel)
                    ready.append(receiver)
            elif wires[channel]:
                reached[party] = max(reached[party], wires[channel].popleft(), key=_length)
            elif to_come[channel]:
                waiting.add(channel)
                break
            places[party] += 1  # a message whose sender kept no record tells nothing
    return tuple(_links(longest))[::-1]


def _length(chain: _Chain) -> int:
    return chain.length


def _links(chain: _Chain) -> Iterator[Link]:
    while chain.last is not None and chain.before is not None:
        yield chain.last
        chain = chain.before


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
        numbers: Counter[Channel] = Counter()
        record, since = self.passed.append, self.since

        def observe(channel: Channel, round_: int, message: Message, frame: bytes) -> None:
            number, size, kind = numbers[channel], frame_size(frame), message.kind
            numbers[channel] = number + 1
            sender, receiver = channel
            sent = sender == self.party
            peer = receiver if sent else sender
            record(Passed(clock() - since, sent, peer, round_, kind, size, number))

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

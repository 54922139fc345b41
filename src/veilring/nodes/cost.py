"""The cost of a run: messages, bytes and rounds, by party, by round and by kind of message."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from veilring.nodes.transcript import SETUP_ROUND, Event
from veilring.transport.frames import frame_size


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

"""Traffic by party, by kind of message and by round."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from veilring.nodes.cost import Traffic
from veilring.nodes.trace import TracedMessage
from veilring.nodes.transcript import SETUP_ROUND

# More bars than this are unreadable; the remaining ones are merged into one.
BARS_MAX: Final = 32
# Each column is then five pixels wide on a phone of 360 pixels.
COLUMNS_MAX: Final = 60

K = TypeVar("K", bound=Hashable)


class Amount(NamedTuple):
    """The traffic under one label. Each message is counted once, at its sender."""

    label: str
    protocol: Traffic = Traffic()
    setup: Traffic = Traffic()

    @property
    def messages(self) -> int:
        """Messages of the protocol and of its set-up."""
        return self.protocol.messages + self.setup.messages

    @property
    def bytes(self) -> int:
        """Bytes of the protocol and of its set-up."""
        return self.protocol.bytes + self.setup.bytes


def total(messages: Iterable[TracedMessage], label: str = "all") -> Amount:
    """Return the traffic of all messages."""
    protocol, setup = [0, 0], [0, 0]
    for message in messages:
        sums = setup if message.round == SETUP_ROUND else protocol
        sums[0] += 1
        sums[1] += message.bytes
    return Amount(label, Traffic(*protocol), Traffic(*setup))


def by_party(messages: Iterable[TracedMessage], parties: Sequence[str]) -> list[Amount]:
    """Return the traffic sent by each party, in the order of `parties`.

    With more than `BARS_MAX` parties, only those that sent most are listed individually; the others
    are merged.
    """
    sent = _grouped(messages, lambda message: message.sender)
    amounts = [total(sent.get(party, ()), party) for party in parties]
    if len(amounts) <= BARS_MAX:
        return amounts
    most = sorted(amounts, key=lambda amount: -amount.bytes)
    return [*most[: BARS_MAX - 1], _together(most[BARS_MAX - 1 :], "others")]


def by_kind(messages: Iterable[TracedMessage]) -> list[Amount]:
    """Return the traffic of each kind, in the order of their first messages."""
    groups = _grouped(messages, lambda message: message.kind)
    return [total(group, kind) for kind, group in groups.items()]


def by_round(messages: Iterable[TracedMessage]) -> list[Amount]:
    """Return the traffic of each round of the protocol, without the set-up.

    With more than `COLUMNS_MAX` rounds, consecutive ones are merged as far as necessary. The rounds
    of several batches are added by their number.
    """
    rounds = _grouped(messages, lambda message: message.round)
    last = max(rounds, default=SETUP_ROUND)
    width = -(-last // COLUMNS_MAX)
    amounts = []
    for first in range(SETUP_ROUND + 1, last + 1, max(1, width)):
        covered = range(first, min(first + width, last + 1))
        label = f"{first}" if len(covered) == 1 else f"{first} to {covered[-1]}"
        amounts.append(total((m for number in covered for m in rounds.get(number, ())), label))
    return amounts


def _grouped(
    messages: Iterable[TracedMessage], key: Callable[[TracedMessage], K]
) -> dict[K, list[TracedMessage]]:
    groups: dict[K, list[TracedMessage]] = {}
    for message in messages:
        groups.setdefault(key(message), []).append(message)
    return groups


def _together(amounts: Sequence[Amount], label: str) -> Amount:
    protocol, setup = Traffic(), Traffic()
    for amount in amounts:
        protocol, setup = protocol.plus(amount.protocol), setup.plus(amount.setup)
    return Amount(f"{len(amounts):,} {label}", protocol, setup)

"""What passed, added up by party, by kind and by round."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from veilring.nodes.cost import Traffic
from veilring.nodes.trace import TracedMessage
from veilring.nodes.transcript import SETUP_ROUND

# Bars are read one by one, and a page of more than this is not; the rest become one.
BARS_MAX: Final = 32
# On a phone's 360 pixels each column is then five wide.
COLUMNS_MAX: Final = 60

K = TypeVar("K", bound=Hashable)


class Amount(NamedTuple):
    """What passed under one label. Each message is counted once, at its sender."""

    label: str
    protocol: Traffic = Traffic()
    setup: Traffic = Traffic()

    @property
    def messages(self) -> int:
        """Of the protocol and of its set-up."""
        return self.protocol.messages + self.setup.messages

    @property
    def bytes(self) -> int:
        """Of the protocol and of its set-up."""
        return self.protocol.bytes + self.setup.bytes


def total(messages: Iterable[TracedMessage], label: str = "all") -> Amount:
    """Return what passed in all."""
    protocol, setup = [0, 0], [0, 0]
    for message in messages:
        sums = setup if message.round == SETUP_ROUND else protocol
        sums[0] += 1
        sums[1] += message.bytes
    return Amount(label, Traffic(*protocol), Traffic(*setup))


def by_party(messages: Iterable[TracedMessage], parties: Sequence[str]) -> list[Amount]:
    """Return what each party sent, in the order of `parties`.

    Of more than `BARS_MAX` those that sent most stand alone, and the others are one.
    """
    sent = _grouped(messages, lambda message: message.sender)
    amounts = [total(sent.get(party, ()), party) for party in parties]
    if len(amounts) <= BARS_MAX:
        return amounts
    most = sorted(amounts, key=lambda amount: -amount.bytes)
    return [*most[: BARS_MAX - 1], _together(most[BARS_MAX - 1 :], "others")]


def by_kind(messages: Iterable[TracedMessage]) -> list[Amount]:
    """Return what passed of each kind, in the order in which they were first seen."""
    groups = _grouped(messages, lambda message: message.kind)
    return [total(group, kind) for kind, group in groups.items()]


def by_round(messages: Iterable[TracedMessage]) -> list[Amount]:
    """Return what passed in each round of the protocol; the set-up is not part of it.

    Of more than `COLUMNS_MAX` rounds as many consecutive ones as necessary are one. Where there
    were several batches, their rounds of the same number are one.
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

"""What a run will cost, before it is run: the form that each family's closed forms take."""

from dataclasses import dataclass, field
from functools import reduce

from veilring.nodes.cost import Traffic
from veilring.transport.frames import frame_size
from veilring.transport.messages import SESSION_BYTES, Message, encode


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run will cost.

    Attributes:
        rounds: Communication rounds.
        traffic: Messages and bytes of the protocol.
        setup: Messages and bytes before its first round.
    """

    rounds: int
    traffic: Traffic
    setup: Traffic = field(default_factory=Traffic)

    def __str__(self) -> str:
        messages, size = self.traffic.plus(self.setup)
        return f"{self.rounds:,} rounds, {messages:,} messages, {size:,} bytes"


def repeated(messages: int, message: Message) -> Traffic:
    """Return the traffic of so many messages of the size of one.

    A message's size depends on its shapes and on a few small numbers only, so one of zeros will do.
    """
    return Traffic(messages, messages * frame_size(encode(bytes(SESSION_BYTES), message)))


def in_all(*costs: Forecast) -> Forecast:
    """Return the cost of runs that follow one another."""
    return reduce(_then, costs, Forecast(0, Traffic()))


def _then(one: Forecast, other: Forecast) -> Forecast:
    traffic, setup = one.traffic.plus(other.traffic), one.setup.plus(other.setup)
    return Forecast(one.rounds + other.rounds, traffic, setup)

"""What a run will cost, before it is run: the form that each family's closed forms take."""

from dataclasses import dataclass, field

from veilring.measure.cost import Traffic
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


def repeated(messages: int, message: Message) -> Traffic:
    """Return the traffic of so many messages of the size of one.

    A message's size depends on its shapes and on a few small numbers only, so one of zeros will do.
    """
    return Traffic(messages, messages * frame_size(encode(bytes(SESSION_BYTES), message)))

"""The one thing that is measured: a message that passed a session's channel."""

from collections.abc import Callable
from typing import Final, NamedTuple

from veilring.transport.messages import Message

SETUP_ROUND: Final = 0
"""Messages before a role's first `round(n)` prepare the protocol and are counted apart."""


class Event(NamedTuple):
    """A message that a party sent, or that its role took out of the channel."""

    sent: bool
    party: str
    peer: str
    round: int
    """The round that the party was in."""
    message: Message
    frame: bytes
    """The body as it crossed the wire."""


Tap = Callable[[Event], None]
"""What listens at a channel; it may not change anything."""

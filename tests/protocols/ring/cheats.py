"""A message that no honest party sends; processes import it by name."""

import numpy as np

from veilring.protocols.batches import Queries
from veilring.transport.messages import Message


def ask_nonsense(_message: Message) -> Message:
    """Ask for queries outside the unit cube."""
    return Queries(features=np.full((1, 2), 7.0))

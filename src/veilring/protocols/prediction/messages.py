"""What crosses the wire: queries and labels, and what a curator does to the records."""

from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.protocols.requests import KEY_BYTES, Key
from veilring.protocols.verdicts import Verdict
from veilring.transport.frames import pack
from veilring.transport.messages import Array, Message

__all__ = (
    "KEY_BYTES",
    "NO_PLACE",
    "Add",
    "Answer",
    "Directions",
    "Forget",
    "Labels",
    "Receipt",
    "Request",
)

NO_PLACE: Final = -1
"""Where a receipt names no record."""

Directions = Annotated[NDArray[np.int16], Array("<i2", 2)]
"""Quantised vectors of shape (rows, features)."""
Labels = Annotated[NDArray[np.uint16], Array("<u2", 1)]
"""Class numbers of shape (rows,)."""


class Request(Message, kind="prediction.request"):
    """A block of queries.

    Attributes:
        key: The querier's name of this request, `KEY_BYTES` long. A request that is sent again has
            the same key, gets the same labels, and is charged once.
        more: Whether another request follows in this session.
        queries: Shape (queries, features), as `quantise` gives them.
    """

    key: Key
    more: bool
    queries: Directions

    @property
    def content(self) -> bytes:
        """What the key stands for."""
        return pack(self.queries)


class Answer(Message, kind="prediction.answer"):
    """What the server says. Its size is the same whatever it says, and no record's budget is in it.

    Attributes:
        verdict: A `Verdict`.
        left: How many queries are left, if they do not suffice; else 0.
        labels: Shape (queries,); all 0 unless the request is answered.
    """

    verdict: Annotated[int, Field(ge=0, le=max(Verdict))]
    left: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    labels: Labels


class Add(Message, kind="prediction.add"):
    """Records to be added; all of them or none.

    Attributes:
        ids: Whose each is.
        labels: Shape (records,).
        features: Shape (records, features), as `quantise` gives them.
        more: Whether another message follows in this session.
    """

    ids: tuple[str, ...]
    labels: Labels
    features: Directions
    more: bool


class Forget(Message, kind="prediction.forget"):
    """Records to be forgotten; all of them or none.

    Attributes:
        ids: Whose.
        more: Whether another message follows in this session.
    """

    ids: tuple[str, ...]
    more: bool


class Receipt(Message, kind="prediction.receipt"):
    """What became of one message of a curator. It is on the server's disk, or refused as a whole.

    Attributes:
        changed: How many records were added or forgotten; others were so already.
        place: The first one in the message that cannot: it is there with another row, or is to be
            forgotten and was never there; else `NO_PLACE`.
    """

    changed: Annotated[int, Field(ge=0)]
    place: Annotated[int, Field(ge=NO_PLACE)]

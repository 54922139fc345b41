"""What crosses the wire: queries and labels, and what a curator does to the records."""

from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.protocols.requests import REQUEST_KEY_BYTES, RequestKey, RequestVerdict
from veilring.transport.frames import pack
from veilring.transport.messages import Array, Message

NO_PLACE: Final = -1
"""Where a receipt names no record."""
KEYS_MAX: Final = 4096
"""Keys of one look: the server finds so many in milliseconds."""

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

    key: RequestKey
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

    verdict: Annotated[int, Field(ge=0, le=max(RequestVerdict))]
    left: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    labels: Labels


class Look(Message, kind="prediction.look"):
    """A question that costs nothing: how many queries are left, and what was answered before.

    Attributes:
        keys: The keys of up to `KEYS_MAX` requests, one after the other.
        more: Whether another look follows in this session.
    """

    keys: Annotated[bytes, Field(max_length=KEYS_MAX * REQUEST_KEY_BYTES)]
    more: bool


class Outlook(Message, kind="prediction.outlook"):
    """What a server says to a look: all of it is public, or the querier's own.

    Attributes:
        left: How many queries the querier may still ask, before others ask.
        answered: A byte for each key: 1 if the querier's request of that key was answered.
    """

    left: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    answered: Annotated[bytes, Field(max_length=KEYS_MAX)]


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

"""Messages between a prediction server, its clients and its administrators, and their cost."""

from collections.abc import Sequence
from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.nodes.cost import Traffic
from veilring.protocols.forecast import Forecast, repeated
from veilring.protocols.requests import REQUEST_KEY_BYTES, RequestKey, RequestVerdict
from veilring.transport.frames import pack
from veilring.transport.messages import Array, Message

NO_PLACE: Final = -1
"""The position in a receipt that names no record."""
KEYS_MAX: Final = 4096
"""The most keys of one status request: the server finds this many in milliseconds."""
MESSAGE_OVERHEAD_BYTES: Final = 256
"""Room in a frame for the session, the kind, the small fields and the headers of arrays."""

DirectionArray = Annotated[NDArray[np.int16], Array("<i2", 2)]
"""Quantised vectors of shape (rows, features)."""
LabelArray = Annotated[NDArray[np.uint16], Array("<u2", 1)]
"""Class numbers of shape (rows,)."""


class PredictionRequest(Message, kind="prediction.request"):
    """A block of queries.

    Attributes:
        key: The client's name of this request, `KEY_BYTES` long. A repeated request has the same
            key, gets the same labels, and is charged once.
        more: Whether another request follows in this session.
        queries: Shape (queries, features), as `quantise` gives them.
    """

    key: RequestKey
    more: bool
    queries: DirectionArray

    @property
    def content(self) -> bytes:
        """The content identified by the key."""
        return pack(self.queries)


class PredictionAnswer(Message, kind="prediction.answer"):
    """An answer. Its size does not depend on its content, and it contains no record's budget.

    Attributes:
        verdict: A `Verdict`.
        left: The number of queries left, if they do not suffice; otherwise 0.
        labels: Shape (queries,); all 0 unless the request is answered.
    """

    verdict: Annotated[int, Field(ge=0, le=max(RequestVerdict))]
    left: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    labels: LabelArray


class StatusRequest(Message, kind="prediction.look"):
    """A free question: how many queries are left, and which requests were answered before.

    Attributes:
        keys: The keys of up to `KEYS_MAX` requests, one after the other.
        more: Whether another status request follows in this session.
    """

    keys: Annotated[bytes, Field(max_length=KEYS_MAX * REQUEST_KEY_BYTES)]
    more: bool


class StreamStatus(Message, kind="prediction.outlook"):
    """The reply to a status request: all of it is public, or the client's own.

    Attributes:
        left: The number of queries that the client may still ask, before others ask.
        answered: A byte for each key: 1 if the client's request of that key was answered.
    """

    left: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    answered: Annotated[bytes, Field(max_length=KEYS_MAX)]


class AddRequest(Message, kind="prediction.add"):
    """Records to add; all of them or none.

    Attributes:
        ids: The id of each.
        labels: Shape (records,).
        features: Shape (records, features), as `quantise` gives them.
        more: Whether another message follows in this session.
    """

    ids: tuple[str, ...]
    labels: LabelArray
    features: DirectionArray
    more: bool


class ForgetRequest(Message, kind="prediction.forget"):
    """Records to forget; all of them or none.

    Attributes:
        ids: The ids of the records.
        more: Whether another message follows in this session.
    """

    ids: tuple[str, ...]
    more: bool


class ChangeReceipt(Message, kind="prediction.receipt"):
    """The receipt of an administrator's message: done and on disk, or refused as a whole.

    Attributes:
        changed: The number of records that were added or forgotten; others were so already.
        place: The position in the message of the first record that cannot be changed: it is there
            with another row, or is to be forgotten and was never there; otherwise `NO_PLACE`.
    """

    changed: Annotated[int, Field(ge=0)]
    place: Annotated[int, Field(ge=NO_PLACE)]


def stream_cost(blocks: Sequence[int], features: int) -> Forecast:
    """Forecast a stream: for each block one message there and one back, in two rounds.

    Some 90 bytes there and 70 back, and `2 f` and 2 for each query. A refusal costs the same.

    Args:
        blocks: The number of queries of each request.
        features: f, the number of features of a query.
    """
    total = Traffic()
    for queries in blocks:
        block = np.zeros((queries, features), np.int16)
        request = PredictionRequest(key=bytes(REQUEST_KEY_BYTES), more=False, queries=block)
        answer = PredictionAnswer(verdict=0, left=0.0, labels=np.zeros(queries, np.uint16))
        total = total.plus(repeated(1, request)).plus(repeated(1, answer))
    return Forecast(2 * len(blocks), total)

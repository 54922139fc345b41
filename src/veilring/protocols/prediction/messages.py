"""Messages between a prediction server, its clients and its administrators, and their cost."""

from collections.abc import Sequence
from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.nodes.journal import Traffic
from veilring.protocols.promise import Forecast, repeated
from veilring.protocols.requests import REQUEST_KEY_BYTES, RequestKey, RequestVerdict
from veilring.transport.frames import pack
from veilring.transport.messages import Array, Message

NO_PLACE: Final = -1
"""The position in a receipt that names no record."""
KEYS_MAX: Final = 4096
"""The greatest number of keys in a status request, which the server looks up in milliseconds."""

DirectionArray = Annotated[NDArray[np.int16], Array("<i2", 2)]
"""Quantised vectors of shape (rows, features)."""
LabelArray = Annotated[NDArray[np.uint16], Array("<u2", 1)]
"""Class numbers of shape (rows,)."""


class PredictionRequest(Message, kind="prediction.request"):
    """A block of queries.

    Attributes:
        key: The client's name of this request, `KEY_BYTES` long. A repeated request has the same
            key, gets the same labels and is charged once.
        more: Whether another request follows in this session.
        queries: The result of `quantise`, shape (queries, features).
    """

    key: RequestKey
    more: bool
    queries: DirectionArray

    @property
    def content(self) -> bytes:
        """The encoding of the queries, which determines the key."""
        return pack(self.queries)


class PredictionAnswer(Message, kind="prediction.answer"):
    """The server's answer, whose size is fixed and which depends on no record's budget.

    Attributes:
        verdict: The number of a `Verdict`.
        left: The number of queries left, if they do not suffice; otherwise 0.
        labels: The labels, shape (queries,); all 0 unless the request is answered.
    """

    verdict: Annotated[int, Field(ge=0, le=max(RequestVerdict))]
    left: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    labels: LabelArray


class StatusRequest(Message, kind="prediction.look"):
    """A free request for the number of queries left and the status of earlier requests.

    Attributes:
        keys: The concatenated keys of up to `KEYS_MAX` requests.
        more: Whether another status request follows in this session.
    """

    keys: Annotated[bytes, Field(max_length=KEYS_MAX * REQUEST_KEY_BYTES)]
    more: bool


class StreamStatus(Message, kind="prediction.outlook"):
    """The reply to a status request, which contains no secrets of others.

    Attributes:
        left: The number of queries that the client may still ask, unless others use them up.
        answered: One byte for each key: 1 if the client's request with that key was answered.
    """

    left: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    answered: Annotated[bytes, Field(max_length=KEYS_MAX)]


class AddRequest(Message, kind="prediction.add"):
    """Records to add, all of them or none.

    Attributes:
        ids: The id of each record.
        labels: The label of each record, shape (records,).
        features: The result of `quantise`, shape (records, features).
        more: Whether another message follows in this session.
    """

    ids: tuple[str, ...]
    labels: LabelArray
    features: DirectionArray
    more: bool


class ForgetRequest(Message, kind="prediction.forget"):
    """Records to forget, all of them or none.

    Attributes:
        ids: The ids of the records.
        more: Whether another message follows in this session.
    """

    ids: tuple[str, ...]
    more: bool


class ChangeReceipt(Message, kind="prediction.receipt"):
    """The receipt of an administrator's message: done and on disk, or refused as a whole.

    Attributes:
        changed: The number of records added or forgotten, without those that already were.
        place: The position of the first record that cannot be changed, because it exists with
            another row or, in a request to forget, never existed; otherwise `NO_PLACE`.
    """

    changed: Annotated[int, Field(ge=0)]
    place: Annotated[int, Field(ge=NO_PLACE)]


def stream_cost(blocks: Sequence[int], features: int) -> Forecast:
    """Forecast a stream: for each block one message each way, in two rounds.

    A request has about 90 bytes and `2 f` per query; an answer about 70 bytes and 2 per query. A
    refusal has the same size as an answer.
    """
    total = Traffic()
    for queries in blocks:
        block = np.zeros((queries, features), np.int16)
        request = PredictionRequest(key=bytes(REQUEST_KEY_BYTES), more=False, queries=block)
        answer = PredictionAnswer(verdict=0, left=0.0, labels=np.zeros(queries, np.uint16))
        total = total.plus(repeated(1, request)).plus(repeated(1, answer))
    return Forecast(2 * len(blocks), total)

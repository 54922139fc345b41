"""Messages between an analyst and a data owner: one request and one answer."""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.protocols.promise import Forecast, repeated
from veilring.protocols.requests import REQUEST_KEY_BYTES, RequestKey, RequestVerdict
from veilring.transport.frames import pack
from veilring.transport.messages import Array, Matrix, Message

Numbers = Annotated[NDArray[np.float64], Array("<f8", 1)]
"""Real numbers of shape (queries,), or an empty array."""


class LabelRequest(Message, kind="radius.request"):
    """A batch of queries to label, by the rows within radii or by about k neighbours.

    Attributes:
        key: The analyst's name of this request, `KEY_BYTES` long. A repeated request has the same
            key, gets the same answer and is charged once.
        epsilon: The ε of the batch, or, if rows have their own budgets, the ε of each query for a
            row.
        k: The number of neighbours, or 0 for radii.
        queries: The queries, shape (queries, features), in [0, 1].
        radii: The radii, shape (queries,); empty if k is not 0.
    """

    key: RequestKey
    epsilon: float
    k: Annotated[int, Field(ge=0)]
    queries: Matrix
    radii: Numbers

    @property
    def content(self) -> bytes:
        """The encoding of all fields except the key."""
        return pack(self.fields()[1:])


class LabelAnswer(Message, kind="radius.answer"):
    """The data owner's answer, whose size does not depend on its content.

    Attributes:
        verdict: The number of a `Verdict`.
        left: The remainder of the budget that does not suffice; otherwise 0.
        labels: The labels, shape (queries,); all 0 unless the request is answered.
        radii: The radii within which rows voted, of the same shape, for a request with k.
    """

    verdict: Annotated[int, Field(ge=0, le=max(RequestVerdict))]
    left: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    labels: Annotated[NDArray[np.uint16], Array("<u2", 1)]
    radii: Numbers


def label_cost(queries: int, features: int, k: int = 0) -> Forecast:
    """Forecast a request: one message each way, in two rounds.

    The two messages take about 150 bytes, and `8 f + 10` bytes per query: its features, its radius
    (which is part of the answer if k is given) and 2 bytes for its label. A refusal is as large as
    an answer.

    Args:
        k: The number of neighbours, or 0 for radii.
    """
    radii, none = np.zeros(queries), np.zeros(0)
    request = LabelRequest(
        key=bytes(REQUEST_KEY_BYTES),
        epsilon=0.0,
        k=k,
        queries=np.zeros((queries, features)),
        radii=none if k else radii,
    )
    labels = np.zeros(queries, dtype=np.uint16)
    answer = LabelAnswer(verdict=0, left=0.0, labels=labels, radii=radii if k else none)
    return Forecast(2, repeated(1, request).plus(repeated(1, answer)))

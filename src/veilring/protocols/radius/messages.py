"""What crosses the wire between an analyst and a data owner: one request, one answer."""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.protocols.forecast import Forecast, repeated
from veilring.protocols.requests import REQUEST_KEY_BYTES, RequestKey, RequestVerdict
from veilring.transport.frames import pack
from veilring.transport.messages import Array, Matrix, Message

Numbers = Annotated[NDArray[np.float64], Array("<f8", 1)]
"""Real numbers of shape (queries,), or none."""


class LabelRequest(Message, kind="radius.request"):
    """A batch of queries to be labelled together: within radii, or by about k neighbours each.

    Attributes:
        key: The analyst's name of this request, `KEY_BYTES` long. A request that is sent again has
            the same key, gets the same answer, and is charged once.
        epsilon: What the batch may cost; what each query may cost a row, where rows have budgets.
        k: How many neighbours are wanted, or 0 for radii.
        queries: Shape (queries, features), in [0, 1].
        radii: Shape (queries,); empty if k is not 0.
    """

    key: RequestKey
    epsilon: float
    k: Annotated[int, Field(ge=0)]
    queries: Matrix
    radii: Numbers

    @property
    def content(self) -> bytes:
        """All but the key: what a key stands for."""
        return pack(self.fields()[1:])


class LabelAnswer(Message, kind="radius.answer"):
    """What the data owner says. Its size is the same whatever it says.

    Attributes:
        verdict: A `Verdict`.
        left: What is left of the budget that does not suffice; else 0.
        labels: Shape (queries,); all 0 unless the request is answered.
        radii: The radii within which rows voted, of the same shape, for a request with k.
    """

    verdict: Annotated[int, Field(ge=0, le=max(RequestVerdict))]
    left: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    labels: Annotated[NDArray[np.uint16], Array("<u2", 1)]
    radii: Numbers


def label_cost(queries: int, features: int, k: int = 0) -> Forecast:
    """Forecast a request: one message there and one back, in two rounds.

    Some 150 bytes for both, and `8 f + 10` a query: its features and its radius, which with k
    travels back instead of there, and 2 for its label. A refusal costs what an answer does.

    Args:
        queries: The number of queries.
        features: The number of features.
        k: How many neighbours are wanted, or 0 for radii.
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

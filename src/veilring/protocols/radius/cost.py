"""The closed form: what a request and its answer cost, before anything is sent."""

import numpy as np

from veilring.protocols.forecast import Forecast, repeated
from veilring.protocols.radius.messages import Answer, Request
from veilring.protocols.requests import REQUEST_KEY_BYTES


def label_cost(queries: int, features: int, k: int = 0) -> Forecast:
    """Forecast a request: one message there and one back, in two rounds.

    Some 150 bytes for both, and `8 f + 10` a query: its features and its radius, which with k
    travels back instead of there, and 2 for its label. A refusal costs what an answer does.

    Args:
        queries: How many.
        features: f.
        k: How many neighbours are wanted, or 0 for radii.
    """
    radii, none = np.zeros(queries), np.zeros(0)
    request = Request(
        key=bytes(REQUEST_KEY_BYTES),
        epsilon=0.0,
        k=k,
        queries=np.zeros((queries, features)),
        radii=none if k else radii,
    )
    labels = np.zeros(queries, dtype=np.uint16)
    answer = Answer(verdict=0, left=0.0, labels=labels, radii=radii if k else none)
    return Forecast(2, repeated(1, request).plus(repeated(1, answer)))

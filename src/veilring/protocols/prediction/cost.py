"""The closed form: what a stream of requests costs, before anything is sent."""

from collections.abc import Sequence

import numpy as np

from veilring.measure.cost import Traffic
from veilring.protocols.forecast import Forecast, repeated
from veilring.protocols.prediction.messages import Answer, Request
from veilring.protocols.requests import REQUEST_KEY_BYTES


def stream_cost(blocks: Sequence[int], features: int) -> Forecast:
    """Forecast a stream: for each block one message there and one back, in two rounds.

    Some 90 bytes there and 70 back, and `2 f` and 2 for each query. An answer that is refused costs
    the same.

    Args:
        blocks: The queries of each request.
        features: f.
    """
    total = Traffic()
    for queries in blocks:
        block = np.zeros((queries, features), np.int16)
        request = Request(key=bytes(REQUEST_KEY_BYTES), more=False, queries=block)
        answer = Answer(verdict=0, left=0.0, labels=np.zeros(queries, np.uint16))
        total = total.plus(repeated(1, request)).plus(repeated(1, answer))
    return Forecast(2 * len(blocks), total)

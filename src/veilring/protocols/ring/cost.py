"""The closed forms: what a run will cost, before it is run.

Messages and rounds are formulas. Bytes are exact too: the size of a message depends on its shapes
and on a few small numbers only, so one message of each kind is built and measured.
"""

import numpy as np

from veilring.nodes.cost import Traffic
from veilring.nodes.ring import RingCommit, RingReveal, draw_ring_messages
from veilring.protocols.forecast import Forecast, repeated
from veilring.protocols.ring.algorithm import SumMethod, TopKParameters
from veilring.protocols.ring.messages import (
    Queries,
    SumPart,
    SumPartial,
    SumShare,
    SumTotal,
    TopKResult,
    TopKVector,
)
from veilring.protocols.ring.roles.knn import KNNParameters
from veilring.protocols.ring.roles.rings import group_sizes
from veilring.protocols.ring.roles.sums import sum_rounds


def topk_cost(parties: int, runs: int, parameters: TopKParameters) -> Forecast:
    """Forecast PP-TopK: `n * rounds` messages on the ring and `n - 1` for the result."""
    values = np.zeros((runs, parameters.k))
    traffic = repeated(parties - 1, TopKResult(values=values))
    for number in range(1, parameters.rounds + 1):
        traffic = traffic.plus(repeated(parties, TopKVector(round=number, values=values)))
    return Forecast(parties * parameters.rounds + 1, traffic)


def sum_cost(parties: int, runs: int, entries: int, method: SumMethod) -> Forecast:
    """Forecast a secure sum of arrays of shape (runs, entries).

    `ring` takes `n` messages and `n - 1` for the result, `cycles` s times the first, and `shares`
    `2n(n - 1)`.
    """
    words = np.zeros((runs, entries), dtype=np.uint64)
    if method.name == "shares":
        each = parties * (parties - 1)
        shares, partials = SumShare(values=words), SumPartial(values=words)
        return Forecast(2, repeated(each, shares).plus(repeated(each, partials)))
    traffic = repeated(parties - 1, SumTotal(values=words))
    for cycle in range(1, method.cycles + 1):
        traffic = traffic.plus(repeated(parties, SumPart(cycle=cycle, values=words)))
    return Forecast(sum_rounds(method, parties), traffic)


def knn_cost(
    parties: int, queries: int, parameters: KNNParameters, *, drawn: bool = True
) -> Forecast:
    """Forecast PP-kNN on one batch: `n * (rounds + 3) - 2` messages with votes round the ring.

    Args:
        parties: n.
        queries: How many are in the batch.
        parameters: Public.
        drawn: Whether the parties draw the ring; it costs nothing if it is dealt.
    """
    topk = topk_cost(parties, queries, parameters.topk)
    votes = sum_cost(parties, queries, parameters.classes, parameters.sum)
    waits = parameters.sum.name == "shares"  # for the result; a ring's starter need not
    rounds = topk.rounds - (not waits) + votes.rounds
    setup = _setup(parties, queries, parameters, drawn=drawn)
    return Forecast(rounds, topk.traffic.plus(votes.traffic), setup)


def nested_cost(
    parties: int, queries: int, parameters: KNNParameters, groups: int, *, drawn: bool = True
) -> Forecast:
    """Forecast PP-kNN on one batch in rings of rings.

    For n parties in g groups, r rounds, and m parties in the largest group it takes
    `n * (r + 3) + g * (r + 1) - 2` messages and `(m + g) * (r + 1) + 2` rounds.

    Args:
        parties: n.
        queries: How many are in the batch.
        parameters: Public; votes go round the rings.
        groups: g.
        drawn: Whether the parties draw the order; it costs nothing if it is dealt.

    Raises:
        InputError: If there are too few parties for the groups.
    """
    largest = group_sizes(parties, groups)[0]
    values = np.zeros((queries, parameters.k))
    words = np.zeros((queries, parameters.classes), dtype=np.uint64)
    told = repeated(parties - 1, TopKResult(values=values))
    traffic = told.plus(repeated(parties - 1, SumTotal(values=words)))
    for number in range(1, parameters.rounds + 1):
        vector = TopKVector(round=number, values=values)
        traffic = traffic.plus(repeated(parties + groups, vector))
    # A group of m parties passes its sum on m - 1 times and one share to the next; the starters g.
    traffic = traffic.plus(repeated(parties, SumPart(cycle=1, values=words)))
    traffic = traffic.plus(repeated(groups, SumShare(values=words)))
    rounds = (largest + groups) * (parameters.rounds + 1) + 2
    return Forecast(rounds, traffic, _setup(parties, queries, parameters, drawn=drawn))


def _setup(parties: int, queries: int, parameters: KNNParameters, *, drawn: bool) -> Traffic:
    setup = repeated(parties - 1, Queries(features=np.zeros((queries, parameters.features))))
    if drawn:
        each, nonce = draw_ring_messages(parties) // 2, bytes(32)
        setup = setup.plus(repeated(each, RingCommit(commitment=nonce)))
        setup = setup.plus(repeated(each, RingReveal(nonce=nonce, heard=nonce)))
    return setup

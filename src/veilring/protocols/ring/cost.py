"""Closed forms of the cost of a run.

Messages and rounds are formulas. Bytes are exact too: the size of a message depends on its shapes
and on a few small numbers only, so one message of each kind is built and measured.
"""

from dataclasses import replace

import numpy as np

from veilring.nodes.journal import Traffic
from veilring.nodes.ring import RingCommit, RingReveal, draw_ring_messages
from veilring.protocols.batches import Queries
from veilring.protocols.masks import keys_cost, masked_cost
from veilring.protocols.promise import Forecast, repeated
from veilring.protocols.ring.algorithm.sums import SumMethod
from veilring.protocols.ring.algorithm.topk import TopKParameters
from veilring.protocols.ring.roles import (
    KNNParameters,
    SumPart,
    SumPartial,
    SumShare,
    SumTotal,
    TopKResult,
    TopKVector,
    sum_rounds,
)


def topk_cost(parties: int, runs: int, parameters: TopKParameters) -> Forecast:
    """Forecast PP-TopK: `n * rounds` messages on the ring and `n - 1` for the result."""
    values = np.zeros((runs, parameters.k))
    traffic = repeated(parties - 1, TopKResult(values=values))
    for number in range(1, parameters.rounds + 1):
        traffic = traffic.plus(repeated(parties, TopKVector(round=number, values=values)))
    return Forecast(parties * parameters.rounds + 1, traffic)


def sum_cost(parties: int, runs: int, entries: int, method: SumMethod) -> Forecast:
    """Forecast a secure sum of arrays of shape (runs, entries).

    `ring` takes `n` messages and `n - 1` for the result, `cycles` takes `s * n` and `n - 1`,
    `shares` takes `2n(n - 1)`, and `masks` takes `n(n - 1)` plus the same number in set-up.
    """
    words = np.zeros((runs, entries), dtype=np.uint64)
    if method.name == "masks":
        return replace(masked_cost(parties, [words], star=False), setup=keys_cost(parties))
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

    A ring that was dealt, not drawn by the parties, costs nothing.
    """
    topk = topk_cost(parties, queries, parameters.topk)
    votes = sum_cost(parties, queries, parameters.facts.classes, parameters.sum)
    # All parties wait for the result, except the starter of a ring.
    rounds = topk.rounds - parameters.sum.goes_round + votes.rounds
    handed = Queries(features=np.zeros((queries, parameters.facts.features)))
    setup = repeated(parties - 1, handed).plus(votes.setup)
    setup = setup.plus(draw_cost(parties)) if drawn else setup
    return Forecast(rounds, topk.traffic.plus(votes.traffic), setup)


def draw_cost(parties: int) -> Traffic:
    """Forecast the joint draw of a ring: each party commits to a nonce and reveals it."""
    each, nonce = draw_ring_messages(parties) // 2, bytes(32)
    reveals = repeated(each, RingReveal(nonce=nonce, heard=nonce))
    return repeated(each, RingCommit(commitment=nonce)).plus(reveals)

"""Closed forms of the cost of a run, and of its time if all links are alike.

Messages and rounds are formulas. Bytes are exact too: the size of a message depends on its shapes
and on a few small numbers only, so one message of each kind is built and measured.

The time of a batch is that of its longest chain of messages, each of which is sent after the
previous one has arrived. If each message takes `latency`, its bytes depart at `bandwidth`, and
computing takes no time, a run takes exactly as long as its longest chain. The formula assumes that
the client is the (first) starter and that the order was dealt.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from veilring.errors import InputError
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


class Chain(NamedTuple):
    """The longest chain of messages that wait for each other.

    Attributes:
        bytes: The bytes of these messages, and of earlier messages on the same links.
    """

    rounds: int
    bytes: int

    def seconds(self, latency: float, bandwidth: float) -> float:
        """Return its duration, for seconds a message and bytes a second (may be infinite)."""
        return self.rounds * latency + self.bytes / bandwidth


def knn_chain(parties: int, queries: int, parameters: KNNParameters) -> Chain:
    """Return the longest chain of PP-kNN in one ring whose votes are summed along the ring.

    On the starter's link to its successor the queries leave before the first vector, and the result
    before the first part of the sum.
    """
    if parameters.sum.name != "ring":
        raise InputError("sum", parameters.sum.name, "ring, for a chain of messages")
    cost = knn_cost(parties, queries, parameters, drawn=False)
    words = np.zeros((queries, parameters.facts.classes), dtype=np.uint64)
    handed = Queries(features=np.zeros((queries, parameters.facts.features)))
    result = TopKResult(values=np.zeros((queries, parameters.system.k)))
    # All other parties get these three too, but only the first of them is in the chain.
    aside = (repeated(parties - 2, each) for each in (handed, result, SumTotal(values=words)))
    sent = cost.traffic.plus(cost.setup).bytes - sum(traffic.bytes for traffic in aside)
    return Chain(cost.rounds, sent)

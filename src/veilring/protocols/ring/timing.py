"""How long a batch takes where links are alike: the longest chain of messages, as a closed form.

No message of a chain is sent before the one before it has arrived. If each takes `latency` and its
bytes leave at `bandwidth`, and computing takes no time, then a run takes exactly what its longest
chain takes. The asker is the (first) starter, and the order was dealt.
"""

from dataclasses import dataclass

import numpy as np

from veilring.errors import InputError
from veilring.protocols.forecast import repeated
from veilring.protocols.ring.messages import (
    Queries,
    SumPart,
    SumTotal,
    TopKResult,
    TopKVector,
)
from veilring.protocols.ring.roles.knn import KNNParameters
from veilring.protocols.ring.roles.rings import group_sizes
from veilring.transport.messages import Message


@dataclass(frozen=True, slots=True)
class Chain:
    """The longest chain of messages that wait for each other.

    Attributes:
        rounds: How many they are.
        bytes: Of all of them, and of what leaves on the same link before them.
    """

    rounds: int
    bytes: int

    def seconds(self, latency: float, bandwidth: float) -> float:
        """Return how long it takes.

        Args:
            latency: Of each message, in seconds.
            bandwidth: In bytes a second; infinity if bytes take no time.
        """
        return self.rounds * latency + self.bytes / bandwidth


def knn_chain(parties: int, queries: int, parameters: KNNParameters) -> Chain:
    """Return the longest chain of PP-kNN in one ring whose votes go round the ring.

    On the starter's link to its successor the queries leave before the first vector, and the result
    before the first part of the sum.

    Raises:
        InputError: If votes are added in another way.
    """
    size = _Sizes(queries, parameters)
    turns = parties * size.vectors
    total = size.queries + turns + size.result + parties * size.part + size.total
    return Chain(parties * (parameters.rounds + 1) + 1, total)


def nested_chain(parties: int, queries: int, parameters: KNNParameters, groups: int) -> Chain:
    """Return the longest chain of PP-kNN in rings of rings.

    It goes round the first group, which is a largest one, and round the starters, once for the
    vector and once for the sum. The second starter has to hear of the result, tell it and wait for
    its own group's sum. If that group is as large as the first and a result is larger than a part
    of the sum, the first starter's part waits for it.

    Raises:
        InputError: If votes are added in another way, or there are too few parties for the groups.
    """
    size, (largest, second, *_) = _Sizes(queries, parameters), group_sizes(parties, groups)
    hops = largest + groups
    waits = max(0, size.result - size.part) if second == largest else 0
    summed = size.result + waits + (hops - 1) * size.part + 2 * size.total
    total = size.queries + hops * size.vectors + summed
    return Chain(hops * (parameters.rounds + 1) + 2, total)


class _Sizes:
    """How many bytes each message of a batch has."""

    def __init__(self, queries: int, parameters: KNNParameters) -> None:
        if parameters.sum.name != "ring":
            raise InputError("sum.name", parameters.sum.name, "ring, as the chain is that of rings")
        values = np.zeros((queries, parameters.k))
        words = np.zeros((queries, parameters.classes), dtype=np.uint64)
        rounds = range(1, parameters.rounds + 1)
        self.queries = _size(Queries(features=np.zeros((queries, parameters.features))))
        self.vectors = sum(_size(TopKVector(round=number, values=values)) for number in rounds)
        self.result = _size(TopKResult(values=values))
        self.part = _size(SumPart(cycle=1, values=words))
        self.total = _size(SumTotal(values=words))


def _size(message: Message) -> int:
    return repeated(1, message).bytes

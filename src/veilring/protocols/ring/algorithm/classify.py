"""PP-kNN for many queries at once and without a network: what the networked parties would answer.

Source: Xiong, Chitti and Liu, SAC 2007, Section 4.3. Each step is the function that the roles call:
`run_ring` loops over `topk_step`, votes are `local_votes`, and they are added up in the fixed point
of the secure sum, so that even a tie falls as it does in a deployment. The masks of the secure sum
cancel in the total and are left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.ring.algorithm.checks import require
from veilring.protocols.ring.algorithm.sums import FixedPoint
from veilring.protocols.ring.algorithm.topk import TopKParameters
from veilring.protocols.ring.algorithm.trials import run_ring
from veilring.protocols.ring.algorithm.votes import (
    Weights,
    decide_labels,
    local_votes,
    smallest_distances,
)

# The k smallest of all parties for so many queries take 32 MiB; more are run one after another.
INPUT_ENTRIES: Final = 2**22


@dataclass(frozen=True, slots=True, eq=False)
class Classified:
    """What every party would learn about Q queries.

    Attributes:
        labels: Shape (Q,), the class with most votes, the lowest of them if several have.
        votes: Shape (Q, classes), the total of all parties' votes.
        nearest: Shape (Q, k), the public result of PP-TopK, ascending.
    """

    labels: NDArray[np.int64]
    votes: NDArray[np.float64]
    nearest: NDArray[np.float64]


def ring_knn(
    to_rows: Sequence[NDArray[np.float64]],
    labels: Sequence[NDArray[np.int64]],
    parameters: TopKParameters,
    rng: np.random.Generator,
    *,
    fixed: FixedPoint,
    classes: int,
    weights: Weights = "uniform",
) -> Classified:
    """Label queries as a ring of parties would, each query in a random order of the ring.

    A networked batch has one order for all its queries. Here each query has its own, so that
    averages over queries are averages over orders too; one query is answered by the same law.

    Args:
        to_rows: Each party's distances, shape (Q, rows of the party), as `distances` gives them;
            at least 3 parties, each of which may have no rows.
        labels: The classes of each party's rows, from 0.
        parameters: The public parameters of PP-TopK.
        rng: Source of the orders, and of all parties' coins and noise.
        fixed: In which the votes are added up.
        classes: The number of classes, at least 1.
        weights: `"uniform"` or `"distance"`.

    Raises:
        InputError: If the parties' shapes do not fit each other, or as `run_ring`, `local_votes`
            and `FixedPoint.encode` do.
    """
    queries = {len(party) for party in to_rows}
    require(len(queries) == 1, "to_rows", f"for {sorted(queries)} queries", "the same for each")
    given = f"of {len(labels)} parties"
    require(len(labels) == len(to_rows), "labels", given, f"one array for each of {len(to_rows)}")
    nearest = np.empty((queries.pop(), parameters.k))
    for chunk in _chunks(len(nearest), len(to_rows) * parameters.k):
        own = [smallest_distances(party[chunk], parameters.k) for party in to_rows]
        nearest[chunk] = run_ring(_in_random_order(np.stack(own, axis=1), rng), parameters, rng)
    total = np.zeros((len(nearest), classes), dtype=np.uint64)
    for party, own_labels in zip(to_rows, labels, strict=True):
        total += fixed.encode(local_votes(party, own_labels, nearest, classes, weights))
    votes = fixed.decode(total)
    return Classified(decide_labels(votes), votes, nearest)


def _chunks(queries: int, entries: int) -> Iterator[slice]:
    step = max(1, INPUT_ENTRIES // entries)
    return (slice(first, first + step) for first in range(0, queries, step))


def _in_random_order(values: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the parties (axis 1) in an order of its own for each run (axis 0)."""
    runs, parties = values.shape[:2]
    orders = rng.permuted(np.tile(np.arange(parties), (runs, 1)), axis=1)
    return np.take_along_axis(values, orders[:, :, None], axis=1)

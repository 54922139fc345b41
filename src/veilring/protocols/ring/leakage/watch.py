"""What each hop of PP-TopK shows to the successor, counted by comparing multisets of numbers."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.ring.algorithm import TopKParameters, final_result
from veilring.protocols.ring.algorithm.multisets import copy_numbers, multiplicities

KINDS: Final = 4
"""Of a trial on a hop: whether it exposed (0 or 1), claims, right ones, those in the result."""


def watch_hops(
    vectors: NDArray[np.float64], values: NDArray[np.float64], parameters: TopKParameters
) -> NDArray[np.int32]:
    """Return the counts of all hops of any runs, shape (`KINDS`, hops, T).

    Args:
        vectors: The start vector and what each hop passed on, shape (hops + 1, T, k).
        values: Each party's own k smallest, shape (T, n, k).
        parameters: The public parameters.
    """
    hops, trials, parties = len(vectors) - 1, len(values), values.shape[1]
    counts = np.empty((KINDS, hops, trials), dtype=np.int32)
    result = final_result(vectors[-1], parameters)
    for hop in range(hops):
        passed, own = vectors[hop + 1], values[:, hop % parties]
        known = vectors[known_to_successor(hop, parties)]
        counts[:, hop] = _watch_hop(vectors[hop], passed, known, own, result)
    return counts


def known_to_successor(hop: int, parties: int) -> int:
    """Return which vector the successor on a hop (from 0) knows best, 0 the start vector.

    `vectors[h]` is received on hop h and `vectors[h + 1]` passed on. The successor's own last hop
    was n - 1 hops ago, wherever the two sit.
    """
    return max(0, hop + 2 - parties)


def _watch_hop(
    received: NDArray[np.float64],
    passed: NDArray[np.float64],
    known: NDArray[np.float64],
    own_values: NDArray[np.float64],
    result: NDArray[np.float64],
) -> tuple[NDArray[np.int64], ...]:
    copy = copy_numbers(passed)
    own = multiplicities(passed, own_values)
    public = multiplicities(passed, result)
    # Of the copies of a number, those beyond the ones seen before are new; counted from 0.
    added = copy - multiplicities(passed, received)
    fresh = copy - multiplicities(passed, known)
    exposed = ((added >= 0) & (added < own)).any(axis=1)
    claimed = fresh >= 0
    counts = (claimed, claimed & (fresh < own), claimed & (fresh < public))
    return exposed.astype(np.int64), *(np.count_nonzero(count, axis=1) for count in counts)

"""What each hop of PP-TopK shows to the successor, counted by when each entry was born.

A hop takes the greatest entries out of the vector and puts as many others in: they are born on it.
If no two numbers of a trial are equal, births tell all that `watch_hops` finds by comparing
multisets, while the ring runs and without a search. An entry is fresh to the successor if it was
born after the vector that the successor knows; it is the party's own if this hop was the party's
honest answer and bore it; and it is in the result if it lives to the end and is no noise above
`upper`.

Values from a continuous law are distinct but for a chance of about 2**-53 a pair.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.ring.algorithm import TopKParameters, run_ring, start_vector
from veilring.protocols.ring.algorithm.blocks import cut_rows
from veilring.protocols.ring.leakage.watch import KINDS, known_to_successor

# The least range of the noise, in the greatest number of a run. Two numbers from it are equal with
# a chance of at most 2**-32.
NOISE_RANGE_MIN: Final = 2.0**-20


def is_noise_distinct(parameters: TopKParameters) -> bool:
    """Return whether noise has range enough that no two numbers of it need be taken for equal."""
    greatest = max(abs(parameters.lower), abs(parameters.upper))
    return parameters.delta >= NOISE_RANGE_MIN * greatest


def watch_distinct(
    values: NDArray[np.float64], parameters: TopKParameters, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Run the ring and return the counts of all hops, shape (`KINDS`, hops, T), as `watch_hops`.

    Args:
        values: Each party's own k smallest, shape (T, n, k), the finite ones of a trial distinct
            and below `upper`.
        parameters: The public parameters, of which `is_noise_distinct` is true.
        rng: Source of the parties' coins and noise.
    """
    trials, parties, k = values.shape
    hops = parties * parameters.rounds
    counts = np.zeros((KINDS, hops, trials), dtype=np.int32)
    exposed, claims, right, public = counts
    births = np.zeros((trials, k), dtype=np.int32)
    last = start_vector(parameters, trials)

    def observe(
        round_number: int, position: int, received: NDArray[np.float64], passed: NDArray[np.float64]
    ) -> None:
        nonlocal last
        hop, last = (round_number - 1) * parties + position, passed
        for block in cut_rows(trials, k):
            born, own = births[block], values[block, position]
            honest, inserted = _bear(born, hop + 1, received[block], passed[block], own)
            exposed[hop, block][honest] = 1
            right[hop, block][honest] = inserted
            claims[hop, block] = _count(born > known_to_successor(hop, parties))

    run_ring(values, parameters, rng, observe)
    born_by = _born_by(births, last <= parameters.upper, hops)
    for hop in range(hops):
        public[hop] = born_by[hop + 1] - born_by[known_to_successor(hop, parties)]
    return counts


def _bear(
    births: NDArray[np.int32],
    birth: int,
    received: NDArray[np.float64],
    passed: NDArray[np.float64],
    own: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Note the births of a hop, in place.

    Returns:
        The trials in which the party answered honestly, and how many values it inserted in each.
    """
    # Noise takes the places of what it displaces. The least value of an honest answer is the first
    # entry to differ, and moves those behind it.
    differs = passed != received
    first = differs.argmax(axis=1)[:, None]
    least = np.take_along_axis(passed, first, axis=1) == own[:, :1]
    honest = np.flatnonzero(least & np.take_along_axis(differs, first, axis=1))
    before = births[honest]
    np.copyto(births, birth, where=differs)
    if not honest.size:
        return honest, honest
    inserted = np.count_nonzero(own[honest] < received[honest, ::-1], axis=1)
    old = ~_among(passed[honest], own[honest, : inserted.max()])
    after = np.full_like(before, birth)
    after[old] = before[np.arange(before.shape[1]) < before.shape[1] - inserted[:, None]]
    births[honest] = after
    return honest, inserted


def _among(A: NDArray[np.float64], B: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which numbers in a row of `A` are in that row of `B`, shape (T, a)."""
    # With the runs side by side in memory a comparison takes a fraction of a nanosecond.
    columns = np.ascontiguousarray(A.T)
    found = np.zeros(columns.shape, dtype=np.bool_)
    for column in np.ascontiguousarray(B.T):
        found |= columns == column
    return found.T


def _born_by(births: NDArray[np.int32], counted: NDArray[np.bool_], hops: int) -> NDArray[np.int64]:
    """Return how many of the entries that count were born by each hop, shape (hops + 1, T)."""
    trials = len(births)
    places = births * np.int64(trials) + np.arange(trials)[:, None]
    born = np.bincount(places[counted], minlength=(hops + 1) * trials)
    return np.asarray(born.reshape(hops + 1, trials).cumsum(axis=0), dtype=np.int64)


def _count(flags: NDArray[np.bool_]) -> NDArray[np.int32]:
    return np.asarray(flags.sum(axis=1, dtype=np.int32))

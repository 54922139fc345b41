"""Counting, over many runs of PP-TopK, what each hop shows to the successor."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.ring.algorithm import TopKParameters, final_result
from veilring.protocols.ring.algorithm.checks import require
from veilring.protocols.ring.algorithm.multisets import copy_numbers, multiplicities

__all__ = ("GROUPS", "HopTally")

# Standard errors come from leaving out one group of trials at a time. With 32 groups they are
# themselves good to about an eighth, and the sums of all groups stay small for 1,000 parties.
GROUPS = 32


@dataclass(frozen=True, slots=True, eq=False)
class HopTally:
    """Sums over the trials of each group.

    Attributes:
        hops: Shape (groups, 4, rounds, n): what `_watch_hop` counts.
        parties: Shape (groups, n): trials in which a party was exposed anywhere.
        trials: Shape (groups,).
        group_of: Shape (T,), the group of each trial.
    """

    hops: NDArray[np.float64]
    parties: NDArray[np.float64]
    trials: NDArray[np.float64]
    group_of: NDArray[np.int64]

    @classmethod
    def empty(cls, trials: int, parties: int, rounds: int) -> "HopTally":
        """Return a tally of no trial yet, or refuse to if there are too few to come."""
        allowed = "at least 2 trials, or there is no standard error"
        require(trials > 1, "values", f"of {trials} trials", allowed)
        groups = min(GROUPS, trials)
        group_of = np.arange(trials) * groups // trials
        sizes = np.bincount(group_of).astype(np.float64)
        hops, exposed = np.zeros((groups, 4, rounds, parties)), np.zeros((groups, parties))
        return cls(hops, exposed, sizes, group_of)

    def add(
        self,
        chunk: slice,
        vectors: NDArray[np.float64],
        values: NDArray[np.float64],
        parameters: TopKParameters,
    ) -> None:
        """Count what all hops of some trials gave away."""
        group, groups, parties = self.group_of[chunk], len(self.trials), values.shape[1]
        exposed = np.zeros((parties, len(values)), dtype=np.bool_)
        result = final_result(vectors[-1], parameters)
        for hop in range(parameters.rounds * parties):
            turn, position = divmod(hop, parties)
            counts = _watch_hop(vectors, hop, values, result)
            exposed[position] |= counts[0] > 0
            for kind, count in enumerate(counts):
                self.hops[:, kind, turn, position] += np.bincount(group, count, groups)
        for position in range(parties):
            self.parties[:, position] += np.bincount(group, exposed[position], groups)


def _watch_hop(
    vectors: NDArray[np.float64],
    hop: int,
    values: NDArray[np.float64],
    result: NDArray[np.float64],
) -> tuple[NDArray[np.int64], ...]:
    """Return a trial's counts on one hop: exposed (0 or 1), claims, right ones, public ones.

    `vectors[h]` is received on hop h and `vectors[h + 1]` passed on. The successor's own last hop
    was n - 1 hops ago, wherever the two sit.
    """
    parties = values.shape[1]
    passed = vectors[hop + 1]
    copy = copy_numbers(passed)
    own = multiplicities(passed, values[:, hop % parties])
    public = multiplicities(passed, result)
    # Of the copies of a number, those beyond the ones seen before are new; counted from 0.
    added = copy - multiplicities(passed, vectors[hop])
    fresh = copy - multiplicities(passed, vectors[max(0, hop + 2 - parties)])
    exposed = ((added >= 0) & (added < own)).any(axis=1)
    claimed = fresh >= 0
    counts = (claimed, claimed & (fresh < own), claimed & (fresh < public))
    return exposed.astype(np.int64), *(np.count_nonzero(count, axis=1) for count in counts)

"""Summing up, over many runs of PP-TopK, what each hop shows to the successor."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.ring.algorithm.checks import require
from veilring.protocols.ring.leakage.watch import KINDS

# Standard errors come from leaving out one group of trials at a time. With 32 groups they are
# themselves good to about an eighth, and the sums of all groups stay small for 1,000 parties.
GROUPS: Final = 32


@dataclass(frozen=True, slots=True, eq=False)
class HopTally:
    """Sums over the trials of each group.

    Attributes:
        hops: Shape (groups, KINDS, rounds, n): what `KINDS` counts.
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
        hops, exposed = np.zeros((groups, KINDS, rounds, parties)), np.zeros((groups, parties))
        return cls(hops, exposed, sizes, group_of)

    def add(self, chunk: slice, counts: NDArray[np.int32]) -> None:
        """Count what all hops of some trials gave away.

        Args:
            chunk: Which trials.
            counts: Theirs, as `watch_hops` returns them.
        """
        kinds, _, trials = counts.shape
        by_hop = counts.reshape(kinds, *self.hops.shape[2:], trials)
        group = self.group_of[chunk]
        firsts = np.flatnonzero(np.diff(group, prepend=-1))  # of each group: they are in a row
        exposed = by_hop[0].any(axis=0)
        for sums, of_trials in ((self.hops, by_hop), (self.parties, exposed)):
            found = np.add.reduceat(of_trials, firsts, axis=-1, dtype=np.int64)
            sums[group[firsts]] += np.moveaxis(found, -1, 0)

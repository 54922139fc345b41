"""Release of one noisy sum of bounded statistics, once, by peers or an owner.

All later computations on the sum, for any number of queries, are post-processing.
"""

from veilring.protocols.release.algorithm.noise import Sensitivity, SumNoise, Trust, plan_noise
from veilring.protocols.release.algorithm.statistic import Bound, Entries, Statistic
from veilring.protocols.release.algorithm.steps import Released, ReleaseParameters, simulate_release
from veilring.protocols.release.roles import (
    owner_cost,
    release_by_owner,
    release_cost,
    release_rows,
)

__all__ = (
    "Bound",
    "Entries",
    "ReleaseParameters",
    "Released",
    "Sensitivity",
    "Statistic",
    "SumNoise",
    "Trust",
    "owner_cost",
    "plan_noise",
    "release_by_owner",
    "release_cost",
    "release_rows",
    "simulate_release",
)

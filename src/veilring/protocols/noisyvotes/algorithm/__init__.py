"""The mathematics of the noisyvotes family: pure vectorised functions, no I/O, no asyncio.

`parameters` is what all parties know, `shares` what a party adds, `releases` what is counted one
after another and what follows from it, `plans` how budgets are divided at worst, `together` all
parties in one process, and `guarantees` the epsilon that remains when shares are missing or parties
collude.
"""

from veilring.protocols.noisyvotes.algorithm.guarantees import (
    count_loss,
    guarantee,
    guarantee_in_ring,
    protecting_shares,
    remaining_epsilon,
)
from veilring.protocols.noisyvotes.algorithm.parameters import (
    ByAnnuli,
    NearestRows,
    NoisyVotesParameters,
    WithinRadius,
)
from veilring.protocols.noisyvotes.algorithm.plans import require_shares, worst_plans
from veilring.protocols.noisyvotes.algorithm.releases import (
    Counts,
    Release,
    Steps,
    VotesAnswer,
    batch_steps,
)
from veilring.protocols.noisyvotes.algorithm.shares import noise_share, noisy_counts
from veilring.protocols.noisyvotes.algorithm.together import noisy_votes

__all__ = (
    "ByAnnuli",
    "Counts",
    "NearestRows",
    "NoisyVotesParameters",
    "Release",
    "Steps",
    "VotesAnswer",
    "WithinRadius",
    "batch_steps",
    "count_loss",
    "guarantee",
    "guarantee_in_ring",
    "noise_share",
    "noisy_counts",
    "noisy_votes",
    "protecting_shares",
    "remaining_epsilon",
    "require_shares",
    "worst_plans",
)

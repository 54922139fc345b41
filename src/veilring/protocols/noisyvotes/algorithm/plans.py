"""Plans that hold whatever comes out: what a batch needs, and what it may lose, at most.

Where radii are found for k, how a budget is divided depends on totals that were told before. What
has to be said of a batch beforehand, or whatever its answer is, is said of the worst plan, in which
one row may be in reach of all queries.
"""

import numpy as np

from veilring.privacy.checks import require
from veilring.privacy.polya import POLYA_SCALE_MAX
from veilring.protocols.noisyvotes.algorithm.parameters import NearestRows, NoisyVotesParameters
from veilring.protocols.radius.algorithm.allocation import Allocation
from veilring.protocols.radius.algorithm.conversion import ByGrid


def single_run_plan(epsilon: float) -> Allocation:
    """Return the plan of a single run that spends all of a budget."""
    return Allocation(np.ones(1, dtype=np.int64), np.full(1, float(epsilon)), exact=True)


def worst_plans(
    parameters: NoisyVotesParameters, near: NearestRows, queries: int
) -> tuple[Allocation, ...]:
    """Return a plan for each release about k, whose shares no other plan's are below.

    `guarantee` says of them what all batches of so many queries lose at most, however many shares
    of noise are missing: see there why no other plan loses more.

    Args:
        parameters: Public.
        near: Their neighbours.
        queries: How many are in the batch.
    """
    counting = () if near.rows is not None else (single_run_plan(near.epsilon_count),)
    if isinstance(near.conversion, ByGrid):
        finding = single_run_plan(near.epsilon_conversion)
    else:
        finding = _all_overlap(near.epsilon_conversion, queries)
    return (*counting, finding, _all_overlap(parameters.epsilon_vote, queries))


def require_shares(parameters: NoisyVotesParameters, queries: int) -> None:
    """Refuse a batch about k of which a later release might find too little noise to draw from.

    So nothing is told of a batch that is not answered in the end.

    Args:
        parameters: Public.
        queries: How many are in the batch.

    Raises:
        InputError: If so. Where radii are public, the first release is the only one, and refuses.
    """
    near = parameters.neighbours
    if isinstance(near, NearestRows):
        least = min(plan.epsilons.min() for plan in worst_plans(parameters, near, queries))
        allowed = f"so few that each has 1/{POLYA_SCALE_MAX} of each budget: ask fewer"
        require(bool(least * POLYA_SCALE_MAX >= 1), "queries", f"{queries} queries", allowed)


def _all_overlap(epsilon: float, queries: int) -> Allocation:
    shares = np.full(queries, np.nextafter(epsilon / queries, 0))
    return Allocation(np.full(queries, queries, dtype=np.int64), shares, exact=True)

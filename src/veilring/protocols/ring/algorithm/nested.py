"""PP-TopK in rings of rings: what a group brings to the ring of starters, and how exact it all is.

The steps are those of one ring. A group's result is to the ring of starters what a party's own
values are to a group.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.ring.algorithm.checks import SMALLEST_RING, require
from veilring.protocols.ring.algorithm.exactness import exactness_bound, rounds_for
from veilring.protocols.ring.algorithm.topk import TopKParameters, final_result
from veilring.protocols.ring.algorithm.trials import run_ring


def brought_by(G: NDArray[np.float64], parameters: TopKParameters) -> NDArray[np.float64]:
    """Return what a group's starter brings to the ring of starters, shape (T, k).

    These are the entries of its group's last vector. Those at `upper` or above stand for values
    that the group has not, and become `+inf`.

    Args:
        G: The last vector, shape (T, k), rows ascending.
        parameters: Public.
    """
    return np.where(parameters.upper > G, G, np.inf)


def nested_exactness_bound(k: int, P0: float, d: float, rounds: int, groups: int) -> float:
    """Return the least probability that the result of rings of rings is exact.

    At most k parties contribute to the result, in at most `min(k, groups)` groups. The result is
    exact if each of these parties inserts in its group, and each starter of these groups among the
    starters: each of the two fails with the probability of a party in one ring. The coins are
    independent, so the bound is that of one ring with `k + min(k, groups)` in place of k. For
    values without ties, and exactly c contributing parties in b groups, the probability *is* the
    formula with c + b.

    Raises:
        InputError: If an argument is outside the range given in `TopKParameters`, or there are
            fewer than three groups.
    """
    return exactness_bound(_contributors(k, groups), P0, d, rounds)


def nested_rounds_for(error: float, k: int, P0: float, d: float, groups: int) -> int:
    """Return the fewest rounds, the same on both levels, for a result exact but for `error`.

    Raises:
        InputError: As `rounds_for`, or if there are fewer than three groups.
    """
    return rounds_for(error, _contributors(k, groups), P0, d)


def run_nested_rings(
    groups: Sequence[NDArray[np.float64]], parameters: TopKParameters, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Run rings of rings T times and return the public result of each run, shape (T, k).

    Args:
        groups: For each group its parties' own k smallest as `run_ring` takes them, shape
            (T, m, k) with m >= 3; at least three groups.
        parameters: Public, the same on both levels.
        rng: One source for all parties.

    Raises:
        InputError: As `run_ring`.
    """
    brought = [brought_by(run_ring(group, parameters, rng), parameters) for group in groups]
    return final_result(run_ring(np.stack(brought, axis=1), parameters, rng), parameters)


def _contributors(k: int, groups: int) -> int:
    require(groups >= SMALLEST_RING, "groups", groups, f"at least {SMALLEST_RING}")
    return k + min(k, groups)

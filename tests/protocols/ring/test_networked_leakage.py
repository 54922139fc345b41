"""What networked parties give away is what the vectorised estimators say."""

import numpy as np
import pytest
from scipy import stats

from veilring.errors import InputError
from veilring.nodes.cluster import Cluster
from veilring.nodes.ring import Ring
from veilring.protocols.ring import TopKParameters, pp_topk
from veilring.protocols.ring.attacks import CoalitionView, topk_view
from veilring.protocols.ring.leakage import (
    Estimate,
    estimate_hop_leakage,
    hop_leakage_of,
    uniform_values,
)
from veilring.protocols.ring.leakage.tally import GROUPS

FALSE_ALARM = 1e-6
ESTIMATORS = ("exposure", "claim", "lop")


@pytest.mark.parametrize(
    ("parties", "k", "P0", "rounds"), [(3, 1, 1.0, 2), (5, 4, 0.9, 3), (8, 5, 1.0, 2)]
)
async def test_networked_parties_leak_what_is_estimated(
    parties: int, k: int, P0: float, rounds: int
) -> None:
    """From the views of all parties come the estimates, to sampling error (false alarm 1e-6).

    The values are the same and the coins are not, so the error of the difference is at most that
    of two independent estimates; it is itself estimated from 32 groups of runs.
    """
    parameters = TopKParameters(k, P0, 0.5, rounds, 0.05, 1.0)
    values = uniform_values(3000, parties, k, 12, np.random.default_rng(1))
    names = [f"party-{number}" for number in range(parties)]
    ring = Ring(names)
    own = [values[:, position] for position in range(parties)]
    async with Cluster(names, own=own, seed=2) as cluster:
        run = await cluster.run(pp_topk, ring=ring, parameters=parameters, watch=names)
    seen = topk_view(CoalitionView(ring, run.views), parameters)
    assert seen.seen == tuple(range(parties * rounds + 1))
    vectors = np.stack([seen.vectors[number] for number in seen.seen])
    networked = hop_leakage_of(vectors, values, parameters)
    estimated = estimate_hop_leakage(values, parameters, np.random.default_rng(3))
    assert networked.trials == estimated.trials == 3000
    furthest = stats.t.isf(FALSE_ALARM / (2 * 3 * len(ESTIMATORS)), GROUPS - 1)
    for name in ESTIMATORS:
        one, other = getattr(networked, name), getattr(estimated, name)
        assert isinstance(one, Estimate)
        error = np.hypot(one.standard_error, other.standard_error)
        assert abs(one.value - other.value) < furthest * error


def test_runs_that_do_not_fit_their_values_are_refused() -> None:
    """Vectors of another number of hops are refused."""
    parameters = TopKParameters(1, 1.0, 0.5, 2, 0.05, 1.0)
    with pytest.raises(InputError, match=r"vectors is of shape \(6, 4, 1\)"):
        hop_leakage_of(np.ones((6, 4, 1)), np.ones((4, 3, 1)), parameters)

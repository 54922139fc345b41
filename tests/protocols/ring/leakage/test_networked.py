"""Leakage of networked parties: equal to the vectorised estimates."""

import numpy as np
import pytest
from tests.protocols.ring.worlds import empirical_bernstein

from veilring.nodes.cluster import Cluster
from veilring.nodes.ring import Ring
from veilring.protocols.ring import TopKParameters, pp_topk
from veilring.protocols.ring.attacks import CoalitionView, topk_view
from veilring.protocols.ring.leakage import (
    KINDS,
    cut_trials,
    estimate_hop_leakage,
    transcript,
    uniform_values,
    watch_hops,
)

FALSE_ALARM = 1e-6


@pytest.mark.parametrize(
    ("parties", "k", "P0", "rounds"), [(3, 1, 1.0, 2), (5, 4, 0.9, 3), (8, 5, 1.0, 2)]
)
async def test_networked_parties_leak_the_estimates(
    parties: int, k: int, P0: float, rounds: int
) -> None:
    """The views of all parties give the estimates, up to sampling error (false alarm 1e-6).

    Values are equal, but coins are not. All estimators are quotients of four counts: exposures,
    claims, right claims, and claims in the result. In each run these differ by a term of mean 0
    that is at most the number of entries passed on (empirical Bernstein bound).
    """
    parameters = TopKParameters(k, P0, 0.5, rounds, 0.05, 1.0)
    runs, messages = 12_000, parties * rounds
    values = uniform_values(runs, parties, k, 12, np.random.default_rng(1))
    names = [f"party-{number}" for number in range(parties)]
    ring = Ring(names)
    own = [values[:, position] for position in range(parties)]
    async with Cluster(names, own=own, seed=2) as cluster:
        run = await cluster.run(pp_topk, ring=ring, parameters=parameters, watch=names)
    seen = topk_view(CoalitionView(ring, run.views), parameters)
    assert seen.seen == tuple(range(messages + 1))
    networked = np.stack([seen.vectors[number] for number in seen.seen])
    rng, sizes = np.random.default_rng(3), cut_trials(runs, messages * k)
    simulated = np.concatenate([transcript(values[c], parameters, rng) for c in sizes], axis=1)
    counts = [watch_hops(each, values, parameters).sum(axis=1) for each in (networked, simulated)]
    differences = (counts[0] - counts[1]).astype(np.float64)
    # A party inserts once at most, and only then can there be an exposure and right claims.
    for terms, most in zip(
        differences, (parties, messages * k, parties * k, messages * k), strict=True
    ):
        stray = empirical_bernstein(terms, 2 * most, FALSE_ALARM / (2 * KINDS))
        assert abs(terms.sum()) <= stray
    leak = estimate_hop_leakage(values, parameters, np.random.default_rng(3))
    exposed, claims, right, _ = counts[1].astype(np.float64)
    assert leak.exposure.value == pytest.approx(exposed.sum() / (runs * messages), rel=1e-12)
    assert leak.claim.value == pytest.approx(right.sum() / claims.sum(), rel=1e-12)

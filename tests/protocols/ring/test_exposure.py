"""What a coalition in a secure sum learns, from the views of real runs held against the truth."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party
from veilring.nodes.ring import Ring, draw_ring
from veilring.protocols.ring import FixedPoint, SumMethod, secure_sum
from veilring.protocols.ring.algorithm.sums import exposure_probability
from veilring.protocols.ring.attacks import CoalitionView, recover_input
from veilring.protocols.ring.messages import SumShare

FALSE_ALARM = 1e-6


async def drawn_sum(
    party: Party, own: NDArray[np.float64], *, method: SumMethod
) -> tuple[int, Ring]:
    """Draw a ring and sum along it; return the total and the ring."""
    ring = await draw_ring(party)
    fixed = FixedPoint(0, len(ring))
    total = await secure_sum(party, own, ring=ring, fixed=fixed, method=method)
    return int(total[0, 0]), ring


@pytest.mark.parametrize(
    ("n", "c", "method", "runs"),
    [
        (4, 2, SumMethod(), 600),
        (5, 2, SumMethod(), 600),
        (5, 3, SumMethod(), 600),
        (6, 4, SumMethod(), 600),
        (5, 4, SumMethod("cycles", 2), 200),
        (6, 4, SumMethod("cycles", 2), 900),
        (7, 5, SumMethod("cycles", 2), 600),
    ],
)
async def test_exposure_is_as_derived(n: int, c: int, method: SumMethod, runs: int) -> None:
    """A coalition recovers a party exactly as often as the closed form says; alarm 1e-6."""
    own = [np.array([[float(2**party)]]) for party in range(n)]
    victim, corrupt = "party-0", [f"party-{party}" for party in range(1, c + 1)]
    found = 0
    async with Cluster(n, own=own, seed=100 * n + c) as cluster:
        for _ in range(runs):
            run = await cluster.run(drawn_sum, method=method, watch=corrupt)
            total, ring = run.result
            assert total == 2**n - 1  # every party counted, and once
            view = CoalitionView(ring, run.views)
            taken = recover_input(view, victim, method=method, fixed=FixedPoint(0, n))
            if taken is not None:
                assert taken.tolist() == [[1]]
                found += 1
    expected = exposure_probability(n, c, method.cycles)
    assert stats.binomtest(found, runs, expected).pvalue > FALSE_ALARM


@pytest.mark.parametrize("n", [4, 5, 6])
async def test_no_coalition_short_of_all_others_learns_from_shares(n: int) -> None:
    """With additive shares to all, n - 2 colluders see uniform words, for every coalition."""
    own = [np.array([[float(2**party)]]) for party in range(n)]
    method = SumMethod("shares")
    async with Cluster(n, own=own, seed=n) as cluster:
        run = await cluster.run(drawn_sum, method=method, watch=cluster.parties)
    views = run.views
    for honest in itertools.combinations(cluster.parties, 2):
        coalition = {name: view for name, view in views.items() if name not in honest}
        for victim in honest:
            known = [
                int(seen.message.values[0, 0])
                for view in coalition.values()
                for seen in view.received
                if seen.sender == victim and isinstance(seen.message, SumShare)
            ]
            assert len(known) == n - 2  # two shares are missing, and each alone is uniform
            truth = 2 ** cluster.parties.position(victim)
            assert sum(known) % 2**64 != truth


@pytest.mark.parametrize(
    "method", [SumMethod(), SumMethod("cycles", 2), SumMethod("shares")], ids=lambda m: m.name
)
async def test_all_others_learn_the_input_of_the_last(method: SumMethod) -> None:
    """No method hides a party from all others: the total gives it away."""
    own = [np.array([[float(2**party)]]) for party in range(5)]
    async with Cluster(5, own=own, seed=1) as cluster:
        run = await cluster.run(drawn_sum, method=method, watch=cluster.parties[1:])
    inputs = dict(zip(cluster.parties[1:], own[1:], strict=True))
    view = CoalitionView(run.result[1], run.views, inputs)
    taken = recover_input(view, "party-0", method=method, fixed=FixedPoint(0, 5))
    assert taken is not None
    assert taken.tolist() == [[1]]

"""Exposure to a coalition in a secure sum: views of real runs, compared with the truth."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from veilring.arrays import Floats
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party
from veilring.nodes.ring import Ring, draw_ring
from veilring.protocols.ring import FixedPoint, SumMethod, secure_sum
from veilring.protocols.ring.algorithm.sums import exposure_probability
from veilring.protocols.ring.attacks import CoalitionView, recover_input
from veilring.protocols.ring.roles import SumShare


async def drawn_sum(party: Party, own: Floats, *, method: SumMethod) -> tuple[int, Ring]:
    """Draw a ring and sum along it; return the total and the ring."""
    ring = await draw_ring(party)
    fixed = FixedPoint(0, len(ring))
    total = await secure_sum(party, own, ring=ring, fixed=fixed, method=method)
    return int(total[0, 0]), ring


@pytest.mark.parametrize(
    ("n", "c", "method"),
    [
        (4, 2, SumMethod()),
        (5, 2, SumMethod()),
        (5, 3, SumMethod()),
        (6, 4, SumMethod()),
        (5, 4, SumMethod("cycles", 2)),
        (6, 4, SumMethod("cycles", 2)),
        (7, 5, SumMethod("cycles", 2)),
    ],
)
async def test_exposure_is_as_derived(n: int, c: int, method: SumMethod) -> None:
    """The fraction of positions that expose a party to a coalition equals the derived one."""
    own = [np.array([[float(2**party)]]) for party in range(n)]
    victim, *others = (f"party-{party}" for party in range(n))
    corrupt, fixed, found = others[:c], FixedPoint(0, n), []
    async with Cluster(n, own=own, seed=100 * n + c) as cluster:
        for order in _placements(victim, corrupt, others[c:]):
            ring = Ring(order)
            run = await cluster.run(
                secure_sum, ring=ring, fixed=fixed, method=method, watch=corrupt
            )
            assert run.result.tolist() == [[2**n - 1]]  # every party counted, and once
            view = CoalitionView(ring, run.views)
            taken = recover_input(view, victim, method=method, fixed=fixed)
            assert taken is None or taken.tolist() == [[1]]
            found.append(taken is not None)
    assert sum(found) / len(found) == pytest.approx(exposure_probability(n, c, method.cycles))


def _placements(victim: str, corrupt: list[str], honest: list[str]) -> Iterator[list[str]]:
    """Yield an order of the ring for each position of the victim and of the coalition."""
    others = range(len(corrupt) + len(honest))
    for place in range(len(others) + 1):
        for taken in itertools.combinations(others, len(corrupt)):
            bad, good = iter(corrupt), iter(honest)
            order = [next(bad if at in taken else good) for at in others]
            yield [*order[:place], victim, *order[place:]]


@pytest.mark.parametrize("n", [4, 5, 6])
async def test_fewer_than_all_others_learn_nothing_from_shares(n: int) -> None:
    """With additive shares to all, any n - 2 colluders see uniform words."""
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
    "method",
    [SumMethod(), SumMethod("cycles", 2), SumMethod("shares"), SumMethod("masks")],
    ids=lambda m: m.name,
)
async def test_all_others_learn_the_last_partys_input(method: SumMethod) -> None:
    """No method hides a party from all others, because the total reveals it."""
    own = [np.array([[float(2**party)]]) for party in range(5)]
    async with Cluster(5, own=own, seed=1) as cluster:
        run = await cluster.run(drawn_sum, method=method, watch=cluster.parties[1:])
    inputs = dict(zip(cluster.parties[1:], own[1:], strict=True))
    view = CoalitionView(run.result[1], run.views, inputs)
    taken = recover_input(view, "party-0", method=method, fixed=FixedPoint(0, 5))
    assert taken is not None
    assert taken.tolist() == [[1]]

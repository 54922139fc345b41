"""The content of a coalition's joint view, in real and in simulated runs."""

from dataclasses import replace

import numpy as np
import pytest

from veilring.errors import InputError
from veilring.nodes.cluster import Cluster
from veilring.nodes.journal import View
from veilring.nodes.ring import Ring, deal_ring
from veilring.protocols.ring import TopKParameters, pp_topk
from veilring.protocols.ring.attacks import CoalitionView, topk_view
from veilring.protocols.ring.attacks.views import simulated_view
from veilring.protocols.ring.leakage import uniform_values

PARAMETERS = TopKParameters(k=3, P0=0.7, d=0.5, rounds=3, delta=0.1, upper=1.0)
NAMES = [f"party-{number}" for number in range(5)]


@pytest.mark.parametrize("members", [{"party-1"}, {"party-0", "party-3"}, set(NAMES)], ids=len)
async def test_a_real_view_is_the_members_part_of_the_transcript(members: set[str]) -> None:
    """A coalition sees the same vectors in a real run as in a simulation of its transcript."""
    own = list(uniform_values(7, 5, 3, 10, np.random.default_rng(1)).swapaxes(0, 1))
    ring = deal_ring(NAMES, np.random.default_rng(2))
    async with Cluster(NAMES, own=own, seed=3) as cluster:
        run = await cluster.run(pp_topk, ring=ring, parameters=PARAMETERS, watch=NAMES)
    every = topk_view(CoalitionView(ring, run.views), PARAMETERS)
    assert every.seen == tuple(range(16))
    whole = np.stack([every.vectors[number] for number in every.seen])
    real = topk_view(CoalitionView(ring, {name: run.views[name] for name in members}), PARAMETERS)
    simulated = simulated_view(whole, PARAMETERS, ring.order, members)
    assert real.members == simulated.members == members
    assert real.seen == simulated.seen
    assert real.runs == 7
    for number in real.seen:
        assert (real.vectors[number] == simulated.vectors[number]).all()
    assert real.result is not None
    assert (np.minimum(real.result, 1.0) == run.result).all()


def test_a_member_sees_its_received_and_sent_vectors() -> None:
    """In two rounds, position 2 of 5 sees vectors 2, 3, 7 and 8, the first and the result."""
    parameters = replace(PARAMETERS, rounds=2)
    vectors = np.zeros((11, 1, 3))
    view = simulated_view(vectors, parameters, NAMES, ["party-2"])
    assert view.seen == (0, 2, 3, 7, 8, 10)
    assert view.hops_of("party-2") == (2, 7)
    assert [view.last_before(hop) for hop in (0, 1, 2, 6, 9)] == [0, 0, 2, 3, 8]
    failed = simulated_view(vectors, parameters, NAMES, ["party-2"], failed_after=7)
    assert failed.seen == (0, 2, 3, 7)
    assert failed.result is None


def test_an_invalid_coalition_is_refused() -> None:
    """An empty coalition, a stranger, and views that do not fit the run are refused."""
    ring = Ring(NAMES)
    with pytest.raises(InputError, match="there are no views"):
        CoalitionView(ring, {})
    with pytest.raises(InputError, match="views is 'eve'"):
        CoalitionView(ring, {"eve": View("eve")})
    with pytest.raises(InputError, match="own is 'party-2'"):
        CoalitionView(ring, {"party-1": View("party-1")}, {"party-2": np.zeros((1, 1))})
    with pytest.raises(InputError, match="views lack the vectors"):
        topk_view(CoalitionView(ring, {"party-1": View("party-1")}), PARAMETERS)
    with pytest.raises(InputError, match="there are 3 vectors"):
        simulated_view(np.zeros((3, 1, 3)), PARAMETERS, NAMES, NAMES)
    with pytest.raises(InputError, match="members is 'eve'"):
        simulated_view(np.zeros((16, 1, 3)), PARAMETERS, NAMES, ["eve"])
    with pytest.raises(InputError, match="party is 'eve'"):
        simulated_view(np.zeros((16, 1, 3)), PARAMETERS, NAMES, NAMES).hops_of("eve")

"""Owners of values from several sessions: calibrated posteriors, and real runs."""

from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pytest
from tests.protocols.ring.attacks.asking import EXACT, FALSE_ALARM, NOISY, ORDER, ask, success
from tests.protocols.ring.worlds import bernstein

from veilring.errors import InputError
from veilring.nodes.cluster import Cluster
from veilring.nodes.ring import deal_ring
from veilring.protocols.ring import TopKParameters, pp_topk
from veilring.protocols.ring.algorithm.topk import true_topk
from veilring.protocols.ring.attacks import CoalitionView, topk_view
from veilring.protocols.ring.attacks.views import find_owners, recurring, simulated_view
from veilring.protocols.ring.leakage import transcript, uniform_values


def test_sets_of_suspects_have_their_exact_probability() -> None:
    """Without noise, any a parties that are not the owner stay suspected in 2/(a + 2) of all rings.

    They are all on the owner's side of a lone adversary exactly if the adversary is the first or
    the last of these a + 2 parties. All suspects are equally likely, and the posteriors of
    independent sessions multiply.
    """
    rng = np.random.default_rng(1)
    values = rng.permutation(6).reshape(1, 6, 1) / 10
    top, owner = true_topk(values, EXACT), int(values[0, :, 0].argmin())
    adversary = (owner + 1) % 6
    suspected, posteriors, views = [], [], []
    for places in permutations(range(6)):
        vectors = transcript(values[:, places], EXACT, rng)
        order = [ORDER[place] for place in places]
        views.append(simulated_view(vectors, EXACT, order, [ORDER[adversary]]))
        found = find_owners(views[-1:], top)
        posterior = found.posterior[0, 0]
        suspects = posterior > 0
        assert posterior[suspects] == pytest.approx(1 / suspects.sum())
        suspected.append({found.candidates[place] for place in np.flatnonzero(suspects)})
        posteriors.append(posterior)
    assert all(ORDER[owner] in suspects for suspects in suspected)
    others = [name for name in ORDER if name not in (ORDER[owner], ORDER[adversary])]
    for size in range(1, 5):
        for some in map(set, combinations(others, size)):
            assert sum(some <= suspects for suspects in suspected) == 720 * 2 / (size + 2)
    for one, other in ((0, 719), (100, 500), (333, 600)):
        joint = posteriors[one] * posteriors[other]
        both = find_owners([views[one], views[other]], top).posterior[0, 0]
        assert both == pytest.approx(joint / joint.sum())


@pytest.mark.parametrize(
    ("parameters", "members"),
    [
        (EXACT, ("party-0",)),
        pytest.param(NOISY, ("party-0",), marks=pytest.mark.slow),
        pytest.param(
            replace(NOISY, P0=0.6, rounds=3), ("party-1", "party-4"), marks=pytest.mark.slow
        ),
    ],
)
def test_the_posterior_is_calibrated(parameters: TopKParameters, members: tuple[str, ...]) -> None:
    """The suspect is the owner as often as the posterior states, for 1 and 4 sessions (alarm 1e-6).

    The queries of a batch share their rings, so only batches are independent (Bernstein).
    """
    for times in (1, 4):
        rng = np.random.default_rng([times, len(members)])
        batches = [success(ask(parameters, 4, times, rng, members=members)) for _ in range(250)]
        surplus = sum(found.right - found.promised for found in batches)
        variance = sum(found.deviation**2 for found in batches)
        assert abs(surplus) <= bernstein(variance, 4 * parameters.k, FALSE_ALARM / 12)


async def test_owners_are_found_in_real_runs() -> None:
    """A lone adversary that watches the same queries ten times names the owners of nearest rows."""
    own = list(uniform_values(6, 6, 3, 20, np.random.default_rng(8)).swapaxes(0, 1))
    values = np.stack(own, axis=1)
    parameters = replace(EXACT, k=3)
    sessions = []
    async with Cluster(ORDER, own=own, seed=9) as cluster:
        for number in range(10):
            ring = deal_ring(ORDER, np.random.default_rng(number))
            run = await cluster.run(pp_topk, ring=ring, parameters=parameters, watch=["party-5"])
            sessions.append(topk_view(CoalitionView(ring, run.views), parameters))
    owner = (values == run.result[:, None, :1]).any(axis=-1).argmax(axis=1)
    found = find_owners(sessions, run.result[:, :1])
    assert found.candidates == tuple(ORDER[:5])
    honest = owner < 5
    assert honest.sum() >= 4
    assert (found.likeliest[honest, 0] == owner[honest]).all()


def test_only_sessions_of_one_coalition_are_accepted() -> None:
    """Sessions of different coalitions, or none, are refused; a value never seen has no owner."""
    asked = ask(EXACT, 1, 1, np.random.default_rng(1))
    other = ask(EXACT, 1, 1, np.random.default_rng(1), members=("party-1",))
    with pytest.raises(InputError, match="there are no sessions"):
        recurring([])
    with pytest.raises(InputError, match="the same parties, members and queries"):
        find_owners([*asked.sessions, *other.sessions], asked.top)
    impossible = find_owners(asked.sessions, np.full((1, 1), 1.0))  # in the start vector
    assert (impossible.posterior == 0).all()

"""The simple attack on PP-TopK: in real runs, and compared with estimates of leakage."""

import numpy as np
import pytest

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.nodes.cluster import Cluster
from veilring.nodes.ring import Ring
from veilring.protocols.ring import TopKParameters, pp_topk
from veilring.protocols.ring.algorithm.consistency import multiset_size
from veilring.protocols.ring.attacks import CoalitionView, topk_view
from veilring.protocols.ring.attacks.views import claim_new, judge_claims, owned, simulated_view
from veilring.protocols.ring.leakage import (
    estimate_hop_leakage,
    exposure_to_coalition,
    transcript,
    uniform_values,
)

PARAMETERS = TopKParameters(k=3, P0=0.8, d=0.5, rounds=3, delta=0.1, upper=1.0)
ORDER = [f"party-{number}" for number in range(5)]


def runs(seed: int, trials: int = 400) -> tuple[Floats, Floats]:
    """Return values (T, 5, 3) and all vectors of runs on them."""
    values = uniform_values(trials, 5, 3, 8, np.random.default_rng(seed))
    return values, transcript(values, PARAMETERS, np.random.default_rng(seed + 1))


@pytest.mark.parametrize("place", range(5))
def test_the_precision_of_claims_equals_the_estimate(place: int) -> None:
    """On the same runs, the fraction of right claims equals the estimator's `claim`, hop by hop."""
    values, vectors = runs(1)
    leak = estimate_hop_leakage(values, PARAMETERS, np.random.default_rng(2))
    view = simulated_view(vectors, PARAMETERS, ORDER, [ORDER[(place + 1) % 5]])
    claims = claim_new(view, ORDER[place])
    for turn in range(3):
        alone = judge_claims(claims[[turn]], values[:, place])
        assert alone.precision == pytest.approx(leak.by_hop.claim[turn, place], rel=1e-12)
    assert judge_claims(claims, values[:, place]).new == pytest.approx(
        np.isfinite(claims).sum() / 400
    )


@pytest.mark.parametrize("place", range(5))
def test_two_neighbours_claim_exactly_the_insertions(place: int) -> None:
    """Two neighbours have a right claim in as many runs as the estimator of exposure counts."""
    values, vectors = runs(3)
    pair = [(place - 1) % 5, (place + 1) % 5]
    view = simulated_view(vectors, PARAMETERS, ORDER, [ORDER[p] for p in pair])
    own = owned(claim_new(view, ORDER[place]), values[:, place])
    seen = exposure_to_coalition(values, PARAMETERS, pair, np.random.default_rng(4))
    assert own.any(axis=(0, 2)).mean() == seen.exactly[place]
    # All or nothing: the insertions of a round are all real or all noise.
    entries = multiset_size(claim_new(view, ORDER[place]).reshape(-1, 3))
    right = own.reshape(-1, 3).sum(axis=1)
    assert ((right == 0) | (right == entries)).all()


async def test_claims_in_a_noiseless_run_are_the_victims_values() -> None:
    """Without noise, two colluders' claims in a real run are exactly the victim's values."""
    exact = TopKParameters(k=3, P0=0.0, d=0.5, rounds=1, delta=0.1, upper=1.0)
    own = list(uniform_values(50, 5, 3, 8, np.random.default_rng(5)).swapaxes(0, 1))
    async with Cluster(ORDER, own=own, seed=6) as cluster:
        run = await cluster.run(
            pp_topk, ring=Ring(ORDER), parameters=exact, watch=["party-0", "party-2"]
        )
    view = topk_view(CoalitionView(Ring(ORDER), run.views), exact)
    success = judge_claims(claim_new(view, "party-1"), own[1])
    assert success.precision == success.accuracy == 1
    assert success.gain == success.new == success.claims > 0
    assert success.recall == pytest.approx(success.claims / 3)
    # Of the other two, the starter receives the last one's vector; no member receives the first
    # one's.
    assert np.isinf(claim_new(view, "party-3")).all()
    assert np.isfinite(claim_new(view, "party-4")).any()


def test_success_is_counted_as_defined() -> None:
    """A small example gives the precision, recall, accuracy and gain that are counted by hand."""
    inf = np.inf
    claims = np.array([[[0.1, 0.2, 0.3]], [[0.4, 0.5, inf]]])
    own = np.array([[0.2, 0.4, 0.9]])
    everything = judge_claims(claims, own)
    assert (everything.new, everything.claims, everything.gain) == (5, 5, -1)
    assert everything.precision == everything.accuracy == pytest.approx(2 / 5)
    assert everything.recall == pytest.approx(2 / 3)
    decided = np.array([[[True, True, False]], [[False, True, True]]])
    some = judge_claims(claims, own, decided)
    assert (some.claims, some.gain) == (3, -1)
    assert some.precision == some.recall == pytest.approx(1 / 3)
    assert some.accuracy == pytest.approx(2 / 5)  # 0.2 claimed, 0.3 left
    nothing = judge_claims(np.full((1, 1, 1), inf), np.full((1, 1), inf))
    assert (nothing.precision, nothing.recall, nothing.accuracy, nothing.gain) == (0, 0, 1, 0)


def test_the_victim_is_an_honest_party() -> None:
    """A victim within the coalition, or outside the ring, is refused."""
    _, vectors = runs(7, trials=2)
    view = simulated_view(vectors, PARAMETERS, ORDER, ["party-2"])
    with pytest.raises(InputError, match="victim is 'party-2'"):
        claim_new(view, "party-2")
    with pytest.raises(InputError, match="party is 'eve'"):
        claim_new(view, "eve")

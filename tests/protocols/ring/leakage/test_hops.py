"""Leakage per hop of PP-TopK, compared with enumeration and a plain-Python reference."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from tests.protocols.ring.leakage.cases import HONEST, NOISY, ORDERS, rng

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.protocols.ring import leakage
from veilring.protocols.ring.algorithm.topk import TopKParameters, run_ring
from veilring.protocols.ring.leakage import (
    estimate_hop_leakage,
    exposure_to_coalition,
    proportion_interval,
    uniform_values,
)


def test_an_honest_ring_of_three_leaks_as_enumerated() -> None:
    """Over all orders of three values, k = 1 and no noise, each estimator equals the count.

    Position p inserts if its value is the least so far: 1, 1/2, 1/3. The second hop's entry is
    always new to the third party, and claimed correctly in half of the orders. The starter knows
    its own value, so the third hop is new to it in 4 orders of 6, and right in 2. Of the claims,
    1/3, 2/3 and all are in the result, where the prior is 1/3.
    """
    leak = estimate_hop_leakage(ORDERS, HONEST, rng())
    assert leak.trials == 6
    assert leak.by_hop.exposure == pytest.approx(np.array([[1, 1 / 2, 1 / 3]]), rel=1e-14)
    assert leak.by_hop.claim == pytest.approx(np.array([[1, 1 / 2, 1 / 2]]), rel=1e-14)
    assert leak.by_hop.lop == pytest.approx(np.array([[8 / 9, 5 / 18, 1 / 6]]), rel=1e-14)
    assert leak.exposure.value == pytest.approx(11 / 18, rel=1e-14)
    assert leak.claim.value == pytest.approx((6 + 3 + 2) / (6 + 6 + 4), rel=1e-14)
    assert leak.lop.value == pytest.approx(4 / 9, rel=1e-14)
    assert leak.lop_peak.value == pytest.approx(8 / 9, rel=1e-14)


def test_the_second_round_is_compared_with_the_successors_last_vector() -> None:
    """Without noise, round 2 exposes no party, and every claim in it is wrong."""
    leak = estimate_hop_leakage(ORDERS, replace(HONEST, rounds=2), rng())
    assert (leak.by_hop.exposure[1] == 0).all()
    assert (leak.by_hop.claim[1] == 0).all()
    # New to party 1 if party 2 has the least, to party 2 never; all in the result.
    assert leak.by_hop.lop[1] == pytest.approx([-1 / 3, 0, 0], rel=1e-14)
    assert leak.exposure_by_party == pytest.approx([1, 1 / 2, 1 / 3], rel=1e-14)
    assert leak.by_hop.exposure[0] == pytest.approx([1, 1 / 2, 1 / 3], rel=1e-14)


def test_the_standard_error_is_that_of_independent_trials() -> None:
    """The jackknife of a mean over independent trials is the textbook standard error."""
    leak = estimate_hop_leakage(ORDERS, HONEST, rng())
    least_so_far = ORDERS[:, :, 0] == np.minimum.accumulate(ORDERS[:, :, 0], axis=1)
    expected = stats.sem(least_so_far.mean(axis=1))
    assert leak.exposure.standard_error == pytest.approx(expected, rel=1e-12)


def test_pure_noise_exposes_no_party() -> None:
    """With P0 = d = 1 no real value is ever passed on: no exposure, no right claim, no LoP."""
    values = uniform_values(500, 5, 4, 10, rng(1))
    leak = estimate_hop_leakage(values, replace(NOISY, k=4, rounds=3, upper=1.0), rng(2))
    assert leak.exposure.value == leak.claim.value == 0
    assert (leak.by_hop.lop <= 0).all()
    assert (leak.exposure_by_party == 0).all()
    assert proportion_interval(0.0, leak.trials)[1] < 0.011


def test_parties_without_values_leak_nothing() -> None:
    """Without values no claim is made, and every estimator is 0."""
    leak = estimate_hop_leakage(np.full((4, 3, 1), math.inf), replace(NOISY, rounds=2), rng())
    for estimate in (leak.exposure, leak.claim, leak.lop, leak.lop_peak):
        assert estimate.value == estimate.standard_error == 0


def reference(values: Floats, parameters: TopKParameters, seed: int) -> Floats:
    """Return exposure, claim and LoP by hop (3, rounds, n), directly from the definitions."""
    trials, n, k = values.shape
    hops: list[tuple[int, int, Floats, Floats]] = []
    result = run_ring(values, parameters, rng(seed), lambda *hop: hops.append(hop))
    last_passed: dict[int, Floats] = {}
    out = np.zeros((3, parameters.rounds, n))
    for round_number, position, received, passed in hops:
        exposed = claims = right = prior = 0.0
        known = last_passed.get((position + 1) % n, np.full((trials, k), parameters.upper))
        for t in range(trials):
            own = Counter(v for v in values[t, position].tolist() if v < math.inf)
            added = Counter(passed[t].tolist()) - Counter(received[t].tolist())
            fresh = Counter(passed[t].tolist()) - Counter(known[t].tolist())
            exposed += bool(added & own)
            claims += fresh.total()
            right += (fresh & own).total()
            prior += (fresh & Counter(result[t].tolist())).total() / n
        last_passed[position] = passed
        out[0, round_number - 1, position] = exposed / trials
        if claims:
            out[1:, round_number - 1, position] = right / claims, (right - prior) / claims
    return out


@pytest.mark.parametrize("ties", [False, True])
def test_the_estimators_follow_their_definitions(ties: bool) -> None:
    """On runs with noise, padding and ties, every hop agrees with plain multiset arithmetic."""
    values = uniform_values(60, 4, 3, 2, rng(3), upper=9.0)
    if ties:
        values = np.floor(values)
    parameters = TopKParameters(k=3, P0=0.8, d=0.6, rounds=3, delta=0.5, upper=9.0)
    leak = estimate_hop_leakage(values, parameters, rng(4))
    expected = reference(values, parameters, seed=4)
    assert leak.by_hop.exposure == pytest.approx(expected[0], rel=1e-12)
    assert leak.by_hop.claim == pytest.approx(expected[1], rel=1e-12)
    assert leak.by_hop.lop == pytest.approx(expected[2], rel=1e-12, abs=1e-15)


def test_chunks_do_not_change_the_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory limit of a few trials per chunk gives equal estimates of deterministic runs."""
    whole = estimate_hop_leakage(ORDERS, HONEST, rng())
    monkeypatch.setattr(leakage, "TRANSCRIPT_ENTRIES", 7)
    parts = estimate_hop_leakage(ORDERS, HONEST, rng())
    assert (parts.by_hop.lop == whole.by_hop.lop).all()
    assert parts.exposure == whole.exposure
    assert parts.lop_peak == whole.lop_peak
    alone = exposure_to_coalition(ORDERS, HONEST, {0, 2}, rng()).exactly[1]
    assert alone == pytest.approx(1 / 2)


def test_a_single_trial_has_no_standard_error() -> None:
    """One trial is refused: its error could not be estimated."""
    with pytest.raises(InputError, match="at least 2 trials"):
        estimate_hop_leakage(ORDERS[:1], HONEST, rng())

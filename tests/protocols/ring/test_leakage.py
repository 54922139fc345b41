"""Leakage of PP-TopK: enumerations, a reference in plain Python, exact rates, and real runs."""

import math
from collections import Counter
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from scipy import stats
from tests.protocols.ring.worlds import FALSE_ALARM, empirical_bernstein, hoeffding, play, rng

from veilring.arrays import Floats
from veilring.nodes.ring import Ring
from veilring.privacy.bounds import proportion_bounds
from veilring.protocols.ring import leakage
from veilring.protocols.ring.algorithm.topk import TopKParameters, run_ring
from veilring.protocols.ring.attacks import CoalitionView, topk_view
from veilring.protocols.ring.roles import pp_topk

HONEST = TopKParameters(k=1, P0=0.0, d=0.5, rounds=1, delta=0.5, upper=9.0)
NOISY = replace(HONEST, P0=1.0, d=1.0)

# All six orders of three parties with one value each.
ORDERS = np.array(list(permutations([1.0, 2.0, 3.0])))[:, :, None]


def test_an_honest_ring_of_three_leaks_as_enumerated() -> None:
    """Over all orders of three values, k = 1 and no noise, each estimator equals the count.

    Position p inserts if its value is the least so far: 1, 1/2, 1/3. The second hop's entry is
    always new to the third party, and claimed correctly in half of the orders. The starter knows
    its own value, so the third hop is new to it in 4 orders of 6, and right in 2. Of the claims,
    1/3, 2/3 and all are in the result, where the prior is 1/3.
    """
    leak = leakage.estimate_hop_leakage(ORDERS, HONEST, rng())
    assert leak.trials == 6
    assert leak.by_hop.exposure == pytest.approx(np.array([[1, 1 / 2, 1 / 3]]), rel=1e-14)
    assert leak.by_hop.claim == pytest.approx(np.array([[1, 1 / 2, 1 / 2]]), rel=1e-14)
    assert leak.by_hop.lop == pytest.approx(np.array([[8 / 9, 5 / 18, 1 / 6]]), rel=1e-14)
    assert leak.exposure.value == pytest.approx(11 / 18, rel=1e-14)
    assert leak.claim.value == pytest.approx((6 + 3 + 2) / (6 + 6 + 4), rel=1e-14)
    assert leak.lop.value == pytest.approx(4 / 9, rel=1e-14)
    assert leak.lop_peak.value == pytest.approx(8 / 9, rel=1e-14)
    least_so_far = ORDERS[:, :, 0] == np.minimum.accumulate(ORDERS[:, :, 0], axis=1)
    expected = stats.sem(least_so_far.mean(axis=1))  # as trials are independent
    assert leak.exposure.standard_error == pytest.approx(expected, rel=1e-12)


def test_pure_noise_exposes_no_party() -> None:
    """With P0 = d = 1 no real value is ever passed on: no exposure, no right claim, no LoP.

    Without values no claim is made, and every estimator is 0.
    """
    values = leakage.uniform_values(500, 5, 4, 10, rng(1))
    leak = leakage.estimate_hop_leakage(values, replace(NOISY, k=4, rounds=3, upper=1.0), rng(2))
    assert leak.exposure.value == leak.claim.value == 0
    assert (leak.by_hop.lop <= 0).all()
    assert (leak.exposure_by_party == 0).all()
    assert proportion_bounds(np.array(0), leak.trials, 0.005).high < 0.011
    none = leakage.estimate_hop_leakage(
        np.full((4, 3, 1), math.inf), replace(NOISY, rounds=2), rng()
    )
    for estimate in (none.exposure, none.claim, none.lop, none.lop_peak):
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
    values = leakage.uniform_values(60, 4, 3, 2, rng(3), upper=9.0)
    if ties:
        values = np.floor(values)
    parameters = TopKParameters(k=3, P0=0.8, d=0.6, rounds=3, delta=0.5, upper=9.0)
    leak = leakage.estimate_hop_leakage(values, parameters, rng(4))
    expected = reference(values, parameters, seed=4)
    assert leak.by_hop.exposure == pytest.approx(expected[0], rel=1e-12)
    assert leak.by_hop.claim == pytest.approx(expected[1], rel=1e-12)
    assert leak.by_hop.lop == pytest.approx(expected[2], rel=1e-12, abs=1e-15)


def test_chunks_do_not_change_the_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory limit of a few trials per chunk gives equal estimates of deterministic runs."""
    whole = leakage.estimate_hop_leakage(ORDERS, HONEST, rng())
    monkeypatch.setattr(leakage, "TRANSCRIPT_ENTRIES", 7)
    parts = leakage.estimate_hop_leakage(ORDERS, HONEST, rng())
    assert (parts.by_hop.lop == whole.by_hop.lop).all()
    assert parts.exposure == whole.exposure
    assert parts.lop_peak == whole.lop_peak
    alone = leakage.exposure_to_coalition(ORDERS, HONEST, {0, 2}, rng()).exactly[1]
    assert alone == pytest.approx(1 / 2)


def test_public_ends_of_the_protocol_replace_one_neighbour() -> None:
    """The starter's successor alone sees its round 1; the last party's predecessor its last hop.

    Each sees an insertion in 400 runs: the starter inserts with probability 0.4, and the last party
    with 0.6 * 0.7 if it has one of the two smallest of 20 values, so none is seen with probability
    below 1e-28.
    """
    values = leakage.uniform_values(400, 5, 2, 4, rng(9))
    parameters = TopKParameters(k=2, P0=0.6, d=0.5, rounds=2, delta=0.1, upper=1.0)
    hops = leakage.estimate_hop_leakage(values, parameters, rng(10)).by_hop.exposure
    after_starter = leakage.exposure_to_coalition(values, parameters, [1], rng(10)).exactly
    before_last = leakage.exposure_to_coalition(values, parameters, [3], rng(10)).exactly
    assert after_starter[0] == hops[0, 0] > 0
    assert before_last[4] == hops[-1, -1] > 0
    assert (after_starter[2:] == 0).all()
    assert (before_last[:3] == 0).all()


def test_a_run_of_honest_parties_hides_the_owner() -> None:
    """Of two honest parties in a row, each is seen to insert exactly if it has the lesser value."""
    seen = leakage.exposure_to_coalition(ORDERS, HONEST, {2}, rng())
    assert seen.exactly[:2].tolist() == [0, 0]
    assert seen.among_run[:2] == pytest.approx([1 / 2, 1 / 2])
    nobody = leakage.exposure_to_coalition(ORDERS, HONEST, (), rng())
    assert nobody.among_run == pytest.approx([1 / 3] * 3)


def test_uniform_values_are_order_statistics() -> None:
    """The j-th smallest of N uniforms is Beta(j, N - j + 1), and ratios are right (alarm 1e-6).

    A party with fewer than k rows is padded with +inf, even without any rows.
    """
    for rows in (0, 1):
        assert (np.isfinite(leakage.uniform_values(3, 2, 4, rows, rng())).sum(axis=2) == rows).all()
    values = leakage.uniform_values(20_000, 2, 4, 7, rng(11), upper=5.0) / 5.0
    assert (np.diff(values, axis=2) >= 0).all()
    assert (values <= 1).all()
    for j in range(1, 5):
        cdf = stats.beta(j, 7 - j + 1).cdf
        assert stats.kstest(values[:, :, j - 1].ravel(), cdf).pvalue > FALSE_ALARM / 5
    ratio = values[:, :, 0] / values[:, :, 3]
    assert stats.kstest(ratio.ravel(), stats.beta(1, 3).cdf).pvalue > FALSE_ALARM / 5


@pytest.mark.parametrize(
    ("parties", "k", "P0", "rounds"), [(3, 1, 1.0, 2), (5, 4, 0.9, 3), (8, 5, 1.0, 2)]
)
async def test_real_runs_leak_the_estimates(parties: int, k: int, P0: float, rounds: int) -> None:
    """The views of all parties give the estimates, up to sampling error (false alarm 1e-6).

    Values are equal, but coins are not. All estimators are quotients of four counts: exposures,
    claims, right claims, and claims in the result. In each run these differ by a term of mean 0
    that is at most the number of entries passed on (empirical Bernstein bound).
    """
    parameters = TopKParameters(k, P0, 0.5, rounds, 0.05, 1.0)
    runs, messages = 12_000, parties * rounds
    values = leakage.uniform_values(runs, parties, k, 12, rng(1))
    names = [f"party-{number}" for number in range(parties)]
    ring, own = Ring(names), list(values.swapaxes(0, 1))
    run = await play(pp_topk, own, names=names, ring=ring, parameters=parameters, watch=names)
    seen = topk_view(CoalitionView(ring, run.views), parameters)
    assert seen.seen == tuple(range(messages + 1))
    networked = np.stack([seen.vectors[number] for number in seen.seen])
    draws, sizes = rng(3), leakage.cut_trials(runs, messages * k)
    simulated = np.concatenate([leakage.transcript(values[c], parameters, draws) for c in sizes], 1)
    counts = [leakage.watch_hops(x, values, parameters).sum(axis=1) for x in (networked, simulated)]
    differences = (counts[0] - counts[1]).astype(np.float64)
    # A party inserts once at most, and only then can there be an exposure and right claims.
    limits = (parties, messages * k, parties * k, messages * k)
    for terms, most in zip(differences, limits, strict=True):
        stray = empirical_bernstein(terms, 2 * most, FALSE_ALARM / (2 * leakage.KINDS))
        assert abs(terms.sum()) <= stray
    leak = leakage.estimate_hop_leakage(values, parameters, rng(3))
    exposed, claims, right, _ = counts[1].astype(np.float64)
    assert leak.exposure.value == pytest.approx(exposed.sum() / (runs * messages), rel=1e-12)
    assert leak.claim.value == pytest.approx(right.sum() / claims.sum(), rel=1e-12)


def test_noise_in_round_one_hides_at_its_rate() -> None:
    """The starter of a first round inserts with probability 1 - P0, and others at most that.

    A party that would insert without noise inserts if it adds no noise itself, because others'
    noise never displaces a value of the result. At position p the exposure without noise is 1 -
    C(5p, 2)/C(5p + 5, 2). With noise it is between 1 - P0 times that exposure, and 1 - P0. These
    ranges are wider apart than the error of Hoeffding's inequality (false alarm 1e-6).
    """
    values = leakage.uniform_values(20_000, 3, 2, 5, rng(5))
    without = sum(1 - math.comb(5 * p, 2) / math.comb(5 * p + 5, 2) for p in range(3)) / 3
    stray = hoeffding(1, 20_000, FALSE_ALARM / 12) / 20_000
    below = math.inf
    for P0 in (0.0, 0.3, 0.9):
        parameters = replace(HONEST, k=2, P0=P0, upper=1.0)
        leak = leakage.estimate_hop_leakage(values, parameters, rng(6))
        seen = round(leak.by_hop.exposure[0, 0] * leak.trials)
        assert stats.binomtest(seen, leak.trials, 1 - P0).pvalue > FALSE_ALARM / 6
        most = (without if P0 == 0 else 1 - P0) + stray
        least = (1 - P0) * without - stray
        assert least <= leak.exposure.value <= most < below
        below = least


def has_one_of_the_least(n: int, k: int) -> float:
    """Return the probability that a given party of n with 60 values has one of the k smallest."""
    return 1 - math.comb((n - 1) * 60, k) / math.comb(n * 60, k)


@pytest.mark.parametrize("n", [4, 10, pytest.param(40, marks=pytest.mark.slow)])
def test_the_papers_setting_keeps_exposure_below_one_half(n: int) -> None:
    """With P0 = 1, d = 1/2 and two rounds a party is exposed with probability at most 1/2.

    Round 1 is all noise and round 2 half of it; so the number of exposures is at most binomial. It
    is not much less: a party that adds no noise and has one of the k smallest values is exposed.
    Claims are mostly wrong: all claims of round 1 are, k on each hop except the last, and a party
    without noise in round 2 yields at most k right claims.

    A k of 40 exposes more than a k of 1, and never fewer. With k = 1 a party without noise is
    exposed only if its least value is below those of the B parties before it without noise. The
    probability for the p-th of them is E[1 / (1 + B)] = 2 (1 - 2^-p) / p. Noise lifts an entry
    above such a value only if two parties' least values are within delta, which 1e-12 makes as rare
    as 1e-7. Hoeffding's inequality keeps the estimates within half of the difference. Each of
    the two claims has a false-alarm rate of 1e-6.
    """
    parameters = TopKParameters(k=1, P0=1.0, d=0.5, rounds=2, delta=1e-12, upper=1.0)
    trials, alarm, exposed = 2000, FALSE_ALARM / 9, []
    for k in (1, 5, 40):
        values = leakage.uniform_values(trials, n, k, 60, rng(k))
        leak = leakage.estimate_hop_leakage(values, replace(parameters, k=k), rng(n))
        assert (leak.by_hop.exposure[0] == 0).all()
        exposed.append(leak.by_hop.exposure[1].mean())
        most = round(leak.exposure_by_party.max() * trials)
        assert stats.binom.sf(most - 1, trials, 0.5) > alarm / n
        assert exposed[-1] >= has_one_of_the_least(n, k) / 2 - hoeffding(1, trials, alarm) / trials
        silent = n * trials / 2 + hoeffding(1, n * trials, alarm)
        assert leak.claim.value <= silent / ((n - 1) * trials + silent) < 0.5
        assert leak.lop.value <= leak.lop_peak.value
    stray = hoeffding(1, trials, FALSE_ALARM / 5) / trials
    greatest = np.mean([(1 - 0.5**p) / p for p in range(1, n + 1)]) + 1e-7
    one, five, forty = exposed
    assert one <= greatest + stray < has_one_of_the_least(n, 40) / 2 - stray <= forty
    assert one - 2 * stray <= five <= forty + 2 * stray

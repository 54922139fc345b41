"""Exposure rates of PP-TopK, compared with exact distributions and the paper's claims."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from tests.protocols.ring.leakage.cases import FALSE_ALARM, HONEST, rng
from tests.protocols.ring.worlds import hoeffding

from veilring.protocols.ring.algorithm.topk import TopKParameters
from veilring.protocols.ring.leakage import estimate_hop_leakage, uniform_values


def test_noise_in_round_one_hides_at_its_rate() -> None:
    """The starter of a first round inserts with probability 1 - P0, and others at most that.

    A party that would insert without noise inserts if it adds no noise itself, because others'
    noise never displaces a value of the result. At position p the exposure without noise is 1 -
    C(5p, 2)/C(5p + 5, 2). With noise it is between 1 - P0 times that exposure, and 1 - P0. These
    ranges are wider apart than the error of Hoeffding's inequality (false alarm 1e-6).
    """
    values = uniform_values(20_000, 3, 2, 5, rng(5))
    without = sum(1 - math.comb(5 * p, 2) / math.comb(5 * p + 5, 2) for p in range(3)) / 3
    stray = hoeffding(1, 20_000, FALSE_ALARM / 12) / 20_000
    below = math.inf
    for P0 in (0.0, 0.3, 0.9):
        parameters = replace(HONEST, k=2, P0=P0, upper=1.0)
        leak = estimate_hop_leakage(values, parameters, rng(6))
        seen = round(leak.by_hop.exposure[0, 0] * leak.trials)
        assert stats.binomtest(seen, leak.trials, 1 - P0).pvalue > FALSE_ALARM / 6
        most = (without if P0 == 0 else 1 - P0) + stray
        least = (1 - P0) * without - stray
        assert least <= leak.exposure.value <= most < below
        below = least


@pytest.mark.parametrize("n", [4, 10, 40])
def test_the_papers_setting_keeps_exposure_below_one_half(n: int) -> None:
    """With P0 = 1, d = 1/2 and two rounds a party is exposed with probability at most 1/2.

    Round 1 is all noise and round 2 half of it; so the number of exposures is at most binomial.
    It is not much less: a party that adds no noise and has one of the k smallest values is exposed.
    Claims are mostly wrong: all claims of round 1 are, k on each hop except the last, and a party
    without noise in round 2 yields at most k right claims (Hoeffding; false alarm 1e-6 in all).
    """
    parameters = TopKParameters(k=1, P0=1.0, d=0.5, rounds=2, delta=0.01, upper=1.0)
    rows, trials, alarm = 60, 600, FALSE_ALARM / 9
    for k in (1, 5, 40):
        values = uniform_values(trials, n, k, rows, rng(k))
        leak = estimate_hop_leakage(values, replace(parameters, k=k), rng(n))
        assert (leak.by_hop.exposure[0] == 0).all()
        most = round(leak.exposure_by_party.max() * trials)
        assert stats.binom.sf(most - 1, trials, 0.5) > alarm / n
        least = has_one_of_the_least(n, rows, k) / 2 - hoeffding(1, trials, alarm) / trials
        assert leak.by_hop.exposure[1].mean() >= least
        silent = n * trials / 2 + hoeffding(1, n * trials, alarm)
        assert leak.claim.value <= silent / ((n - 1) * trials + silent) < 0.5
        assert leak.lop.value <= leak.lop_peak.value


def has_one_of_the_least(n: int, rows: int, k: int) -> float:
    """Return the probability that a given party of n has one of the k smallest values."""
    return 1 - math.comb((n - 1) * rows, k) / math.comb(n * rows, k)


@pytest.mark.parametrize("n", [4, 10, pytest.param(40, marks=pytest.mark.slow)])
def test_a_larger_k_exposes_more(n: int) -> None:
    """In round 2, a k of 40 exposes more than a k of 1, and never fewer (false alarm 1e-6).

    With k = 1 a party without noise is exposed only if its least value is below those of the B
    parties before it without noise. The probability for the p-th of them is
    E[1 / (1 + B)] = 2 (1 - 2^-p) / p. Noise lifts an entry above such a value only if two parties'
    least values are within delta, which 1e-12 makes as rare as 1e-7. With k = 40, all parties with
    one of the least values are exposed. Hoeffding's inequality keeps the estimates within half of
    the difference.
    """
    parameters = TopKParameters(k=1, P0=1.0, d=0.5, rounds=2, delta=1e-12, upper=1.0)
    trials = 2000
    stray = hoeffding(1, trials, FALSE_ALARM / 5) / trials
    one, five, forty = (
        estimate_hop_leakage(
            uniform_values(trials, n, k, 60, rng(k)), replace(parameters, k=k), rng(n)
        )
        .by_hop.exposure[1]
        .mean()
        for k in (1, 5, 40)
    )
    most = np.mean([(1 - 0.5**p) / p for p in range(1, n + 1)]) + 1e-7
    assert one <= most + stray < has_one_of_the_least(n, 60, 40) / 2 - stray <= forty
    assert one - 2 * stray <= five <= forty + 2 * stray

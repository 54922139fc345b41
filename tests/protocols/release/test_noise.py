"""The noise of released sums: exact losses on small tables, coalitions, targets, refusals."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.privacy.generators import follows, seeded

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.privacy.divisible import polya_difference_pmf, skellam_pmf
from veilring.privacy.noise import discrete_gaussian_pmf
from veilring.privacy.shares import NearGaussian
from veilring.protocols.release.algorithm.noise import (
    CENTRE_SHARE,
    SIGMA_MIN,
    NoiseDistribution,
    Norm,
    Sensitivity,
    SumNoise,
    Trust,
    account_of,
    plan_noise,
    rule_deviation,
    scale_for,
    tolerated_default,
)

DISTRIBUTIONS: tuple[NoiseDistribution, ...] = ("gaussian", "skellam", "laplace")
of_distributions = pytest.mark.parametrize("distribution", DISTRIBUTIONS)
EPSILON, DELTA = 1.0, 1e-5
PARTS = (CENTRE_SHARE, 1 - CENTRE_SHARE)
OWNER = Trust(1, 0)
# Five parties, of whom two may collude and one may be lost: two shares make up all of the noise.
FIVE = Trust(5, 2, 1)
# Probabilities are right to 12 digits, and so are the sums of their logarithms.
ROUNDING = 1e-9


def delta_of(distribution: NoiseDistribution) -> float:
    """Return the delta of a distribution's guarantee."""
    return 0.0 if distribution == "laplace" else DELTA


def norm_of(distribution: NoiseDistribution) -> Norm:
    """Return the norm that a distribution hides."""
    return "l1" if distribution == "laplace" else "l2"


def small(distribution: NoiseDistribution, trust: Trust = FIVE, length: int = 4) -> SumNoise:
    """Return the noise of a sum in two coordinates, with rows of norm at most 4."""
    norm = norm_of(distribution)
    row = Sensitivity(norm, length if norm == "l1" else length**2, 2)
    (noise,) = plan_noise(distribution, EPSILON, delta_of(distribution), trust, [row])
    return noise


@lru_cache
def pmf_of(noise: SumNoise, shares: int) -> Floats:
    """Return the exact distribution of a sum of shares, from -170 to 170."""
    k = np.arange(-170, 171)
    if noise.distribution == "laplace":
        return polya_difference_pmf(k, Fraction(shares, noise.trust.shares), noise.spread)
    if noise.distribution == "skellam":
        return skellam_pmf(k, shares * noise.spread**2)
    total = one = discrete_gaussian_pmf(k, noise.spread)
    for _ in range(shares - 1):
        total = np.convolve(total, one)
    middle = len(total) // 2
    return np.asarray(total[middle - 170 : middle + 171])


def rows_of(row: Sensitivity) -> Iterator[tuple[int, ...]]:
    """Yield all vectors that one row may add, in the first quadrant: noise is symmetric."""
    for vector in product(range(row.entry + 1), repeat=row.dimensions):
        power = sum(vector) if row.norm == "l1" else sum(entry**2 for entry in vector)
        if power <= row.most:
            yield vector


def excess(noise: SumNoise, shares: int, epsilon: float) -> float:
    """Return the greatest loss of totals on neighbouring tables, in multiples of epsilon.

    If the noise is not pure, it is the greatest hockey-stick divergence at epsilon, in multiples of
    `DELTA`. A coalition subtracts its own part from the total, which leaves the row in question, a
    constant for the other rows, and the shares that it does not know.
    """
    distribution, row, worst = pmf_of(noise, shares), noise.sensitivity, 0.0
    if noise.distribution == "laplace":
        logs = np.log(distribution)
        losses = [float((logs[u:] - logs[: len(logs) - u]).max()) for u in range(row.entry + 1)]
        return max(sum(losses[u] for u in vector) for vector in rows_of(row)) / epsilon
    for vector in rows_of(row):
        one = other = np.ones(())
        for step in vector:
            padded = np.pad(distribution, step)
            one = np.multiply.outer(one, padded)
            other = np.multiply.outer(other, np.roll(padded, step))
        worst = max(worst, float(np.maximum(one - math.exp(epsilon) * other, 0).sum()))
    return worst / DELTA


@of_distributions
@pytest.mark.parametrize("missing", range(5))
def test_totals_cost_at_most_the_account(distribution: NoiseDistribution, missing: int) -> None:
    """No table reveals more to a coalition with any missing shares, and one is near the claim."""
    noise, pure = small(distribution), distribution == "laplace"
    claim = noise.account(missing).epsilon(delta_of(distribution))
    near = (1 - 1e-6 if missing >= 3 else 0.9) if pure else 1 / 20
    assert near < excess(noise, 5 - missing, claim) <= 1 + (ROUNDING if pure else 0)
    assert missing > 3 or claim <= EPSILON


@of_distributions
def test_draws_match_the_account(distribution: NoiseDistribution) -> None:
    """Sums of the honest parties' drawn shares follow its distribution, and no share repeats.

    Each pair of numbers of two shares is equal with a probability below 1/2, and all 30,000 below
    1e-9000; if both were equal, noise would cancel.
    """
    noise, rng = small(distribution), seeded("drawn", distribution)
    wide = replace(noise, sensitivity=replace(noise.sensitivity, dimensions=30_000))
    shares = [wide.share(rng) for _ in range(FIVE.shares)]
    assert len({share.tobytes() for share in shares}) == FIVE.shares
    total = np.sum(shares, axis=0)
    exact = pmf_of(noise, FIVE.shares)
    counts = np.bincount(total[np.abs(total) <= 170] + 170, minlength=341)
    assert follows(counts, exact, tests=3)
    assert noise.share(rng).shape == (2,)


@of_distributions
def test_deviations_match_the_sums(distribution: NoiseDistribution) -> None:
    """The standard deviation is that of the exact distribution, for any number of shares."""
    noise, k = small(distribution), np.arange(-170, 171)
    for shares in (1, 2, 5):
        exact = pmf_of(noise, shares)
        assert noise.deviation(shares) == pytest.approx(math.sqrt(np.sum(k**2 * exact)), rel=1e-6)
    assert noise.deviation() == noise.deviation(5)


@of_distributions
def test_noise_that_is_planned_wrongly_is_caught(distribution: NoiseDistribution) -> None:
    """Shares of one in n, a scale off by one, and noise for rows of length 1 cost too much."""
    pure, true = distribution == "laplace", small(distribution)
    everybody = small(distribution, Trust(5, 0))
    assert excess(everybody, FIVE.shares, EPSILON) > (1.5 if pure else 10)
    assert excess(everybody, 5, EPSILON) <= 1 + (ROUNDING if pure else 0)
    longer = replace(true.sensitivity, most=5 if pure else 25)
    assert excess(replace(true, sensitivity=longer), FIVE.shares, EPSILON) > (1.2 if pure else 3)
    forgetful = replace(small(distribution, OWNER, 1), sensitivity=true.sensitivity)
    assert excess(forgetful, 1, EPSILON if pure else 2 * EPSILON) > (3 if pure else 100)


def test_noise_has_the_published_size() -> None:
    """At L2 = 1 and (1, 1e-5) sigma is 3.731, the exact value; Skellam's orders need 4.045."""
    scale = 2**16
    (noise,) = plan_noise("gaussian", 1.0, 1e-5, OWNER, [Sensitivity("l2", scale**2, 50)])
    assert float(noise.spread) / scale == pytest.approx(3.7306, abs=1e-4)
    assert rule_deviation(1.0, 1e-5, OWNER) == pytest.approx(3.73, abs=5e-3)
    (wide,) = plan_noise("skellam", 1.0, 1e-5, OWNER, [Sensitivity("l2", 2**26, 50)])
    assert float(wide.spread) / 2**13 == pytest.approx(4.045, abs=2e-3)


def test_peers_have_more_noise_than_an_owner_by_f() -> None:
    """Eight parties with three colluders have a variance of 8/5 of an owner's."""
    eight = Trust(8, tolerated_default(8))
    assert (eight.tolerated, eight.shares, eight.factor) == (3, 5, Fraction(8, 5))
    assert rule_deviation(1.0, 1e-5, eight) == pytest.approx(3.7306 * math.sqrt(1.6), rel=1e-4)
    for distribution in DISTRIBUTIONS:
        own, theirs = (small(distribution, trust, 2**9) for trust in (OWNER, eight))
        assert (theirs.deviation() / own.deviation()) ** 2 == pytest.approx(1.6, rel=1e-5)


@settings(max_examples=25)
@given(
    st.sampled_from(DISTRIBUTIONS),
    st.floats(0.2, 20),
    st.integers(1, 30),
    st.integers(0, 10),
    st.integers(1, 5000),
)
def test_plans_are_tight(
    distribution: NoiseDistribution, epsilon: float, parties: int, lost: int, dimensions: int
) -> None:
    """Two sums together are (epsilon, delta)-DP, and with slightly less noise they are not."""
    colluding = tolerated_default(parties)
    trust = Trust(parties, colluding, min(lost, parties - colluding - 1))
    delta, norm = delta_of(distribution), norm_of(distribution)
    sums = []
    for bound, weight in zip((Fraction(dimensions, 4), Fraction(158, 100)), PARTS, strict=True):
        scale = scale_for(distribution, epsilon, delta, trust, bound, most=2**14, weight=weight)
        # A coarse scale of the L1 norm may leave a row no unit at all.
        whole = max(1, int(scale ** (1 if norm == "l1" else 2) * bound))
        sums.append(Sensitivity(norm, whole, dimensions))
    noises = plan_noise(distribution, epsilon, delta, trust, sums, weights=PARTS)
    found = account_of(noises).epsilon(delta)
    assert epsilon * (1 - 1e-4) < found <= epsilon
    less = [replace(each, spread=each.spread * Fraction(999, 1000)) for each in noises]
    assert account_of(less).epsilon(delta) > epsilon
    assert noises[0].account(0).epsilon(delta) <= noises[0].account().epsilon(delta)


def test_two_sums_cost_what_one_does() -> None:
    """Of 1 / sigma**2, or of a pure epsilon, the first sum has its part, and both have it all."""
    row = Sensitivity("l2", 2**30, 4)
    (alone,) = plan_noise("gaussian", 1.0, 1e-5, FIVE, [row])
    first, second = plan_noise("gaussian", 1.0, 1e-5, FIVE, [row, row], weights=PARTS)
    assert (alone.spread / first.spread) ** 2 == pytest.approx(float(CENTRE_SHARE), rel=1e-8)
    both, one = account_of([first, second]), alone.account()
    assert isinstance(both, NearGaussian)
    assert isinstance(one, NearGaussian)
    assert both.gaussian.mu == pytest.approx(one.gaussian.mu, rel=1e-8)
    # Charged when the first vector is sent: that sum alone is far cheaper.
    assert account_of([first]).epsilon(DELTA) < 0.4
    for epsilon in (0.1, 0.7, 1.0, 3.3):
        pure = [Sensitivity("l1", 100, 9)] * 2
        noises = plan_noise("laplace", epsilon, 0.0, FIVE, pure, weights=PARTS)
        assert account_of(noises).epsilon(0.0) == epsilon
        assert noises[0].account().epsilon(0.0) == pytest.approx(0.15 * epsilon, rel=1e-12)


@of_distributions
@pytest.mark.parametrize("epsilon", [0.01, 0.25, 1.0, 50.0])
def test_scales_are_the_largest_that_the_distribution_supports(
    distribution: NoiseDistribution, epsilon: float
) -> None:
    """The proposed scale works, and four times that scale is impossible or refused."""
    bound, delta, norm = Fraction(7, 5), delta_of(distribution), norm_of(distribution)

    def plan(scale: int) -> tuple[SumNoise, ...]:
        whole = int(bound * (scale if norm == "l1" else scale**2))
        return plan_noise(distribution, epsilon, delta, FIVE, [Sensitivity(norm, whole, 7)])

    largest = partial(scale_for, distribution, epsilon, delta, FIVE, bound)
    scale = largest(most=2**45)
    assert scale & (scale - 1) == 0
    assert plan(scale)
    with pytest.raises(InputError, match="smaller scale"):
        plan(8 * scale)
    assert largest(most=100) == min(64, scale)


def test_a_sensitivity_bounds_all_norms() -> None:
    """The other norms follow from the stated one, on all integer vectors."""
    rows = (Sensitivity("l1", 5, 2), Sensitivity("l2", 13, 2), Sensitivity("l2", 3, 3))
    for row in rows:
        vectors = list(rows_of(row))
        assert max(map(sum, vectors)) == row.absolute
        assert max(sum(entry**2 for entry in vector) for vector in vectors) == row.squares
        assert max(map(max, vectors)) == row.entry
        assert Fraction(row.length) ** 2 >= row.squares
        assert row.length == pytest.approx(math.sqrt(row.squares), rel=1e-15)


GIVEN: dict[str, Any] = {
    "distribution": "gaussian",
    "epsilon": 1.0,
    "delta": 1e-5,
    "trust": FIVE,
    "sums": [Sensitivity("l2", 2**20, 2)],
}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"distribution": "cauchy"},
            "distribution is 'cauchy'; allowed: gaussian, skellam, laplace",
        ),
        ({"epsilon": 0.0}, "epsilon is 0.0; allowed: above 0"),
        ({"epsilon": math.nan}, "epsilon is nan"),
        ({"epsilon": 1e6}, "at most 1000"),
        ({"delta": 0.0}, "delta is 0.0"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"distribution": "laplace"}, "delta is 1e-05; allowed: 0, because Laplace noise is pure"),
        ({"distribution": "laplace", "delta": 0.0}, "pure noise needs a bound on the L1 norm"),
        ({"sums": []}, "each of 0 sums needs a part of the budget"),
        ({"weights": (Fraction(1, 2),)}, "the parts must be above 0 and add up to 1"),
        ({"weights": (Fraction(3, 2), Fraction(-1, 2))}, "each of 1 sums"),
        (
            {"trust": Trust(50, 3), "sums": [Sensitivity("l2", 1, 3)]},
            r"deviation of 0\.54.*use 8 times the scale",
        ),
    ],
)
def test_invalid_plans_are_refused(changed: dict[str, Any], message: str) -> None:
    """Each invalid value is refused with the allowed values, and too coarse rows with a scale."""
    with pytest.raises(InputError, match=message):
        plan_noise(**(GIVEN | changed))
    fine = [Sensitivity("l2", 8**2, 3)]
    assert plan_noise(**(GIVEN | {"trust": Trust(50, 3), "sums": fine}))[0].spread >= SIGMA_MIN


def test_sums_beyond_their_words_are_refused() -> None:
    """Rows and 40 standard deviations have to fit into 63 bits and a sign."""
    (noise,) = plan_noise("gaussian", 1.0, 1e-5, FIVE, [Sensitivity("l2", 2**40, 3)])
    room = (2**63 - 1 - math.ceil(40 * noise.deviation())) // 2**20
    noise.require_room(room)
    with pytest.raises(InputError, match=r"a sum of .* rows and its noise may reach 9\.2e"):
        noise.require_room(room + 1)


IMPOSSIBLE: dict[str, Callable[[], object]] = {
    "parties is 0": partial(Trust, 0, 0),
    "tolerated is -1": partial(Trust, 4, -1),
    "lost is -1": partial(Trust, 4, 1, -1),
    "with 3 colluding and 1 lost of 4 parties, there is no share of the noise": partial(
        Trust, 4, 3, 1
    ),
    "missing is -1; allowed: from 0 to 4": partial(small("gaussian").account, -1),
    "missing is 5; allowed: from 0 to 4": partial(small("gaussian").account, 5),
    "rows is -1": partial(small("gaussian").require_room, -1),
    "needs wider noise than laplace shares support": partial(
        scale_for, "laplace", 0.001, 0.0, FIVE, Fraction(100), most=2**14
    ),
}


@pytest.mark.parametrize("message", IMPOSSIBLE)
def test_impossible_numbers_are_refused(message: str) -> None:
    """Parties that leave no share, more shares than exist, and noise wider than its table are."""
    with pytest.raises(InputError, match=message):
        IMPOSSIBLE[message]()
    assert Trust(1, tolerated_default(1)).factor == 1

"""An adversary's success given a report: at most what the loss allows, and above zero.

The attack on the low bits of noisy histograms succeeds on floats and fails on a grid.
"""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from papers.means import SignVector
from papers.oracles import SummedHistogram
from papers.report_attacks import (
    Guesses,
    attack_codes,
    attack_oracle,
    epsilon_at_least,
    likelihoods,
    loss_of,
    weights_of,
)
from scipy import stats
from tests.privacy.generators import FALSE_ALARM, seeded
from tests.protocols.ldp.distributions import DISTRIBUTIONS, words
from tests.refusals import require_refused

from veilring.arrays import Bools, Floats, Ints
from veilring.protocols.ldp.algorithm.codes import CodeDistribution, OneBit
from veilring.protocols.ldp.algorithm.means import EachFeature, SampledFeature
from veilring.protocols.ldp.algorithm.numbers import Laplace
from veilring.protocols.ldp.algorithm.oracles import ORACLES, DirectEncoding, OptimisedUnary
from veilring.protocols.ldp.algorithm.randomiser import LocalRandomiser, PlainOracle

EPSILON = 1.5
DOMAIN = 5
TRIALS = 6000
CANDIDATES = np.linspace(-1, 1, 5)
GUESSED = len(ORACLES) + len(DISTRIBUTIONS)
PAIR = np.array([[1.0, 1.0], [-1.0, -1.0]])


def require_bounded(guesses: Guesses) -> None:
    """Require that guesses are right at most as often as epsilon allows, and beat chance."""

    def is_plausible(probability: float) -> bool:
        tail = stats.binom.sf(guesses.right - 1, guesses.trials, probability)
        return bool(tail > FALSE_ALARM / GUESSED)

    assert is_plausible(guesses.bound)
    assert not is_plausible(guesses.blind)


def require_rate(guesses: Guesses, expected: float, tests: int) -> None:
    """Require that guesses are right at exactly this rate, except in one of 10⁶ runs of tests."""
    found = stats.binomtest(guesses.right, guesses.trials, expected)
    assert found.pvalue > FALSE_ALARM / tests


@pytest.mark.parametrize("name", ORACLES)
def test_no_guess_beats_the_bound_of_an_oracle(name: str) -> None:
    """The best guess is right at most as often as the exact epsilon allows, and beats chance.

    A directly encoded value is right with the bound's probability, a set bit less often: the own
    bit is set in half of the reports, with a binomial number b of others, which gives 1 / (1 + b).
    If no bit is set, the guess is blind.
    """
    oracle = ORACLES[name](DOMAIN, EPSILON)
    guesses = attack_oracle(oracle, TRIALS, seeded("guess", name))
    require_bounded(guesses)
    match oracle:
        case DirectEncoding():
            assert guesses.bound == pytest.approx(float(oracle.p), rel=1e-12)
            require_rate(guesses, guesses.bound, 1)
        case OptimisedUnary():
            counts = np.arange(DOMAIN)
            shares = stats.binom(DOMAIN - 1, float(oracle.q)).pmf(counts)
            expected = (shares @ (1 / (1 + counts)) + shares[0] / DOMAIN) / 2
            require_rate(guesses, float(expected), 1)


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_no_guess_beats_the_bound_of_a_distribution(kind: type[CodeDistribution]) -> None:
    """A guess of five numbers succeeds at the codes' likelihoods, within ε, and beats chance."""
    distribution = kind(EPSILON)
    guesses = attack_codes(distribution, CANDIDATES, TRIALS, seeded("guess", kind.name))
    require_bounded(guesses)
    seen = likelihoods(distribution, np.arange(distribution.codes), CANDIDATES)
    require_rate(guesses, seen.max(axis=1).sum() / 5, len(DISTRIBUTIONS))


MECHANISMS: list[tuple[LocalRandomiser, Floats | Ints]] = [
    *((ORACLES[name](DOMAIN, EPSILON), np.array([0, 1])) for name in ORACLES),
    *((EachFeature(kind(EPSILON / 2), 2), PAIR) for kind in DISTRIBUTIONS),
    *((SampledFeature(kind(EPSILON), 2), PAIR) for kind in DISTRIBUTIONS),
    (SignVector(EPSILON, 2), PAIR),
    *(
        (means(distribution, 2, 2), np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]))
        for distribution in (Laplace(EPSILON), OneBit(EPSILON))
        for means in (SampledFeature, EachFeature)
    ),
]


@pytest.mark.parametrize(("randomiser", "pair"), MECHANISMS)
def test_no_mechanism_leaks_more_than_it_claims(randomiser: LocalRandomiser, pair: Floats) -> None:
    """The lower bound on epsilon from its own reports is above 0 and at most the claim.

    The joint false-alarm rate over all sound mechanisms is one in a million.
    """
    is_signs = isinstance(randomiser, SignVector)
    weights = pair[0] - pair[1] if is_signs else weights_of(randomiser, pair)
    rng, alarm = seeded("loss", words(randomiser)), FALSE_ALARM / len(MECHANISMS)
    found = loss_of(randomiser, pair, weights, TRIALS, rng, alarm=alarm)
    assert 0 < found <= randomiser.exact_epsilon


def test_a_leaking_mechanism_is_detected() -> None:
    """A mechanism that spends four times its claim fails the same test."""
    claimed, real = (EachFeature(OneBit(epsilon), 1) for epsilon in (0.5, 2.0))
    pair = np.array([[1.0], [-1.0]])
    found = loss_of(real, pair, weights_of(claimed, pair), TRIALS, seeded("careless"))
    assert found > claimed.exact_epsilon


@pytest.mark.slow
def test_a_lower_bound_is_rarely_too_high() -> None:
    """Of 50 pairs of equal distributions none is distinguished, except in one of 10⁶ tests."""
    rng = seeded("equal laws")
    bounds = [
        epsilon_at_least(rng.normal(size=200), rng.normal(size=200), alarm=FALSE_ALARM / 50)
        for _ in range(50)
    ]
    assert max(bounds) == 0.0


def test_disjoint_distributions_are_distinguished_as_far_as_a_sample_allows() -> None:
    """With n scores each, the bound is the logarithm of two Clopper-Pearson ends."""
    n = 500
    found = epsilon_at_least(np.ones(2 * n), np.zeros(2 * n), alarm=1e-6)
    end = 5e-7 ** (1 / n)
    assert found == pytest.approx(math.log(end / (1 - end)), rel=1e-9)


def test_attacks_refuse_invalid_arguments() -> None:
    """No trials, too few scores, and a mechanism of another kind are refused."""
    rng = seeded("none")
    require_refused("trials", attack_oracle, DirectEncoding(2, 1.0), 0, rng)
    require_refused("trials", attack_codes, OneBit(1.0), CANDIDATES, 0, rng)
    for wrong in ([], [0.5], [0.5, 0.5], [[0.0, 1.0]], [0.0, 1.5], [0.0, math.nan]):
        require_refused("candidates", attack_codes, OneBit(1.0), np.array(wrong), 1, rng)
    require_refused("scores", epsilon_at_least, np.zeros(3), np.zeros(9))
    require_refused("randomiser", weights_of, PlainOracle(2), np.array([0, 1]))


# A float sampler reaches only some floats: 0 plus noise gives different floats than 1 plus noise,
# which is rounded again. A collector therefore tests whether each coordinate is reachable from the
# client's value and from another value. A value is possible only if all coordinates are reachable
# (Mironov, "On significance of the least significant bits for differential privacy", CCS 2012).
CLIENTS, VALUES, SCALE = 400, 8, 2.0
GRID = 2**53  # uniform floats of a generator are multiples of 1 over this
NEAR = np.arange(-6, 7)  # so far rounding can move a preimage on that grid


def laplace(places: NDArray[Any]) -> Floats:
    """Return Laplace noise by inversion, as libraries draw it, from a uniform `place / 2^53`."""
    u = places / GRID
    return np.where(u >= 1 / 2, -SCALE * np.log(2 - u - u), SCALE * np.log(u + u))


def reachable(numbers: Floats, centre: float) -> Bools:
    """Return whether `centre` plus float noise can equal each number exactly."""
    noise = (numbers - centre)[..., None]
    tail = np.exp(-np.abs(noise) / SCALE) / 2
    places = np.rint(np.where(noise > 0, 1 - tail, tail) * GRID) + NEAR
    places = places.clip(1, GRID - 1)
    return np.asarray((centre + laplace(places) == numbers[..., None]).any(axis=-1))


def candidates(own: Bools, other: Bools) -> Bools:
    """Return the values that each client may hold, given the possible coordinates of each."""
    impossible = (~other).sum(axis=1, keepdims=True)
    return np.asarray(own & (impossible - ~other == 0))


def test_the_attack_reads_values_from_float_noise() -> None:
    """For more than half of reports with float noise only the true value remains possible."""
    rng = seeded("float")
    values = rng.integers(VALUES, size=CLIENTS)
    reports = np.eye(VALUES)[values] + laplace(rng.integers(1, GRID, size=(CLIENTS, VALUES)))
    left = candidates(reachable(reports, 1.0), reachable(reports, 0.0))
    assert left[np.arange(CLIENTS), values].all()
    assert (left.sum(axis=1) == 1).mean() > 1 / 2


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_the_attack_excludes_nothing_on_the_grid(epsilon: float) -> None:
    """Every report leaves all values possible for its client, by the exact distributions."""
    oracle = SummedHistogram(VALUES, epsilon)
    reports = oracle.perturb(np.arange(CLIENTS) % VALUES, seeded("wire", str(epsilon)))
    steps = reports.view("<i2")  # nothing else is in a report
    assert (oracle.aggregate(reports) == steps.sum(axis=0, dtype=np.int64)).all()
    assert np.abs(steps).max() <= oracle.bound
    other, own = (np.array(oracle.distributions.probabilities(which)) > 0 for which in (0, 1))
    assert candidates(own[steps + oracle.bound], other[steps + oracle.bound]).all()
    # Nor is any number impossible that these clients did not happen to send.
    assert (own & other).all()


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_low_bits_of_the_grid_reveal_almost_nothing(bits: int) -> None:
    """The distributions of the low bits of the own and another coordinate are within 1e-4."""
    distributions = SummedHistogram(VALUES, 1.0).distributions
    shares = [np.array(distributions.probabilities(which), np.float64) for which in (0, 1)]
    bound = len(shares[0]) // 2
    low = np.arange(-bound, bound + 1) % 2**bits
    other, own = (np.bincount(low, each) for each in shares)
    assert np.abs(own - other).sum() / 2 < 1e-4

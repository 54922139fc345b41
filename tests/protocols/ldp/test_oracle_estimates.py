"""Estimates of every oracle: unbiased, with the closed forms' variance; and the choice of one."""

import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from papers.oracles import ALL_ORACLES, SummedHistogram, ThresholdedHistogram, best_theta
from tests.privacy.generators import FALSE_ALARM, seeded
from tests.protocols.ldp.distributions import bernstein
from tests.refusals import require_refused

from veilring.protocols.ldp.algorithm.oracles import ORACLES, oracle_options, recommend_oracle
from veilring.protocols.ldp.algorithm.randomiser import (
    CONSISTENCIES,
    FrequencyOracle,
    PlainOracle,
    PureOracle,
    SurveyEstimate,
    make_consistent,
    project_on_simplex,
)

POINTS = {0.2: (2,), 0.5: (3, 17), 1.0: (4, 8, 32), 1.5: (50,), 2.0: (9,), 3.0: (24, 64)}
CASES = [
    (name, epsilon, domain)
    for name in ALL_ORACLES
    for epsilon, domains in POINTS.items()
    for domain in domains
]
SETS = [("ss", epsilon, d) for epsilon in (0.3, 1.0, 2.0, 3.0, 4.75) for d in (2, 3, 5, 60, 175)]
LARGE = [(name, 3.0, 1024) for name in ALL_ORACLES]
ALARM = FALSE_ALARM / len(CASES + LARGE)
CLIENTS = 20_000


def _threshold(epsilon: float) -> float:
    x = math.exp(best_theta(epsilon) * epsilon / 2)
    return (2 * x - 1) / (1 + x * x * math.exp(-epsilon / 2) - 2 * x) ** 2


def _subset(epsilon: float, d: int, w: int) -> float:
    e = math.exp(epsilon)
    p = w * e / (w * e + d - w)
    q = (w * e * (w - 1) + (d - w) * w) / ((d - 1) * (w * e + d - w))
    return q * (1 - q) / (p - q) ** 2


def _hashing(epsilon: float) -> float:
    e, g = math.exp(epsilon), round(math.exp(epsilon)) + 1
    return (e - 1 + g) ** 2 / ((e - 1) ** 2 * (g - 1))


CLOSED_FORMS: Mapping[str, Callable[[float, int], float]] = {
    "de": lambda epsilon, d: (d - 2 + math.exp(epsilon)) / math.expm1(epsilon) ** 2,
    "sue": lambda epsilon, _: math.exp(epsilon / 2) / math.expm1(epsilon / 2) ** 2,
    "oue": lambda epsilon, _: 4 * math.exp(epsilon) / math.expm1(epsilon) ** 2,
    "she": lambda epsilon, _: 8 / epsilon**2,
    "the": lambda epsilon, _: _threshold(epsilon),
    "olh": lambda epsilon, _: _hashing(epsilon),
    "hr": lambda epsilon, _: 1 / math.tanh(epsilon / 2) ** 2,
    "ss": lambda epsilon, d: min(_subset(epsilon, d, w) for w in range(1, d)),
}


def rounding(oracle: FrequencyOracle) -> float:
    """Return the maximum relative effect of rounding on an oracle's variance."""
    if isinstance(oracle, PureOracle):
        p, q = float(oracle.p), float(oracle.q)
        # p and q are within 2^-32; to first order, and doubled for what that leaves out.
        return 2 * 2**-32 * (1 / q + 1 / (1 - q) + 4 / (p - q))
    # The grid takes 1/6 of a squared step, which is a scale of 2 * 2 * half / epsilon steps; what
    # is clamped beyond 16 scales takes less than e^-16 (16^2 + 2 * 16 + 2) / 2; the weights' own
    # rounding is allowed 1e-6.
    assert isinstance(oracle, SummedHistogram)
    scale = 4 * oracle.half / oracle.epsilon
    return 1 / (12 * scale**2) + math.exp(-16) * 145 + 1e-6


@pytest.mark.parametrize(("name", "epsilon", "domain"), CASES + SETS)
def test_variance_is_the_closed_form(name: str, epsilon: float, domain: int) -> None:
    """The variance at frequency 0 is the published one, up to rounding.

    For subset selection it is the least over all set sizes, one of which is direct encoding.
    """
    oracle = ALL_ORACLES[name](domain, epsilon)
    ideal = CLOSED_FORMS[name](epsilon, domain)
    assert abs(oracle.variance() - ideal) <= rounding(oracle) * ideal


def test_the_best_threshold_is_optimal() -> None:
    """At epsilon 1 it is 0.619, no other threshold has less variance, and it spends 0.896."""
    best = ThresholdedHistogram(8, 1.0)
    assert round(best.threshold, 3) == 0.619
    assert round(best.exact_epsilon, 3) == 0.896
    assert round(ThresholdedHistogram(8, 1.0, 0.25).variance(), 3) == 5.328
    for epsilon in (0.1, 1.0, 5.0):
        least = ThresholdedHistogram(8, epsilon).variance()
        others = [ThresholdedHistogram(8, epsilon, theta / 100) for theta in range(101)]
        assert least <= min(other.variance() for other in others) * (1 + 1e-7)
    for theta in (-0.1, 1.1):
        require_refused("theta", ThresholdedHistogram, 8, 1.0, theta)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "epsilon", "domain"), CASES + LARGE)
def test_estimates_are_unbiased(name: str, epsilon: float, domain: int) -> None:
    """Every cell is within Bernstein's bound of the truth, for any packing of the report."""
    oracle = ALL_ORACLES[name](domain, epsilon)
    clients = 500 if name == "she" and domain > 1000 else CLIENTS
    values = np.minimum(np.arange(clients) % (2 * domain), domain - 1)
    truth = np.bincount(values, minlength=domain) / clients
    reports = oracle.perturb(values, seeded("bias", name, domain))
    found = oracle.estimate(oracle.aggregate(reports), clients)
    largest = _largest(oracle) / clients
    variances = [oracle.variance(share) / clients for share in truth.tolist()]
    reach = [bernstein(variance, largest, ALARM / domain) for variance in variances]
    assert (np.abs(found.values - truth) <= reach).all()


def _largest(oracle: FrequencyOracle) -> float:
    """Return the maximum deviation of a client's estimate from its mean by one report."""
    if isinstance(oracle, PureOracle):
        return 1 / float(oracle.p - oracle.q)
    assert isinstance(oracle, SummedHistogram)
    return 2 * oracle.bound / float(oracle.distributions.mean(1) - oracle.distributions.mean(0))


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL_ORACLES)
def test_intervals_hold_their_confidence(name: str) -> None:
    """Intervals miss at most at the exact binomial rate of their confidence."""
    oracle = ALL_ORACLES[name](4, 1.0)
    clients, runs, confidence = 400, 300, 0.9
    reports = oracle.perturb(np.zeros(clients * runs, dtype=np.int64), seeded("interval", name))
    covered = np.zeros(2)
    for group in reports.reshape(runs, clients, -1):
        found = oracle.estimate(oracle.aggregate(group), clients, confidence=confidence)
        assert (found.low < found.values).all()
        assert (found.values < found.high).all()
        covered += [found.low[0] <= 1 <= found.high[0], found.low[1] <= 0 <= found.high[1]]
    # The normal distribution of a sum is off by at most 0.4748 rho / (sigma^3 sqrt(m)) on each side
    # (Berry, Esseen; the constant is Shevtsova's of 2011).
    skew = max(_third_moment(oracle, which) for which in (0, 1))
    slack = 2 * 0.4748 * skew / math.sqrt(clients)
    allowed = bernstein(runs / 4, 1.0, FALSE_ALARM / (2 * len(ALL_ORACLES))) + slack * runs
    assert (np.abs(covered - confidence * runs) <= allowed).all()


def _third_moment(oracle: FrequencyOracle, which: int) -> float:
    """Return the standardised absolute third moment of another value's sum, or the own one's."""
    if isinstance(oracle, PureOracle):
        p = float((oracle.q, oracle.p)[which])
        distribution = np.array([1 - p, p])
    else:
        assert isinstance(oracle, SummedHistogram)
        distribution = np.array(oracle.distributions.probabilities(which), dtype=np.float64)
    outcomes = np.arange(len(distribution))
    squares = (outcomes - outcomes @ distribution) ** 2
    return float(squares**1.5 @ distribution / (squares @ distribution) ** 1.5)


def test_estimates_refuse_invalid_arguments() -> None:
    """No clients, sums of another shape, impossible sums and a confidence of 1 are refused."""
    for oracle in (ALL_ORACLES["oue"](4, 1.0), ALL_ORACLES["she"](4, 1.0), PlainOracle(4)):
        sums = np.zeros(4, dtype=np.int64)
        require_refused("clients is 0", oracle.estimate, sums, 0)
        require_refused("sums are int64 of the shape", oracle.estimate, sums[:3], 5)
        require_refused("sums must be integers from", oracle.estimate, sums + 10**6, 5)
        require_refused("confidence is 1", oracle.estimate, sums, 5, confidence=1.0)


RAW = np.array([0.5, -0.1, 0.0, 0.4, -0.02])


def test_each_correction_of_negative_counts_follows_its_definition() -> None:
    """They become 1 or 0, or all frequencies are shifted to add up to 1; the estimate stays."""
    wanted = {
        "paper": [0.5, 1 / 200, 0.0, 0.4, 1 / 200],
        "clip": [0.5, 0.0, 0.0, 0.4, 0.0],
        # The four greatest stay above 0 and share the 0.12 that they lack of 1.
        "norm-sub": [0.53, 0.0, 0.03, 0.43, 0.01],
    }
    estimate = SurveyEstimate(RAW.copy(), np.full(5, 0.01), RAW - 0.1, RAW + 0.1, clients=200)
    for method in CONSISTENCIES:
        found = make_consistent(estimate, method)
        assert found == pytest.approx(wanted[method], abs=1e-15)
        found[:] = 7.0
        assert (estimate.values == RAW).all()


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=12))
def test_the_projection_is_the_nearest_point(values: list[float]) -> None:
    """The projection is a point of the simplex that fulfils the conditions for the nearest one."""
    point = np.array(values)
    found = project_on_simplex(point)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)
    # The gradient is the same where the entry is above 0, and not smaller elsewhere (KKT).
    gradient = found - point
    assert np.ptp(gradient[found > 0]) < 1e-9
    assert gradient.min() > gradient[found > 0].min() - 1e-9


def test_the_shortest_of_nearly_the_best_oracles_is_recommended() -> None:
    """It is direct for small domains, subsets for middle ones and hashing for large ones.

    With a limit it is the best oracle within it; an impossible limit is refused.
    """
    chosen = [recommend_oracle(domain, 1.0).name for domain in (2, 4, 32, 1024)]
    assert chosen == ["de", "de", "ss", "olh"]
    for domain, epsilon in ((8, 0.5), (32, 1.0), (100, 2.0), (1000, 3.0)):
        best, table = recommend_oracle(domain, epsilon), oracle_options(domain, epsilon)
        assert {*table} == {kind(domain, epsilon) for kind in ORACLES.values()}
        variances = [oracle.variance(1 / domain) for oracle in table]
        assert variances == sorted(variances) == [oracle.mean_variance for oracle in table]
        assert best.mean_variance <= 1.01 * variances[0]
        for oracle, variance in zip(table, variances, strict=True):
            assert variance > 1.01 * variances[0] or oracle.report_bytes >= best.report_bytes
    short = recommend_oracle(1024, 1.0, max_bytes=8)
    assert (short.name, round(short.mean_variance, 2)) == ("hr", 4.68)
    least = "at least 2 for a domain of 1024"
    require_refused(least, recommend_oracle, 1024, 1.0, max_bytes=1)
    require_refused("epsilon", recommend_oracle, 1024, 0.0)

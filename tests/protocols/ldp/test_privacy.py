"""The leakage of reports: every output of every mechanism, from its published numbers.

And that of tables of exact weights, from which some mechanisms draw.
"""

import itertools
import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from papers.means import SignVector
from papers.oracles import ALL_ORACLES as ORACLES
from papers.oracles import SummedHistogram, TableDistributions, clamped_laplace
from tests.privacy.generators import follows, scripted, seeded
from tests.protocols.ldp.distributions import (
    FINITE,
    LISTED,
    MEANS,
    Value,
    agrees,
    distribution_of,
    loss,
    values_of,
    words,
)
from tests.refusals import require_refused

from veilring.arrays import Floats, Ints
from veilring.privacy.exact import exp_floor, log_ceil
from veilring.privacy.noise import discrete_laplace_pmf
from veilring.protocols.ldp.algorithm.means import Means, SampledFeature
from veilring.protocols.ldp.algorithm.oracles import LocalHashing
from veilring.protocols.ldp.algorithm.randomiser import FrequencyOracle, LocalRandomiser
from veilring.protocols.ldp.algorithm.words import PrefixHashing

EPSILONS = (0.1, 1.0, 3.0)
CLIENTS = 40_000


def finite() -> list[LocalRandomiser]:
    """Return every mechanism with enumerable reports."""
    small = itertools.product(FINITE, (2, 3, 4, 5, 6), EPSILONS)
    signs = itertools.product(EPSILONS, range(1, 6))
    oracles = [ORACLES[name](domain, epsilon) for name, domain, epsilon in small]
    return [*oracles, LISTED, *MEANS, *(SignVector(*each) for each in signs)]


def sampled() -> list[tuple[LocalRandomiser, int]]:
    """Return the mechanisms whose draws are compared, with the number of their values."""
    few = [ORACLES[name](domain, 1.0) for name in FINITE for domain in (2, 3, 6)]
    whole = [(oracle, len(values_of(oracle))) for oracle in (*few, LISTED)]
    return [*whole, *((each, 3) for each in (*MEANS, SignVector(1.0, 3), SignVector(1.0, 4)))]


@pytest.mark.parametrize("mechanism", finite(), ids=words)
def test_no_report_is_likelier_than_its_epsilon_allows(mechanism: LocalRandomiser) -> None:
    """Over all reports and pairs of values the greatest log-ratio equals the exact epsilon."""
    distributions = [distribution_of(mechanism, value) for value in values_of(mechanism)]
    assert all(sum(distribution.values()) == 1 for distribution in distributions)
    # Exact means exact: nothing more is claimed to be spent than is.
    assert mechanism.exact_epsilon == pytest.approx(loss(distributions), rel=1e-9)
    if isinstance(mechanism, FrequencyOracle | SignVector):
        assert mechanism.exact_epsilon <= mechanism.epsilon
    if isinstance(mechanism, SignVector):
        assert mechanism.exact_epsilon >= mechanism.epsilon * (1 - 1e-4)


@pytest.mark.parametrize("mechanism", [each for each in finite() if each != LISTED], ids=words)
def test_estimates_have_exactly_the_true_mean_and_variance(mechanism: LocalRandomiser) -> None:
    """Over all reports of a client, the estimate has the mean of its value, and its variance."""
    for value in values_of(mechanism)[:9]:
        distribution = distribution_of(mechanism, value)
        shares = np.array([float(share) for share in distribution.values()])
        reports = [np.frombuffer(report, np.uint8)[None] for report in distribution]
        found = [mechanism.estimate(mechanism.aggregate(each), 1).values for each in reports]
        mean, true = shares @ found, truth(mechanism, value)
        assert mean == pytest.approx(true, abs=1e-6)
        if isinstance(mechanism, FrequencyOracle):
            said = [mechanism.variance(frequency) for frequency in true.tolist()]
        elif isinstance(mechanism, SignVector):
            said = (float(mechanism.slope) ** -2 - true**2).tolist()
        else:
            continue
        assert shares @ np.square(found) - mean**2 == pytest.approx(said, rel=1e-6)


def truth(mechanism: LocalRandomiser, value: Value) -> Floats:
    """Return a client's own value in the form of the estimate of its reports."""
    row = np.array(value)
    if isinstance(mechanism, FrequencyOracle):
        return np.asarray(np.eye(mechanism.domain)[row])
    if not isinstance(mechanism, Means):
        return row.astype(np.float64)
    own = np.eye(mechanism.classes)[row[-1] if mechanism.classes > 1 else 0]
    # the client draws each feature as often, and the others then have the estimate 0
    drawn = mechanism.features if isinstance(mechanism, SampledFeature) else 1
    return np.outer(row[: mechanism.features], own).ravel() / drawn


TESTS = sum(values for _, values in sampled()) + 32


@pytest.mark.parametrize(("mechanism", "values"), sampled(), ids=lambda it: getattr(it, "name", ""))
def test_reports_are_drawn_from_their_distribution(mechanism: LocalRandomiser, values: int) -> None:
    """For each value the reports pass a G-test, and no impossible report occurs."""
    for value in values_of(mechanism)[-values:]:
        distribution = distribution_of(mechanism, value)
        told = np.repeat(np.array([value]), CLIENTS, axis=0)
        reports = mechanism.perturb(told, seeded("law", words(mechanism), str(value)))
        assert mechanism.accept(reports).all()
        assert agrees((row.tobytes() for row in reports), distribution, TESTS)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("oracle_of", [LocalHashing, PrefixHashing])
def test_a_hashed_report_spends_as_its_bucket(
    oracle_of: type[LocalHashing], epsilon: float
) -> None:
    """Given the independent seed, any two buckets' distributions respect the exact epsilon."""
    oracle = oracle_of(6, epsilon)
    own, other = (Fraction(int(oracle.public[name])) for name in ("own", "other"))
    assert log_ceil(own / other) == oracle.exact_epsilon <= epsilon
    total = own + (int(oracle.public["buckets"]) - 1) * other
    assert (oracle.p, oracle.exact_epsilon) == (own / total, log_ceil(own / other))
    less = oracle_of(6, 1.05 * epsilon).public
    assert log_ceil(Fraction(int(less["own"]), int(less["other"]))) > epsilon


@pytest.mark.parametrize("value", [0, 1, 5])
def test_hashed_reports_are_drawn_from_the_published_distribution(value: int) -> None:
    """The value's hash and the reported bucket have the joint distribution; seeds are uniform."""
    oracle = LocalHashing(6, 1.0)
    public = {name: int(number) for name, number in oracle.public.items() if name != "oracle"}
    reports = oracle.perturb(np.full(CLIENTS, value), seeded("hashed", value))
    a, b = reports[:, :8].copy().view("<u4").astype(np.uint64).T
    high, buckets = public["high_bits"], public["buckets"]
    true = (((a * np.uint64(value) + b) % 2**32) >> np.uint64(32 - high)) * buckets >> high
    said = reports[:, 8]
    joint = np.bincount(true.astype(int) * buckets + said, minlength=buckets**2)
    sizes = [-(-(y + 1 << high) // buckets) - -(-(y << high) // buckets) for y in range(buckets)]
    total = public["own"] + (buckets - 1) * public["other"]
    distribution = [
        sizes[y] / 2**high * (public["own"] if y == z else public["other"]) / total
        for y, z in itertools.product(range(buckets), repeat=2)
    ]
    assert follows(joint, np.array(distribution), TESTS)
    for word in (a, b):
        assert follows(
            np.bincount((word >> 28).astype(int), minlength=16), np.full(16, 1 / 16), TESTS
        )


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_summed_noise_spends_at_most_its_epsilon(epsilon: float) -> None:
    """The two coordinates in which two values differ together cost exactly the exact epsilon."""
    oracle = SummedHistogram(6, epsilon)
    pair = [dict(enumerate(oracle.distributions.probabilities(which))) for which in (0, 1)]
    assert [sum(each.values()) for each in pair] == [1, 1]
    up, down = (max(a[step] / b[step] for step in a) for a, b in (pair, pair[::-1]))
    assert oracle.exact_epsilon == pytest.approx(math.log(up * down), rel=1e-9)
    assert oracle.exact_epsilon <= epsilon


def test_summed_noise_is_drawn_from_its_distribution() -> None:
    """Both kinds of coordinates pass a G-test over their grid, and are independent."""
    oracle, cells, shares = SummedHistogram(2, 1.0), list[Ints](), list[Floats]()
    reports = oracle.perturb(np.full(4 * CLIENTS, 1), seeded("summed"))
    for which, column in enumerate(reports.view("<i2").astype(int).T + oracle.bound):
        distribution = np.array(oracle.distributions.probabilities(which), dtype=np.float64)
        assert follows(np.bincount(column, minlength=len(distribution)), distribution, TESTS)
        quarter = np.minimum(np.cumsum(distribution) * 4, 3).astype(int)
        cells.append(quarter[column])
        shares.append(np.bincount(quarter, distribution, 4).astype(np.float64))
    joint = np.bincount(4 * cells[0] + cells[1], minlength=16)
    assert follows(joint, np.outer(*shares).reshape(-1), TESTS)


WHOLE = 2**64


@st.composite
def divisions(draw: st.DrawFn) -> list[int]:
    """Divide 4096 words among up to 16 outcomes, some of which may get none."""
    cuts = sorted(draw(st.lists(st.integers(0, 4096), max_size=15)))
    return [after - before for before, after in zip([0, *cuts], [*cuts, 4096], strict=True)]


@given(divisions(), st.integers(-5, 5))
def test_each_outcome_has_exactly_its_words(division: list[int], first: int) -> None:
    """For equally spaced words, each outcome occurs exactly as often as its weight says."""
    distributions = TableDistributions(first, [[part * 2**52 for part in division]])
    words = np.arange(4096, dtype=np.uint64) << np.uint64(52)
    drawn = distributions.sample(np.zeros(4096, dtype=np.int8), scripted(words))
    assert np.bincount(drawn - first, minlength=len(division)).tolist() == division


CASES = [
    (range(-16, 17), 32, 300),
    ((0, 64), 128, 1000),
    ((0, 1), Fraction(1, 2), 8),
    ((-3, -1, 4), 2.7, 40),
    ((0, 1024), 20480, 32767),
    ((5,), 3, 7),
]


@pytest.mark.parametrize(("inputs", "scale", "bound"), CASES, ids=str)
def test_clamped_noise_is_laplace_noise_that_loses_no_more_than_it_claims(
    inputs: tuple[int, ...], scale: float | Fraction, bound: int
) -> None:
    """No ratio of the weights of two inputs exceeds e**(|u - v| / scale), in integers.

    Each probability equals that of clamped noise of the same scale, to a thousandth.
    """
    distributions = clamped_laplace(inputs, scale, bound)
    for i, j in combinations(range(len(inputs)), 2):
        claim = (inputs[j] - inputs[i]) / Fraction(scale)
        limit = exp_floor(claim)
        for a, b in zip(distributions.weights[i], distributions.weights[j], strict=True):
            assert max(a, b) * limit.denominator <= min(a, b) * limit.numerator
        assert (1 - 1e-3) * float(claim) <= distributions.loss(i, j) <= float(claim)
    reach = 60 * math.ceil(scale) + 2 * bound
    k = np.arange(-reach, reach + 1)
    for i, value in enumerate(inputs):
        outcomes = np.clip(k + value, -bound, bound) + bound
        distribution = np.bincount(outcomes, weights=discrete_laplace_pmf(k, scale))
        ours = np.array([float(p) for p in distributions.probabilities(i)])
        far = 1 + np.abs(np.arange(-bound, bound + 1) - value) / float(scale)
        assert (np.abs(ours - distribution) <= 1e-3 * far * distribution).all()


def test_moments_and_losses_are_exact() -> None:
    """Outcomes of 1/4 and 3/4 have mean 3/4, variance 3/16, and a loss of ln 3 when mirrored."""
    quarter = WHOLE // 4
    distributions = TableDistributions(
        0, [[quarter, 3 * quarter], [3 * quarter, quarter], [0, WHOLE]]
    )
    assert distributions.mean(0) == Fraction(3, 4)
    assert distributions.variance(0) == Fraction(3, 16)
    assert distributions.loss(0, 1) == pytest.approx(math.log(3), rel=1e-15)
    assert distributions.loss(0, 2) == distributions.epsilon == math.inf


def test_invalid_tables_are_refused() -> None:
    """Too wide bounds, inputs that do not ascend or lie outside, and wrong weights are refused."""
    require_refused("has a probability of at least", clamped_laplace, (0, 16), 32, 1000)
    for inputs in ((), (1, 1), (2, 1), (0, 11), (-11, 0)):
        require_refused("inputs", clamped_laplace, inputs, 4, 10)
    for bound in (0, 2**15):
        require_refused("bound", clamped_laplace, (0, 1), 4, bound)
    false: list[list[list[int]]]
    false = [[], [[]], [[WHOLE], [1, WHOLE - 1]], [[WHOLE + 1, -1]], [[WHOLE - 1]]]
    for weights in false:
        require_refused("weights", TableDistributions, 0, weights)
    sample = TableDistributions(0, [[WHOLE]]).sample
    require_refused("inputs", sample, np.array([1]), seeded())

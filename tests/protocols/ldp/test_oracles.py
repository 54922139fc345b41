"""Oracles: reports as bytes, the accepted ones, and estimates with their variance.

They are unbiased, with the variance of the closed forms, and the best one is recommended.
"""

import math
import tracemalloc
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from papers.means import SignVector
from papers.oracles import ALL_ORACLES, SummedHistogram, ThresholdedHistogram, best_theta
from tests.privacy.generators import FALSE_ALARM, seeded
from tests.protocols.ldp.distributions import MECHANISMS, bernstein, words
from tests.refusals import require_refused

from veilring.arrays import Floats
from veilring.protocols.ldp.algorithm.means import Means
from veilring.protocols.ldp.algorithm.oracles import (
    ORACLES,
    HashFamily,
    LocalHashing,
    OptimisedUnary,
    SubsetSelection,
    oracle_options,
    recommend_oracle,
)
from veilring.protocols.ldp.algorithm.packing import (
    column_sums,
    counted,
    decoded,
    encoded,
    width_of,
)
from veilring.protocols.ldp.algorithm.randomiser import (
    CONSISTENCIES,
    FrequencyOracle,
    LocalRandomiser,
    PlainOracle,
    PureOracle,
    Reports,
    SurveyEstimate,
    given_ends,
    make_consistent,
    project_on_simplex,
)

SIZES = {
    "de": {4: 1, 256: 1, 257: 2, 1024: 2},
    **{name: {4: 1, 8: 1, 9: 2, 1024: 128} for name in ("sue", "oue", "the")},
    "she": {4: 8, 1024: 2048},
    "olh": {4: 9, 1024: 9},
    "hr": {4: 1, 127: 1, 128: 2, 1024: 2},
    "ss": {4: 1, 32: 4, 1024: 128},
}
LISTED = SubsetSelection(1024, 4.0)
EVERY = [
    *(kind(40, epsilon) for kind in ALL_ORACLES.values() for epsilon in (1.0, 3.0)),
    PlainOracle(40),
    *MECHANISMS,
    SignVector(1.0, 5),
]


def some(mechanism: LocalRandomiser, clients: int = 300) -> Reports:
    """Return honest reports of clients with all values."""
    rng = seeded("reports", mechanism.name, mechanism.entries)
    if not isinstance(mechanism, Means | SignVector):
        return mechanism.perturb(rng.integers(mechanism.entries, size=clients), rng)
    rows = rng.uniform(-1, 1, (clients, mechanism.features))
    if isinstance(mechanism, Means) and mechanism.classes > 1:
        rows = np.column_stack((rows, rng.integers(mechanism.classes, size=clients)))
    return mechanism.perturb(rows, rng)


@pytest.mark.parametrize("name", SIZES)
def test_honest_reports_have_the_stated_size(name: str) -> None:
    """They are accepted for any value."""
    for domain, size in SIZES[name].items():
        oracle = ALL_ORACLES[name](domain, 1.0)
        reports = some(oracle)
        assert reports.shape == (300, size) == (300, oracle.report_bytes)
        assert oracle.accept(reports).all()


@pytest.mark.parametrize("mechanism", EVERY, ids=words)
def test_sums_of_collectors_add_up(mechanism: LocalRandomiser) -> None:
    """Sums of parts add up exactly; another width is not accepted, and no other array is."""
    reports = some(mechanism, 3_001)
    whole = mechanism.aggregate(reports)
    assert whole.shape == (mechanism.cells,)
    parts = (reports[:1_000], reports[1_000:1_000], reports[1_000:])
    assert (np.sum([mechanism.aggregate(part) for part in parts], axis=0) == whole).all()
    assert (mechanism.aggregate(np.repeat(reports, 2, axis=0)[::2]) == whole).all()
    assert mechanism.accept(reports).all()
    assert mechanism.accept(reports[:0]).shape == (0,)
    for wrong in (np.hstack((reports, reports[:, :1])), reports[:, :-1]):
        assert not mechanism.accept(wrong).any()
    require_refused("reports are int64", mechanism.accept, reports.astype(np.int64))
    require_refused("reports are uint8 of the shape", mechanism.accept, reports.reshape(-1))


@pytest.mark.parametrize(
    "oracle", [*(kind(4, 1.0) for kind in ALL_ORACLES.values()), PlainOracle(4)], ids=words
)
def test_bad_values_are_refused_without_being_shown(oracle: FrequencyOracle | PlainOracle) -> None:
    """A value outside the domain, a fraction and a table are refused, and no error shows them."""
    rng = seeded("bad")
    for bad in ([0, 4], [-1, 0], [0.5], [[1, 2]]):
        require_refused(r"^(?!.*4\]).*values (have|must be) ", oracle.perturb, np.array(bad), rng)
    assert oracle.perturb(np.array([], dtype=np.int64), rng).shape == (0, oracle.report_bytes)


@pytest.mark.parametrize("name", ALL_ORACLES)
def test_any_expressible_budget_works_and_others_are_refused(name: str) -> None:
    """Reports are accepted, spend at most the budget, and give estimates; others name the field."""
    for domain, epsilon in ((10, 0.01), (10, 1.0), (10, 20.0), (2, 2.0**-23), (1000, 2.0**-23)):
        oracle = ALL_ORACLES[name](domain, epsilon)
        reports = some(oracle, 50)
        assert oracle.accept(reports).all()
        assert 0 < oracle.exact_epsilon <= epsilon
        assert np.isfinite(oracle.estimate(oracle.aggregate(reports), 50).values).all()
    for domain in (1, 1 << 21):
        require_refused("^domain is", ALL_ORACLES[name], domain, 1.0)
    for epsilon in (0.0, 5e-324, 1e-300, 1e-20, 21.0, float("nan")):
        require_refused("^epsilon is", ALL_ORACLES[name], 4, epsilon)


def test_no_other_bytes_are_accepted() -> None:
    """Of all reports of one or two bytes, exactly the outputs of `perturb` are accepted."""
    bytes_two = np.indices((256, 256)).reshape(2, -1).T.astype(np.uint8)
    numbers = bytes_two @ np.array([1, 256])
    ones = np.arange(256, dtype=np.uint8)[:, None]
    assert ALL_ORACLES["de"](200, 1.0).accept(ones).tolist() == [n < 200 for n in range(256)]
    assert (ALL_ORACLES["de"](300, 1.0).accept(bytes_two) == (numbers < 300)).all()
    assert (ALL_ORACLES["hr"](300, 1.0).accept(bytes_two) == (numbers < 1024)).all()
    for name in ("oue", "sue", "the"):
        assert (ALL_ORACLES[name](11, 1.0).accept(bytes_two) == (bytes_two[:, 1] & 31 == 0)).all()
    sets = SubsetSelection(11, 1.0)
    bits = np.unpackbits(bytes_two, axis=1)
    right = (bits[:, 11:].sum(axis=1) == 0) & (bits.sum(axis=1) == sets.size)
    assert (sets.accept(bytes_two) == right).all()


def test_a_hashed_report_has_a_known_bucket() -> None:
    """Any seed is accepted, and every bucket from g on is refused."""
    oracle = LocalHashing(50, 1.0)
    reports = some(oracle, 256)
    reports[:, 0], reports[:, 8] = 255, np.arange(256)
    assert oracle.accept(reports).tolist() == [bucket < 4 for bucket in range(256)]


def test_a_list_has_the_right_number_of_distinct_members() -> None:
    """Repeated, unordered and unknown members are not accepted."""
    members = some(LISTED).view("<u2")
    assert LISTED.accept(members.view(np.uint8)).all()
    for bad in (members[:, ::-1], np.repeat(members[:, :1], LISTED.size, axis=1)):
        assert not LISTED.accept(np.ascontiguousarray(bad).view(np.uint8)).any()
    unknown = members.copy()
    unknown[:, -1] = 1024
    assert not LISTED.accept(unknown.view(np.uint8)).any()


def test_a_summed_report_stays_on_its_grid() -> None:
    """The greatest steps are accepted on both sides, but one more is not, nor all of them."""
    oracle = SummedHistogram(100, 1.0)
    most = oracle.bound
    steps = np.zeros((7, 100), dtype="<i2")
    steps[:5, 1] = most, -most, most + 1, -most - 1, -32768
    steps[5, :4], steps[6] = most, most
    accepted = oracle.accept(steps.view(np.uint8))
    assert accepted.tolist() == [True, True, False, False, False, True, False]


@pytest.mark.parametrize("name", ["oue", "sue", "the"])
@pytest.mark.parametrize("lie", [0, 255])
def test_a_report_with_all_bits_or_none_is_refused(name: str, lie: int) -> None:
    """Impossible numbers of set bits are refused, and the closest possible ones accepted."""
    oracle = ALL_ORACLES[name](1000, 1.0)
    assert isinstance(oracle, OptimisedUnary)
    assert not oracle.accept(np.full((3, oracle.report_bytes), lie, dtype=np.uint8)).any()
    low, high = oracle.sizes
    bits = np.arange(1000) < np.array([low - 1, low, high, high + 1])[:, None]
    accepted = oracle.accept(np.packbits(bits, axis=1))
    assert accepted.tolist() == [False, True, True, False]


def test_colluding_liars_change_frequencies_slightly() -> None:
    """With 1 % liars sending as many bits as accepted, frequencies add up to at most 5 more."""
    oracle, rng = ALL_ORACLES["oue"](1000, 1.0), seeded("liars")
    assert isinstance(oracle, OptimisedUnary)
    honest = oracle.perturb(rng.integers(1000, size=20_000), rng)
    most = np.packbits(np.arange(1000) < oracle.sizes[1])
    lies = np.tile(most, (200, 1))
    assert oracle.accept(lies).all()
    before = oracle.estimate(oracle.aggregate(honest), 20_000).values.sum()
    after = oracle.estimate(oracle.aggregate(np.vstack((honest, lies))), 20_200).values.sum()
    # A lie has 138 bits more than an honest report, each of 1 / (p - q) = 4.3 clients.
    assert after - before < 0.01 * 138 * 4.4


def test_one_lie_has_the_stated_influence() -> None:
    """A report that supports a value instead of none changes its count by `influence` clients."""
    for name in ("de", "oue", "olh", "ss", "hr"):
        oracle = ALL_ORACLES[name](100, 1.0)
        lie = (np.arange(100) == 3).astype(np.int64)
        with_lie, without = (oracle.estimate(sums, 1000).values[3] for sums in (lie, 0 * lie))
        assert 1000 * (with_lie - without) == pytest.approx(oracle.influence)
    assert round(ALL_ORACLES["de"](1000, 1.0).influence) == 583
    summed = SummedHistogram(4, 1.0)
    sums = np.array([summed.bound, -summed.bound, 0, 0])
    high, low, *_ = (summed.estimate(sums, 1).values).tolist()
    assert high - low == pytest.approx(summed.influence)


@given(rows=st.integers(0, 5000), columns=st.integers(1, 150), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_column_sums_are_those_of_unpacked_bits(rows: int, columns: int, seed: int) -> None:
    """Tables with few or many rows and columns have the same sums as their bits one by one."""
    bits = np.random.default_rng(seed).random((rows, columns)) < 0.7
    packed = np.packbits(bits, axis=1)
    assert (column_sums(packed, columns) == bits.sum(axis=0)).all()
    assert (column_sums(np.full_like(packed, 255), columns) == rows).all()


@given(st.lists(st.integers(0, 2**40 - 1), max_size=300), st.integers(5, 7))
def test_numbers_survive_as_bytes_and_are_counted(numbers: list[int], width: int) -> None:
    """Encoding is little-endian and decodes to the original; each occurrence is counted."""
    digits = encoded(np.array(numbers, dtype=np.int64), width)
    assert digits.tobytes() == b"".join(number.to_bytes(width, "little") for number in numbers)
    assert decoded(digits).tolist() == numbers
    assert [width_of(count) for count in (2, 256, 257, 65536, 65537)] == [1, 1, 2, 2, 3]
    few = np.array(numbers, dtype=np.int64) % 70_000
    for count in (70_000, 1 << 20):
        assert (counted(encoded(few, 3), count) == np.bincount(few, minlength=count)).all()


@pytest.mark.parametrize(
    "oracle",
    [ALL_ORACLES["de"](1 << 20, 1.0), SubsetSelection(1 << 20, 20.0), PlainOracle(1 << 20)],
)
def test_counting_uses_little_memory_beside_the_sums(oracle: LocalRandomiser) -> None:
    """For any domain, no second array of its size is created to count reports."""
    reports = np.zeros((1000, oracle.report_bytes), dtype=np.uint8)
    tracemalloc.start()
    try:
        sums = oracle.aggregate(reports)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.25 * sums.nbytes


FUNCTIONS = np.indices((256, 256)).reshape(2, -1).astype(np.uint8)


def reference(family: HashFamily, a: int, b: int, value: int) -> int:
    """Return a bucket by the definition, in integers."""
    word = (a * value + b) % 2**family.word_bits
    high: int = word >> (family.word_bits - family.high_bits)
    return high * family.buckets >> family.high_bits


@pytest.mark.parametrize(("domain", "buckets"), [(2, 2), (4, 3), (5, 4), (8, 5), (16, 7)])
def test_two_values_are_hashed_independently(domain: int, buckets: int) -> None:
    """Over all functions on 8-bit words, each pair of values has the exact product distribution."""
    family = HashFamily(domain, buckets, word_bits=8)
    a, b = FUNCTIONS
    hashed = [family.bucket(a, b, np.array(value)) for value in range(domain)]
    alone = np.bincount(hashed[0], minlength=buckets)
    for one in range(domain):
        for other in range(one):
            joint = np.bincount(buckets * hashed[one] + hashed[other], minlength=buckets**2)
            # 2^16 functions: a product of two probabilities, each a multiple of 2^-16.
            assert (joint * 2**16 == np.outer(alone, alone).reshape(-1)).all()
            shared = int((hashed[one] == hashed[other]).sum())
            assert family.collision == Fraction(shared, 2**16)


@pytest.mark.parametrize("word_bits", [8, 16, 32])
@pytest.mark.parametrize(("domain", "buckets"), [(2, 2), (6, 3), (100, 4), (100, 56), (16, 255)])
def test_support_is_counted_by_definition(domain: int, buckets: int, word_bits: int) -> None:
    """A value's sum grows by the number of functions that map it to their given bucket."""
    family, rng = HashFamily(domain, buckets, word_bits), seeded("support", domain, word_bits)
    a, b = rng.integers(2**word_bits, size=(2, 50), dtype=np.uint64).astype(family.word)
    said = rng.integers(buckets, size=50)
    sums = np.ones(domain, dtype=np.int64)
    family.add_supported(sums, a, b, said)
    defined = [
        [reference(family, int(x), int(y), value) for x, y in zip(a, b, strict=True)]
        for value in range(domain)
    ]
    assert (sums - 1 == (np.array(defined) == said).sum(axis=1)).all()
    for value in range(min(domain, 20)):
        assert family.bucket(a, b, np.array(value)).tolist() == defined[value]


def test_the_hash_is_the_same_on_every_machine() -> None:
    """A few hashes equal values computed by hand from the definition."""
    family = HashFamily(1000, 4)
    assert family.high_bits == 23
    a = np.array([1, 2**31 + 1, 0xDEADBEEF], dtype=np.uint32)
    b = np.array([2**30, 5, 0x12345678], dtype=np.uint32)
    # 4 buckets are the two highest bits: of 2^30 + 999, 2^31 + 8, and 0x0C76C45B.
    assert family.bucket(a, b, np.array([999, 3, 77])).tolist() == [1, 2, 0]


POINTS = {0.2: (2,), 0.5: (3, 17), 1.0: (4, 8, 32), 1.5: (50,), 2.0: (9,), 3.0: (24, 64)}
CASES = [(name, e, d) for name, e in product(ALL_ORACLES, POINTS) for d in POINTS[e]]
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
    """At frequency 0 it is the published one, and for subset selection the least of all sizes."""
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


def _distribution(oracle: FrequencyOracle, which: int) -> Floats:
    """Return the distribution of a report's part of another value's sum, or of the own one's."""
    if isinstance(oracle, PureOracle):
        p = float((oracle.q, oracle.p)[which])
        return np.array([1 - p, p])
    assert isinstance(oracle, SummedHistogram)
    return np.array(oracle.distributions.probabilities(which), dtype=np.float64)


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
    other, own = (_distribution(oracle, which) for which in (0, 1))
    outcomes = np.arange(len(own))
    largest = outcomes[-1] / (outcomes @ own - outcomes @ other) / clients  # of one report
    variances = [oracle.variance(share) / clients for share in truth.tolist()]
    reach = [bernstein(variance, largest, ALARM / domain) for variance in variances]
    assert (np.abs(found.values - truth) <= reach).all()


def test_intervals_of_summed_histograms_hold_their_confidence() -> None:
    """Intervals miss at most at the exact binomial rate of their confidence.

    `test_intervals` tests the intervals of all other oracles exactly.
    """
    oracle = ALL_ORACLES["she"](4, 1.0)
    clients, runs, confidence = 400, 300, 0.9
    reports = oracle.perturb(np.zeros(clients * runs, dtype=np.int64), seeded("interval", "she"))
    covered = np.zeros(2)
    for group in reports.reshape(runs, clients, -1):
        found = oracle.estimate(oracle.aggregate(group), clients, confidence=confidence)
        assert (found.low <= found.values).all()
        assert (found.values <= found.high).all()
        covered += [found.low[0] <= 1 <= found.high[0], found.low[1] <= 0 <= found.high[1]]
    # The normal distribution of a sum is off by at most 0.4748 rho / (sigma^3 sqrt(m)) on each side
    # (Berry, Esseen; the constant is Shevtsova's of 2011).
    skews = list[float]()
    for distribution in (_distribution(oracle, which) for which in (0, 1)):
        outcomes = np.arange(len(distribution))
        squares = (outcomes - outcomes @ distribution) ** 2
        skews.append(float(squares**1.5 @ distribution / (squares @ distribution) ** 1.5))
    slack = 2 * 0.4748 * max(skews) / math.sqrt(clients)
    allowed = bernstein(runs / 4, 1.0, FALSE_ALARM / 2) + slack * runs
    assert (np.abs(covered - confidence * runs) <= allowed).all()


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
    ends = partial(given_ends, RAW - 0.1, RAW + 0.1)
    estimate = SurveyEstimate(RAW.copy(), np.full(5, 0.01), 200, ends)
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
    """It is direct, subsets or hashing, by the domain; with a limit, the best one within it."""
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

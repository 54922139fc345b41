"""Mechanisms for means: the loss of codes and of whole reports, and estimates from many."""

import itertools
import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from papers.means import APPROACHES, Approach, SignVector, make_means
from tests.privacy.generators import FALSE_ALARM, follows, seeded
from tests.protocols.ldp.distributions import DISTRIBUTIONS, MECHANISMS, bernstein, words
from tests.refusals import require_refused

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.codes import CodeDistribution, OneBit, rounded
from veilring.protocols.ldp.algorithm.means import (
    EachFeature,
    Means,
    SampledFeature,
    worst_variance,
)
from veilring.protocols.ldp.algorithm.means import make_means as best_means
from veilring.protocols.ldp.algorithm.numbers import Hybrid, Laplace, Piecewise

ALL = [kind(epsilon) for kind in DISTRIBUTIONS for epsilon in (0.3, 1.0, 4.0)]
DRAWS = 40_000
BINS = 40
# Each distribution is drawn from at three points.
TESTS = 3 * len(ALL)
CLIENTS = 20_000
# Each mechanism's mean is looked at in up to six entries.
ALARM = FALSE_ALARM / (6 * len(MECHANISMS))


def values(distribution: CodeDistribution) -> Floats:
    """Return the number that each code represents."""
    return distribution.total(distribution.summed(np.arange(distribution.codes)))


@pytest.mark.parametrize("distribution", ALL, ids=words)
def test_codes_have_the_stated_loss_and_moments(distribution: CodeDistribution) -> None:
    """Over all codes and pairs of points the greatest log-ratio is exactly the exact epsilon.

    At each point the probabilities add up to 1, and mean and mean square are as stated. Only
    clipped Laplace noise has a bias, below any error of an estimate.
    """
    codes, levels = np.arange(distribution.codes), distribution.levels
    grid = np.unique([round(part * levels / 8) for part in range(-8, 9)])
    distributions = np.stack([distribution.probability(codes, each) for each in grid.tolist()])
    means = grid / levels
    greatest = float(np.log(distributions.max(axis=0) / distributions.min(axis=0)).max())
    assert distribution.exact_epsilon == pytest.approx(greatest, rel=1e-9)
    requested = float(distribution.epsilon)
    assert requested * (1 - 1e-8) <= distribution.exact_epsilon <= requested
    bias = distribution.bias if isinstance(distribution, Laplace) else 0.0
    assert distributions.sum(axis=1) == pytest.approx(1.0, abs=1e-12)
    assert distributions @ values(distribution) == pytest.approx(means, abs=1e-10 + bias)
    assert bias <= 2.1e-9 / requested
    squares = distributions @ values(distribution) ** 2
    said = [distribution.second_moment(mean) for mean in means.tolist()]
    assert said == pytest.approx(squares.tolist(), rel=1e-7 if bias else 1e-9)


PUBLISHED: dict[type[CodeDistribution], tuple[list[float], list[float]]] = {
    Laplace: ([401.0, 81.0, 41.0, 21.0], [32.0, 8.0, 2.0, 0.5]),
    OneBit: ([20.02, 4.083, 2.164, 1.313], [16.7, 4.68, 1.72, 1.08]),
    Piecewise: ([40.0, 8.04, 4.08, 2.16], [21.2, 5.22, 1.23, 0.241]),
    Hybrid: ([20.02, 4.083, 4.08, 2.16], [16.7, 4.29, 1.04, 0.219]),
}


@pytest.mark.parametrize("kind", PUBLISHED)
def test_influences_and_worst_variances_are_as_published(kind: type[CodeDistribution]) -> None:
    """Both agree within half a per cent, and the influence is the greatest number of any code."""
    influences, variances = PUBLISHED[kind]
    few = [kind(epsilon) for epsilon in (0.1, 0.5, 1.0, 2.0)]
    assert [each.influence for each in few] == pytest.approx(influences, rel=5e-3)
    assert [np.abs(values(each)).max() for each in few] == [each.influence for each in few]
    for epsilon, variance in zip((0.5, 1.0, 2.0, 4.0), variances, strict=True):
        distribution = kind(epsilon)
        numbers = np.linspace(-1.0, 1.0, 4 * distribution.levels + 1).tolist()
        worst = max(distribution.second_moment(x) - x * x for x in numbers)
        assert worst == pytest.approx(variance, rel=5e-3)


@pytest.mark.parametrize("distribution", ALL, ids=words)
def test_codes_are_drawn_from_the_distribution(distribution: CodeDistribution) -> None:
    """At both ends and in the middle, draws pass a G-test over ranges of codes."""
    codes = np.arange(distribution.codes)
    for grid in (-distribution.levels, 0, distribution.levels):
        probabilities = distribution.probability(codes, grid)
        bins = np.minimum(np.cumsum(probabilities) * BINS, BINS - 1).astype(np.int64)
        rng = seeded("codes", words(distribution), grid)
        drawn = distribution.sample(np.full(DRAWS, grid), rng)
        expected = np.bincount(bins, probabilities, BINS).astype(np.float64)
        assert follows(np.bincount(bins[drawn], minlength=BINS), expected, TESTS)


@given(numbers=st.lists(st.floats(-1, 1), min_size=1, max_size=9), exponent=st.integers(0, 36))
def test_rounding_goes_to_a_neighbour_on_the_grid(numbers: list[float], exponent: int) -> None:
    """A number is rounded to the point below or above, and a grid point stays."""
    given_, levels = np.array(numbers), 2**exponent
    grid = rounded(given_, levels, np.random.default_rng(0))
    assert (np.abs(grid - given_ * levels) < 1).all()
    assert (rounded(grid / levels, levels, np.random.default_rng(1)) == grid).all()


def test_rounding_is_unbiased() -> None:
    """The mean of many roundings is the number, within Bernstein's bound."""
    for number, levels in itertools.product((-0.999, -0.3, 1e-3, 0.7), (1, 8)):
        grid = rounded(np.full(DRAWS, number), levels, seeded("rounding", levels))
        part = (number * levels) % 1
        reach = bernstein(DRAWS * part * (1 - part), 1.0, FALSE_ALARM / 8)
        assert abs(grid.sum() - DRAWS * number * levels) <= reach


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_the_least_epsilon_allows_estimates(kind: type[CodeDistribution]) -> None:
    """At it numbers and variances are finite and codes fit in four bytes; less is refused."""
    distribution = kind(kind.least_epsilon)
    ends = np.array([-distribution.levels, distribution.levels])
    codes = distribution.sample(ends, seeded("least", kind.name))
    assert np.isfinite(distribution.total(distribution.summed(codes))).all()
    assert math.isfinite(distribution.second_moment(1.0))
    assert 0 < distribution.exact_epsilon <= kind.least_epsilon
    assert distribution.bits <= 32
    for wrong in (math.nextafter(kind.least_epsilon, 0.0), 0.0, -1.0, 20.5, math.nan, math.inf):
        allowed = f"epsilon is {wrong}; allowed: from {distribution.epsilon} to 20"
        require_refused(allowed, kind, wrong)


@pytest.mark.parametrize("means", MECHANISMS, ids=words)
def test_no_report_is_likelier_than_its_epsilon_allows(means: Means) -> None:
    """Over all reports and rows of -1, 0 and 1 with classes, the loss is the exact epsilon.

    The codes of one report are independent, so the worst report of a pair has the worst code at
    each position. Sampled features are drawn alike for all rows, so the worst ones count. No
    class may cost double.
    """
    codes, levels = np.arange(means.distribution.codes), means.distribution.levels
    logs = np.log([means.distribution.probability(codes, x * levels) for x in (-1, 0, 1)])
    worst = (logs[:, None] - logs).max(axis=2)
    rows = np.array(list(itertools.product((-1, 0, 1), repeat=means.features)))
    vectors = rows[:, None, :, None] * np.eye(means.classes, dtype=np.int64)[:, None]
    places = vectors.reshape(-1, means.features, means.classes) + 1
    each = worst[places[:, None], places].sum(axis=3)  # by pair of rows and feature
    told = means.told if isinstance(means, SampledFeature) else means.features
    whole = np.sort(each, axis=2)[:, :, -told:].sum(axis=2)
    assert means.exact_epsilon == pytest.approx(float(whole.max()), abs=1e-9)
    if isinstance(means.distribution, Piecewise | Hybrid):
        require_refused("distribution", EachFeature, means.distribution, 2, classes=2)


@pytest.mark.parametrize("approach", APPROACHES)
def test_each_approach_spends_the_requested_epsilon(approach: Approach) -> None:
    """For any number of features, all three waste nothing; an invalid ε is shown as requested."""
    for epsilon, features, classes in itertools.product((0.1, 1.0, 3.3), (1, 3, 7, 14), (1, 3)):
        exact = make_means(approach, epsilon, features, classes).exact_epsilon
        assert epsilon * (1 - 1e-9) <= exact <= epsilon
    for wrong in (math.nan, -math.inf, -1.0, 0.0):
        with pytest.raises(InputError) as caught:
            make_means(approach, wrong, 3)
        assert (caught.value.field, caught.value.value) == ("epsilon", str(wrong))


@pytest.mark.parametrize("means", MECHANISMS, ids=words)
def test_means_are_unbiased_within_their_variance(means: Means) -> None:
    """Means over clients, and within classes, are within Bernstein's bound."""
    rng, distribution = seeded("means", words(means)), means.distribution
    rows = rng.uniform(-1, 1, (CLIENTS, means.features))
    labels = rng.integers(means.classes, size=CLIENTS)
    told = rows if means.classes == 1 else np.column_stack((rows, labels))
    reports = means.perturb(told, rng)
    assert means.accept(reports).all()
    found = means.estimate(means.aggregate(reports), CLIENTS)
    assert (found.clients, found.values.shape) == (CLIENTS, (means.entries,))
    inside = labels[:, None] == np.arange(means.classes)
    true = (rows[:, :, None] * inside[:, None]).mean(axis=0).ravel()
    heard = float(CLIENTS)
    if isinstance(means, SampledFeature):
        heard *= means.told / means.features
    heard *= 0.9  # fewer clients draw a feature in less than 1e-9 of all cases (Chernoff)
    largest, moment = np.abs(values(distribution)).max(), distribution.second_moment(1.0)
    reach = bernstein(heard * moment, float(largest) + 1, ALARM) / heard
    assert np.abs(found.values - true).max() <= reach
    # What is said of the variance covers what there is, and not by more than the values' own.
    assert (found.variance * heard <= moment).all()
    assert ((found.low < found.values) & (found.values < found.high)).all()


@pytest.mark.parametrize("kind", [OneBit, Laplace, Hybrid])
def test_a_twentieth_less_noise_exceeds_the_epsilon(kind: type[CodeDistribution]) -> None:
    """The loss of the distribution for an epsilon that is 5 % larger is above the one promised."""
    for epsilon in (0.7, 1.0, 4.0):
        codes = np.arange(kind(1.05 * epsilon).codes)
        ends = [kind(1.05 * epsilon).probability(codes, x * kind.levels) for x in (-1, 1)]
        assert float(np.log(ends[0] / ends[1]).max()) > epsilon


V: Mapping[str, Callable[[float], float]] = {
    "hybrid": lambda e: (
        math.exp(-e / 2) * (math.exp(e) + 1) ** 2 / math.expm1(e) ** 2
        + (math.exp(e / 2) + 3) / (3 * math.exp(e / 2) * math.expm1(e / 2))
    ),
    "one-bit": lambda e: 1 / math.tanh(e / 2) ** 2,
    "laplace": lambda e: 8 / e**2,
}


@pytest.mark.parametrize("epsilon", [0.3, 0.6, 0.62, 1.0, 2.3, 2.35, 5.0, 10.0, 20.0])
def test_the_best_mechanism_for_means_is_chosen(epsilon: float) -> None:
    """Its variance is that of closed forms to 1 %, and within classes that of the better one."""
    alone = best_means(epsilon, 1).distribution
    assert alone.name == ("one-bit" if epsilon < 0.6093 else "hybrid")
    # from about 8 on, the grid has a little less
    least = 0.99 if epsilon < 8 else 0.7
    assert least <= worst_variance(alone) / V[alone.name](epsilon) <= 1.01
    assert worst_variance(alone) <= 1.01 * V["one-bit"](epsilon)
    within = [kind(epsilon) for kind in (OneBit, Laplace)]
    best = min(V["one-bit"](epsilon), V["laplace"](epsilon))
    assert min(map(worst_variance, within)) == pytest.approx(best, rel=0.01)
    assert best_means(min(epsilon, 2.4), 1, 2).distribution.name == (
        "one-bit" if epsilon < 2.32 else "laplace"
    )


def test_a_client_tells_the_best_number_of_features() -> None:
    """Of ten, two at epsilon 5 and five at 10, with 7.24 and 3.08 for each; all of few."""
    for features, epsilon, told, variance in ((10, 5.0, 2, 7.24), (10, 10.0, 5, 3.08)):
        means = best_means(epsilon, features)
        assert isinstance(means, SampledFeature)
        assert means.told == told
        assert epsilon * (1 - 1e-9) <= means.exact_epsilon <= epsilon
        found = worst_variance(means.distribution, features / told)
        assert found == pytest.approx(variance, rel=2e-3)
        for k in range(1, features + 1):
            least = features / k * (V["hybrid"](epsilon / k) + 1) - 1
            assert found <= 1.01 * least
    assert isinstance(best_means(10.0, 3), EachFeature)


def test_a_report_of_two_features_names_them_in_order() -> None:
    """Each pair is as likely; a repeated, a reversed and an unknown pair are refused."""
    means = SampledFeature(OneBit(1.0), 3, told=2)
    reports = means.perturb(np.zeros((6000, 3)), seeded("pairs"))
    assert means.accept(reports).all()
    pairs, counts = np.unique(reports[:, :2], axis=0, return_counts=True)
    assert pairs.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert follows(counts, np.full(3, 1 / 3), 1)
    for wrong in ([1, 1], [1, 0], [1, 3]):
        assert not means.accept(np.array([[*wrong, 0]], dtype=np.uint8)).any()
    for told in (0, 3):
        require_refused("told is", SampledFeature, OneBit(1.0), 3, told=told)


def test_too_many_or_too_few_plus_signs_are_refused() -> None:
    """Of fifty classes, only one has a number: about half of the other signs are plus."""
    means = EachFeature(OneBit(1.0), 8, 50)
    plus = np.arange(400) < np.array([0, 130, 200, 270, 400])[:, None]
    assert means.accept(np.packbits(plus, axis=1)).tolist() == [False, True, True, True, False]


def test_impossible_reports_are_not_accepted() -> None:
    """An unknown feature, a code beyond the last, and set padding are refused."""
    far = np.array([[0, 0, 0], [3, 0, 0], [0, 255, 255]], dtype=np.uint8)
    assert SampledFeature(Piecewise(1.0), 3).accept(far).tolist() == [True, False, False]
    bits = np.array([[0b11100000], [0b00000001]], dtype=np.uint8)
    for mechanism in (EachFeature(OneBit(1.0), 3), SignVector(1.0, 3)):
        assert mechanism.accept(bits).tolist() == [True, False]


def test_a_feature_without_reports_is_unknown() -> None:
    """Its variance is infinite and its interval the widest; impossible counts are refused."""
    means = SampledFeature(OneBit(1.0), 2)
    found = means.estimate(means.aggregate(np.array([[0, 0b10000000]], dtype=np.uint8)), 1)
    assert (found.values[1], found.variance[1]) == (0.0, math.inf)
    assert (found.low[1], found.high[1]) == (-1.0, 1.0)
    uneven = "counts of features do not add up"
    for wrong in (11, 13):
        require_refused(uneven, means.estimate, np.array([5, 5, 7, 1]), wrong)


IMPOSSIBLE = [
    np.zeros((4, 2)),
    np.zeros(4),
    np.full((4, 4), 2.0),
    np.full((4, 4), 0.5),
    *(np.array([[0.0, 0.0, number, 0.0]]) for number in (-1.001, 2.0, math.nan, math.inf)),
    np.vstack((np.zeros((100_000, 4)), [[0.0, 0.0, math.nan, 0.0]])),
]


@pytest.mark.parametrize("rows", IMPOSSIBLE, ids=range(9))
def test_invalid_rows_are_refused_before_any_draw(rows: Floats) -> None:
    """Another shape, an unknown class and numbers outside are refused, whatever would be drawn."""
    numbers = rows[:, :3] if rows.shape[1:] == (4,) else rows
    refusing: list[tuple[Means | SignVector, Floats]] = [
        (kind(OneBit(1.0), 3, 2), rows) for kind in (EachFeature, SampledFeature)
    ]
    if numbers.shape[1:] != (3,) or not (np.abs(numbers) <= 1).all():  # not only the class is wrong
        refusing.append((SignVector(1.0, 3), numbers))
    for mechanism, given_ in refusing:
        rng, untouched = seeded("refused"), seeded("refused")
        with pytest.raises(InputError, match="values") as caught:
            mechanism.perturb(given_, rng)
        assert "2.0" not in str(caught.value)
        assert rng.bytes(8) == untouched.bytes(8)


def test_a_report_of_only_extreme_numbers_is_refused() -> None:
    """One number of a client may be extreme, but not all of them together."""
    means = make_means("all-features", 1.0, 20)
    greatest = means.distribution.codes - 1
    codes = np.full((2, 20), greatest)
    codes[1, 1:] = greatest // 2
    assert means.accept(means._packed(codes)).tolist() == [False, True]  # noqa: SLF001  (as sent)
    honest = means.perturb(seeded("extreme").uniform(-1, 1, (2000, 20)), seeded("extreme", "noise"))
    assert means.accept(honest).all()


def test_as_published_an_even_number_of_features_is_not_private() -> None:
    """Closed half-spaces share the reports that agree in half: the loss is ln(e + 1) = 1.313."""
    every = list(itertools.product((-1, 1), repeat=4))

    def published(v: tuple[int, ...]) -> dict[tuple[int, ...], float]:
        dots = {t: int(np.dot(t, v)) for t in every}
        up, down = (sum(s * d >= 0 for d in dots.values()) for s in (1, -1))
        heads = math.e / (math.e + 1)
        return {t: (d >= 0) * heads / up + (d <= 0) * (1 - heads) / down for t, d in dots.items()}

    pairs = itertools.permutations(map(published, every), 2)
    greatest = max(math.log(a[t] / b[t]) for a, b in pairs for t in a)
    assert greatest == pytest.approx(math.log(math.e + 1))
    assert greatest == pytest.approx(1.313, abs=5e-4)


@pytest.mark.parametrize("features", [1, 2, 45])
def test_an_epsilon_too_small_for_the_weights_is_refused(features: int) -> None:
    """The error names the least epsilon; there estimates are finite, and below is no slope."""
    least = 2.0 ** (features - 61)
    mechanism = SignVector(least, features)
    assert mechanism.slope > 0
    found = mechanism.estimate(np.ones(features, dtype=np.int64), 2)
    assert np.isfinite([found.values, found.variance]).all()
    allowed = f"allowed: from {least} to 20 for {features} features"
    require_refused(allowed, SignVector, least * 0.99, features)
    require_refused("features is 45", SignVector, 1.0, 45)
    require_refused("epsilon", SignVector, 0.0, 3)

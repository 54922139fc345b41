"""Mean mechanisms over rows: the leakage of whole reports, and estimates from many."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from papers.oracles import APPROACHES, Approach, Laplace, make_means
from tests.privacy.generators import FALSE_ALARM, follows, seeded
from tests.protocols.ldp.bounds import bernstein

from veilring.arrays import Floats, Ints
from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.distributions import Hybrid, OneBit, Piecewise
from veilring.protocols.ldp.algorithm.means import EachFeature, Means, SampledFeature

MECHANISMS: list[Means] = [
    EachFeature(Laplace(0.5), 3),
    EachFeature(OneBit(0.5), 3),
    EachFeature(Piecewise(0.5), 3),
    EachFeature(Hybrid(1.0), 3),
    SampledFeature(Laplace(1.0), 3),
    SampledFeature(OneBit(1.0), 3),
    SampledFeature(Piecewise(1.0), 3),
    SampledFeature(Hybrid(1.0), 3),
    EachFeature(Laplace(0.5), 2, 3),
    EachFeature(OneBit(0.5), 2, 3),
    SampledFeature(Laplace(1.0), 2, 3),
    SampledFeature(OneBit(1.0), 2, 3),
]
CLIENTS = 20_000
# Each mechanism's mean is looked at in up to six entries.
ALARM = FALSE_ALARM / (6 * len(MECHANISMS))


def words(means: Means) -> str:
    """Return the name of a mechanism for test ids."""
    return f"{means.name}-{means.distribution.name}-{means.classes}"


def corners(means: Means) -> list[Floats]:
    """Return all rows of numbers -1, 0 and 1, with each class if there are classes."""
    classes = [(each,) for each in range(means.classes)] if means.classes > 1 else [()]
    rows = itertools.product((-1.0, 0.0, 1.0), repeat=means.features)
    return [np.array([*row, *label]) for row, label in itertools.product(rows, classes)]


def vector(means: Means, row: Floats) -> Ints:
    """Return the grid vector of a row's codes, shape (features, classes)."""
    grid = np.zeros((means.features, means.classes), dtype=np.int64)
    grid[:, int(row[-1]) if means.classes > 1 else 0] = (
        row[: means.features] * means.distribution.levels
    )
    return grid


def greatest_loss(means: Means) -> float:
    """Return the greatest loss over all pairs of corners and all reports.

    The codes of one report are independent, so the worst report of a pair has the worst code at
    each position. A sampled feature is drawn alike for all rows, so the worst feature counts.
    """
    codes = np.arange(means.distribution.codes)
    distributions = {
        point: np.log(means.distribution.probability(codes, point)) for point in _points(means)
    }
    worst = {
        (a, b): float((distributions[a] - distributions[b]).max())
        for a, b in itertools.product(distributions, distributions)
    }
    greatest = 0.0
    for one, other in itertools.permutations([vector(means, row) for row in corners(means)], 2):
        each = [
            sum(worst[pair] for pair in zip(a, b, strict=True))
            for a, b in zip(one.tolist(), other.tolist(), strict=True)
        ]
        greatest = max(greatest, max(each) if isinstance(means, SampledFeature) else sum(each))
    return greatest


def _points(means: Means) -> tuple[int, ...]:
    return (-means.distribution.levels, 0, means.distribution.levels)


@pytest.mark.parametrize("means", MECHANISMS, ids=words)
def test_no_report_is_likelier_than_its_epsilon_allows(means: Means) -> None:
    """Over all reports and all pairs of corners with classes, the loss is the exact epsilon."""
    loss = greatest_loss(means)
    assert loss <= means.exact_epsilon + 1e-9
    assert means.exact_epsilon <= loss + 1e-9


@pytest.mark.parametrize("approach", APPROACHES)
@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.3])
def test_each_approach_spends_the_requested_epsilon(
    approach: Approach, classes: int, epsilon: float
) -> None:
    """For any number of features, all three stay within epsilon and waste nothing."""
    for features in (1, 3, 7, 14):
        exact = make_means(approach, epsilon, features, classes).exact_epsilon
        assert epsilon * (1 - 1e-9) <= exact <= epsilon


@pytest.mark.parametrize("approach", APPROACHES)
@pytest.mark.parametrize("epsilon", [math.nan, -math.inf, -1.0, 0.0])
def test_an_invalid_epsilon_is_shown_as_given(approach: Approach, epsilon: float) -> None:
    """The error shows the requested ε, not a feature's part of it."""
    with pytest.raises(InputError) as caught:
        make_means(approach, epsilon, 3)
    assert (caught.value.field, caught.value.value) == ("epsilon", str(epsilon))


@pytest.mark.parametrize(
    "means", [EachFeature(OneBit(0.5), 2, 2), SampledFeature(OneBit(1.0), 2, 2)], ids=words
)
def test_reports_are_drawn_from_the_product_of_the_distributions(means: Means) -> None:
    """All bits and the index have the joint distribution used for the loss."""
    row = np.array([1.0, -1.0, 1.0])
    reports = means.perturb(np.tile(row, (CLIENTS, 1)), seeded("joint", means.name))
    distribution = _joint_distribution(means, row)
    place = {report: number for number, report in enumerate(distribution)}
    counts = np.bincount([place[each.tobytes()] for each in reports], minlength=len(distribution))
    assert follows(counts, np.array(list(distribution.values())), 2)


def _joint_distribution(means: Means, row: Floats) -> dict[bytes, float]:
    one = [
        means.distribution.probability(np.array([0, 1]), int(p)) for p in vector(means, row).ravel()
    ]
    if isinstance(means, EachFeature):
        return _bits(one)
    halves = (_bits(one[:2]), _bits(one[2:]))
    return {
        bytes([index]) + bits: share / 2
        for index, distribution in enumerate(halves)
        for bits, share in distribution.items()
    }


def _bits(distributions: list[Floats]) -> dict[bytes, float]:
    found = {}
    for bits in itertools.product((0, 1), repeat=len(distributions)):
        packed = np.packbits(np.array(bits, dtype=np.uint8)).tobytes()
        found[packed] = math.prod(
            float(distribution[bit]) for distribution, bit in zip(distributions, bits, strict=True)
        )
    return found


@pytest.mark.parametrize("means", MECHANISMS, ids=words)
def test_means_are_unbiased_within_their_variance(means: Means) -> None:
    """Means over clients, and within classes, are within Bernstein's bound."""
    rng = seeded("means", words(means))
    rows = rng.uniform(-1, 1, (CLIENTS, means.features))
    labels = rng.integers(means.classes, size=CLIENTS)
    told = rows if means.classes == 1 else np.column_stack((rows, labels))
    reports = means.perturb(told, rng)
    assert means.accept(reports).all()
    found = means.estimate(means.aggregate(reports), CLIENTS)
    inside = labels[:, None] == np.arange(means.classes)
    true = (rows[:, :, None] * inside[:, None]).mean(axis=0).ravel()
    largest = float(
        np.abs(
            means.distribution.total(means.distribution.summed(np.arange(means.distribution.codes)))
        ).max()
    )
    heard = CLIENTS / means.features if isinstance(means, SampledFeature) else CLIENTS
    heard *= 0.9  # fewer clients draw a feature in less than 1e-9 of all cases (Chernoff)
    reach = bernstein(heard * means.distribution.second_moment(1.0), largest + 1, ALARM) / heard
    assert np.abs(found.values - true).max() <= reach
    # What is said of the variance covers what there is, and not by more than the values' own.
    assert (found.variance * heard <= means.distribution.second_moment(1.0)).all()
    assert ((found.low < found.values) & (found.values < found.high)).all()


@given(which=st.sampled_from(MECHANISMS), seed=st.integers(0, 2**32), cut=st.integers(0, 12))
def test_sums_of_parts_are_sums_of_the_whole(which: Means, seed: int, cut: int) -> None:
    """Any two collectors' sums add up to those of all reports."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-1, 1, (12, which.features))
    told = rows if which.classes == 1 else np.column_stack((rows, rng.integers(0, 3, 12)))
    reports = which.perturb(told, rng)
    assert reports.shape == (12, which.report_bytes)
    assert which.accept(reports).all()
    parts = which.aggregate(reports[:cut]) + which.aggregate(reports[cut:])
    assert (parts == which.aggregate(reports)).all()


def test_impossible_reports_are_not_accepted() -> None:
    """An unknown feature, a code beyond the last, and set padding are refused."""
    sampled = SampledFeature(Piecewise(1.0), 3)
    far = np.zeros((1, 3), dtype=np.uint8)
    assert sampled.accept(far).tolist() == [True]
    assert sampled.accept(far + np.array([3, 0, 0], dtype=np.uint8)).tolist() == [False]
    assert sampled.accept(far + np.array([0, 255, 255], dtype=np.uint8)).tolist() == [False]
    each = EachFeature(OneBit(1.0), 3)
    assert each.accept(np.array([[0b11100000], [0b00000001]], dtype=np.uint8)).tolist() == [
        True,
        False,
    ]
    assert each.accept(np.zeros((2, 2), dtype=np.uint8)).tolist() == [False, False]


def test_a_feature_without_reports_is_unknown() -> None:
    """A feature that no report contains has an infinite variance and the widest interval."""
    means = SampledFeature(OneBit(1.0), 2)
    report = np.array([[0, 0b10000000]], dtype=np.uint8)
    found = means.estimate(means.aggregate(report), 1)
    assert found.values[1] == 0.0
    assert found.variance[1] == math.inf
    assert (found.low[1], found.high[1]) == (-1.0, 1.0)


@pytest.mark.parametrize("means", MECHANISMS, ids=words)
def test_an_estimate_has_its_number_of_reports(means: Means) -> None:
    """An estimate counts all reports for each feature, and inconsistent sums are refused."""
    rows = np.zeros((50, means.features + (means.classes > 1)))
    sums = means.aggregate(means.perturb(rows, seeded("clients", words(means))))
    found = means.estimate(sums, 50)
    assert found.clients == 50
    assert found.values.shape == (means.entries,)
    if isinstance(means, SampledFeature):
        for wrong in (49, 51):
            with pytest.raises(InputError, match="counts of features do not add up"):
                means.estimate(sums, wrong)


def test_an_invalid_number_is_refused_for_any_draw() -> None:
    """A client that draws another feature still refuses its row."""
    means = SampledFeature(OneBit(1.0), 2)
    for seed in range(8):
        with pytest.raises(InputError, match="values must be numbers from -1 to 1"):
            means.perturb(np.array([[0.0, 2.0]]), np.random.default_rng(seed))


@pytest.mark.parametrize(
    "distribution", [Piecewise(1.0), Hybrid(1.0)], ids=lambda distribution: distribution.name
)
def test_a_distribution_that_cannot_hide_a_class_is_refused(
    distribution: Piecewise | Hybrid,
) -> None:
    """It is refused, because two one-hot entries would cost double."""
    with pytest.raises(InputError) as caught:
        EachFeature(distribution, 2, classes=2)
    assert caught.value.field == "distribution"


@pytest.mark.parametrize(
    ("values", "means"),
    [
        (np.zeros((4, 2)), EachFeature(OneBit(1.0), 3)),
        (np.zeros(4), EachFeature(OneBit(1.0), 1)),
        (np.full((4, 3), 2.0), EachFeature(OneBit(1.0), 2, 2)),
        (np.full((4, 3), 0.5), EachFeature(OneBit(1.0), 2, 2)),
    ],
    ids=["columns", "axes", "class-beyond", "class-between"],
)
def test_invalid_values_are_refused(values: Floats, means: Means) -> None:
    """Rows of another shape, or with an unknown class, are refused."""
    with pytest.raises(InputError, match="values"):
        means.perturb(values, np.random.default_rng(0))


def test_a_report_of_only_extreme_numbers_is_refused() -> None:
    """One number of a client may be extreme, but not all of them together."""
    means = make_means("all-features", 1.0, 20)
    greatest = means.distribution.codes - 1
    middle = greatest // 2
    codes = np.full((2, 20), greatest)
    codes[1, 1:] = middle
    assert means.accept(means._packed(codes)).tolist() == [False, True]  # noqa: SLF001  (as sent)
    honest = means.perturb(seeded("extreme").uniform(-1, 1, (2000, 20)), seeded("extreme", "noise"))
    assert means.accept(honest).all()


def test_means_of_few_reports_are_called_rough() -> None:
    """Each feature is judged by its own reports; without noise only zero reports are rough."""
    means = make_means("one-bit", 4.0, 2)
    assert means.rough(np.array([200, 0, 900, 0]), 1100).tolist() == [True, False]
    assert make_means("one-feature", 1.0, 1, 2).rough(np.array([10, 0, 0]), 10).all()
    assert not make_means("all-features", 1.0, 2).rough(np.zeros(2, dtype=np.int64), 40).any()
    assert not make_means("one-bit", math.inf, 2).rough(np.zeros(2, dtype=np.int64), 3).any()

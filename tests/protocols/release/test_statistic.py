"""Sums of rows: their choice by public numbers, their sensitivity, and reals in whole numbers."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.random import Generator
from tests.protocols.release.schemas import MIXED, NUMERIC, all_statistics, draw_rows, schema
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.data.table import Features
from veilring.errors import InputError
from veilring.protocols.release.algorithm.classifiers import count_columns
from veilring.protocols.release.algorithm.directions import Centre, Discriminant, Moments
from veilring.protocols.release.algorithm.noise import (
    CENTRE_SHARE,
    Norm,
    Trust,
    account_of,
    plan_noise,
)
from veilring.protocols.release.algorithm.rule import Rule, first_statistic, main_statistic
from veilring.protocols.release.algorithm.statistic import (
    SCALE_MAX,
    Bound,
    Entries,
    Statistic,
    apportion,
    cut_off,
    shorten,
)
from veilring.protocols.release.algorithm.tallies import SIDE_MAX, SIDE_MIN, ClassCounts, grid_side

of_statistics = pytest.mark.parametrize(
    ("features", "statistic"),
    [
        pytest.param(features, statistic, id=f"{kind}-{name}")
        for kind, features in (("numbers", NUMERIC), ("mixed", MIXED))
        for name, statistic in all_statistics(features)
    ],
)


def exact(vector: Ints, norm: Norm) -> int:
    """Return the L1 norm or the squared L2 norm, in Python integers."""
    return sum(abs(int(value)) if norm == "l1" else int(value) ** 2 for value in vector)


def size_of(statistic: Statistic[Any], row: Floats, label: int) -> int:
    """Return the L1 norm, or the squared L2 norm, of one row's sum, in integers."""
    return exact(statistic.sum(row[None], np.array([label])), statistic.bound.norm)


def corners(width: int, rng: Generator) -> Floats:
    """Return rows at corners and edges, equal or nearly equal, and with impossible categories."""
    signs, digits = rng.integers(2, size=(20, width)), rng.integers(1, 17, size=(20, width))
    return np.vstack(
        (
            np.repeat([[0.0], [1.0], [0.5]], width, axis=1),
            rng.integers(2, size=(60, width)).astype(np.float64),
            rng.integers(3, size=(60, width)) / 2,
            np.nextafter(np.eye(width), 0.5),
            0.5 + (2 * signs - 1) * 10.0**-digits,
        )
    )


@pytest.mark.slow
@of_statistics
def test_a_row_adds_at_most_the_bound_and_some_row_nearly_attains_it(
    features: Features, statistic: Statistic[Any]
) -> None:
    """No row drawn, at a corner or found by climbing exceeds it, and one is within 2 % of it."""
    rng = np.random.default_rng(11)
    rows = np.vstack((draw_rows(features, 200, rng), corners(len(features), rng)))
    sizes = [size_of(statistic, row, label % 3) for label, row in enumerate(rows)]
    row, best = rows[int(np.argmax(sizes))], 0
    for _ in range(400):
        tried, place = row.copy(), rng.integers(len(row))
        near = np.clip(tried[place] + rng.normal(0, 0.01), 0, 1)
        tried[place] = rng.choice((0.0, 1.0, rng.random(), near))
        found = size_of(statistic, tried, 1)
        if found >= best:
            row, best = tried, found
    assert 0.98 * statistic.bound.most <= max(*sizes, best) <= statistic.bound.most


@of_statistics
def test_a_sum_is_exactly_that_of_its_rows(
    features: Features, statistic: Statistic[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum of a table is the sum over its rows in any blocks, and has the stated length."""
    rng = np.random.default_rng(2)
    rows, labels = draw_rows(features, 30, rng), rng.integers(3, size=30)
    one_by_one = [
        statistic.sum(row[None], label[None]) for row, label in zip(rows, labels, strict=True)
    ]
    total = statistic.sum(rows, labels)
    assert total.shape == (statistic.length,)
    assert total.dtype == np.int64
    assert np.array_equal(total, np.sum(one_by_one, axis=0))
    nothing = statistic.sum(rows[:0], labels[:0])
    assert np.array_equal(nothing, np.zeros(statistic.length))
    monkeypatch.setattr("veilring.protocols.release.algorithm.statistic._BLOCK", 1)
    assert np.array_equal(statistic.sum(rows, labels), total)


HUNDRED = Bound("l2", 100)


@dataclass
class Stated(Statistic[None]):
    """A custom statistic that returns given entries, under a given bound."""

    found: Entries
    bound: Bound = HUNDRED
    length: int = 3

    @override
    def entries(self, rows: Floats, labels: Ints) -> Entries:
        return self.found

    @override
    def decode(self, noisy: Ints, deviation: float) -> None:
        return None


def whole(*values: int) -> Entries:
    """Return the entries of one dense vector."""
    return Entries.dense(np.array([values], dtype=np.int64))


def sum_of(statistic: Statistic[Any], rows: int = 1) -> Ints:
    """Return the sum of rows, whose content does not matter."""
    return statistic.sum(np.zeros((rows, 1)), np.zeros(rows, dtype=np.int64))


@pytest.mark.parametrize(
    ("found", "bound"),
    [
        (whole(3, 4, 0), Bound("l2", 24)),
        (whole(3, -4, 0), Bound("l1", 6)),
        (whole(2**62, 2**62, 2**62), Bound("l2", 10)),
        (whole(-(2**63), 0, 0), Bound("l1", 10)),
        (whole(2**31, 2**31, 2**31), Bound("l2", 2**62)),
    ],
)
def test_a_row_above_its_stated_bound_is_refused(found: Entries, bound: Bound) -> None:
    """A vector beyond the bound is refused, even if its square or sum exceeds 64 bits."""
    with pytest.raises(InputError, match="exceeds the stated"):
        sum_of(Stated(found, bound))


@pytest.mark.parametrize(
    ("positions", "values"),
    [
        *((places, [1, 1]) for places in ([0, 0], [1, 0], [0, 3], [-1, 0])),
        ([0, 1], [0.5, 0.5]),
        ([0, 1], [1]),
    ],
)
def test_entries_that_would_break_the_bound_are_refused(
    positions: list[int], values: list[float]
) -> None:
    """A repeated position, a position outside the vector and a fraction are refused."""
    with pytest.raises(InputError, match="ascending positions"):
        sum_of(Stated(Entries(np.array([positions]), np.array([values]))))


def test_a_row_at_its_stated_bound_is_accepted() -> None:
    """A vector of exactly the bound's size is added up, for at most as many rows as fit 64 bits."""
    assert sum_of(Stated(whole(3, 4, 0), Bound("l2", 25))).tolist() == [3, 4, 0]
    assert sum_of(Stated(whole(3, -4, 0), Bound("l1", 7))).tolist() == [3, -4, 0]
    with pytest.raises(InputError, match="too many"):
        sum_of(Stated(whole(0, 0, 0), Bound("l1", 2**62)), rows=2)


@of_statistics
def test_invalid_shapes_are_refused(features: Features, statistic: Statistic[Any]) -> None:
    """Tables of other shapes, labels of no public class, and other released sums are refused."""
    with pytest.raises(InputError, match="labels has"):
        statistic.sum(np.zeros((2, len(features))), np.zeros(3, dtype=np.int64))
    if not isinstance(statistic, Centre | Moments):
        with pytest.raises(InputError, match="3 public classes"):
            statistic.sum(np.zeros((1, len(features))), np.array([3]))
    with pytest.raises(InputError, match="its statistic has"):
        statistic.decode(np.zeros(statistic.length + 1, dtype=np.int64), 1.0)
    with pytest.raises(InputError, match="deviation"):
        statistic.decode(np.zeros(statistic.length, dtype=np.int64), float("nan"))


VECTORS = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=8),
    elements=st.floats(-1e300, 1e300, allow_subnormal=True),
)
WHOLE = hnp.arrays(
    np.int64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.integers(-400, 400)
)
OF_NORM: st.SearchStrategy[Norm] = st.sampled_from(("l1", "l2"))


@given(VECTORS, st.integers(1, SCALE_MAX))
def test_parts_sum_to_the_scale_exactly(vectors: Floats, scale: int) -> None:
    """The absolute values of a row sum to the scale, each within a unit of its exact part."""
    found = apportion(vectors, scale)
    for row, whole in zip(vectors, found, strict=True):
        total = sum(Fraction(abs(value)) for value in row)
        assert exact(whole, "l1") == (scale if total else 0)
        for value, unit in zip(row, whole, strict=True):
            share = Fraction(abs(value)) * scale / total if total else Fraction(0)
            assert abs(abs(int(unit)) - share) < 1 + Fraction(scale, 10**12)
            assert value * float(unit) >= 0


def test_missing_units_go_to_the_largest_remainders() -> None:
    """For 0.5, 0.3 and 0.2 of 7, the first two have the largest remainders above 3, 2 and 1."""
    found = apportion(np.array([[0.5, -0.3, 0.2], [1.0, 1.0, 1.0]]), 7)
    assert found.tolist() == [[4, -2, 1], [3, 2, 2]]


@given(VECTORS, st.integers(1, SCALE_MAX), OF_NORM, st.fractions(Fraction(1, 4), 5))
def test_truncated_vectors_are_within_the_bound(
    vectors: Floats, scale: int, norm: Norm, value: Fraction
) -> None:
    """No vector exceeds the bound, for entries of any size or close to it."""
    bound = Bound.scaled(norm, scale, value)
    for row in cut_off(vectors, scale, bound):
        assert exact(row, norm) <= bound.most


@given(VECTORS, st.integers(1, SCALE_MAX))
def test_vectors_within_the_bound_are_only_truncated(vectors: Floats, scale: int) -> None:
    """A vector of at most half the bound loses less than a step per entry, toward zero."""
    lengths = np.linalg.norm(vectors / 1e301, axis=1, keepdims=True)
    halves = np.divide(vectors / 1e301, 2 * lengths, out=np.zeros_like(vectors), where=lengths > 0)
    found = cut_off(halves, scale, Bound.scaled("l2", scale, 1))
    assert np.array_equal(found, np.trunc(halves * scale))


@given(WHOLE, OF_NORM, st.integers(1, 100_000))
def test_shortening_keeps_vectors_within_and_stays_near_the_bound(
    vectors: Ints, norm: Norm, most: int
) -> None:
    """Vectors within stay unchanged; others end within rounding of the bound, with their signs."""
    bound = Bound(norm, most)
    for row, found in zip(vectors, shorten(vectors, bound), strict=True):
        if exact(row, norm) <= most:
            assert np.array_equal(found, row)
            continue
        assert exact(found, norm) <= most
        assert (row * found >= 0).all()
        assert (np.abs(found) <= np.abs(row)).all()
        # Cutting off loses less than a step of each entry.
        lost = len(row) if norm == "l1" else len(row) ** 0.5
        assert np.linalg.norm(found, 1 if norm == "l1" else 2) >= bound.value - lost - 1


def test_a_unit_vector_too_long_in_floats_is_shortened() -> None:
    """Some x / |x| has an exact square above 1; its integer vector stays within the bound."""
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(2000, 3))
    units = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    too_long = [sum(Fraction(value) ** 2 for value in unit) > 1 for unit in units]
    assert any(too_long)
    bound = Bound.scaled("l2", SCALE_MAX, 1)
    found = cut_off(units, SCALE_MAX, bound)
    assert all(exact(row, "l2") <= SCALE_MAX**2 for row in found)
    # One unit more on the largest entry, as a scale that is rounded up would give.
    found[np.arange(len(found)), np.abs(found).argmax(axis=1)] += SCALE_MAX // 100
    assert all(exact(row, "l2") <= SCALE_MAX**2 for row in shorten(found, bound))


def test_a_bound_is_scaled_in_integers() -> None:
    """At a scale of 100, an L1 norm grows by 100, and the squared L2 norm by 10,000."""
    absolute, square = Bound.scaled("l1", 100, 2.5), Bound.scaled("l2", 100, Fraction(1, 4))
    assert (absolute.most, square.most) == (250, 2500)
    assert (absolute.value, square.value) == pytest.approx((250, 50))


@pytest.mark.parametrize(
    ("act", "field"),
    [
        (partial(Bound, "l1", 0), "most"),
        (partial(Bound, "l1", 2**62 + 1), "most"),
        (partial(ClassCounts, NUMERIC, scale=0), "scale"),
        (partial(ClassCounts, NUMERIC, scale=SCALE_MAX + 1), "scale"),
    ],
)
def test_numbers_out_of_range_are_refused(act: Callable[[], object], field: str) -> None:
    """A bound or a scale below 1 or above its limit is refused."""
    with pytest.raises(InputError, match=field):
        act()


DELTA = 1e-5
PEERS, OWNER = Trust(8, 3), Trust(1, 0)
CAR = schema(0, (4, 4, 4, 3, 3, 3), 4)
MUSHROOM = schema(0, (6, 4, 10, 2, 9, 2, 2, 2, 12, 2, 5, 4, 4, 9, 9, 1, 4, 3, 5, 9, 6, 7), 2)


@pytest.mark.parametrize(
    ("features", "rows", "private", "pure"),
    [
        pytest.param(schema(13, classes=3), 134, "means centre", "means middle", id="wine"),
        pytest.param(schema(30, classes=2), 427, "lda centre", "means centre", id="breast-cancer"),
        pytest.param(schema(64, classes=10), 1348, "means centre", "means centre", id="digits"),
        pytest.param(schema(4, classes=3), 112, "grid middle", "grid middle", id="iris"),
        pytest.param(schema(14, classes=2), 518, "lda centre", "means centre", id="australian"),
        pytest.param(CAR, 1296, "lda moments", "counts middle", id="car"),
        pytest.param(MUSHROOM, 6093, "lda moments", "counts middle", id="mushroom"),
        pytest.param(schema(7, (3,), 3), 3133, "lda moments", "trees middle", id="abalone"),
        pytest.param(schema(384, classes=4), 3749, "means centre", "means middle", id="news"),
    ],
)
def test_the_rules_choice_for_peers_at_epsilon_one(
    features: Features, rows: int, private: str, pure: str
) -> None:
    """Statistic and reference are as expected for known tables, with and without a delta."""
    for delta, expected in ((DELTA, private), (0.0, pure)):
        plan = Rule(features, rows, 1.0, delta, PEERS).plan()
        assert f"{plan.method} {plan.reference}" == expected


@given(
    st.sampled_from([NUMERIC, MIXED, CAR, schema(13), schema(200)]),
    st.integers(1, 10**7),
    st.floats(0.01, 20),
    st.sampled_from([0.0, 1e-6, 1e-5]),
    st.sampled_from([OWNER, PEERS, Trust(1000, 499)]),
)
@example(schema(200), 10**7, 0.01, 0.0, OWNER)
def test_the_rule_has_a_valid_answer_everywhere(
    features: Features, rows: int, epsilon: float, delta: float, trust: Trust
) -> None:
    """Public numbers alone give a plan, always the same, that can be built and suits its noise."""
    chosen, again = (Rule(features, rows, epsilon, delta, trust).plan() for _ in range(2))
    assert chosen == again
    assert delta > 0 or chosen.distribution == "laplace"
    first = first_statistic(chosen, features)
    main = main_statistic(chosen, features, np.random.default_rng(0))
    sums = [each.sensitivity for each in (first, main) if each is not None]
    terms = (chosen.distribution, chosen.epsilon, chosen.delta, chosen.trust)
    noises = plan_noise(*terms, sums, weights=chosen.weights)
    assert account_of(noises).epsilon(chosen.delta) <= epsilon


def test_first_releases_follow_the_reference() -> None:
    """A discriminant of few rows uses a centre, of many rows moments, with less added."""
    features = schema(14, classes=2)
    for rows, kappa, kind in ((400, 1.0, Centre), (40_000, 0.3, Moments)):
        plan = Rule(features, rows, 1.0, DELTA, OWNER).plan()
        assert isinstance(first_statistic(plan, features), kind)
        assert plan.weights == (CENTRE_SHARE, 1 - CENTRE_SHARE)
        made = main_statistic(plan, features, np.random.default_rng(0))
        assert isinstance(made, Discriminant)
        assert plan.kappa == made.kappa == kappa


@pytest.mark.parametrize(
    ("features", "columns"),
    [
        *((schema(columns), columns) for columns in (2, 6, 12, 40)),
        (MIXED, 4),
        (schema(2, (9, 9)), 4),
    ],
)
def test_tallies_use_the_norm_with_less_noise(features: Features, columns: int) -> None:
    """With a delta, counts of few columns stay pure; a column of categories counts once."""
    assert count_columns(features) == columns
    plan = Rule(features, 100, 1.0, DELTA, OWNER).plan("counts")
    laplace, gaussian = sqrt(2) * columns, 3.7304 * sqrt(columns)
    assert plan.norm == ("l1" if laplace <= gaussian else "l2")


def test_the_side_of_a_grid_follows_its_formula() -> None:
    """(n epsilon / (3 sqrt(f))) ** (2 / (2 + d)), rounded and clipped to 3 to 32."""
    assert grid_side(1029, 4, 1.0, 1.6) == round((1029 / (3 * sqrt(1.6))) ** (1 / 3)) == 6
    assert grid_side(1, 4, 0.01) == SIDE_MIN
    assert grid_side(10**9, 1, 1.0) == SIDE_MAX


@pytest.mark.parametrize("features", [MIXED, schema(5)])
def test_a_grid_of_categories_or_many_columns_is_refused(features: Features) -> None:
    """A grid needs up to four columns of numbers."""
    plan = Rule(features, 10, 1.0, 0.0, OWNER).plan("grid")
    with pytest.raises(InputError, match="all of them numbers"):
        main_statistic(plan, features, np.random.default_rng(0))

"""Sums of rows: their sensitivity, found by search, and vectors of reals in whole numbers."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.random import Generator
from numpy.typing import NDArray
from tests.protocols.release.schemas import MIXED, NUMERIC, all_statistics, draw_rows, schema
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.data.table import Features
from veilring.errors import InputError
from veilring.protocols.release.algorithm.noise import Norm
from veilring.protocols.release.algorithm.statistic import (
    SCALE_MAX,
    Bound,
    Entries,
    Statistic,
    apportion,
    cut_off,
    shorten,
)
from veilring.protocols.release.algorithm.tallies import ClassCounts

CASES = [
    pytest.param(features, statistic, id=f"{kind}-{name}")
    for kind, features in (("numbers", NUMERIC), ("mixed", MIXED))
    for name, statistic in all_statistics(features)
]
STEPS = 400
Searched = Callable[[Floats], int]


def size_of(statistic: Statistic[Any], row: Floats, label: int) -> int:
    """Return the L1 norm, or the squared L2 norm, of one row's sum, in integers."""
    added = [int(value) for value in statistic.sum(row[None], np.array([label]))]
    if statistic.bound.norm == "l1":
        return sum(map(abs, added))
    return sum(value**2 for value in added)


def corners(features: Features, rng: Generator) -> Floats:
    """Return rows at corners and edges, equal or nearly equal, and with impossible categories."""
    width = len(features)
    tiny = 0.5 + np.array([-1, 1])[rng.integers(2, size=(20, width))] * 10.0 ** -rng.integers(
        1, 17, size=(20, width)
    )
    return np.vstack(
        (
            np.zeros((1, width)),
            np.ones((1, width)),
            np.full((1, width), 0.5),
            rng.integers(2, size=(60, width)).astype(np.float64),
            rng.integers(3, size=(60, width)) / 2,
            np.nextafter(np.eye(width), 0.5),
            tiny,
        )
    )


def climb(measure: Searched, row: Floats, rng: Generator) -> int:
    """Return the greatest value found by changing a row one entry at a time."""
    best = measure(row)
    for _ in range(STEPS):
        tried = row.copy()
        place = rng.integers(len(row))
        tried[place] = rng.choice(
            (0.0, 1.0, rng.random(), np.clip(tried[place] + rng.normal(0, 0.01), 0, 1))
        )
        found = measure(tried)
        if found >= best:
            row, best = tried, found
    return best


def greatest(features: Features, statistic: Statistic[Any]) -> int:
    """Return the maximum that any found row adds: drawn, at corners, or by climbing."""
    rng = np.random.default_rng(11)
    rows = np.vstack((draw_rows(features, 200, rng), corners(features, rng)))
    sizes = [size_of(statistic, row, label % 3) for label, row in enumerate(rows)]
    start = rows[int(np.argmax(sizes))]
    return max(*sizes, climb(lambda row: size_of(statistic, row, 1), start, rng))


@pytest.mark.slow
@pytest.mark.parametrize(("features", "statistic"), CASES)
def test_a_row_adds_at_most_the_bound_and_some_row_nearly_attains_it(
    features: Features, statistic: Statistic[Any]
) -> None:
    """No found row exceeds the bound, and one is within 2 % of it."""
    found = greatest(features, statistic)
    assert found <= statistic.bound.most
    assert found >= 0.98 * statistic.bound.most


@pytest.mark.parametrize(("features", "statistic"), CASES)
def test_a_sum_is_exactly_that_of_its_rows(features: Features, statistic: Statistic[Any]) -> None:
    """The sum of a table is the sum over its rows, exactly, and has the stated length."""
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


def test_a_sum_does_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of one row give the sum of one block of all rows."""
    rng = np.random.default_rng(4)
    rows, labels = draw_rows(MIXED, 25, rng), rng.integers(3, size=25)
    for _, statistic in all_statistics(MIXED):
        whole = statistic.sum(rows, labels)
        with monkeypatch.context() as patched:
            patched.setattr("veilring.protocols.release.algorithm.statistic._BLOCK", 1)
            assert np.array_equal(statistic.sum(rows, labels), whole)


class Stated(Statistic[None]):
    """A custom statistic that returns given entries, under a given bound."""

    def __init__(self, found: Entries, most: int, norm: Norm = "l2", length: int = 3) -> None:
        self._found, self._bound, self._length = found, Bound(norm, most), length

    @property
    @override
    def length(self) -> int:
        return self._length

    @property
    @override
    def bound(self) -> Bound:
        return self._bound

    @override
    def entries(self, rows: Floats, labels: Ints) -> Entries:
        return self._found

    @override
    def decode(self, noisy: Ints, deviation: float) -> None:
        return None


def whole(*values: int) -> Entries:
    """Return the entries of one dense vector."""
    return Entries.dense(np.array([values], dtype=np.int64))


@pytest.mark.parametrize(
    ("found", "norm", "most"),
    [
        (whole(3, 4, 0), "l2", 24),
        (whole(3, -4, 0), "l1", 6),
        (whole(2**62, 2**62, 2**62), "l2", 10),
        (whole(-(2**63), 0, 0), "l1", 10),
        (whole(2**31, 2**31, 2**31), "l2", 2**62),
    ],
)
def test_a_row_above_its_stated_bound_is_refused(found: Entries, norm: Norm, most: int) -> None:
    """A vector beyond the bound is refused, even if its square or sum exceeds 64 bits."""
    with pytest.raises(InputError, match="exceeds the stated"):
        Stated(found, most, norm).sum(np.zeros((1, 1)), np.zeros(1, dtype=np.int64))


@pytest.mark.parametrize(
    ("found", "norm", "most"), [(whole(3, 4, 0), "l2", 25), (whole(3, -4, 0), "l1", 7)]
)
def test_a_row_at_its_stated_bound_is_accepted(found: Entries, norm: Norm, most: int) -> None:
    """A vector of exactly the bound's size is added up."""
    statistic = Stated(found, most, norm)
    total = statistic.sum(np.zeros((1, 1)), np.zeros(1, dtype=np.int64))
    assert np.array_equal(total, found.values[0])


@pytest.mark.parametrize(
    ("positions", "values"),
    [
        (np.array([[0, 0]]), np.array([[1, 1]])),
        (np.array([[1, 0]]), np.array([[1, 1]])),
        (np.array([[0, 3]]), np.array([[1, 1]])),
        (np.array([[-1, 0]]), np.array([[1, 1]])),
        (np.array([[0, 1]]), np.array([[0.5, 0.5]])),
        (np.array([[0, 1]]), np.array([[1]])),
    ],
)
def test_entries_that_would_break_the_bound_are_refused(
    positions: Ints, values: NDArray[Any]
) -> None:
    """A repeated position, a position outside the vector and a fraction are refused."""
    with pytest.raises(InputError, match="ascending positions"):
        Stated(Entries(positions, values), 100).sum(np.zeros((1, 1)), np.zeros(1, dtype=np.int64))


def test_sums_that_could_overflow_are_refused() -> None:
    """More rows than 64 bits allow at the bound are refused before they are added up."""
    statistic = Stated(whole(0, 0, 0), 2**62, "l1")
    with pytest.raises(InputError, match="too many"):
        statistic.sum(np.zeros((2, 1)), np.zeros(2, dtype=np.int64))


@pytest.mark.parametrize(("features", "statistic"), CASES)
def test_invalid_shapes_are_refused(features: Features, statistic: Statistic[Any]) -> None:
    """A table with other shapes and a released sum of another length are refused."""
    with pytest.raises(InputError, match="labels has"):
        statistic.sum(np.zeros((2, len(features))), np.zeros(3, dtype=np.int64))
    with pytest.raises(InputError, match="its statistic has"):
        statistic.decode(np.zeros(statistic.length + 1, dtype=np.int64), 1.0)
    with pytest.raises(InputError, match="deviation"):
        statistic.decode(np.zeros(statistic.length, dtype=np.int64), float("nan"))


def test_an_unknown_label_is_refused() -> None:
    """A statistic by class accepts only positions of public classes."""
    features = schema(2, classes=2)
    for name, statistic in all_statistics(features):
        if not name.startswith(("centre", "moments")):
            with pytest.raises(InputError, match="2 public classes"):
                statistic.sum(np.zeros((1, 2)), np.array([2]))


VECTORS = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=8),
    elements=st.floats(-1e300, 1e300, allow_subnormal=True),
)
WHOLE = hnp.arrays(
    np.int64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.integers(-400, 400)
)
OF_NORM: st.SearchStrategy[Norm] = st.sampled_from(("l1", "l2"))


def exact(vector: Ints, norm: Norm) -> int:
    """Return the L1 norm or the squared L2 norm, in Python integers."""
    return sum(abs(int(value)) if norm == "l1" else int(value) ** 2 for value in vector)


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


@pytest.mark.parametrize(
    ("norm", "value", "most"), [("l1", 2.5, 250), ("l2", Fraction(1, 4), 2500)]
)
def test_a_bound_is_scaled_in_integers(norm: Norm, value: float, most: int) -> None:
    """At a scale of 100, an L1 norm grows by 100, and the squared L2 norm by 10,000."""
    bound = Bound.scaled(norm, 100, value)
    assert bound.most == most
    assert bound.value == pytest.approx(250 if norm == "l1" else 50)


def test_numbers_out_of_range_are_refused() -> None:
    """A bound or a scale below 1 or above its limit is refused."""
    for most in (0, 2**62 + 1):
        with pytest.raises(InputError, match="most"):
            Bound("l1", most)
    for scale in (0, SCALE_MAX + 1):
        with pytest.raises(InputError, match="scale"):
            ClassCounts(NUMERIC, scale=scale)

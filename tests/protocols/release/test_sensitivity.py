"""The sensitivity of a sum to one row, found by search and compared with the bound."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator
from numpy.typing import NDArray
from tests.protocols.release.schemas import MIXED, NUMERIC, all_statistics, draw_rows, schema
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.data.table import Features
from veilring.errors import InputError
from veilring.protocols.release.algorithm.noise import Norm
from veilring.protocols.release.algorithm.statistic import Bound, Entries, Statistic

pytestmark = pytest.mark.slow

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

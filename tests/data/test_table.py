"""Tables: validation, scaling, held-out rows and the partition among parties."""

import itertools
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from scipy import stats
from sklearn.preprocessing import MinMaxScaler
from tests.refusals import require_refused

from veilring.data.sources import load
from veilring.data.table import PartitionKind, Ranges, Table, partition, scale_to_unit, split
from veilring.randomness import Streams


def table_of(features: list[list[float]]) -> Table:
    """Return a table of one class with these features."""
    names = tuple(f"f{n}" for n in range(len(features[0])))
    labels = np.zeros(len(features), dtype=np.int64)
    return Table.of("made", np.array(features, dtype=np.float64), labels, names, ("only",))


def test_scaling_is_what_scikit_learn_does_by_default() -> None:
    """Scaling by a table's own ranges equals scikit-learn's min-max scaler."""
    wine = load("wine")
    theirs = MinMaxScaler().fit_transform(wine.X)
    np.testing.assert_allclose(scale_to_unit(wine).X, theirs, rtol=0, atol=1e-12)


@given(
    st.lists(
        st.tuples(st.floats(-1e300, 1e300), st.floats(-1e-300, 1e-300)), min_size=1, max_size=20
    )
)
def test_scaling_always_lands_in_the_unit_cube(rows: list[tuple[float, float]]) -> None:
    """Each feature is from 0 to 1, at any magnitude."""
    scaled = scale_to_unit(table_of([list(row) for row in rows])).X
    assert ((scaled >= 0) & (scaled <= 1)).all()


def test_values_outside_the_ranges_are_clipped() -> None:
    """A value beyond an end becomes that end, and a feature with equal ends becomes 0."""
    whole = table_of([[-5.0, 7.0], [5.0, 7.0], [50.0, 7.0]])
    scaled = scale_to_unit(whole, Ranges((0.0, 7.0), (10.0, 7.0)))
    np.testing.assert_array_equal(scaled.X, [[0.0, 0.0], [0.5, 0.0], [1.0, 0.0]])


def test_ranges_are_the_extremes_and_stay_with_the_parts() -> None:
    """By default they are the minimum and maximum of each feature in the whole table."""
    whole = table_of([[1.0, 5.0], [3.0, 4.0]])
    for table in (whole, whole.take(np.array([1]))):
        assert table.features.ranges == Ranges((1.0, 4.0), (3.0, 5.0))


def test_an_inconsistent_table_is_refused() -> None:
    """Shapes agree, features and ranges are finite and ascend, and each label has a name."""
    one, none = np.zeros((1, 1)), np.zeros(1, dtype=np.int64)
    made = partial(Table.of, "made", names=("a",), classes=("x",))
    require_refused("finite", made, np.array([[np.inf]]), none)
    require_refused("shape", made, np.zeros((2, 1)), none)
    for label in (1, -1):
        require_refused("index into `classes`", made, one, np.array([label]))
    for low in (2.0, np.nan, -np.inf):
        require_refused("ranges", Ranges, (0.0, low), (1.0, 1.0))
    require_refused(r"must be \(rows, 1\)", scale_to_unit, table_of([[1.0, 2.0]]), Ranges.unit(1))


def test_a_table_does_not_show_its_rows() -> None:
    """The text of a table has its shape but no value."""
    assert repr(table_of([[0.123456], [0.2]])) == "Table('made': 2 rows, 1 features, 1 classes)"


@given(st.integers(2, 60), st.floats(0.001, 0.999), st.integers(0, 2**32))
def test_no_row_is_lost_or_doubled_by_a_split(rows: int, share: float, seed: int) -> None:
    """Together the two tables have all rows, at least one each, in the requested proportion."""
    table = table_of([[float(n)] for n in range(rows)])
    train, held_out = split(table, share, default_rng(seed))
    together = np.concatenate([train.X, held_out.X]).ravel()
    assert sorted(together.tolist()) == list(range(rows))
    assert len(train) >= 1
    assert abs(len(held_out) - max(1, share * rows)) <= 1


def test_the_first_held_out_rows_are_a_sample_of_all_classes() -> None:
    """A table sorted by label is held out in random order."""
    _, held_out = split(load("iris"), 0.5, default_rng(5))
    assert set(held_out.y[:20].tolist()) == {0, 1, 2}


def test_a_split_is_that_of_a_scenario_with_the_same_seed() -> None:
    """The parts are the same too, and all keep the public schema."""
    wine, streams = load("wine"), Streams(3)
    train, test = wine.split(0.25, seed=3)
    theirs = split(wine, 0.25, streams.generator("split"))
    np.testing.assert_array_equal(test.X, theirs.held_out.X)
    parts = train.partition(4, seed=3, kind="dirichlet", alpha=0.5)
    rows = partition(train.y, 4, streams.generator("partition"), kind="dirichlet", alpha=0.5)
    for part, own in zip(parts, rows, strict=True):
        np.testing.assert_array_equal(part.y, train.y[own])
        assert part.features == wine.features


def test_a_split_with_an_empty_side_is_refused() -> None:
    """The fraction is above 0 and below 1, and each side needs at least one row."""
    for share in (0.0, 1.0, -1.0, float("nan")):
        require_refused("test_share", split, table_of([[1.0], [2.0]]), share, default_rng(0))
    require_refused("at least 2 rows", split, table_of([[1.0]]), 0.5, default_rng(0))


_LABELS = st.lists(st.integers(0, 4), max_size=60).map(lambda values: np.array(values, np.int64))
_SEED = st.integers(0, 2**32)


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "by-label"])
@given(labels=_LABELS, parties=st.integers(1, 12), seed=_SEED, alpha=st.floats(1e-3, 1e6))
def test_each_row_goes_to_exactly_one_party(
    kind: PartitionKind, labels: np.ndarray, parties: int, seed: int, alpha: float
) -> None:
    """No partition loses or duplicates a row, and equal seeds give equal partitions.

    `iid` and `by-label` give nearly equal numbers; with the latter, no label of a party exceeds any
    label of the next.
    """
    dealt, again = (
        partition(labels, parties, default_rng(seed), kind=kind, alpha=alpha) for _ in range(2)
    )
    assert len(dealt) == parties
    assert sorted(np.concatenate(dealt).tolist()) == list(range(len(labels)))
    assert all(np.array_equal(one, two) for one, two in zip(dealt, again, strict=True))
    sizes = [len(rows) for rows in dealt]
    assert kind == "dirichlet" or max(sizes) - min(sizes) <= 1
    held = [labels[rows] for rows in dealt if len(rows)]
    if kind == "by-label":
        assert all(one.max() <= two.min() for one, two in itertools.pairwise(held))


@given(st.lists(st.integers(0, 20), min_size=1, max_size=8), _SEED)
def test_sizes_are_kept(sizes: list[int], seed: int) -> None:
    """`sizes` gives each party the requested number of rows, and every row to one party."""
    labels = np.zeros(sum(sizes), dtype=np.int64)
    dealt = partition(labels, len(sizes), default_rng(seed), kind="sizes", sizes=sizes)
    assert [len(rows) for rows in dealt] == sizes
    assert sorted(np.concatenate(dealt).tolist()) == list(range(len(labels)))


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e6])
def test_rows_of_a_class_meet_as_often_as_polya_says(alpha: float) -> None:
    """Two rows of a class have the same party with probability `(alpha + 1) / (n alpha + 1)`.

    Classes are partitioned independently, so the number of pairs at one party is binomial; the
    interval is missed with probability at most 1e-6.
    """
    parties, classes = 4, 3_000
    labels = np.repeat(np.arange(classes), 2)
    dealt = partition(labels, parties, default_rng(1), kind="dirichlet", alpha=alpha)
    met = sum(len(rows) - len(np.unique(labels[rows])) for rows in dealt)
    distribution = stats.binom(classes, (alpha + 1) / (parties * alpha + 1))
    assert distribution.ppf(5e-7) <= met <= distribution.ppf(1 - 5e-7)


def test_an_impossible_partition_is_refused() -> None:
    """The error gives the allowed values."""
    deal = partial(partition, np.zeros(3, dtype=np.int64), rng=default_rng(0))
    require_refused("sum is 3", deal, 2, kind="sizes", sizes=[1, 1])
    require_refused("2 whole numbers", deal, 2, kind="sizes", sizes=[3])
    require_refused("of at least 0", deal, 2, kind="sizes", sizes=[4, -1])
    for alpha in (0.0, float("nan")):
        require_refused("alpha", deal, 2, kind="dirichlet", alpha=alpha)
    require_refused("by-label", deal, 2, kind="fair")
    require_refused("parties", deal, 0)

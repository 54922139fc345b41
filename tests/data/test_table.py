"""Tables: validation, scaling, held-out rows and the partition among parties."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from scipy import stats
from sklearn.preprocessing import MinMaxScaler

from veilring.data.sources import load
from veilring.data.table import PartitionKind, Ranges, Table, partition, scale_to_unit, split
from veilring.errors import InputError
from veilring.randomness import Streams


def table_of(features: list[list[float]]) -> Table:
    """Return a table of one class with these features."""
    names = tuple(f"f{n}" for n in range(len(features[0])))
    labels = np.zeros(len(features), dtype=np.int64)
    return Table.of("made", np.array(features, dtype=np.float64), labels, names, ("only",))


class TestScaling:
    """Scaling of features by public ranges into the unit cube."""

    def test_is_what_scikit_learn_does_by_default(self) -> None:
        """Scaling by a table's own ranges equals scikit-learn's min-max scaler."""
        wine = load("wine")
        theirs = MinMaxScaler().fit_transform(wine.X)
        np.testing.assert_allclose(scale_to_unit(wine).X, theirs, rtol=0, atol=1e-12)

    @given(
        st.lists(
            st.tuples(st.floats(-1e300, 1e300), st.floats(-1e-300, 1e-300)), min_size=1, max_size=20
        )
    )
    def test_always_lands_in_the_unit_cube(self, rows: list[tuple[float, float]]) -> None:
        """Each feature is from 0 to 1, at any magnitude."""
        scaled = scale_to_unit(table_of([list(row) for row in rows])).X
        assert ((scaled >= 0) & (scaled <= 1)).all()

    def test_clips_values_outside_the_ranges(self) -> None:
        """A value beyond an end becomes that end."""
        scaled = scale_to_unit(table_of([[-5.0], [5.0], [50.0]]), Ranges((0.0,), (10.0,)))
        np.testing.assert_array_equal(scaled.X, [[0.0], [0.5], [1.0]])

    def test_a_constant_feature_becomes_zero(self) -> None:
        """A feature with equal ends becomes 0."""
        np.testing.assert_array_equal(
            scale_to_unit(table_of([[7.0, 1.0], [7.0, 2.0]])).X, [[0, 0], [0, 1]]
        )

    @pytest.mark.parametrize("low", [2.0, np.nan, -np.inf])
    def test_bad_ranges_are_refused(self, low: float) -> None:
        """A range in reverse order or without an end is refused."""
        with pytest.raises(InputError, match="ranges"):
            Ranges((0.0, low), (1.0, 1.0))

    def test_ranges_of_other_features_are_refused(self) -> None:
        """There is one range for each feature."""
        with pytest.raises(InputError, match=r"must be \(rows, 1\)"):
            scale_to_unit(table_of([[1.0, 2.0]]), Ranges.unit(1))

    def test_ranges_are_the_extremes_and_stay_with_the_parts(self) -> None:
        """By default they are the minimum and maximum of each feature in the whole table."""
        whole = table_of([[1.0, 5.0], [3.0, 4.0]])
        for table in (whole, whole.take(np.array([1]))):
            assert table.features.ranges == Ranges((1.0, 4.0), (3.0, 5.0))


class TestSplit:
    """Held-out rows."""

    @given(st.integers(2, 60), st.floats(0.001, 0.999), st.integers(0, 2**32))
    def test_no_row_is_lost_or_doubled(self, rows: int, share: float, seed: int) -> None:
        """Together the two tables have all rows, at least one each, in the requested proportion."""
        table = table_of([[float(n)] for n in range(rows)])
        train, held_out = split(table, share, default_rng(seed))
        together = np.concatenate([train.X, held_out.X]).ravel()
        assert sorted(together.tolist()) == list(range(rows))
        assert len(train) >= 1
        assert abs(len(held_out) - max(1, share * rows)) <= 1

    def test_the_first_held_out_rows_are_a_sample_of_all_classes(self) -> None:
        """A table sorted by label is held out in random order."""
        _, held_out = split(load("iris"), 0.5, default_rng(5))
        assert set(held_out.y[:20].tolist()) == {0, 1, 2}

    def test_is_that_of_a_scenario_with_the_same_seed(self) -> None:
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

    @pytest.mark.parametrize("share", [0.0, 1.0, -1.0, float("nan")])
    def test_a_share_that_leaves_one_side_empty_is_refused(self, share: float) -> None:
        """The fraction is above 0 and below 1."""
        with pytest.raises(InputError, match="test_share"):
            split(table_of([[1.0], [2.0]]), share, default_rng(0))

    def test_one_row_cannot_be_split(self) -> None:
        """Each side needs at least one row."""
        with pytest.raises(InputError, match="at least 2 rows"):
            split(table_of([[1.0]]), 0.5, default_rng(0))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"features": np.array([[np.inf]])}, "finite"),
        ({"features": np.zeros((2, 1))}, "shape"),
        ({"labels": np.array([1])}, "index into `classes`"),
        ({"labels": np.array([-1])}, "index into `classes`"),
    ],
)
def test_an_inconsistent_table_is_refused(change: dict[str, np.ndarray], named: str) -> None:
    """Shapes agree, features are finite, and each label has a name."""
    columns = {"features": np.zeros((1, 1)), "labels": np.zeros(1, dtype=np.int64), **change}
    with pytest.raises(InputError, match=named):
        Table.of("made", columns["features"], columns["labels"], ("a",), ("x",))


def test_a_table_does_not_show_its_rows() -> None:
    """The text of a table has its shape but no value."""
    assert repr(table_of([[0.123456], [0.2]])) == "Table('made': 2 rows, 1 features, 1 classes)"


_LABELS = st.lists(st.integers(0, 4), max_size=60).map(lambda values: np.array(values, np.int64))
_SEED = st.integers(0, 2**32)


class TestPartition:
    """The partition of rows among parties."""

    @given(
        _LABELS,
        st.integers(1, 12),
        _SEED,
        st.sampled_from(["iid", "dirichlet", "by-label"]),
        st.floats(1e-3, 1e6),
    )
    def test_each_row_goes_to_exactly_one_party(
        self, labels: np.ndarray, parties: int, seed: int, kind: PartitionKind, alpha: float
    ) -> None:
        """No partition loses or duplicates a row, and equal seeds give equal partitions."""
        dealt, again = (
            partition(labels, parties, default_rng(seed), kind=kind, alpha=alpha) for _ in range(2)
        )
        assert len(dealt) == parties
        assert sorted(np.concatenate(dealt).tolist()) == list(range(len(labels)))
        assert all(np.array_equal(one, two) for one, two in zip(dealt, again, strict=True))

    @given(_LABELS, st.integers(1, 12), _SEED, st.sampled_from(["iid", "by-label"]))
    def test_equal_numbers_differ_by_one_row_at_most(
        self, labels: np.ndarray, parties: int, seed: int, kind: PartitionKind
    ) -> None:
        """`iid` and `by-label` give nearly equal numbers."""
        sizes = [len(rows) for rows in partition(labels, parties, default_rng(seed), kind=kind)]
        assert max(sizes) - min(sizes) <= 1

    @given(st.lists(st.integers(0, 20), min_size=1, max_size=8), _SEED)
    def test_sizes_are_kept(self, sizes: list[int], seed: int) -> None:
        """`sizes` gives each party the requested number of rows, and every row to one party."""
        labels = np.zeros(sum(sizes), dtype=np.int64)
        dealt = partition(labels, len(sizes), default_rng(seed), kind="sizes", sizes=sizes)
        assert [len(rows) for rows in dealt] == sizes
        assert sorted(np.concatenate(dealt).tolist()) == list(range(len(labels)))

    @given(_LABELS, st.integers(1, 12), _SEED)
    def test_by_label_gives_each_party_neighbouring_labels(
        self, labels: np.ndarray, parties: int, seed: int
    ) -> None:
        """No label of a party exceeds any label of the next."""
        dealt = partition(labels, parties, default_rng(seed), kind="by-label")
        held = [labels[rows] for rows in dealt if len(rows)]
        assert all(one.max() <= two.min() for one, two in itertools.pairwise(held))

    @pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e6])
    def test_rows_of_a_class_meet_as_often_as_polya_says(self, alpha: float) -> None:
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

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            ({"kind": "sizes", "sizes": [1, 1]}, "sum is 3"),
            ({"kind": "sizes", "sizes": [3]}, "2 whole numbers"),
            ({"kind": "sizes", "sizes": [4, -1]}, "of at least 0"),
            ({"kind": "dirichlet", "alpha": 0.0}, "alpha"),
            ({"kind": "dirichlet", "alpha": float("nan")}, "alpha"),
            ({"kind": "fair"}, "by-label"),
        ],
    )
    def test_an_impossible_partition_is_refused(
        self, arguments: dict[str, object], named: str
    ) -> None:
        """The error gives the allowed values."""
        deal: Callable[..., object] = partition
        with pytest.raises(InputError, match=named):
            deal(np.zeros(3, dtype=np.int64), 2, default_rng(0), **arguments)

    def test_zero_parties_are_refused(self) -> None:
        """There is at least one party."""
        with pytest.raises(InputError, match="parties"):
            partition(np.zeros(3, dtype=np.int64), 0, default_rng(0))

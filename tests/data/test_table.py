"""Tables: validation, scaling and held-out rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from sklearn.preprocessing import MinMaxScaler
from tests.data.tables import table_of

from veilring.data.sources import load
from veilring.data.table import Ranges, Table, partition, scale_to_unit, split
from veilring.errors import InputError
from veilring.randomness import Streams


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

"""Tables: what fits, what is scaled, and what is held out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from sklearn.preprocessing import MinMaxScaler
from tests.data.tables import table_of

from veilring.data import Bounds, Table, bounds_of, load_table, scale_to_unit, split
from veilring.errors import InputError


class TestScaling:
    """Features by public bounds into the unit cube."""

    def test_is_what_scikit_learn_does_by_default(self) -> None:
        """With a table's own bounds it is scikit-learn's min-max scaler."""
        wine = load_table("wine")
        theirs = MinMaxScaler().fit_transform(wine.features)
        np.testing.assert_allclose(scale_to_unit(wine).features, theirs, rtol=0, atol=1e-12)

    @given(
        st.lists(
            st.tuples(st.floats(-1e300, 1e300), st.floats(-1e-300, 1e-300)), min_size=1, max_size=20
        )
    )
    def test_always_lands_in_the_unit_cube(self, rows: list[tuple[float, float]]) -> None:
        """Whatever the magnitudes, each feature is from 0 to 1."""
        scaled = scale_to_unit(table_of([list(row) for row in rows])).features
        assert ((scaled >= 0) & (scaled <= 1)).all()

    def test_clips_what_is_outside_the_bounds(self) -> None:
        """A value beyond a bound is that bound."""
        bounds = Bounds(np.array([0.0]), np.array([10.0]))
        scaled = scale_to_unit(table_of([[-5.0], [5.0], [50.0]]), bounds)
        np.testing.assert_array_equal(scaled.features, [[0.0], [0.5], [1.0]])

    def test_a_constant_feature_becomes_zero(self) -> None:
        """A feature whose bounds are equal says nothing."""
        np.testing.assert_array_equal(
            scale_to_unit(table_of([[7.0, 1.0], [7.0, 2.0]])).features, [[0, 0], [0, 1]]
        )

    @pytest.mark.parametrize(
        "bounds",
        [
            Bounds(np.zeros(1), np.ones(1)),
            Bounds(np.array([0.0, 2.0]), np.array([1.0, 1.0])),
            Bounds(np.array([0.0, np.nan]), np.array([1.0, 1.0])),
            Bounds(np.array([0.0, -np.inf]), np.array([1.0, 1.0])),
        ],
    )
    def test_bad_bounds_are_refused(self, bounds: Bounds) -> None:
        """Bounds of another shape, in the wrong order or without an end are no bounds."""
        with pytest.raises(InputError, match="bounds"):
            scale_to_unit(table_of([[1.0, 2.0]]), bounds)

    def test_bounds_are_the_extremes(self) -> None:
        """The default bounds are each feature's least and greatest value."""
        lows, highs = bounds_of(table_of([[1.0, 5.0], [3.0, 4.0]]))
        assert (lows.tolist(), highs.tolist()) == ([1.0, 4.0], [3.0, 5.0])


class TestSplit:
    """Rows that are held out."""

    @given(st.integers(2, 60), st.floats(0.001, 0.999), st.integers(0, 2**32))
    def test_no_row_is_lost_or_doubled(self, rows: int, share: float, seed: int) -> None:
        """The two tables have all rows between them, at least one each, in the asked proportion."""
        table = table_of([[float(n)] for n in range(rows)])
        train, held_out = split(table, share, default_rng(seed))
        together = np.concatenate([train.features, held_out.features]).ravel()
        assert sorted(together.tolist()) == list(range(rows))
        assert len(train) >= 1
        assert abs(len(held_out) - max(1, share * rows)) <= 1

    def test_the_first_held_out_rows_are_a_sample_of_all_classes(self) -> None:
        """A table in the order of its labels is held out in random order."""
        _, held_out = split(load_table("iris"), 0.5, default_rng(5))
        assert set(held_out.labels[:20].tolist()) == {0, 1, 2}

    @pytest.mark.parametrize("share", [0.0, 1.0, -1.0, float("nan")])
    def test_a_share_that_leaves_one_side_empty_is_refused(self, share: float) -> None:
        """The share is above 0 and below 1."""
        with pytest.raises(InputError, match="test_share"):
            split(table_of([[1.0], [2.0]]), share, default_rng(0))

    def test_one_row_cannot_be_split(self) -> None:
        """Each side needs a row."""
        with pytest.raises(InputError, match="1 rows"):
            split(table_of([[1.0]]), 0.5, default_rng(0))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"features": np.array([[np.inf]])}, "finite"),
        ({"features": np.zeros((2, 1))}, "shape"),
        ({"labels": np.array([1])}, "class_names"),
        ({"labels": np.array([-1])}, "class_names"),
    ],
)
def test_a_table_that_does_not_fit_itself_is_refused(
    change: dict[str, np.ndarray], named: str
) -> None:
    """Shapes agree, features are finite, and each label has a name."""
    columns = {"features": np.zeros((1, 1)), "labels": np.zeros(1, dtype=np.int64), **change}
    with pytest.raises(InputError, match=named):
        Table("made", columns["features"], columns["labels"], ("a",), ("x",))


def test_a_table_does_not_show_its_rows() -> None:
    """Its text has its shape and no value."""
    assert repr(table_of([[0.123456], [0.2]])) == "Table('made': 2 rows, 1 features, 1 classes)"

"""Data sets: where they come from, and how they are scaled, split and dealt."""

import importlib.util
import itertools
from collections.abc import Callable
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from scipy import stats
from sklearn import datasets
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder
from sklearn.utils import Bunch

from veilring.data import (
    Bounds,
    PartitionKind,
    Table,
    bounds_of,
    load_table,
    partition,
    scale_to_unit,
    split,
)
from veilring.errors import InputError

WriteCsv = Callable[[str], str]


@pytest.fixture
def write_csv(tmp_path: Path) -> WriteCsv:
    """Give a function that writes a CSV file and returns its path."""

    def write(text: str) -> str:
        path = tmp_path / "rows.csv"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


def _table(features: list[list[float]]) -> Table:
    names = tuple(f"f{n}" for n in range(len(features[0])))
    labels = np.zeros(len(features), dtype=np.int64)
    return Table("made", np.array(features, dtype=np.float64), labels, names, ("only",))


class TestBuiltIn:
    """The sets that come with scikit-learn."""

    @pytest.mark.parametrize("name", ["wine", "breast-cancer", "digits", "iris"])
    def test_is_what_scikit_learn_loads(self, name: str) -> None:
        """Rows, labels and all names are those of scikit-learn's own loader."""
        theirs = getattr(datasets, f"load_{name.replace('-', '_')}")()
        ours = load_table(name)
        np.testing.assert_array_equal(ours.features, theirs.data)
        np.testing.assert_array_equal(ours.labels, theirs.target)
        assert ours.feature_names == tuple(map(str, theirs.feature_names))
        assert ours.class_names == tuple(map(str, theirs.target_names))

    @pytest.mark.parametrize("name", ["wine", "breast-cancer", "digits", "iris"])
    def test_without_the_packaged_file_the_library_is_asked(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where scikit-learn keeps its files elsewhere, the table is the same."""
        usual = load_table(name)
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
        asked = load_table(name)
        np.testing.assert_array_equal(asked.features, usual.features)
        np.testing.assert_array_equal(asked.labels, usual.labels)

    @pytest.mark.parametrize("name", ["", "wines", "wine.tsv"])
    def test_an_unknown_source_is_refused(self, name: str) -> None:
        """A source that is none names all that are."""
        with pytest.raises(InputError, match=r"breast-cancer.*openml:NAME.*\.csv"):
            load_table(name)


class TestCsv:
    """Files whose last column is the label."""

    def test_numbers_stay_and_categories_become_one_hot(self, write_csv: WriteCsv) -> None:
        """A mixed table is what scikit-learn's encoder makes of it, classes in numerical order."""
        table = load_table(write_csv("size,colour,class\n1.5,red,10\n-2,blue,9\n1e3,red,10\n"))
        colours = OneHotEncoder(sparse_output=False).fit_transform([["red"], ["blue"], ["red"]])
        np.testing.assert_array_equal(table.features[:, 0], [1.5, -2, 1000])
        np.testing.assert_array_equal(table.features[:, 1:], colours)
        assert table.feature_names == ("size", "colour=blue", "colour=red")
        assert table.class_names == ("9", "10")
        assert table.labels.tolist() == [1, 0, 1]

    def test_which_features_were_one_column_is_remembered(self, write_csv: WriteCsv) -> None:
        """Through scaling and splitting too, so that each row's category can be read again."""
        table = load_table(write_csv("size,kind,x,y\n2,b,p,0\n3,a,p,1\n4,c,p,1\n5,a,p,0\n"))
        half = split(scale_to_unit(table), 0.5, default_rng(0)).train
        kind, only = half.categories
        assert (kind.column, kind.first, kind.values) == ("kind", 1, ("a", "b", "c"))
        assert (only.column, only.first, only.values) == ("x", 4, ("p",))
        one_hot = half.features[:, kind.features]
        assert (one_hot.sum(axis=1) == 1).all()
        told = [kind.values[place] for place in one_hot.argmax(axis=1)]
        sizes = (2 + 3 * half.features[:, 0]).tolist()
        assert told == [{2: "b", 3: "a", 4: "c", 5: "a"}[round(size)] for size in sizes]

    @pytest.mark.parametrize("unknown", ["?", "NA", "null", "None"])
    def test_no_word_means_missing(self, write_csv: WriteCsv, unknown: str) -> None:
        """A word for a missing value is a category like any other, even among numbers."""
        table = load_table(write_csv(f"a,class\n1,x\n{unknown},y\n"))
        assert set(table.feature_names) == {"a=1", f"a={unknown}"}

    def test_spaces_and_a_byte_order_mark_do_not_count(self, write_csv: WriteCsv) -> None:
        """Names and cells are read without what surrounds them."""
        table = load_table(write_csv("\ufeffa, b, class\n 1, u , x\n2,u,x \n"))
        assert table.feature_names == ("a", "b=u")
        assert table.class_names == ("x",)

    @pytest.mark.parametrize(
        ("text", "named"),
        [
            ("a,b,class\n1,2,x\n1,,x\n", "column 'b', row 2 is empty"),
            ('a,b,class\n1,"",x\n', "column 'b', row 1 is empty"),
            ("a,class\n1,x\n2\n", "column 'class', row 2 is empty"),
            ("a,class\n1,x\n\n2,x\n", "column 'a', row 2 is empty"),
            ("a,class\n1,x\nnan,x\n", "column 'a', row 2 is not finite"),
            ("a,class\n1,x\n-inf,x\n", "column 'a', row 2 is not finite"),
            ("a,class\n1,x\n1,2,x\n", "as many cells in each row"),
            ("a, a,class\n1,2,x\n", "header"),
            ("", "header"),
            ("a,class\n", "0 rows"),
            ("class\nx\n", "0 columns of features"),
            (
                "a,class\n" + "".join(f"id{n},x\n" for n in range(1001)),
                "1001 different categories",
            ),
            ("a,class\n" + "".join(f"1,{n}\n" for n in range(1001)), "column 'label'"),
        ],
    )
    def test_what_is_no_table_is_refused(self, write_csv: WriteCsv, text: str, named: str) -> None:
        """The error names the file and what is wrong in it, with column and row if there is one."""
        with pytest.raises(InputError) as caught:
            load_table(write_csv(text))
        assert named in str(caught.value)
        assert "rows.csv" in str(caught.value)

    def test_a_file_that_is_not_there_is_named(self) -> None:
        """The path is in the error."""
        with pytest.raises(InputError, match=r"nowhere\.csv.*exists"):
            load_table("nowhere.csv")

    def test_a_file_that_is_not_utf_8_is_refused(self, tmp_path: Path) -> None:
        """No byte is guessed."""
        path = tmp_path / "latin.csv"
        path.write_bytes("a,class\né,x\n".encode("latin-1"))
        with pytest.raises(InputError, match="UTF-8"):
            load_table(str(path))


class TestOpenMl:
    """Sets from openml.org, as scikit-learn hands them over."""

    def test_without_a_network_one_sentence_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The error names the source and what failed."""

        def offline(*_: object, **__: object) -> Bunch:
            raise URLError("no route to host")

        monkeypatch.setattr(datasets, "fetch_openml", offline)
        with pytest.raises(InputError) as caught:
            load_table("openml:adult")
        assert "openml:adult" in str(caught.value)
        assert "no route to host" in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_nominal_columns_are_one_hot_and_missing_ones_a_category(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Numbers stay; a missing category is `?`."""
        found = Bunch(
            data=np.array([[0.5, 1], [1.5, 0], [2.5, np.nan]]),
            target=np.array(["no", "yes", "no"], dtype=object),
            feature_names=["age", "sex"],
            categories={"sex": ["F", "M"]},
        )
        monkeypatch.setattr(datasets, "fetch_openml", lambda *_, **__: found)
        table = load_table("openml:made")
        assert table.feature_names == ("age", "sex=?", "sex=F", "sex=M")
        np.testing.assert_array_equal(
            table.features, [[0.5, 0, 0, 1], [1.5, 0, 1, 0], [2.5, 1, 0, 0]]
        )
        assert table.class_names == ("no", "yes")

    def test_a_missing_number_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The column and the row are named."""
        found = Bunch(
            data=np.array([[0.5], [np.nan]]),
            target=np.array(["a", "b"]),
            feature_names=["age"],
            categories={},
        )
        monkeypatch.setattr(datasets, "fetch_openml", lambda *_, **__: found)
        with pytest.raises(InputError, match="column 'age', row 2"):
            load_table("openml:made")

    def test_two_labels_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A table has one label a row."""
        found = Bunch(data=np.zeros((2, 1)), target=np.zeros((2, 2)), feature_names=["a"])
        monkeypatch.setattr(datasets, "fetch_openml", lambda *_, **__: found)
        with pytest.raises(InputError, match="one label"):
            load_table("openml:made")


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
        scaled = scale_to_unit(_table([list(row) for row in rows])).features
        assert ((scaled >= 0) & (scaled <= 1)).all()

    def test_clips_what_is_outside_the_bounds(self) -> None:
        """A value beyond a bound is that bound."""
        bounds = Bounds(np.array([0.0]), np.array([10.0]))
        scaled = scale_to_unit(_table([[-5.0], [5.0], [50.0]]), bounds)
        np.testing.assert_array_equal(scaled.features, [[0.0], [0.5], [1.0]])

    def test_a_constant_feature_becomes_zero(self) -> None:
        """A feature whose bounds are equal says nothing."""
        np.testing.assert_array_equal(
            scale_to_unit(_table([[7.0, 1.0], [7.0, 2.0]])).features, [[0, 0], [0, 1]]
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
            scale_to_unit(_table([[1.0, 2.0]]), bounds)

    def test_bounds_are_the_extremes(self) -> None:
        """The default bounds are each feature's least and greatest value."""
        lows, highs = bounds_of(_table([[1.0, 5.0], [3.0, 4.0]]))
        assert (lows.tolist(), highs.tolist()) == ([1.0, 4.0], [3.0, 5.0])


class TestSplit:
    """Rows that are held out."""

    @given(st.integers(2, 60), st.floats(0.001, 0.999), st.integers(0, 2**32))
    def test_no_row_is_lost_or_doubled(self, rows: int, share: float, seed: int) -> None:
        """The two tables have all rows between them, at least one each, in the asked proportion."""
        table = _table([[float(n)] for n in range(rows)])
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
            split(_table([[1.0], [2.0]]), share, default_rng(0))

    def test_one_row_cannot_be_split(self) -> None:
        """Each side needs a row."""
        with pytest.raises(InputError, match="1 rows"):
            split(_table([[1.0]]), 0.5, default_rng(0))


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
    assert repr(_table([[0.123456], [0.2]])) == "Table('made': 2 rows, 1 features, 1 classes)"


_LABELS = st.lists(st.integers(0, 4), max_size=60).map(lambda values: np.array(values, np.int64))
_SEED = st.integers(0, 2**32)


class TestPartition:
    """Who holds which rows."""

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
        """No kind loses or doubles a row, and equal seeds deal equally."""
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
        """`iid` and `by-label` give equal numbers."""
        sizes = [len(rows) for rows in partition(labels, parties, default_rng(seed), kind=kind)]
        assert max(sizes) - min(sizes) <= 1

    @given(st.lists(st.integers(0, 20), min_size=1, max_size=8), _SEED)
    def test_sizes_are_kept(self, sizes: list[int], seed: int) -> None:
        """`sizes` gives each party what was asked for, and every row to one of them."""
        labels = np.zeros(sum(sizes), dtype=np.int64)
        dealt = partition(labels, len(sizes), default_rng(seed), kind="sizes", sizes=sizes)
        assert [len(rows) for rows in dealt] == sizes
        assert sorted(np.concatenate(dealt).tolist()) == list(range(len(labels)))

    @given(_LABELS, st.integers(1, 12), _SEED)
    def test_by_label_gives_each_party_neighbouring_labels(
        self, labels: np.ndarray, parties: int, seed: int
    ) -> None:
        """No label of a party is above any label of the next."""
        dealt = partition(labels, parties, default_rng(seed), kind="by-label")
        held = [labels[rows] for rows in dealt if len(rows)]
        assert all(one.max() <= two.min() for one, two in itertools.pairwise(held))

    @pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e6])
    def test_rows_of_a_class_meet_as_often_as_polya_says(self, alpha: float) -> None:
        """Two rows of a class have the same party with probability `(alpha + 1) / (n alpha + 1)`.

        Classes are shared out independently, so that the number of pairs that meet is binomial; the
        interval is missed with probability 1e-6 or less.
        """
        parties, classes = 4, 3_000
        labels = np.repeat(np.arange(classes), 2)
        dealt = partition(labels, parties, default_rng(1), kind="dirichlet", alpha=alpha)
        met = sum(len(rows) - len(np.unique(labels[rows])) for rows in dealt)
        law = stats.binom(classes, (alpha + 1) / (parties * alpha + 1))
        assert law.ppf(5e-7) <= met <= law.ppf(1 - 5e-7)

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            ({"kind": "sizes", "sizes": [1, 1]}, "sum to 3"),
            ({"kind": "sizes", "sizes": [3]}, "2 whole numbers"),
            ({"kind": "sizes", "sizes": [4, -1]}, "from 0"),
            ({"kind": "dirichlet", "alpha": 0.0}, "alpha"),
            ({"kind": "dirichlet", "alpha": float("nan")}, "alpha"),
            ({"kind": "fair"}, "by-label"),
        ],
    )
    def test_what_cannot_be_dealt_is_refused(
        self, arguments: dict[str, object], named: str
    ) -> None:
        """The error says what is allowed."""
        deal: Callable[..., object] = partition
        with pytest.raises(InputError, match=named):
            deal(np.zeros(3, dtype=np.int64), 2, default_rng(0), **arguments)

    def test_nobody_can_be_dealt_nothing(self) -> None:
        """There is at least one party."""
        with pytest.raises(InputError, match="parties"):
            partition(np.zeros(3, dtype=np.int64), 0, default_rng(0))

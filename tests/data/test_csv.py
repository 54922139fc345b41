"""Tables from CSV files."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng
from sklearn.preprocessing import OneHotEncoder

from veilring.data.sources import load
from veilring.data.table import scale_to_unit, split
from veilring.errors import InputError

WriteCsv = Callable[[str], str]


@pytest.fixture
def write_csv(tmp_path: Path) -> WriteCsv:
    """Return a function that writes a CSV file and returns its path."""

    def write(text: str) -> str:
        path = tmp_path / "rows.csv"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


class TestCsv:
    """Files whose last column is the label."""

    def test_numbers_stay_and_categories_become_one_hot(self, write_csv: WriteCsv) -> None:
        """A mixed table equals scikit-learn's encoding, with classes in numerical order."""
        table = load(write_csv("size,colour,class\n1.5,red,10\n-2,blue,9\n1e3,red,10\n"))
        colours = OneHotEncoder(sparse_output=False).fit_transform([["red"], ["blue"], ["red"]])
        np.testing.assert_array_equal(table.X[:, 0], [1.5, -2, 1000])
        np.testing.assert_array_equal(table.X[:, 1:], colours)
        assert table.features.names == ("size", "colour=blue", "colour=red")
        assert table.features.classes == ("9", "10")
        assert table.y.tolist() == [1, 0, 1]

    def test_one_hot_columns_are_remembered(self, write_csv: WriteCsv) -> None:
        """Scaling and splitting keep them, so each row's category can be read again."""
        table = load(write_csv("size,kind,x,y\n2,b,p,0\n3,a,p,1\n4,c,p,1\n5,a,p,0\n"))
        half = split(scale_to_unit(table), 0.5, default_rng(0)).train
        kind, only = half.features.categories
        assert (kind.column, kind.first, kind.values) == ("kind", 1, ("a", "b", "c"))
        assert (only.column, only.first, only.values) == ("x", 4, ("p",))
        one_hot = half.X[:, kind.features]
        assert (one_hot.sum(axis=1) == 1).all()
        told = [kind.values[place] for place in one_hot.argmax(axis=1)]
        sizes = (2 + 3 * half.X[:, 0]).tolist()
        assert told == [{2: "b", 3: "a", 4: "c", 5: "a"}[round(size)] for size in sizes]

    def test_the_reading_of_columns_is_reported(self, write_csv: WriteCsv) -> None:
        """One line lists numbers, categories with sizes, and the label, even after scaling."""
        table = load(write_csv("size,sex,ward,class\n2,f,a,x\n3,m,b,y\n4,f,c,x\n"))
        told = "rows.csv: columns: 1 of numbers, 2 of categories (sex 2, ward 3); "
        assert scale_to_unit(table).describe() == told + "label 'class' (2 classes)"

    @pytest.mark.parametrize("unknown", ["?", "NA", "null", "None"])
    def test_no_word_means_missing(self, write_csv: WriteCsv, unknown: str) -> None:
        """A word for a missing value is an ordinary category, even among numbers."""
        table = load(write_csv(f"a,class\n1,x\n{unknown},y\n"))
        assert set(table.features.names) == {"a=1", f"a={unknown}"}

    def test_spaces_and_a_byte_order_mark_do_not_count(self, write_csv: WriteCsv) -> None:
        """Names and cells are read without surrounding spaces."""
        table = load(write_csv("\ufeffa, b, class\n 1, u , x\n2,u,x \n"))
        assert table.features.names == ("a", "b=u")
        assert table.features.classes == ("x",)

    @pytest.mark.parametrize(
        ("text", "named"),
        [
            ("a,b,class\n1,2,x\n1,,x\n", "column 'b', line 3 is empty"),
            ('a,b,class\n1,"",x\n', "column 'b', line 2 is empty"),
            ("a,class\n1,x\n2\n", "column 'class', line 3 is empty"),
            ("a,class\n1,x\n\n2,x\n", "column 'a', line 3 is empty"),
            ("a,class\n1,x\nnan,x\n", "column 'a', line 3: the number is not finite"),
            ("a,class\n1,x\n-inf,x\n", "column 'a', line 3: the number is not finite"),
            ("a,class\n1,x\n1,2,x\n", "each row must have as many cells"),
            ("a, a,class\n1,2,x\n", "both named 'a'"),
            ("", "header"),
            ("a,class\n", "rows.csv has no rows"),
            ("class\nx\n", "rows.csv has no features: its only column, 'class', is taken"),
            (
                "a,class\n" + "".join(f"id{n},x\n" for n in range(1001)),
                "each of the 1001 rows has a different value",
            ),
            (
                "a,class\n" + "".join(f"id{n},x\n" for n in range(1001)) * 2,
                "1001 different categories",
            ),
            ("a,class\n" + "".join(f"1,{n}\n" for n in range(1001)), "1001 different numbers"),
        ],
    )
    def test_an_invalid_table_is_refused(self, write_csv: WriteCsv, text: str, named: str) -> None:
        """The error names the file and the mistake, with column and line if known."""
        with pytest.raises(InputError) as caught:
            load(write_csv(text))
        assert named in str(caught.value)
        assert "rows.csv" in str(caught.value)

    def test_the_repair_of_an_empty_cell_is_suggested(self, write_csv: WriteCsv) -> None:
        """The suggestion for a numeric column is a number: a word would make it categorical."""
        for column, allowed in (
            ("1\n\n2", "drop the row or fill in a number"),
            ("u\n\n2", "write '\\?'"),
        ):
            rows = "".join(f"{cell},x\n" for cell in column.split("\n"))
            with pytest.raises(InputError, match=f"line 3 is empty; .*{allowed}"):
                load(write_csv(f"a,class\n{rows}"))

    def test_mistyped_numbers_are_not_categories(self, write_csv: WriteCsv) -> None:
        """Nine numbers in ten cells make a numeric column, and the tenth is shown; eight do not."""
        rows = [f"{n},x\n" for n in range(8)]
        with pytest.raises(
            InputError, match=r"'age'.* 9 of 10 cells are numbers, but line 3 is '\?'"
        ):
            load(write_csv("age,class\n" + "".join([rows[0], "?,y\n", *rows[1:], "9,x\n"])))
        table = load(write_csv("age,class\n" + "".join([*rows, "?,y\n", "NA,y\n"])))
        assert len(table.features) == 10

    @pytest.mark.parametrize(
        ("labels", "found"),
        [
            ([*range(101)] * 20, "101 different numbers; .* 100 classes"),
            ([*range(41)] * 5, "41 different numbers; .* 20 classes"),
            (["1", "2.5"], "not all of its numbers are whole.*"),
            ([f"Ann {n}" for n in range(21)], "21 different words; .* 20 classes"),
        ],
    )
    def test_a_measurement_or_a_name_is_not_a_label(
        self, write_csv: WriteCsv, labels: list[object], found: str
    ) -> None:
        """The error names the last column, and says that it was used as the label."""
        rows = "".join(f"1,{label}\n" for label in labels)
        with pytest.raises(InputError, match=f"'size': .*{found}.* last column is taken"):
            load(write_csv(f"a,size\n{rows}"))

    @pytest.mark.parametrize(
        "labels",
        [[f"{n}.0" for n in range(-1, 99)] * 10, range(20), [f"c{n}" for n in range(50)] * 2],
    )
    def test_many_classes_are_classes(self, write_csv: WriteCsv, labels: Iterable[object]) -> None:
        """Numbers with ten rows each, words with two, and any twenty values count as classes."""
        table = load(write_csv("a,class\n" + "".join(f"1,{label}\n" for label in labels)))
        assert len(table.features.classes) == len(set(labels))

    @pytest.mark.parametrize(
        "rows",
        ["1.5,2,x\n3,4,y\n", "7,7,0\n3,4,1\n", "u,7.5,x\nv,3,y\n", "0,x\n1,y\n", "1,2,4\n1,2,4\n"],
    )
    def test_a_first_line_of_data_is_not_a_header(self, write_csv: WriteCsv, rows: str) -> None:
        """No row of a file without a header is lost silently."""
        with pytest.raises(InputError, match=r"rows.csv, line 1: .* must name the columns"):
            load(write_csv(rows))

    @pytest.mark.parametrize("header", ["0,1,2", "1,2,3", "0,1,class", "1990,b,1992"])
    def test_numbers_may_be_names(self, write_csv: WriteCsv, header: str) -> None:
        """Numbered columns, and numbers beside a named numeric column, are valid headers."""
        assert (
            load(write_csv(f"{header}\n5,6,0\n7,8,1\n")).features.names[0]
            == header[: header.index(",")]
        )

    def test_a_file_that_is_not_there_is_named(self) -> None:
        """The error contains the path of a missing file."""
        with pytest.raises(InputError, match=r"nowhere\.csv.*existing"):
            load("nowhere.csv")

    def test_a_file_that_is_not_utf_8_is_refused(self, tmp_path: Path) -> None:
        """No byte is guessed."""
        path = tmp_path / "latin.csv"
        path.write_bytes("a,class\né,x\n".encode("latin-1"))
        with pytest.raises(InputError, match="UTF-8"):
            load(str(path))

"""Tables from CSV files; mistakes that could pass for data are refused with a place, or noted."""

import codecs
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng
from sklearn.preprocessing import OneHotEncoder
from tests.refusals import require_refused
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.data.cells import Separator
from veilring.data.csv import read_cells, read_csv
from veilring.data.sources import load
from veilring.data.table import scale_to_unit, split
from veilring.errors import InputError

Columns = Mapping[str, Iterable[object]]
Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a text, bytes or columns to a file, and returns its path."""

    def written(content: str | bytes | Columns, mark: str = ",") -> str:
        path = tmp_path / "rows.csv"
        if isinstance(content, Mapping):
            lines = [[*content], *zip(*content.values(), strict=True)]
            content = "".join(mark.join(map(str, line)) + "\n" for line in lines)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return written


ROWS = 40


def good() -> dict[str, Iterable[object]]:
    """Return columns without mistakes."""
    return {
        "glucose": [(7 * row) % 41 + 0.5 for row in range(ROWS)],
        "ward": [f"w{row % 3}" for row in range(ROWS)],
        "class": [row % 2 for row in range(ROWS)],
    }


def test_numbers_stay_and_categories_become_one_hot(write: Write) -> None:
    """A mixed table equals scikit-learn's encoding, with classes in numerical order."""
    table = load(write("size,colour,class\n1.5,red,10\n-2,blue,9\n1e3,red,10\n"))
    colours = OneHotEncoder(sparse_output=False).fit_transform([["red"], ["blue"], ["red"]])
    np.testing.assert_array_equal(table.X[:, 0], [1.5, -2, 1000])
    np.testing.assert_array_equal(table.X[:, 1:], colours)
    assert table.features.names == ("size", "colour=blue", "colour=red")
    assert table.features.classes == ("9", "10")
    assert table.y.tolist() == [1, 0, 1]


def test_one_hot_columns_are_remembered(write: Write) -> None:
    """Scaling and splitting keep them, so each row's category can be read again."""
    table = load(write("size,kind,x,y\n2,b,p,0\n3,a,p,1\n4,c,p,1\n5,a,p,0\n"))
    half = split(scale_to_unit(table), 0.5, default_rng(0)).train
    kind, only = half.features.categories
    assert (kind.column, kind.first, kind.values) == ("kind", 1, ("a", "b", "c"))
    assert (only.column, only.first, only.values) == ("x", 4, ("p",))
    one_hot = half.X[:, kind.features]
    assert (one_hot.sum(axis=1) == 1).all()
    told = [kind.values[place] for place in one_hot.argmax(axis=1)]
    sizes = (2 + 3 * half.X[:, 0]).tolist()
    assert told == [{2: "b", 3: "a", 4: "c", 5: "a"}[round(size)] for size in sizes]


def test_the_reading_of_columns_is_reported(write: Write) -> None:
    """One line lists numbers, categories with sizes, and the label, even after scaling."""
    table = load(write("size,sex,ward,class\n2,f,a,x\n3,m,b,y\n4,f,c,x\n"))
    told = "rows.csv: columns: 1 of numbers, 2 of categories (sex 2, ward 3); "
    assert scale_to_unit(table).describe() == told + "label 'class' (2 classes)"


def test_no_word_means_missing(write: Write) -> None:
    """A word for a missing value is an ordinary category, beside eight numbers in ten cells."""
    for unknown in ("?", "NA", "null", "None"):
        table = load(write(f"a,class\n1,x\n{unknown},y\n"))
        assert set(table.features.names) == {"a=1", f"a={unknown}"}
    cells = [*range(8), "?", "NA"]
    table = load(write({"age": cells, "class": "xyxyxyxyxy"}))
    assert set(table.features.names) == {f"age={cell}" for cell in cells}


def test_spaces_and_a_byte_order_mark_do_not_count(write: Write) -> None:
    """Names and cells are read without surrounding spaces."""
    table = load(write("\ufeffa, b, class\n 1, u , x\n2,u,x \n"))
    assert table.features.names == ("a", "b=u")
    assert table.features.classes == ("x",)


IDS = "a,class\n" + "".join(f"id{n},x\n" for n in range(11))
MANY = "".join(f"id{n},x\n" for n in range(1001))
NINE_NUMBERS = "age,class\n0,x\n?,y\n" + "".join(f"{n},x\n" for n in range(1, 9))
INVALID = {
    "a,b,class\n1,2,x\n1,,x\n": "column 'b', line 3 is empty",
    'a,b,class\n1,"",x\n': "column 'b', line 2 is empty",
    "a,class\n1,x\n2\n": r"column 'class', line 3 is empty; fill in the label, .*1 of 2 rows have",
    "a,class\n1,x\n\n2,x\n": "column 'a', line 3 is empty; .*drop the row or fill in a number",
    "a,class\nu,x\n,x\n2,x\n": r"line 3 is empty; .*write '\?'",
    "a,class\n1,x\nnan,x\n": "column 'a', line 3: the number is not finite",
    "a,class\n1,x\n-inf,x\n": "column 'a', line 3: the number is not finite",
    "a,class\n1,x\n1,2,x\n": "each row must have as many cells",
    "a, a,class\n1,2,x\n": "both named 'a'",
    "": "header",
    "a,class\n": "rows.csv has no rows",
    "class\nx\n": "rows.csv has no features: its only column, 'class', is taken",
    IDS: "'a': each of the 11 rows has a different value",  # each would be a feature
    "a,class\n" + 2 * MANY: "1001 different categories",
    "a,class\n" + "".join(f"1,{n}\n" for n in range(1001)): "1001 different numbers",
    NINE_NUMBERS: r"'age'.* 9 of 10 cells are numbers, but line 3 is '\?'",
    # no row of a file without a header is lost silently
    "1.5,2,x\n3,4,y\n": "line 1: .* must name the columns",
    "7,7,0\n3,4,1\n": "line 1: .* must name the columns",
    "u,7.5,x\nv,3,y\n": "line 1: .* must name the columns",
    "0,x\n1,y\n": "line 1: .* must name the columns",
    "1,2,4\n1,2,4\n": "line 1: .* must name the columns",
}


@pytest.mark.parametrize(("text", "named"), INVALID.items(), ids=INVALID.values())
def test_an_invalid_table_is_refused(write: Write, text: str, named: str) -> None:
    """The error names the file and the mistake, with column, line and repair if known."""
    with pytest.raises(InputError, match=named) as caught:
        load(write(text))
    assert "rows.csv" in str(caught.value)


MEASUREMENTS: list[tuple[Sequence[object], str]] = [
    ([*range(101)] * 20, "101 different numbers; .* 100 classes"),
    ([*range(41)] * 5, "41 different numbers; .* 20 classes"),
    (["1", "2.5"], "not all of its numbers are whole.*"),
    ([f"Ann {n}" for n in range(21)], "21 different words; .* 20 classes"),
    ([*(f"2024-01-{n + 1:02}" for n in range(25))] * 9, "25 different dates; .* 112 classes"),
]


@pytest.mark.parametrize(("labels", "found"), MEASUREMENTS)
def test_a_measurement_or_name_is_no_label(
    write: Write, labels: Sequence[object], found: str
) -> None:
    """The error names the last column, and says that it was used as the label."""
    said = f"'size': .*{found}.* last column is taken"
    require_refused(said, load, write({"a": [1] * len(labels), "size": labels}))


@pytest.mark.parametrize(
    "labels", [[f"{n}.0" for n in range(-1, 99)] * 10, range(20), [f"c{n}" for n in range(50)] * 2]
)
def test_many_classes_are_classes(write: Write, labels: Iterable[object]) -> None:
    """Numbers with ten rows each, words with two, and any twenty values count as classes."""
    table = load(write("a,class\n" + "".join(f"1,{label}\n" for label in labels)))
    assert len(table.features.classes) == len(set(labels))


@pytest.mark.parametrize("header", ["0,1,2", "1,2,3", "0,1,class", "1990,b,1992"])
def test_numbers_may_be_names(write: Write, header: str) -> None:
    """Numbered columns, and numbers beside a named numeric column, are valid headers."""
    names = load(write(f"{header}\n5,6,0\n7,8,1\n")).features.names
    assert names[0] == header[: header.index(",")]


def test_a_good_table_has_no_notes(write: Write) -> None:
    """Neither a good table nor the tables of the package have notes."""
    for name in (write(good()), "wine", "iris"):
        assert load(name).notes == ()


UNREADABLE = {
    "a,class\n1,x\n2,é\n".encode("latin-1"): (
        r"rows\.csv, line 3 is not in UTF-8, but perhaps in Latin-1 \(byte 0xe9\).*UTF-8"
    ),
    "glucose\n5\nmü\n".encode("cp1252"): "line 3 is not in UTF-8, but perhaps in Latin-1",
    "a,class\n1,x\n".encode("utf-16"): r"rows\.csv is in UTF-16; save it in UTF-8",
    codecs.BOM_UTF16_BE + "a,class\n1,x\n".encode("utf-16-be"): "is in UTF-16",
    "a,class\n1,x\n".encode("utf-16-le"): "is in UTF-16, or is not text",
    "a,class\n1,x\n".encode("utf-32"): "is in UTF-32",
    b"glucose,age,glucose,class\n1,2,3,x\n": (
        "line 1: columns 1 and 3 are both named 'glucose'; .* different name"
    ),
    b"a, a ,class\n1,2,x\n": "columns 1 and 2 are both named 'a'",
    b",a,class\n1,2,x\n": "line 1: column 1 has no name",
    b"a;b;class\n1;2;x\n": "separated by semicolons, not by commas",
    b"a\tb\tclass\n1\t2\tx\n": "separated by tabs, not by commas",
    b"a|b|class\n1|2|x\n": "separated by vertical bars, not by commas",
    b"\na,b,class\n1,2,x\n": "line 1: there is no header",
    b"a" * 200_000 + b",class\n1,x\n": "line 1: there is no header",
}


@pytest.mark.parametrize("read", [read_csv, read_cells])
@pytest.mark.parametrize(("content", "says"), UNREADABLE.items(), ids=UNREADABLE.values())
def test_a_file_that_is_not_csv_in_utf_8_is_refused(
    write: Write, content: bytes, says: str, read: Callable[[Path], object]
) -> None:
    """The error names the file, the mistake and the way to save it, even if cells stay text."""
    require_refused(says, read, Path(write(content)))


@pytest.mark.parametrize("end", ["\n", "\n\n", "\r\n \r\n", "  \n   \n"])
def test_empty_lines_at_the_end_do_not_count(write: Write, end: str) -> None:
    """A table with them equals the table without them."""
    path = write(f"a,class\n1,x\n2,y{end}")
    read = load(path)
    assert read.X.tolist() == [[1], [2]]
    assert read.features.classes == ("x", "y")
    assert read_cells(Path(path))["class"].tolist() == ["x", "y"]


def test_numbers_with_decimal_commas_are_refused(write: Write) -> None:
    """With another separator they would become categories."""
    path = write({**good(), "glucose": [f"{row % 7},5" for row in range(ROWS)]}, ";")
    said = r"'glucose': numbers have a decimal comma; .*1\.5"
    require_refused(said, read_csv, Path(path), separator=";")


PLAUSIBLE: dict[str, Columns] = {
    "column 'class', the label, has one class": {"class": ["yes"] * ROWS},
    "column 'class', the label, has the classes 'Yes' and 'yes'": {
        "class": ["no", "yes", "Yes", "no"] * (ROWS // 4)
    },
    "column 'glucose', line 32, is far from all other values": {
        "glucose": [10**30 if row == 30 else 80 + row % 9 for row in range(ROWS)]
    },
    "column 'glucose', line 5, is far from all other values": {
        "glucose": [9999 if row == 3 else 0 if row % 4 else row for row in range(ROWS)]
    },
    "column 'glucose' numbers the rows": {"glucose": range(1, ROWS + 1)},
    "column 'glucose' looks like an identifier": {
        "glucose": [4000 + (37 * row) % 61 for row in range(ROWS)]
    },
    "column 'ward' has 30 categories in 40 rows": {"ward": [f"Ann {n % 30}" for n in range(ROWS)]},
}


@pytest.mark.parametrize("says", PLAUSIBLE)
def test_a_plausible_mistake_is_noted(write: Write, says: str) -> None:
    """One sentence names the column, and the table is read."""
    (note,) = load(write({**good(), **PLAUSIBLE[says]})).notes
    assert note.startswith(says)


@pytest.mark.parametrize("name", ["label", "Class", "target"])
def test_a_column_named_label_is_suggested(write: Write, name: str) -> None:
    """It is suggested if it is not last; chosen by name, it is used without a note."""
    columns = good()
    labels = columns.pop("class")
    path = write({name: labels, **columns})
    (note,) = load(path).notes
    assert note.startswith("the last column, 'ward', is taken as the label, although there is")
    assert note.endswith(f"choose it with --label {name}")
    chosen = load(path, label=name)
    assert (chosen.notes, chosen.label_name) == ((), name)
    assert chosen.features.names == ("glucose", "ward=w0", "ward=w1", "ward=w2")
    np.testing.assert_array_equal(chosen.y, np.array([*labels]))


def test_a_label_of_many_numbers_is_noted(write: Write) -> None:
    """A file whose label comes first ends in a measured column, such as an age."""
    rows = range(520)
    path = write({"sick": [row % 2 for row in rows], "age": [row % 52 for row in rows]})
    (note,) = load(path).notes
    assert "'age', is taken as the label: it has 52 classes, all numbers" in note
    assert "--label" in note
    assert load(path, label="sick").notes == ()


def test_a_label_that_is_not_a_column_is_refused(write: Write) -> None:
    """The error lists the columns; sets other than CSV files keep their label."""
    listed = "label is 'sick'; allowed: .*glucose, ward, class"
    require_refused(listed, load, write(good()), label="sick")
    require_refused(r"label is for a \.csv file only", load, "wine", label="class")
    require_refused(r"separator is for a \.csv file only", load, "wine", separator=";")
    require_refused(r"nowhere\.csv.*existing", load, "nowhere.csv")


@pytest.mark.parametrize(("separator", "mark"), [(";", ";"), ("|", "|"), ("tab", "\t")])
def test_commands_take_the_label_and_the_separator(
    write: Write, tmp_path: Path, separator: Separator, mark: str
) -> None:
    """The error suggests the option, which makes the file readable for `run` and `deploy`."""
    columns = good()
    path = write({"class": columns.pop("class"), **columns}, mark)
    runner, folder = CliRunner(), tmp_path / "owner"
    words = ["deploy", "owner", path, "--radius", "0.1", "--out", str(folder)]
    refused = runner.invoke(app, words)
    assert refused.exit_code == 2
    assert "--separator" in refused.output
    chosen = ["--label", "class", "--separator", separator]
    assert runner.invoke(app, [*words, *chosen]).exit_code == 0
    assert (folder / "owner.csv").read_text().startswith("glucose,ward,label\n")
    source, folder = f"data.source={path}", tmp_path / "ring"
    words = ["deploy", "peers", "wine", "--set", source, "--out", str(folder)]
    assert runner.invoke(app, [*words, *chosen]).exit_code == 0
    assert (folder / "party-1.csv").read_text().startswith("glucose,ward,label\n")
    sized = ["--set", source, "--set", "parties.count=3"]
    run = runner.invoke(app, ["run", "wine", "--runtime", "memory", *sized, *chosen])
    assert run.exit_code == 0, run.output
    assert "label 'class' (2 classes)" in run.output


def test_notes_of_a_run_stand_beside_its_json(write: Write) -> None:
    """Notes go to standard error, and standard output is one JSON document."""
    path = write({**good(), "class": ["yes"] * ROWS})
    words = ["run", "wine", "--runtime", "memory", "--json", "--set", "parties.count=3"]
    run = CliRunner().invoke(app, [*words, "--set", f"data.source={path}"])
    assert run.exit_code == 0, run.output
    assert run.stderr == (
        "rows.csv: column 'class', the label, has one class: nothing can be classified\n"
    )
    assert json.loads(run.stdout)


def test_a_file_may_be_a_pipe(write: Write) -> None:
    """The cells of a pipe are read once."""
    read = "from pathlib import Path; from veilring.data.csv import read_cells; "
    read += "print(len(read_cells(Path('/dev/stdin'))['ward']))"
    content = Path(write(good())).read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", read], input=content, capture_output=True, check=True
    )
    assert done.stdout.strip() == str(ROWS).encode()

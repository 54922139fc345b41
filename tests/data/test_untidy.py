"""Untidy tables, from file to labels: drafted, checked and read by one public schema."""

import csv
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.random import Generator, default_rng
from typer.testing import CliRunner

import veilring as vr
from veilring.cli.app import app
from veilring.data.cells import Reading
from veilring.data.checking import check_file
from veilring.data.columns import FeatureTerms
from veilring.data.drafting import draft_schema
from veilring.data.schema import RowSchema, read_file, read_schema
from veilring.data.table import scale_to_unit
from veilring.deployment.examples.peers import write_peers
from veilring.deployment.peers import PeerTerms
from veilring.deployment.surveys.terms import SurveyTerms
from veilring.errors import InputError

Columns = dict[str, Sequence[object]]
CLASSES = ("home", "rehab")
PARTIES = 3


def patients(rows: int, rng: Generator) -> Columns:
    """Return columns of invented patients whose label depends on two of them."""
    age, crp = rng.integers(20, 90, rows), np.round(np.exp(rng.normal(1.5, 0.6, rows)), 1)
    return {
        "age": age.tolist(),
        "sex": [("female", "male")[n] for n in rng.integers(0, 2, rows)],
        "crp": crp.tolist(),
        "outcome": [CLASSES[int(risk)] for risk in age / 60 + crp / 8 > 1.7],
    }


SCHEMA = RowSchema(
    label="outcome",
    classes=CLASSES,
    features=(
        FeatureTerms(name="age", low=0, high=120, unit="years"),
        FeatureTerms(name="sex", categories=("female", "male")),
        FeatureTerms(name="crp", low=0, high=40, unit="mg/l"),
    ),
)


def with_columns(**changes: object) -> RowSchema:
    """Return the schema with some columns changed, by their names."""
    features = tuple(
        FeatureTerms.model_validate(each.model_dump() | dict(changes.pop(each.name, {})))  # type: ignore[call-overload]  # each is a table
        for each in SCHEMA.features
    )
    more = tuple(FeatureTerms(name=name, **keys) for name, keys in changes.items())  # type: ignore[arg-type]  # as above
    return SCHEMA.model_copy(update={"features": features + more})


def write(path: Path, columns: Mapping[str, Iterable[object]], mark: str = ",") -> Path:
    """Write a CSV file."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=mark)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def gaps(columns: Columns, rng: Generator) -> Columns:
    """Return columns with empty cells and words for missing values."""
    words = ("", "NA", "n/a", "-")
    holed = {
        name: [words[n % 4] if rng.random() < 0.1 else cell for n, cell in enumerate(cells)]
        for name, cells in columns.items()
        if name != "outcome"
    }
    return {**holed, "outcome": columns["outcome"]}


def dates(columns: Columns, rng: Generator) -> Columns:
    """Return columns with a date in both spellings."""
    days = [date(2024, 1, 1) + timedelta(int(n)) for n in rng.integers(0, 300, len(columns["age"]))]
    spelled = [f"{d:%d.%m.%Y}" if n % 2 else f"{d} 10:30" for n, d in enumerate(days)]
    return {"admitted": spelled, **columns}


def ids(columns: Columns, rng: Generator) -> Columns:
    """Return columns with identifiers in words and numbers."""
    numbers = (rng.permutation(len(columns["age"])) + 100_000).tolist()
    return {"patient": [f"P{n}" for n in numbers], "case": numbers, **columns}


@dataclass(frozen=True)
class Untidy:
    """An untidy table: how it is made and written, and by which schema and reading it is read."""

    change: Callable[[Columns, Generator], Columns] = lambda columns, _rng: columns
    rows: int = 120
    mark: str = ","
    rewrite: Callable[[str], bytes] = str.encode
    schema: RowSchema = SCHEMA
    reading: Reading = field(default_factory=Reading)


def decimal_commas(text: str) -> bytes:
    """Write decimal commas, as a German spreadsheet does."""
    return re.sub(r"(\d)\.(\d)", r"\1,\2", text).encode()


def german(columns: Columns, _rng: Generator) -> Columns:
    """Return columns with headers, categories, a unit and a code of another country."""
    crp = [
        -999 if n % 9 == 0 else round(float(str(cell)) / 10, 3)
        for n, cell in enumerate(columns["crp"])
    ]
    sex = [{"female": "w", "male": "m"}[str(cell)] for cell in columns["sex"]]
    return {
        "Größe": columns["age"],
        "Alter": columns["age"],
        "sex": sex,
        "CRP [mg/dl]": crp,
        "outcome": columns["outcome"],
    }


def wide(columns: Columns, rng: Generator) -> Columns:
    """Return columns with 297 more."""
    more = {f"g{n}": rng.normal(0, 1, len(columns["age"])).round(3).tolist() for n in range(297)}
    return {**more, **columns}


FILLED = with_columns(age={"missing": 50}, sex={"missing": "category"}, crp={"missing": 4.5})
UNTIDY: dict[str, Untidy] = {
    "gaps": Untidy(gaps, schema=FILLED),
    "dates": Untidy(
        dates,
        schema=with_columns(admitted={"kind": "date", "low": "2024-01-01", "high": "2024-12-31"}),
    ),
    "ids": Untidy(
        ids, schema=with_columns(patient={"kind": "identifier"}, case={"kind": "identifier"})
    ),
    "decimal commas": Untidy(mark=";", rewrite=decimal_commas),
    "another order": Untidy(lambda columns, _rng: dict(reversed(columns.items()))),
    "windows-1252, other names and units": Untidy(
        german,
        mark="\t",
        rewrite=lambda text: text.encode("cp1252"),
        schema=with_columns(crp={"missing": 4.5}),
        reading=Reading(
            names={"age": "Alter", "crp": "CRP [mg/dl]"},
            factors={"crp": 10.0},
            missing=("-999",),
            values={"sex": {"w": "female", "m": "male"}},
        ),
    ),
    "utf-16": Untidy(rewrite=lambda text: text.encode("utf-16")),
    "300 columns": Untidy(
        wide, schema=with_columns(**{f"g{n}": {"low": -5, "high": 5} for n in range(297)})
    ),
    "30 rows": Untidy(rows=30),
    "a long note in several lines": Untidy(
        lambda columns, _rng: {"note": ["see letter,\npage 2"] * len(columns["age"]), **columns}
    ),
}


@pytest.mark.parametrize("name", UNTIDY)
def test_an_untidy_table_goes_from_file_to_labels(name: str, tmp_path: Path) -> None:
    """It is checked without anything wrong, and its values are those of the tidy table."""
    made, rng = UNTIDY[name], default_rng(7)
    tidy = patients(made.rows, rng)
    path = write(tmp_path / "rows.csv", made.change(tidy, rng), made.mark)
    path.write_bytes(made.rewrite(path.read_bytes().decode()))
    cells = read_file(path, made.reading)
    assert [each.text for each in check_file(made.schema, cells) if each.is_wrong] == []
    table = vr.load(path, schema=made.schema, reading=made.reading)
    age = table.X[:, table.features.names.index("age")]
    assert np.isin(age, [*map(float, map(str, tidy["age"])), 50.0]).all()
    assert [CLASSES[label] for label in table.y] == tidy["outcome"]
    train, queries = table.split(0.25, seed=1)
    run = vr.run(vr.RankSearch(k=3), train.partition(PARTIES, seed=1), queries, seed=1)
    assert len(run.labels) == len(queries)
    assert set(run.labels) <= set(CLASSES)


def test_declared_values_replace_gaps_only(tmp_path: Path) -> None:
    """Numbers get the declared value, categories one of their own, and other cells stay."""
    path = write(
        tmp_path / "rows.csv",
        {
            "age": [30, "", "NA"],
            "sex": ["male", "female", "?"],
            "crp": ["null", 2, 3],
            "outcome": ["home"] * 3,
        },
    )
    table = vr.load(path, schema=FILLED)
    assert table.X[:, 0].tolist() == [30, 50, 50]
    assert table.X[:, 1:4].tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]
    assert table.X[:, 4].tolist() == [4.5, 2, 3]
    assert table.features.names[3] == "sex=?"


@pytest.mark.parametrize(
    ("column", "cell", "says"),
    [
        (
            "crp",
            "",
            r"column 'crp', line 4 is empty; fill it in, remove the row, or agree on a value",
        ),
        (
            "crp",
            "<0.3",
            r"column 'crp', line 4: this is not a finite number; give a number \(0 to 40\)",
        ),
        ("crp", "1,234", r"column 'crp', line 4: the comma may .* say which by decimal"),
        (
            "sex",
            "femal",
            r"column 'sex', line 4 is 'femal'; allowed: one of female, male \(did you mean female",
        ),
        ("outcome", "Home", r"column 'outcome', line 4 is 'Home'; allowed: one of home, rehab"),
        ("outcome", "", r"column 'outcome', line 4 is empty; fill it in"),
    ],
)
def test_a_wrong_cell_is_named_with_its_line_and_a_remedy(
    column: str, cell: str, says: str, tmp_path: Path
) -> None:
    """The line is that of an editor, even below a cell of several lines."""
    columns = {name: [*cells] for name, cells in patients(2, default_rng(1)).items()}
    columns[column][1] = cell
    path = write(tmp_path / "rows.csv", {"note": ["first\nsecond", "x"], **columns})
    with pytest.raises(InputError, match=says):
        vr.load(path, schema=SCHEMA)
    wrong = [each for each in check_file(SCHEMA, read_file(path)) if each.is_wrong]
    assert [each.column for each in wrong] == [column]
    assert re.search(says, wrong[0].text)


def test_a_file_without_rows_is_not_wrong(tmp_path: Path) -> None:
    """A party may take part without rows, so the check only notes it."""
    columns: dict[str, list[object]] = {name: [] for name in patients(1, default_rng(1))}
    found = check_file(SCHEMA, read_file(write(tmp_path / "rows.csv", columns)))
    assert "there are no rows" in found[0].text
    assert not any(each.is_wrong for each in found)


def test_all_words_and_codes_to_translate_are_shown_at_once(tmp_path: Path) -> None:
    """An error about a category lists its other words; a code outside of a range is shown."""
    columns = {name: [*cells] for name, cells in patients(40, default_rng(1)).items()}
    columns["sex"] = ["M" if cell == "male" else "F" for cell in columns["sex"]]
    columns["crp"] = ["-999", *columns["crp"][1:]]
    found = {
        each.column: each
        for each in check_file(SCHEMA, read_file(write(tmp_path / "rows.csv", columns)))
    }
    assert re.search(r"is '[MF]'.*values.sex \(40 cells, also '[MF]'\)", found["sex"].text)
    assert not found["crp"].is_wrong
    assert "line 2 has -999; if that stands for a missing value" in found["crp"].text


@pytest.mark.parametrize(
    ("reading", "says"),
    [
        ({"factors": {"crpp": 2.0}}, "column of the reading is 'crpp'.*did you mean crp"),
        ({"values": {"gender": {"m": "male"}}}, "column of the reading is 'gender'"),
        ({"names": {"Alter": "age"}}, r"names are written as age = 'Alter'"),
    ],
)
def test_a_reading_of_other_columns_is_wrong(
    reading: dict[str, Any], says: str, tmp_path: Path
) -> None:
    """A wrong or reversed name would otherwise change nothing, unnoticed."""
    columns = {name: [*cells] for name, cells in patients(9, default_rng(1)).items()}
    if "names" in reading:
        columns = {"Alter" if name == "age" else name: cells for name, cells in columns.items()}
    path = write(tmp_path / "rows.csv", columns)
    first, *_ = check_file(SCHEMA, read_file(path, Reading.model_validate(reading)))
    assert first.is_wrong
    assert re.search(says, first.text)


def test_one_wrong_cell_among_decimal_commas_is_named(tmp_path: Path) -> None:
    """A point for thousands in one cell does not make the commas of all others unreadable."""
    columns = patients(9, default_rng(1))
    columns["crp"] = ["3,5"] * 5 + ["1.003,5"] + ["4,25"] * 3
    path = write(tmp_path / "rows.csv", columns, ";")
    with pytest.raises(InputError, match=r"column 'crp', line 7: this is not a finite number; giv"):
        vr.load(path, schema=SCHEMA)


def test_drafted_dates_are_whole_months(tmp_path: Path) -> None:
    """No end of a drafted range of dates is the date of a row within a month."""
    columns = patients(50, default_rng(1))
    days = [date(2023, 12, 5) + timedelta(int(n)) for n in default_rng(2).integers(0, 80, 50)]
    columns["admitted"] = [*days[:-2], date(2023, 12, 4), date(2024, 2, 27)]
    drafted = draft_schema(read_file(write(tmp_path / "rows.csv", columns)), "outcome")
    assert "low = 2023-12-01\nhigh = 2024-02-29\n" in drafted.text


def test_a_column_in_another_unit_is_wrong_but_not_unknown(tmp_path: Path) -> None:
    """The check names its header once, with the factor that the reading needs."""
    columns = patients(9, default_rng(1))
    columns["age [months]"] = columns.pop("age")
    in_years = [
        each.model_copy(update={"unit": "years"}) if each.name == "age" else each
        for each in SCHEMA.features
    ]
    schema = SCHEMA.model_copy(update={"features": tuple(in_years)})
    (found,) = check_file(schema, read_file(write(tmp_path / "rows.csv", columns)))
    assert "is in months, but the schema is in years" in found.text


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    """One error has a line for each column, with the number of its cells."""
    columns = {name: [*cells] for name, cells in patients(9, default_rng(1)).items()}
    columns |= {"age": [""] * 9, "sex": ["f"] * 9}
    columns["crp"][3] = "low"
    with pytest.raises(InputError) as refused:
        vr.load(write(tmp_path / "rows.csv", columns), schema=SCHEMA)
    lines = str(refused.value).splitlines()
    assert [line.split(",")[1] for line in lines] == [
        " column 'age'",
        " column 'sex'",
        " column 'crp'",
    ]
    assert "(8 more cells are empty)" in lines[0]


def test_a_table_without_a_schema_tells_its_gaps_at_once(tmp_path: Path) -> None:
    """One error names each column with empty cells, their number and the remedies."""
    columns = patients(9, default_rng(1)) | {
        "age": [""] * 2 + [40] * 7,
        "sex": ["f", ""] * 4 + ["m"],
    }
    with pytest.raises(InputError) as refused:
        vr.load(write(tmp_path / "rows.csv", columns))
    first, second = str(refused.value).splitlines()
    assert first.startswith("rows.csv, column 'age', line 2 is empty; drop the row or fill in a nu")
    assert first.endswith("or declare a value for empty cells (2 here) in a schema")
    assert second.startswith("rows.csv, column 'sex', line 3 is empty; fill it in")


def test_a_drafted_schema_reads_its_own_file(tmp_path: Path) -> None:
    """It notices dates, identifiers, text and gaps, and marks the columns taken from rows."""
    rng = default_rng(3)
    columns = gaps(patients(200, rng), rng)
    columns |= {
        "note": [f"letter {n * 2 // 3}" for n in range(200)],
        "crp [mg/l]": columns.pop("crp"),
    }
    path = write(tmp_path / "rows.csv", ids(dates(columns, rng), rng))
    drafted = draft_schema(read_file(path))
    kinds = {each.name: each.meaning for each in drafted.schema.features}
    assert kinds == {
        "patient": "identifier",
        "case": "identifier",
        "admitted": "date",
        "age": "number",
        "sex": "category",
        "note": "ignored",
        "crp": "number",
    }
    agreed = {each.name for each in drafted.schema.features if each.agreed}
    assert agreed == {"patient", "case", "note"}
    assert "from rows" in drafted.found["crp"]
    file = tmp_path / "schema.toml"
    file.write_text(drafted.text)
    assert read_schema(file) == drafted.schema
    assert vr.load(path, schema=file).ids.keys() == {"patient", "case"}


def test_five_parties_with_different_files_have_one_schema(tmp_path: Path) -> None:
    """One schema reads all files, although one has no row, and one a single class."""
    rng, schema, file = default_rng(5), FILLED, tmp_path / "rows.csv"
    parts = list[vr.Table]()
    for name in ("gaps", "another order", "decimal commas"):
        made = UNTIDY[name]
        write(file, made.change(patients(60, rng), rng), made.mark)
        file.write_bytes(made.rewrite(file.read_bytes().decode()))
        parts.append(vr.load(file, schema=schema))
    one_class = patients(20, rng) | {"outcome": ["home"] * 20}
    parts.append(vr.load(write(file, one_class), schema=schema))
    parts.append(vr.load(write(file, dict.fromkeys(one_class, ())), schema=schema))
    assert len(parts[-1]) == 0
    queries = vr.load(write(file, patients(10, rng)), schema=schema)
    run = vr.run(vr.RankSearch(k=5), parts, queries, seed=1)
    assert len(run.labels) == 10


@pytest.mark.parametrize("kind", ["polars", "csv", "parquet"])
def test_frames_and_parquet_are_read_like_files(kind: str, tmp_path: Path) -> None:
    """The same columns give the same table, with gaps, dates and whole numbers."""
    frame = pl.DataFrame(
        {
            "age": [30, None, 50],
            "sex": ["male", "female", None],
            "crp": [1.5, float("nan"), 3.25],
            "day": [date(2024, 1, 2), date(2024, 3, 1), None],
            "outcome": ["home", "rehab", "home"],
        }
    )
    schema = with_columns(
        age={"missing": 50}, sex={"missing": "category"}, crp={"missing": 4.5},
        day={"kind": "date", "low": "2024-01-01", "high": "2024-12-31", "missing": "2024-06-30"},
    )  # fmt: skip
    source: object = frame
    if kind == "csv":
        frame.with_columns(pl.col("crp").fill_nan(None)).write_csv(source := tmp_path / "a.csv")
    if kind == "parquet":
        frame.write_parquet(source := tmp_path / "a.parquet")
    table = vr.load(source, schema=schema)  # type: ignore[arg-type]  # a frame or a path
    first = (date(2024, 1, 2) - date(1970, 1, 1)).days
    assert table.X[0].tolist() == [30, 0, 1, 0, 1.5, first]
    assert table.X[1].tolist() == [50, 1, 0, 0, 4.5, first + 59]
    assert table.X[2].tolist() == [50, 0, 0, 1, 3.25, first + 180]
    back = table.to_frame()
    assert back.columns == ["age", "sex", "crp", "day", "outcome"]
    assert back.row(1) == (50.0, "female", 4.5, date(2024, 3, 1), "rehab")
    with pytest.raises(InputError, match="library is 'dplyr'; allowed: polars, pandas"):
        table.to_frame("dplyr")


def test_a_frame_without_a_schema_is_a_table() -> None:
    """Numbers stay numbers and words become categories, as in a CSV file."""
    columns = patients(40, default_rng(2))
    table = vr.Table.from_frame(pl.DataFrame(columns), label="outcome")
    assert table.features.names == ("age", "sex=female", "sex=male", "crp")
    assert table.features.classes == CLASSES
    with pytest.raises(InputError, match=r"column 'crp', row 3 is empty"):
        vr.load(pl.DataFrame(columns | {"crp": [1.0, 2.0, None, *[3.0] * 37]}))


def test_the_check_of_a_file_has_a_line_for_each_difference(tmp_path: Path) -> None:
    """Wrong units and unknown columns come first, with exit code 2 and the key that mends them."""
    columns = patients(50, default_rng(4))
    crp = [round(float(str(cell)) * 1000) for cell in columns["crp"]]
    path = write(tmp_path / "coast.csv", {"Age": columns["age"], **columns, "crp": crp}, ";")
    path.write_text(path.read_text().replace(";age;", ";Alter;"))
    schema, reading = tmp_path / "schema.toml", tmp_path / "reading.toml"
    features = "".join(
        f'[[features]]\nname = "{name}"\n{keys}\n'
        for name, keys in {
            "age": "high = 120",
            "sex": 'categories = ["female", "male"]',
            "crp": 'high = 40\nunit = "mg/l"\nagreed = false',
        }.items()
    )
    schema.write_text(f'label = "outcome"\nclasses = ["home", "rehab", "died"]\n{features}')
    checked = CliRunner().invoke(app, ["schema", "check", str(schema), str(path)])
    assert checked.exit_code == 2
    lines = checked.output.splitlines()
    assert lines[0].startswith("wrong  coast.csv lacks the column 'age'")
    assert "names.age" in lines[0]
    assert lines[1].startswith("wrong  column 'crp': ")
    assert "multiplied to be in mg/l, as factors.crp in the reading" in lines[1]
    assert "note   it is separated by semicolons, and read so" in lines
    assert "note   column 'outcome': no row has the class 'died'" in lines
    assert "note   column 'crp': its range or categories are not yet agreed" in lines
    reading.write_text('names.age = "Alter"\nfactors.crp = 0.001\n')
    words = ["schema", "check", str(schema), str(path), "--reading", str(reading)]
    mended = CliRunner().invoke(app, words)
    assert mended.exit_code == 0, mended.output
    assert mended.output.splitlines()[-1] == "coast.csv: 50 rows fit the schema"


@pytest.mark.parametrize(
    ("column", "says"),
    [
        ({"kind": "category"}, "kind category needs categories"),
        ({"kind": "number", "categories": ["a"]}, "kind number has no categories"),
        ({"missing": 2.0}, r"missing is 2.0; allowed: refuse, or a number \(0 to 1\)"),
        ({"missing": "category"}, "missing is 'category'; allowed: refuse, or a number"),
        ({"kind": "ordinal", "categories": ["a"], "missing": "b"}, "or one of its categories"),
        ({"kind": "date", "missing": "soon"}, "allowed: refuse, or a date"),
        ({"kind": "identifier", "missing": "x"}, "allowed: refuse"),
    ],
)
def test_a_column_that_contradicts_itself_is_refused(column: dict[str, object], says: str) -> None:
    """The error names the key and what is allowed."""
    columns = [{"name": "a", **column}, {"name": "b"}]
    schema = RowSchema.model_validate({"classes": ["x"], "features": columns})
    with pytest.raises(InputError, match=says):
        schema.require_sound()


def test_a_trial_has_files_that_its_terms_read(tmp_path: Path) -> None:
    """`deploy` writes dates and ordinals as the schema reads them."""
    rng, path = default_rng(8), tmp_path / "rows.csv"
    columns = dates(patients(60, rng), rng)
    grades = ("low", "mid", "high")
    write(path, {"grade": [grades[n % 3] for n in range(60)], **columns})
    grade = FeatureTerms(name="grade", kind="ordinal", categories=grades)
    schema = UNTIDY["dates"].schema
    schema = schema.model_copy(update={"features": (grade, *schema.features)})
    table, folder = vr.load(path, schema=schema), tmp_path / "trial"
    names = write_peers(table, vr.RankSearch(), folder, parties="abc", seed=1, port=7311)
    terms = PeerTerms.load(folder / "terms.toml")
    assert terms.features == schema.features
    read = [terms.read_rows(folder / f"{name}.csv").features for name in (*names, "queries")]
    days = table.features.names.index("admitted")
    whole = np.floor(scale_to_unit(table).X[:, days] * 365)
    assert sorted(np.floor(np.vstack(read)[:, days] * 365)) == sorted(whole)
    assert {*np.vstack(read)[:, 0]} == {0.0, 0.5, 1.0}


@pytest.mark.parametrize("kind", ["date", "identifier", "ignored"])
def test_a_survey_asks_for_numbers_and_categories_only(kind: str) -> None:
    """Other kinds are refused with the key and the allowed kinds."""
    protocol = {"name": "ldp-bayes", "kind": "means", "epsilon": 1.0}
    terms = SurveyTerms.of(protocol=protocol, features=[{"name": "a"}, {"name": "b", "kind": kind}])
    with pytest.raises(InputError, match=rf"features\.b\.kind is '{kind}'; allowed: number or cat"):
        terms.checked()


def test_an_ordinal_is_one_number_in_the_order_of_its_categories(tmp_path: Path) -> None:
    """The first category is 0 and the last 1 after scaling."""
    feature = FeatureTerms(name="grade", kind="ordinal", categories=("low", "mid", "high"))
    schema = RowSchema(classes=("x",), features=(feature,))
    path = write(tmp_path / "a.csv", {"grade": ["high", "low", "mid"], "class": ["x"] * 3})
    assert schema.read_rows(path).features.tolist() == [[1], [0], [0.5]]


def test_a_column_without_new_keys_is_written_as_before() -> None:
    """Terms of earlier versions keep their digests."""
    feature = FeatureTerms(name="age", low=0, high=120)
    assert feature.model_dump(mode="json") == {
        "name": "age", "low": 0.0, "high": 120.0, "categories": [],
    }  # fmt: skip
    assert "label" not in RowSchema(classes=("x",), features=(feature,)).model_dump()


@pytest.mark.slow
def test_two_hundred_thousand_rows_are_read(tmp_path: Path) -> None:
    """A file of the largest supported length is drafted, checked and read."""
    rng = default_rng(9)
    path = write(tmp_path / "long.csv", patients(200_000, rng))
    cells = read_file(path)
    drafted = draft_schema(cells)
    assert not any(each.is_wrong for each in check_file(drafted.schema, cells))
    assert len(vr.load(path, schema=drafted.schema)) == 200_000

"""`veilring stats`: results of all kinds, as text and JSON, and mistakes in plans and files."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.invoking import done, refused
from tests.protocols.statistics.tables import draw_part

COLUMNS = """
[[columns]]
name = "age"
high = 120
edges = [0, 18, 40, 65, 120]
[[columns]]
name = "weight"
low = -1.5
high = 30
step = 0.25
[[columns]]
name = "days"
high = 12
[[columns]]
name = "site"
categories = ["north", "east", "south", "west"]
[[columns]]
name = "died"
categories = ["0", "1"]
"""
KINDS = {
    "count": "",
    "sum": 'column = "age"',
    "mean": 'column = "age"',
    "variance": 'column = "weight"',
    "histogram": 'by = "age"',
    "cross-table": 'first = "age"\nsecond = "site"',
    "quantiles": 'column = "age"\nat = [0.5]',
    "correlation": 'on = ["age", "weight"]',
    "group-means": 'column = "weight"\nby = "site"',
    "least-squares": 'column = "weight"\non = ["age", "days"]',
    "kaplan-meier": 'time = "days"\nevent = "died"\nby = "site"',
}


def plan_of(path: Path, kinds: dict[str, str], options: str = "") -> Path:
    """Write a plan and return its path."""
    tables = [f'[[statistics]]\nkind = "{kind}"\n{keys}\n' for kind, keys in kinds.items()]
    path.write_text(options + COLUMNS + "".join(tables), encoding="utf-8")
    return path


def rows_in(path: Path, rows: int, seed: int) -> Path:
    """Write a party's rows and return the path of the file."""
    part = {**draw_part(rows, np.random.default_rng(seed))}
    part["died"] = part["died"].astype(int)
    lines = [",".join(part), *(",".join(map(str, row)) for row in zip(*part.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Return the files of three parties."""
    return [rows_in(tmp_path / f"{n}.csv", 30, n) for n in range(3)]


def test_all_kinds_are_computed_from_files(tmp_path: Path, files: list[Path]) -> None:
    """The results are those of the pooled rows, at the forecast cost."""
    plan = plan_of(tmp_path / "plan.toml", KINDS)
    found = json.loads(done("stats", plan, *files, "--json"))
    results = {each["statistic"].split()[0]: each["result"] for each in found["results"]}
    ages = np.concatenate([draw_part(30, np.random.default_rng(n))["age"] for n in range(3)])
    assert list(results) == list(KINDS)
    assert results["count"] == 90
    assert results["sum"] == ages.sum()
    assert results["mean"] == pytest.approx(ages.mean())
    assert results["histogram"] == np.histogram(ages, (0, 18, 40, 65, 120))[0].tolist()
    assert results["quantiles"] == [float(np.quantile(ages, 0.5, method="inverted_cdf"))]
    assert sum(results["group-means"]["rows"]) == 90
    assert found["cost"] == found["forecast"]
    assert found["promise"]["epsilon"] is None
    assert found["paragraph"].startswith("The system `statistics` protects")
    shown = done("stats", plan, *files).splitlines()
    intervals = " ".join(shown[shown.index("histogram age") + 1].split())
    assert intervals == "0 to 18 18 to 40 40 to 65 65 to 120"
    table = shown[shown.index("cross-table age site") + 1 :]
    assert table[0].split() == ["north", "east", "south", "west"]
    assert table[4].split()[:3] == ["65", "to", "120"]


def test_one_file_is_dealt_to_parties(tmp_path: Path, files: list[Path]) -> None:
    """The results are the same for any number of parties, and shown as text, too."""
    plan = plan_of(tmp_path / "plan.toml", {"mean": 'column = "age"'}, "epsilon = 500.0\n")
    for parties in (3, 4):
        text = done("stats", plan, files[0], "--parties", str(parties), "--runtime", "simulated")
        assert text.startswith("mean age\n")
        assert "ε = 500" in text
        assert "\nThe system `statistics` protects" in text
    assert "2 rounds" in done("stats", plan, files[0], "--parties", "3", "--forecast")


WRONG = [
    ({"median": ""}, "statistics"),
    ({"count": 'by = "age"'}, "statistics.0.by"),
    ({"mean": ""}, "needs the key `column`"),
    ({"mean": 'column = "height"'}, "one of age, weight"),
    ({"mean": 'column = "site"'}, "a column of numbers"),
    ({"histogram": 'by = "weight"'}, "give `edges`"),
    ({"kaplan-meier": 'time = "days"\nevent = "age"'}, "a column of categories"),
    ({"correlation": 'on = ["age", "age"]'}, "once only"),
    ({"correlation": 'on = "age"'}, "statistics.0.on is 'age'; allowed: a list of names"),
]


@pytest.mark.parametrize(("kinds", "message"), WRONG)
def test_mistakes_in_plans_are_named(
    tmp_path: Path, files: list[Path], kinds: dict[str, str], message: str
) -> None:
    """An error names the key, before any party starts."""
    assert message in refused("stats", plan_of(tmp_path / "plan.toml", kinds), *files)


def test_mistakes_in_files_are_named(tmp_path: Path, files: list[Path]) -> None:
    """A gap is named with its line, and a party with a column that it lacks."""
    plan = plan_of(tmp_path / "plan.toml", {"mean": 'column = "age"'})
    text = files[1].read_text(encoding="utf-8").splitlines()
    files[1].write_text("\n".join([text[0], "x" + text[1]]), encoding="utf-8")
    assert "line 2" in refused("stats", plan, *files)
    files[1].write_text("sex\nf\n", encoding="utf-8")
    assert "1.csv lacks the column 'age'" in refused("stats", plan, *files)
    assert "--parties" in refused("stats", plan, *files, "--parties", "5")
    assert "different name" in refused("stats", plan, *[files[0]] * 3)


def test_a_file_has_a_reading_of_its_own(tmp_path: Path, files: list[Path]) -> None:
    """It may mention columns of a schema that the plan does not declare."""
    plan = plan_of(tmp_path / "plan.toml", {"mean": 'column = "age"'})
    before = json.loads(done("stats", plan, *files, "--json"))["results"]
    text = files[1].read_text(encoding="utf-8")
    files[1].write_text(text.replace("age,", "Alter,", 1), encoding="utf-8")
    reading = tmp_path / "reading.toml"
    reading.write_text('[names]\nage = "Alter"\ncrp = "CRP"\n', encoding="utf-8")
    chosen = ("--reading", f"{files[1]}={reading}")
    assert json.loads(done("stats", plan, *files, *chosen, "--json"))["results"] == before


QUICK = [
    ("count", [], 3.0),
    ("mean age", ["age=0:120"], 30.0),
    ("quantiles age 0 1", ["age=0:120:0.5"], [10.0, 50.5]),
    ("histogram smokes", ["smokes=no,yes"], [1.0, 2.0]),
]


@pytest.mark.parametrize(("words", "columns", "expected"), QUICK)
def test_one_statistic_needs_no_plan(
    tmp_path: Path, words: str, columns: list[str], expected: object
) -> None:
    """Its kind and its columns are words of the command."""
    rows = tmp_path / "rows.csv"
    rows.write_text("age,smokes\n10,no\n50.5,yes\n29.5,yes\n", encoding="utf-8")
    named = [option for column in columns for option in ("--column", column)]
    found = done("stats", rows, "--parties", "3", "--statistic", words, *named, "--json")
    (result,) = json.loads(found)["results"]
    assert result["result"] == expected


WORDS = [
    (["--statistic", "median age"], "cross-table"),
    (["--statistic", "mean age", "--column", "age=low:120"], "numbers where they belong"),
    (["--statistic", "mean age", "--column", "age=0:9:1:2"], "NAME=LOW:HIGH"),
    (["--statistic", "mean age weight", "--column", "age=0:9"], "a mean of fewer columns"),
    (["--statistic", "mean age"], "statistics.0.column"),
    (["--statistic", "quantiles age most", "--column", "age=0:9"], "numbers where they belong"),
    (["--epsilon", "1"], "belong to --statistic"),
]


def test_a_plan_needs_rows_and_a_configuration_has_them(tmp_path: Path, files: list[Path]) -> None:
    """An error names the files that are missing, or are too many."""
    plan = plan_of(tmp_path / "plan.toml", {"count": ""})
    assert "the CSV file of each party" in refused("stats", plan)
    assert "the CSV file of each party" in refused("stats", plan, "--forecast")
    (tmp_path / "client.toml").write_text('role = "client"', encoding="utf-8")
    assert "leave ROWS out" in refused("stats", tmp_path / "client.toml", files[0])


@pytest.mark.parametrize(("options", "message"), WORDS)
def test_mistakes_in_words_are_named(files: list[Path], options: list[str], message: str) -> None:
    """An error names the option."""
    assert message in refused("stats", *files, *options)


def test_gaps_are_skipped_or_filled_as_declared(tmp_path: Path) -> None:
    """A number and a category each skip gaps, fill them in, or refuse them with their lines."""
    rows = tmp_path / "rows.csv"
    rows.write_text("age,sex\n10,f\nNA,m\n20,\n", encoding="utf-8")
    plan = tmp_path / "plan.toml"

    def text(age: str, sex: str) -> Path:
        columns = f'[[columns]]\nname="age"\nhigh=120\n{age}\n[[columns]]\nname="sex"\n{sex}\n'
        asked = (
            '[[statistics]]\nkind="mean"\ncolumn="age"\n[[statistics]]\nkind="histogram"\nby="sex"'
        )
        plan.write_text(columns + 'categories=["f","m"]\n' + asked, encoding="utf-8")
        return plan

    def results(age: str, sex: str) -> list[object]:
        found = done("stats", text(age, sex), rows, "--parties", "3", "--json")
        return [each["result"] for each in json.loads(found)["results"]]

    assert results("skip=true", "skip=true") == [15.0, [1.0, 1.0]]
    assert results("missing=60.0", 'missing="m"') == [30.0, [1.0, 2.0]]
    assert "line 3" in refused("stats", text("", "skip=true"), rows, "--parties", "3")
    assert "line 4" in refused("stats", text("skip=true", ""), rows, "--parties", "3")
    mistaken = text('skip=true\nkind="identifier"', "skip=true")
    assert "columns.age.kind" in refused("stats", mistaken, rows, "--parties", "3")

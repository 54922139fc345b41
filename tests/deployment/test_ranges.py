"""Rows outside the public ranges: a party's warning, and its refusal to start."""

import csv
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from tests.deployment.commands import SECONDS, Command, call, start_serving

from veilring.data.schema import OUTSIDE_MAX, FeatureTerms
from veilring.deployment.config import Schema
from veilring.errors import InputError, ScenarioError
from veilring.testing.ports import reserve_ports

LOG = logging.getLogger("veilring.tested")
TERMS = Schema(
    classes=("no", "yes"),
    features=(
        FeatureTerms(name="age", low=0, high=120),
        FeatureTerms(name="sex", categories=("f", "m")),
    ),
)


def deploy(folder: Path, *words: str) -> None:
    """Write the files of a deployment."""
    call("deploy", *words, "--out", folder)


def change(path: Path, column: int, change: Callable[[float], float]) -> int:
    """Change a column of a CSV file, and return its number of rows."""
    header, *rows = list(csv.reader(path.read_text().splitlines()))
    for row in rows:
        row[column] = str(change(float(row[column])))
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return len(rows)


def in_another_unit(value: float) -> float:
    """Return a value in another unit."""
    return 12 * value + 100


def ages(tmp_path: Path, values: Iterable[object]) -> Path:
    """Write a file of rows with the given ages."""
    path = tmp_path / "rows.csv"
    path.write_text("age,sex,label\n" + "".join(f"{age},f,no\n" for age in values))
    return path


def test_a_ring_member_with_rows_in_another_unit_does_not_start(tmp_path: Path) -> None:
    """It ends with code 2 unless its configuration accepts them; other logs show no count."""
    folder, port = tmp_path / "ring", str(reserve_ports(3))
    deploy(folder, "peers", "wine", "--set", "parties.count=3", "--port", port)
    rows = change(folder / "party-1.csv", 0, in_another_unit)
    outside = f"{rows} of {rows} values are outside of its range"
    counted = f"party-1.csv: {rows} rows; column 'alcohol': {outside}"
    refused = Command(folder, "serve", "party-1.toml", output=folder / "refused.log")
    assert refused.wait(SECONDS) == 2
    assert counted in refused.output
    assert "45 of 45 rows are outside of the range (11.03 to 14.83)" in refused.output
    assert "outside_max" in refused.output
    assert "Traceback" not in refused.output

    config = folder / "party-1.toml"
    config.write_text(config.read_text() + "outside_max = 1.0\n")
    names = ["party-0", "party-1", "party-2"]
    served = [
        Command(folder, "serve", f"{name}.toml", output=folder / f"{name}.log")
        for name in names[:2]
    ]
    served.append(start_serving(folder, "party-2", output=folder / "party-2.log"))
    asked = Command(folder, "ask", "client.toml", "queries.csv", output=folder / "asked.log")
    assert asked.wait(SECONDS) == 0, asked.output
    for command in served:
        command.terminate()
    assert [command.wait(SECONDS) for command in served] == [0, 0, 0]
    assert counted in served[1].output
    for other in (served[0], served[2]):
        assert "outside of its range" not in other.output
        assert "rows; all values are in their ranges" in other.output


@pytest.mark.parametrize(
    ("kind", "words", "file", "command"),
    [
        ("peers", ["iris"], "party-1.csv", ["serve", "party-1.toml"]),
        ("owner", ["iris", "--radius", "0.2"], "owner.csv", ["serve", "owner.toml"]),
        ("peers", ["wine"], "queries.csv", ["ask", "client.toml", "queries.csv"]),
        (
            "owner",
            ["iris", "--radius", "0.2"],
            "analyst-0.csv",
            ["ask", "analyst-0.toml", "analyst-0.csv"],
        ),
        (
            "prediction",
            ["iris"],
            "records.csv",
            ["records", "add", "registrar.toml", "records.csv"],
        ),
        ("prediction", ["iris"], "client-0.csv", ["ask", "client-0.toml", "client-0.csv"]),
    ],
)
def test_each_role_that_reads_rows_refuses_another_unit(
    tmp_path: Path, kind: str, words: list[str], file: str, command: list[str]
) -> None:
    """It ends with code 2 before it connects, and reports the counts."""
    folder = tmp_path / kind
    deploy(folder, kind, *words, "--port", str(reserve_ports(8)))
    place = 1 if file == "records.csv" else 0
    rows = change(folder / file, place, in_another_unit)
    ended = Command(folder, *command, output=folder / "ended.log")
    assert ended.wait(SECONDS) == 2
    assert f"{file}: {rows} rows; column " in ended.output
    assert f"{rows} of {rows} values are outside of its range" in ended.output
    assert "Traceback" not in ended.output


def test_a_survey_client_with_rows_in_another_unit_reports_nothing(tmp_path: Path) -> None:
    """It ends with code 2 before it makes a report; the collector's log shows no count."""
    folder = tmp_path / "survey"
    deploy(folder, "survey", "iris", "--reports", "40", "--port", str(reserve_ports(1)))
    rows = change(folder / "survey-client-0.csv", 1, in_another_unit)
    collector = start_serving(folder, "collector", output=folder / "collector.log")
    words = ("submit", "survey-client-0.toml", "survey-client-0.csv")
    refused = Command(folder, *words, output=folder / "refused.log")
    assert refused.wait(SECONDS) == 2
    assert f"{rows} of {rows} values are outside of its range" in refused.output
    assert "Traceback" not in refused.output
    collector.terminate()
    assert collector.wait(SECONDS) == 0
    assert "outside" not in collector.output


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([30, 40, 119.5, 0, 120], "rows.csv: 5 rows; all values are in their ranges"),
        (
            [30] * 99 + [121],
            "rows.csv: 100 rows; column 'age': 1 of 100 values are outside of its range",
        ),
        (
            [-1] * 5 + [30] * 95,
            "rows.csv: 100 rows; column 'age': 5 of 100 values are outside of its range",
        ),
        ([200], "rows.csv: 1 row; column 'age': 1 of 1 values are outside of its range"),
        ([0.3, 0.4, 0.5], "rows.csv: 3 rows; column 'age': all values are within 1% of its range"),
        ([30] * 3, "rows.csv: 3 rows; all values are in their ranges"),
    ],
)
def test_a_possible_typing_error_is_reported_but_accepted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, values: list[float], says: str
) -> None:
    """Up to a twentieth of the rows, and always a single value, may be outside."""
    caplog.set_level(logging.INFO)
    TERMS.read_rows(ages(tmp_path, values), OUTSIDE_MAX, LOG)
    assert says in caplog.text


@pytest.mark.parametrize("values", [[200, 201], [-1] * 6 + [30] * 94, [1e300] * 3])
def test_too_many_values_outside_are_refused(tmp_path: Path, values: list[float]) -> None:
    """The limit is a twentieth of the rows, and one; the error shows no value."""
    path = ages(tmp_path, values)
    with pytest.raises(ScenarioError, match=r"column 'age': .* outside of the range \(0 to 120\)"):
        TERMS.read_rows(path, OUTSIDE_MAX, LOG)
    TERMS.read_rows(path, 1.0, LOG)


def test_all_columns_outside_their_ranges_are_named(tmp_path: Path) -> None:
    """There is one message per column."""
    terms = Schema(
        classes=("no",), features=tuple(FeatureTerms(name=name, high=1) for name in "ab")
    )
    path = tmp_path / "rows.csv"
    path.write_text("a,b,label\n2,2,no\n3,3,no\n")
    with pytest.raises(ScenarioError) as caught:
        terms.read_rows(path, OUTSIDE_MAX, LOG)
    assert len(str(caught.value).splitlines()) == 2


def test_a_file_without_rows_is_refused_and_one_row_gives_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A header alone is refused; with one row, the party starts and logs a warning."""
    for check in (TERMS.read_rows, TERMS.read_queries):
        with pytest.raises(InputError, match=r"rows\.csv has no rows"):
            check(ages(tmp_path, []), OUTSIDE_MAX, LOG)
    TERMS.read_rows(ages(tmp_path, [30]), OUTSIDE_MAX, LOG)
    assert "rows.csv has only 1 row; check that the file is complete" in caplog.text


def test_a_header_alone_does_not_start_an_owner(tmp_path: Path) -> None:
    """`veilring serve` ends with code 2 and names the file."""
    folder = tmp_path / "owner"
    deploy(folder, "owner", "iris", "--radius", "0.2", "--port", str(reserve_ports(1)))
    rows = folder / "owner.csv"
    rows.write_text(rows.read_text().splitlines()[0] + "\n")
    ended = Command(folder, "serve", "owner.toml", output=folder / "ended.log")
    assert ended.wait(SECONDS) == 2
    assert "owner.csv has no rows" in ended.output


def test_an_image_of_many_columns_names_the_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The line lists eight columns and the number of the others."""
    features = tuple(FeatureTerms(name=f"x{number}", high=1) for number in range(20))
    cells = Schema(classes=("no",), features=features)
    header = ",".join(feature.name for feature in features)
    path = tmp_path / "rows.csv"
    path.write_text(f"{header},label\n" + "2," * 20 + "no\n")
    cells.read_rows(path, 1.0, LOG)
    assert "column 'x7'" in caplog.text
    assert "column 'x8'" not in caplog.text
    assert "12 more columns" in caplog.text

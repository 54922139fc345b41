"""Rows outside the public ranges: a party's warning, and its refusal to start."""

import csv
import logging
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
import tomli_w
from tests.deployment.collection import Collect
from tests.deployment.commands import PARTIES, Deploy

from veilring.data.columns import FeatureTerms
from veilring.data.schema import OUTSIDE_MAX
from veilring.deployment.config import Schema
from veilring.errors import ScenarioError

LOG = logging.getLogger("veilring.tested")
TERMS = Schema(
    classes=("no", "yes"),
    features=(
        FeatureTerms(name="age", low=0, high=120),
        FeatureTerms(name="sex", categories=("f", "m")),
    ),
)


def in_another_unit(path: Path, column: int = 0) -> int:
    """Change the unit of a column of a CSV file, and return its number of rows."""
    header, *rows = list(csv.reader(path.read_text().splitlines()))
    for row in rows:
        row[column] = str(12 * float(row[column]) + 100)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return len(rows)


def written(tmp_path: Path, header: str, lines: Iterable[str]) -> Path:
    """Write a file of rows."""
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([header, *lines, ""]))
    return path


def ages(tmp_path: Path, values: Iterable[object]) -> Path:
    """Write a file of rows with the given ages."""
    return written(tmp_path, "age,sex,label", (f"{age},f,no" for age in values))


def test_a_ring_member_with_rows_in_another_unit_does_not_start(deploy: Deploy) -> None:
    """It ends with code 2 unless its configuration accepts them; other logs show no count.

    A member without any rows takes part.
    """
    ring = deploy("ring")
    rows = in_another_unit(ring.folder / "party-1.csv")
    counted = f"party-1.csv: {rows} rows; column 'alcohol': {rows} of {rows} values are outside"
    refused = ring.ended("serve", "party-1.toml", code=2)
    assert f"{counted} of its range" in refused
    assert "45 of 45 rows are outside of the range (11.03 to 14.83)" in refused
    assert "outside_max" in refused

    ring.configure("party-1", "outside_max = 1.0")
    empty = ring.folder / "party-2.csv"
    empty.write_text(empty.read_text().splitlines()[0] + "\n")
    ring.serve(*PARTIES)
    ring.call("ask", "client.toml", "queries.csv")
    ring.end_in_order()
    assert counted in ring.log("party-1")
    for other in ("party-0", "party-2"):
        assert "outside of its range" not in ring.log(other)
    assert "rows; all values are in their ranges" in ring.log("party-0")
    assert "party-2.csv has no rows: this party takes part without any" in ring.log("party-2")


@pytest.mark.parametrize(
    ("system", "command"),
    [
        ("ring", "serve party-1.toml"),
        ("owner", "serve owner.toml"),
        ("ring", "ask client.toml queries.csv"),
        ("owner", "ask analyst-0.toml analyst-0.csv"),
        ("prediction", "records add registrar.toml records.csv"),
        ("prediction", "ask client-0.toml client-0.csv"),
    ],
)
def test_each_role_that_reads_rows_refuses_another_unit(
    deploy: Deploy, system: str, command: str
) -> None:
    """It ends with code 2 before it connects, and reports the counts, or that there are no rows.

    Only one member of several may have no rows.
    """
    deployed, words = deploy(system), command.split()
    file = words[-1].replace(".toml", ".csv")
    path = deployed.folder / file
    rows = in_another_unit(path, column=int(file == "records.csv"))
    said = deployed.ended(*words, code=2)
    assert f"{file}: {rows} rows; column " in said
    assert f"{rows} of {rows} values are outside of its range" in said
    path.write_text(path.read_text().splitlines()[0] + "\n")
    if command == "serve party-1.toml":
        return
    assert f"{file} has no rows" in deployed.call(*words, code=2).stderr


def test_a_survey_client_with_rows_in_another_unit_reports_nothing(collect: Collect) -> None:
    """It ends with code 2 before it makes a report; the collector's log shows no count."""
    survey = collect(40)
    rows = in_another_unit(survey.folder / "survey-client-0.csv", column=1)
    refused = survey.submitted(code=2)
    assert f"{rows} of {rows} values are outside of its range" in refused
    survey.end_in_order("collector")
    assert "outside" not in survey.log("collector")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([30, 40, 119.5, 0, 120], "rows.csv: 5 rows; all values are in their ranges"),
        ([30] * 99 + [121], "100 rows; column 'age': 1 of 100 values are outside of its range"),
        ([-1] * 5 + [30] * 95, "100 rows; column 'age': 5 of 100 values are outside of its range"),
        ([200], "rows.csv: 1 row; column 'age': 1 of 1 values are outside of its range"),
        ([0.3, 0.4, 0.5], "rows.csv: 3 rows; column 'age': all values are within 1% of its range"),
        ([30], "rows.csv has only 1 row; check that the file is complete"),
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


def test_all_columns_outside_their_ranges_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """There is one message per column, and a log line of eight and the number of the others."""
    names = [f"x{number}" for number in range(20)]
    features = tuple(FeatureTerms(name=name, high=1) for name in names)
    terms = Schema(classes=("no",), features=features)
    path = written(tmp_path, ",".join([*names, "label"]), ["2," * 20 + "no"] * 2)
    with pytest.raises(ScenarioError) as caught:
        terms.read_rows(path, OUTSIDE_MAX, LOG)
    assert len(str(caught.value).splitlines()) == len(names)
    assert "column 'x7'" in caplog.text
    assert "column 'x8'" not in caplog.text
    assert "12 more columns" in caplog.text


def test_parties_with_files_of_their_own_answer_beside_the_clients_columns(deploy: Deploy) -> None:
    """A party's reading explains its file, and a client's identifiers never leave its machine."""
    ring = deploy("release")
    terms = tomllib.loads((ring.folder / "terms.toml").read_text())
    terms["features"] += [{"name": "patient", "kind": "identifier"}]
    (ring.folder / "terms.toml").write_text(tomli_w.dumps(terms))
    file = ring.folder / "party-1.csv"
    text = (
        file.read_text().replace(",", ";").replace(".", ",").replace("sepal width (cm)", "Breite")
    )
    file.write_text(text)
    assert "lacks the column 'sepal width (cm)'" in ring.ended("serve", "party-1.toml", code=2)
    ring.configure("party-1", 'reading = "own.toml"')
    (ring.folder / "own.toml").write_text('names = { "sepal width (cm)" = "Breite" }\n')
    ring.serve(*PARTIES)
    queries = ring.folder / "queries.csv"
    header, *rows = queries.read_text().splitlines()
    numbered = [f"P{number},{row},ward {number % 2}" for number, row in enumerate(rows)]
    queries.write_text("\n".join([f"patient,{header},ward", *numbered, ""]))
    answer = ring.call("ask", "client.toml", "queries.csv", "--keep", "ward").stdout.splitlines()
    assert answer[0] == "patient,ward,label"
    assert [line.split(",")[:2] for line in answer[1:3]] == [["P0", "ward 0"], ["P1", "ward 1"]]
    assert len(answer) == len(rows) + 1
    refused = ring.call("ask", "client.toml", "queries.csv", "--keep", "bed", code=2).stderr
    assert "keep is 'bed'; allowed: a column of queries.csv: patient" in refused

    ring.call("ask", "client.toml", "--model", "model.json")
    kept = ring.call("classify", "model.json", "queries.csv", "--keep", "ward").stdout
    assert kept.splitlines() == answer

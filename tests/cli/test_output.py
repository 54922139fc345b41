"""Command output beside the results: progress, titles, lists and errors."""

import tomllib
from pathlib import Path

import pytest
from tests.cli.invoking import invoke

from veilring.cli.console import PROGRESS_LINES, show_progress
from veilring.scenarios import load_scenario
from veilring.scenarios.report import titled


def test_without_a_terminal_progress_is_a_line_for_each_part_of_the_work(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each stage prints its beginning, its end, and a limited number of lines in between."""
    with show_progress(quiet=False) as progress:
        assert progress is not None
        for done in (0, 1, 2999, 3000, 3001, 6100):
            progress("reports made", done, 60_000)
        progress("reports acknowledged", 0, 60_000)
        for done in range(6100, 60_001):
            progress("reports made", done, 60_000)
    shown = capsys.readouterr()
    assert shown.out == ""
    first, *lines = shown.err.splitlines()
    assert (first, lines[0]) == ("reports made: 0 of 60,000", "reports made: 3,000 of 60,000")
    assert "reports acknowledged: 0 of 60,000" in lines
    assert lines[-1] == "reports made: 60,000 of 60,000"
    assert len(lines) == PROGRESS_LINES + 1


def test_quiet_commands_show_no_progress() -> None:
    """These are commands that print JSON and nothing else."""
    with show_progress(quiet=True) as progress:
        assert progress is None


@pytest.mark.parametrize(
    ("scenario", "source", "title"),
    [
        ("wine", "", "wine"),
        ("wine", "a/my.csv", "wine on my.csv"),
        ("my.csv", "", "my.csv"),
        ("wine", "vectors.npz", "wine on vectors.npz"),
        ("wine", "digits", "wine on digits"),
        ("coalition", "", "coalition"),
    ],
)
def test_a_title_names_a_table_that_was_replaced(scenario: str, source: str, title: str) -> None:
    """The title of a report on other rows does not name the scenario's table."""
    assert titled(load_scenario(scenario, [f"data.source={source}"] if source else [])) == title


def test_figures_of_the_papers_are_beside_the_package() -> None:
    """`reproduce` says where they are and how they are measured."""
    code, out, _ = invoke("reproduce")
    assert code == 0
    assert "in the repository, beside the package" in out
    assert "python -m papers --list" in out


def test_errors_from_faults_are_expected() -> None:
    """An exploration with faults that stop runs reports these errors as expected."""
    code, out, _ = invoke("explore", "--seeds", "2")
    assert "went wrong; runs: " in out.splitlines()[0]
    assert ("0 ended in named errors" in out) != ("named errors are expected" in out)
    assert code in {0, 1}  # two seeds may lack a class of faults


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run", "my.csv"), "data.source is my.csv; allowed: the path of an existing CSV"),
        (("report", "nothing"), "nothing is not a folder; give a folder written by"),
        (("run", "wine", "--set", 'protocol.P0="1"'), "protocol.P0 is '1'; allowed: a number"),
        (("run", "wine", "--set", "protocol.k=seven"), "protocol.k is 'seven'; allowed: a whole"),
        (("run", "wine", "--set", "network.runtime=abacus"), "network.runtime is 'abacus'"),
    ],
    ids=str,
)
def test_a_wrong_value_is_named_by_its_option(words: tuple[str, ...], says: str) -> None:
    """The error quotes a text given in place of a number."""
    code, _, err = invoke(*words)
    assert code == 2
    assert err.startswith(f"veilring: {says}")


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    """The error names the missing files."""
    _, _, err = invoke("report", tmp_path)
    assert "has none of report.json and error.json" in err


@pytest.mark.parametrize("column", ["petal width (cm)"])
def test_a_survey_of_one_column_is_deployed(tmp_path: Path, column: str) -> None:
    """`--column` selects the counted column; a frequency survey without it is refused."""
    words = ("deploy", "survey", "iris", "--kind", "frequency", "--out")
    code, _, err = invoke(*words, tmp_path / "none")
    assert code == 2
    assert err.startswith("veilring: --column is required with --kind frequency")
    code, _, err = invoke(*words, tmp_path / "other", "--column", "wing")
    assert code == 2
    assert "--column is 'wing'; allowed: a column: sepal length (cm), " in err
    assert invoke(*words, tmp_path / "survey", "--column", column)[0] == 0
    rows = (tmp_path / "survey" / "survey-client-0.csv").read_text()
    assert rows.startswith(f"client,{column}\nclient-0,")


def test_a_survey_counts_the_last_column(tmp_path: Path) -> None:
    """The column used as the label by other systems can be counted, too."""
    source = tmp_path / "my.csv"
    source.write_text("\n".join(["age,travel", *(f"{20 + row},{row % 3}" for row in range(30))]))
    words = ("deploy", "survey", source, "--kind", "frequency", "--column", "travel")
    assert invoke(*words, "--out", tmp_path / "survey")[0] == 0
    terms = tomllib.loads((tmp_path / "survey" / "terms.toml").read_text())
    assert terms["features"] == [{"name": "travel", "categories": ["0", "1", "2"]}]
    rows = (tmp_path / "survey" / "survey-client-0.csv").read_text().splitlines()
    assert rows[0] == "client,travel"


@pytest.mark.parametrize("kind", ["frequency", "means"])
def test_a_table_of_one_column_is_surveyed(tmp_path: Path, kind: str) -> None:
    """The only column of a file needs no name and no label if the survey has no classes."""
    source = tmp_path / "one.csv"
    source.write_text("\n".join(["age", *(str(20 + row) for row in range(40))]))
    words = ("deploy", "survey", source, "--kind", kind, "--out", tmp_path / "survey")
    assert invoke(*words)[0] == 0
    terms = tomllib.loads((tmp_path / "survey" / "terms.toml").read_text())
    assert terms["features"] == [{"name": "age", "low": 20.0, "high": 59.0}]
    rows = (tmp_path / "survey" / "survey-client-0.csv").read_text().splitlines()
    assert rows[0] == "client,age"


def test_a_classifier_needs_more_than_a_label(tmp_path: Path) -> None:
    """A survey with classes refuses a file of one column, and names the kinds that take it."""
    source = tmp_path / "one.csv"
    source.write_text("travel\nbus\ncar\n")
    code, _, err = invoke("deploy", "survey", source, "--out", tmp_path / "survey")
    assert code == 2
    assert "its only column, 'travel', is taken as the label" in err
    assert "veilring deploy survey --kind frequency or means" in err
    assert not (tmp_path / "survey").exists()


def test_a_survey_of_categories_is_deployed(tmp_path: Path) -> None:
    """A column of categories is counted by its categories."""
    source = tmp_path / "my.csv"
    rows = [f"{row},{'abc'[row % 3]},{row % 2}" for row in range(30)]
    source.write_text("\n".join(["size,ward,class", *rows]))
    words = ("deploy", "survey", source, "--kind", "frequency", "--column", "ward")
    assert invoke(*words, "--out", tmp_path / "survey")[0] == 0
    assert '"c"' in (tmp_path / "survey" / "terms.toml").read_text()
    assert (tmp_path / "survey" / "survey-client-1.csv").read_text().startswith("client,ward\n")

"""Command output beside the results: width, progress, titles, lists and errors."""

from pathlib import Path

import pytest
from tests.cli.invoking import invoke
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.cli.console import CONSOLE_COLUMNS, PROGRESS_LINES, make_console, show_progress
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


def test_without_a_terminal_all_output_has_one_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe has no width, so a run's report has the width of a page."""
    monkeypatch.delenv("COLUMNS", raising=False)
    settings = ("--set", "parties.count=3", "--set", "run.leakage_trials=20", "--seed", "1")
    out = CliRunner().invoke(app, ["run", "wine", "--runtime", "memory", *settings]).stdout
    assert make_console().width == CONSOLE_COLUMNS
    assert max(map(len, out.splitlines())) == CONSOLE_COLUMNS


def test_a_set_width_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable `COLUMNS` sets the width."""
    monkeypatch.setenv("COLUMNS", "93")
    assert make_console().width == 93

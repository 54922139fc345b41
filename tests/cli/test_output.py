"""Command output beside the results: help, width, progress, titles and lists."""

from importlib.metadata import version

import pytest
from tests.cli.invoking import done, python
from typer.testing import CliRunner

from veilring.cli.app import EXIT_INPUT, EXIT_RUN, app
from veilring.cli.console import CONSOLE_COLUMNS, PROGRESS_LINES, make_console, show_progress
from veilring.cli.options import EXIT_INTERRUPTED
from veilring.scenarios import load_scenario
from veilring.scenarios.report import titled


def test_the_help_shows_examples_and_exit_codes() -> None:
    """It has the first command to try, and that of `run` how to set a key and run own data."""
    out = done("--help")
    assert "veilring run wine" in out
    assert "2 the input was wrong" in out
    assert all(f"{code} " in out for code in (EXIT_RUN, EXIT_INPUT, EXIT_INTERRUPTED))
    assert "veilring run my.csv" in done("run", "--help")


@pytest.mark.parametrize(
    "command", [(), ("run",), ("keys",), ("keys", "new"), ("deploy", "owner")], ids=str
)
def test_help_has_a_short_name_and_bare_flags(command: tuple[str, ...]) -> None:
    """`-h` equals `--help` everywhere, and a flag shows no type."""
    out = done(*command, "-h")
    assert out == done(*command, "--help")
    assert "bool" not in out


def test_help_is_wrapped_once() -> None:
    """A paragraph fills its lines, and commands are listed one per line."""
    lines = [line.strip() for line in done("run", "--help").splitlines()]
    long = next(line for line in lines if line.startswith("The report compares"))
    following = lines[lines.index(long) + 1].split()[0]
    assert len(f"{long} {following}") > 98
    example = lines.index("veilring run wine")
    assert lines[example + 1].startswith("veilring run wine --runtime simulated")


def test_the_version_is_printed() -> None:
    """The printed version is that of the package."""
    assert done("--version") == f"veilring {version('veilring')}\n"


def test_help_does_not_import_slow_packages() -> None:
    """Help, and a party's process, load without SciPy, scikit-learn, polars and NumPy."""
    slow = "{'scipy', 'sklearn', 'polars', 'numpy'}"
    python("-c", f"import sys, veilring.cli.app; assert not {slow} & set(sys.modules)")
    light = "import sys, veilring.cli; assert not {'typer', 'rich'} & set(sys.modules)"
    python("-c", light)


def test_without_a_terminal_progress_is_a_line_for_each_part_of_the_work(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each stage prints its beginning, its end, and a limited number of lines in between.

    Commands that print JSON and nothing else show none.
    """
    with show_progress(quiet=True) as progress:
        assert progress is None
    with show_progress(quiet=False) as progress:
        assert progress is not None
        for amount in (0, 1, 2999, 3000, 3001, 6100):
            progress("reports made", amount, 60_000)
        progress("reports acknowledged", 0, 60_000)
        for amount in range(6100, 60_001):
            progress("reports made", amount, 60_000)
    shown = capsys.readouterr()
    assert shown.out == ""
    first, *lines = shown.err.splitlines()
    assert (first, lines[0]) == ("reports made: 0 of 60,000", "reports made: 3,000 of 60,000")
    assert "reports acknowledged: 0 of 60,000" in lines
    assert lines[-1] == "reports made: 60,000 of 60,000"
    assert len(lines) == PROGRESS_LINES + 1


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
    out = done("reproduce")
    assert "in the repository, beside the package" in out
    assert "python -m papers --list" in out


def test_without_a_terminal_all_output_has_one_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe has no width, so a run's report has that of a page; the variable `COLUMNS` sets it."""
    monkeypatch.delenv("COLUMNS", raising=False)
    settings = ("--set", "parties.count=3", "--set", "run.leakage_trials=20", "--seed", "1")
    out = CliRunner().invoke(app, ["run", "wine", "--runtime", "memory", *settings]).stdout
    assert make_console().width == CONSOLE_COLUMNS
    assert max(map(len, out.splitlines())) == CONSOLE_COLUMNS
    monkeypatch.setenv("COLUMNS", "93")
    assert make_console().width == 93

"""The output width of commands."""

import pytest
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.cli.console import CONSOLE_COLUMNS, make_console


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

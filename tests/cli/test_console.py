"""The width at which commands print."""

import pytest
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.cli.console import CONSOLE_COLUMNS, make_console


def test_without_a_terminal_all_print_equally_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe has no width, and the report of a run takes that of a page in it."""
    monkeypatch.delenv("COLUMNS", raising=False)
    settings = ("--set", "parties.count=3", "--set", "run.leakage_trials=20", "--seed", "1")
    out = CliRunner().invoke(app, ["run", "wine", "--runtime", "memory", *settings]).stdout
    assert make_console().width == CONSOLE_COLUMNS
    assert max(map(len, out.splitlines())) == CONSOLE_COLUMNS


def test_a_set_width_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable `COLUMNS` decides."""
    monkeypatch.setenv("COLUMNS", "93")
    assert make_console().width == 93

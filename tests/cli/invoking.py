"""Command-line calls, as a user would make them."""

import subprocess
import sys
from pathlib import Path
from unittest import mock

from tests.deployment.commands import SECONDS
from typer.testing import CliRunner

from veilring.cli.app import app


def invoke(*arguments: str | Path) -> tuple[int, str, str]:
    """Run a command; return its exit code, standard output and standard error.

    Standard error has no progress.
    """
    environment = {"COLUMNS": "100", "VEILRING_DEBUG": ""}
    with mock.patch("veilring.cli.console._lines", return_value=mock.Mock()):
        result = CliRunner().invoke(app, list(map(str, arguments)), env=environment)
    return result.exit_code, result.stdout, result.stderr


def done(*arguments: str | Path) -> str:
    """Run a command, require success, and return its standard output."""
    code, out, err = invoke(*arguments)
    assert code == 0, err
    return out


def refused(*arguments: str | Path) -> str:
    """Run a command with wrong input: nothing but an error, which is returned as one line."""
    code, out, err = invoke(*arguments)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    return " ".join(err.replace("│", " ").split())


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a fresh interpreter, and require success."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)

"""Extras: a missing package is reported in one sentence with the command to install it."""

import json
import sys
from collections.abc import Iterable
from contextlib import chdir
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest
from tests.cli.invoking import python

from veilring.errors import MissingExtra
from veilring.extras import EXTRA_OF, name_missing_extras, require_extra

# All that extras bring is hidden, as if it were not installed. What it prints is read as JSON.
SCRIPT: Final = """
import json, sys
from importlib import import_module

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

commands, modules, hidden = json.loads(sys.argv[1])
sys.meta_path.insert(0, Hide())

from typer.testing import CliRunner
from veilring.cli.app import app

told = []
for command in commands:
    done = CliRunner().invoke(app, command.split())
    told.append((command, done.exit_code, done.stderr))
for name in modules:
    try:
        import_module(name)
    except Exception as error:
        told.append((name, type(error).__name__, str(error)))
print(json.dumps(told))
"""
ALL: Final = {
    "run wine": "simpy",
    "run wine --runtime simulated": "simpy",
    "compare wine": "simpy",
    "sweep wine --grid protocol.rounds=1..2 --out r.parquet": "simpy",
    "explore --seeds 2": "simpy",
    "report nothing": "simpy",
    "trace nothing": "simpy",
    "deploy owner wine --radius 1 --out owner": "sklearn",
    "oracles --plot oracles.svg": "matplotlib",
}
"""Each command, and the first missing package that it names if all extras are missing."""
SINGLE: Final = {
    "polars": (
        "sweep wine --grid protocol.rounds=1..2 --out r.parquet",
        "run wine --out run",
        "report nothing",
    ),
    "matplotlib": ("oracles --plot oracles.svg",),
}
"""By package, commands that name it if only that one is missing from the laboratory."""
MODULES: Final = (
    "veilring.estimators",
    "veilring.protocols.prio.algorithm.prio3",
    "veilring.scenarios.comparison",
    "veilring.testing.exploring",
    "veilring.testing.hiding",
    "veilring.scenarios.reporting.page",
    "veilring.scenarios.runner",
    "veilring.scenarios.sweep",
    "veilring.simulation",
)


def hiding(
    hidden: Iterable[str], commands: Iterable[str], modules: Iterable[str], folder: Path
) -> list[list[Any]]:
    """Run commands and imports in a fresh interpreter that cannot import hidden packages."""
    with chdir(folder):
        done = python("-c", SCRIPT, json.dumps([[*commands], [*modules], [*hidden]]))
    told: list[list[Any]] = json.loads(done.stdout)
    return told


def sentence(package: str) -> str:
    """Return the sentence that asks for a missing package."""
    command = f"`pip install '.[{EXTRA_OF[package]}]'`"
    return f"{package} is not installed; run {command} in a clone of veilring"


def test_each_command_and_module_names_the_package_to_install(tmp_path: Path) -> None:
    """The error is one sentence, as for any wrong input, before the command does anything.

    Importing a module without its extra raises an `ImportError` that names the extra.
    """
    told = hiding(EXTRA_OF, ALL, MODULES, tmp_path)
    commands, modules = told[: len(ALL)], told[len(ALL) :]
    assert commands == [[each, 2, f"veilring: {sentence(ALL[each])}\n"] for each in ALL]
    assert [[name, kind] for name, kind, _ in modules] == [
        [name, "MissingExtra"] for name in MODULES
    ]
    assert issubclass(MissingExtra, ImportError)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("package", ["matplotlib", pytest.param("polars", marks=pytest.mark.slow)])
def test_a_command_without_one_package_names_it(package: str, tmp_path: Path) -> None:
    """The command names a missing package before it runs."""
    for command, code, said in hiding([package], SINGLE[package], (), tmp_path):
        *progress, last = said.splitlines()
        assert (code, last) == (2, f"veilring: {sentence(package)}"), command
        assert all(line.startswith("Checking the cells: ") for line in progress)


def test_a_missing_requirement_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the missing requirement and its extra.

    A missing module outside the extras is a mistake in a program, and stays an ImportError.
    """
    with pytest.raises(ModuleNotFoundError, match="nobodys_module"), name_missing_extras():
        import_module("nobodys_module")
    require_extra("polars")
    monkeypatch.setitem(sys.modules, "polars", None)  # which makes Python's import fail
    with pytest.raises(MissingExtra) as caught:
        require_extra("polars")
    assert (caught.value.extra, str(caught.value)) == ("parquet", sentence("polars"))

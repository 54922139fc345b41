"""Extras: a missing package is reported in one sentence with the command to install it."""

import json
import pickle
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest
from tests.deployment.commands import SECONDS

from veilring.errors import MissingExtra
from veilring.extras import EXTRA_OF, name_missing_extras, require_extra

ROOT: Final = Path(__file__).parents[1]
PROJECTS: Final = {"sklearn": "scikit-learn", "sentence_transformers": "sentence-transformers"}
"""As the package index has them, where that differs."""
# All that extras bring is hidden, as if it were not installed. What it prints is read as JSON.
HIDDEN: Final = """
import json, sys
from importlib import import_module

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

asked, hidden = json.loads(sys.argv[1])
sys.meta_path.insert(0, Hide())
"""
COMMANDS: Final = (
    HIDDEN
    + """
from typer.testing import CliRunner
from veilring.cli.app import app

told = []
for command in asked:
    done = CliRunner().invoke(app, command.split())
    told.append((done.exit_code, done.stderr, repr(done.exception)))
print(json.dumps(told))
"""
)
IMPORTS: Final = (
    HIDDEN
    + """
told = []
for name in asked:
    try:
        import_module(name)
    except Exception as error:
        told.append((name, type(error).__name__, str(error)))
print(json.dumps(told))
"""
)
CASES: Final = {
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
    "sweep wine --grid protocol.rounds=1..2 --out r.parquet": "polars",
    "run wine --out run": "polars",
    "report nothing": "polars",
    "oracles --plot oracles.svg": "matplotlib",
    "sweep wine --grid protocol.rounds=1..2 --out s.parquet --engine ray": "ray",
}
"""Each command, and the package that it names if only that one is missing from the laboratory."""
PACKAGES: Final = (
    "veilring.estimators",
    "veilring.scenarios.comparison",
    "veilring.testing.exploring",
    "veilring.testing.hiding",
    "veilring.scenarios.reporting.page",
    "veilring.scenarios.runner",
    "veilring.scenarios.sweep",
    "veilring.simulation",
)


def hiding(
    script: str, asked: list[str], hidden: list[str], folder: Path
) -> list[tuple[str | int, str, str]]:
    """Run a script in a fresh interpreter that cannot import the hidden packages."""
    words = [sys.executable, "-c", script, json.dumps([asked, hidden])]
    done = subprocess.run(
        words, cwd=folder, check=True, capture_output=True, text=True, timeout=SECONDS
    )
    told: list[tuple[str | int, str, str]] = json.loads(done.stdout)
    return told


def sentence(package: str) -> str:
    """Return the sentence that asks for a missing package."""
    return (
        f"{package} is not installed; run `pip install '.[{EXTRA_OF[package]}]'` in a clone of "
        "veilring"
    )


def test_each_command_names_the_package_to_install(tmp_path: Path) -> None:
    """The error is one sentence, as for any wrong input, before the command does anything."""
    told = hiding(COMMANDS, list(CASES), list(EXTRA_OF), tmp_path)
    for (command, package), (code, said, met) in zip(CASES.items(), told, strict=True):
        assert (code, said) == (2, f"veilring: {sentence(package)}\n"), (command, met)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "package",
    [
        package if package == "matplotlib" else pytest.param(package, marks=pytest.mark.slow)
        for package in sorted(set(SINGLE.values()))
    ],
)
def test_a_command_without_one_package_names_it(package: str, tmp_path: Path) -> None:
    """The command names a missing package before it runs."""
    commands = [command for command, missing in SINGLE.items() if missing == package]
    told = hiding(COMMANDS, commands, [package], tmp_path)
    for command, (code, said, met) in zip(commands, told, strict=True):
        *progress, last = said.splitlines()
        assert (code, last) == (2, f"veilring: {sentence(package)}"), (command, met)
        assert all(line.startswith("Checking the cells: ") for line in progress)


def test_modules_that_need_an_extra_name_it(tmp_path: Path) -> None:
    """Importing a module without its extra raises an `ImportError` that names the extra."""
    told = hiding(IMPORTS, list(PACKAGES), list(EXTRA_OF), tmp_path)
    assert [name for name, _, _ in told] == list(PACKAGES)
    assert {kind for _, kind, _ in told} == {"MissingExtra"}
    assert issubclass(MissingExtra, ImportError)


def test_each_package_is_in_the_named_extra() -> None:
    """Each package belongs to the extra that the error names, and none is a core dependency."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for package, extra in EXTRA_OF.items():
        name = PROJECTS.get(package, package)
        assert name in names(project["optional-dependencies"][extra])
        assert name not in names(project["dependencies"])


def names(requirements: list[str]) -> set[str]:
    """Return the names of required packages."""
    return {re.split(r"[\[>=;]", each)[0] for each in requirements}


def test_unrelated_missing_packages_are_not_named() -> None:
    """A missing module outside the extras is a mistake in a program, and stays an ImportError."""
    with pytest.raises(ModuleNotFoundError, match="nobodys_module"), name_missing_extras():
        import_module("nobodys_module")


def test_a_missing_requirement_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the missing requirement, even after it is sent to another process."""
    require_extra("polars")
    monkeypatch.setitem(sys.modules, "polars", None)  # which makes Python's import fail
    with pytest.raises(MissingExtra) as caught:
        require_extra("polars")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.package, again.extra, str(again)) == ("polars", "parquet", sentence("polars"))

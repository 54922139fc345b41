"""One default of a system's model is changed, and all that derives from the model changes with it.

A process of its own changes the default before anything else is imported.
"""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.deployment.commands import SECONDS

ROOT = Path(__file__).parents[1]
# Of each system: a parameter with another default, the estimator, and what a deployment agrees on.
# A tree walk has no such terms: what a client asks for is its own business.
CHANGED: dict[str, dict[str, Any]] = {
    "private-knn": {
        "key": "batch",
        "value": 77,
        "estimator": "PrivateKNNClassifier",
        "terms": ("veilring.deployment.peers:PeerTerms", "protocol", ""),
    },
    "noisy-votes": {
        "key": "tolerated",
        "value": 2,
        "estimator": "NoisyVotesClassifier",
        "terms": (
            "veilring.deployment.votes:VotesTerms",
            "votes",
            "[votes]\nepsilon = 1.0\nbudget = 2.0\nradius = 0.2",
        ),
    },
    "ldp-bayes": {
        "key": "bins",
        "value": 7,
        "estimator": "LDPNaiveBayes",
        "terms": (
            "veilring.deployment.survey:SurveyTerms",
            "survey",
            "[survey]\nkind = 'discrete-bayes'\nepsilon = 1.0",
        ),
    },
    "radius": {
        "key": "count_share",
        "value": 0.25,
        "estimator": "OwnerKNNClassifier",
        "terms": ("veilring.deployment.owner:OwnerTerms", "labelling", ""),
    },
    "prediction": {
        "key": "tau",
        "value": 0.625,
        "estimator": "IndKNNClassifier",
        "terms": ("veilring.deployment.prediction:PredictionTerms", "prediction", ""),
    },
    "treewalk": {
        "key": "neighbours",
        "value": 3,
        "estimator": "TreeWalkClassifier",
        "terms": None,
    },
}
SCRIPT = """
import inspect, json, sys
from importlib import import_module
from pathlib import Path

from veilring.protocols.registry import find_system

name, key, value, estimator, terms = json.loads(sys.argv[1])
system = find_system(name)
assert system.model_fields[key].default != value
system.model_fields[key].default = value
system.model_rebuild(force=True)

from docs._ext.tables import system_rows
from typer.testing import CliRunner
from veilring import estimators
from veilring.cli.app import app
from veilring.cli.options import protocol_settings
from veilring.scenarios import load_scenario

shown = CliRunner().invoke(app, ["systems", name], env={"COLUMNS": "120"}).stdout
rows = [[cell.strip() for cell in line.split("│")] for line in shown.splitlines()]
found = {
    "command": next(row[2] for row in rows if len(row) > 2 and row[1] == key),
    "run": getattr(load_scenario("wine", protocol_settings(name)).protocol, key),
    "estimator": inspect.signature(getattr(estimators, estimator)).parameters[key].default,
    "page": next(row[1] for row in system_rows(name) if row[0] == f"`{key}`"),
}
if terms is not None:
    where, table, text = terms
    path = Path(sys.argv[2])
    path.write_text('classes = ["a", "b"]\\nfeatures = [{ name = "x" }]\\n' + text)
    module, _, model = where.partition(":")
    loaded = getattr(import_module(module), model).load(path)
    found["terms"] = getattr(getattr(loaded, table), key)
print(json.dumps(found))
"""
each = pytest.mark.parametrize("name", CHANGED)


@cache
def _found(name: str, folder: Path) -> dict[str, object]:
    """Return where the changed default was found, in a process that changed it."""
    changed = CHANGED[name]
    given = json.dumps([name, *(changed[part] for part in ("key", "value", "estimator", "terms"))])
    made = subprocess.run(  # noqa: S603  (ourselves)
        [sys.executable, "-c", SCRIPT, given, folder / f"{name}.toml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert made.returncode == 0, made.stderr
    found: dict[str, object] = json.loads(made.stdout)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for files of terms."""
    return tmp_path_factory.mktemp("terms")


@each
def test_the_command_line_shows_the_default_of_the_model(name: str, folder: Path) -> None:
    """`veilring systems NAME` has it in the parameter's row."""
    assert _found(name, folder)["command"] == str(CHANGED[name]["value"])


@each
def test_a_run_has_the_default_of_the_model(name: str, folder: Path) -> None:
    """`veilring run wine --protocol NAME` without `--set` runs with it."""
    assert _found(name, folder)["run"] == CHANGED[name]["value"]


@each
def test_an_estimator_has_the_default_of_the_model(name: str, folder: Path) -> None:
    """The constructor of the system's classifier has it in its signature."""
    assert _found(name, folder)["estimator"] == CHANGED[name]["value"]


@each
def test_a_page_shows_the_default_of_the_model(name: str, folder: Path) -> None:
    """The table on the system's page has it in the parameter's row."""
    assert _found(name, folder)["page"] == f"`{CHANGED[name]['value']}`"


@pytest.mark.parametrize("name", [name for name in CHANGED if CHANGED[name]["terms"]])
def test_terms_have_the_default_of_the_model(name: str, folder: Path) -> None:
    """A file of terms that leaves the key out is read with it."""
    assert _found(name, folder)["terms"] == CHANGED[name]["value"]

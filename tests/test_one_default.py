"""Changed defaults of each system's model, and everything that derives from them.

A process of its own changes the defaults before anything else is imported. Options of the command
line repeat some defaults, so that its help is quick, and are compared with them here.
"""

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.deployment.commands import SECONDS

from veilring.cli.compare import compare_command, tune_command
from veilring.cli.keys import make_key
from veilring.cli.surveys import estimate_command, tally_command
from veilring.deployment.collector import estimate_from, estimate_stored
from veilring.scenarios.comparison import Question
from veilring.transport.roster import make_identity

ROOT = Path(__file__).parents[1]
# For each system: a parameter with another default, the estimator, and the agreed terms. A tree
# walk has no such terms, since a client chooses its own requests.
CHANGED: dict[str, dict[str, Any]] = {
    "private-knn": {
        "key": "batch",
        "value": 77,
        "estimator": "PrivateKNNClassifier",
        "terms": ("veilring.deployment.peers:PeerTerms", ""),
    },
    "rank-search": {
        "key": "arity",
        "value": 8,
        "estimator": "RankSearchClassifier",
        "terms": ("veilring.deployment.peers:PeerTerms", "[protocol]\nname = 'rank-search'"),
    },
    "noisy-votes": {
        "key": "tolerated",
        "value": 2,
        "estimator": "NoisyVotesClassifier",
        "terms": (
            "veilring.deployment.peers:PeerTerms",
            "budget = 2.0\n[protocol]\nname = 'noisy-votes'\nepsilon = 1.0\nradius = 0.2",
        ),
    },
    "release": {"key": "delta", "value": 0.001, "estimator": "ReleasedClassifier", "terms": None},
    "ldp-bayes": {
        "key": "bins",
        "value": 7,
        "estimator": "LDPNaiveBayes",
        "terms": (
            "veilring.deployment.survey:SurveyTerms",
            "[protocol]\nkind = 'discrete-bayes'\nepsilon = 1.0",
        ),
    },
    "data-owner": {
        "key": "count_share",
        "value": 0.25,
        "estimator": "OwnerKNNClassifier",
        "terms": ("veilring.deployment.owner:OwnerTerms", ""),
    },
    "ind-knn": {
        "key": "sigma2",
        "value": 0.625,
        "estimator": "IndKNNClassifier",
        "terms": ("veilring.deployment.prediction:PredictionTerms", "[protocol]\ntau = 0.5"),
    },
    "tree-walk": {
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

changed, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
for name, change in changed.items():
    system, key = find_system(name), change["key"]
    assert system.model_fields[key].default != change["value"]
    system.model_fields[key].default = change["value"]
    system.model_rebuild(force=True)

from docs._ext.tables import system_rows
from typer.testing import CliRunner
from veilring import estimators
from veilring.cli.app import app
from veilring.cli.options import protocol_settings
from veilring.scenarios import load_scenario

found = {}
for name, change in changed.items():
    key, terms = change["key"], change["terms"]
    shown = CliRunner().invoke(app, ["systems", name], env={"COLUMNS": "120"}).stdout
    rows = [[cell.strip() for cell in line.split("│")] for line in shown.splitlines()]
    constructor = inspect.signature(getattr(estimators, change["estimator"]))
    found[name] = {
        "command": next(row[2] for row in rows if len(row) > 2 and row[1] == key),
        "run": getattr(load_scenario("wine", protocol_settings(name)).protocol, key),
        "estimator": constructor.parameters[key].default,
        "page": next(row[1] for row in system_rows(name) if row[0] == f"`{key}`"),
    }
    if terms is not None:
        where, text = terms
        path = folder / f"{name}.toml"
        path.write_text('classes = ["a", "b"]\\nfeatures = [{ name = "x" }]\\n' + text)
        module, _, model = where.partition(":")
        loaded = getattr(import_module(module), model).load(path)
        found[name]["terms"] = getattr(loaded.protocol, key)
print(json.dumps(found))
"""


@pytest.mark.slow
def test_everything_derived_from_a_model_has_its_default(tmp_path: Path) -> None:
    """This covers the command line, a run, the estimator, the system's page and a terms file."""
    made = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(CHANGED), tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert made.returncode == 0, made.stderr
    found = json.loads(made.stdout)
    for name, changed in CHANGED.items():
        value = changed["value"]
        wanted = {"command": str(value), "run": value, "estimator": value, "page": f"`{value}`"}
        assert found[name] == wanted | ({"terms": value} if changed["terms"] else {}), name


@pytest.mark.parametrize(
    ("command", "kind", "fields"),
    [
        (
            compare_command,
            Question,
            {name: name for name in ("parties", "queries", "k", "partition", "hindsight")}
            | {"seeds": "splits"},
        ),
        (tune_command, Question, {"parties": "parties", "queries": "queries"}),
        (make_key, make_identity, {"days": "valid_days"}),
        (estimate_command, estimate_stored, {"confidence": "confidence"}),
        (tally_command, estimate_from, {"confidence": "confidence"}),
    ],
)
def test_an_option_has_the_default_of_its_target(
    command: Callable[..., None], kind: Callable[..., object], fields: dict[str, str]
) -> None:
    """An option repeats the default of the function or model that it sets."""
    options, own = inspect.signature(command).parameters, inspect.signature(kind).parameters
    for option, field in fields.items():
        assert options[option].default == own[field].default, option


def test_a_comparison_runs_at_the_same_epsilons_by_default() -> None:
    """`--epsilon` repeats the values of a question as text."""
    option = inspect.signature(compare_command).parameters["epsilon"].default
    values = Question.model_fields["epsilon"].default
    assert option == ",".join(f"{value:g}" for value in values)

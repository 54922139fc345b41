"""Changed defaults of each system's model, and everything that derives from them.

A process of its own changes the defaults before anything else is imported. Options of the command
line repeat some defaults, so that its help is quick, and are compared with them here.
"""

import inspect
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.invoking import python

from veilring.cli.compare import compare_command, tune_command
from veilring.cli.keys import make_key
from veilring.cli.surveys import estimate_command, tally_command
from veilring.deployment.surveys.collector import estimate_from, estimate_stored
from veilring.scenarios.comparison.question import Question
from veilring.transport.roster import make_identity

# For each system: a parameter, another default, and the estimator.
CHANGED: dict[str, tuple[str, float, str]] = {
    "private-knn": ("batch", 77, "PrivateKNNClassifier"),
    "rank-search": ("arity", 8, "RankSearchClassifier"),
    "noisy-votes": ("tolerated", 2, "NoisyVotesClassifier"),
    "release": ("delta", 0.001, "ReleasedClassifier"),
    "prio": ("bits", 10, "PrioClassifier"),
    "ldp-bayes": ("bins", 7, "LDPNaiveBayes"),
    "data-owner": ("count_share", 0.25, "OwnerKNNClassifier"),
    "ind-knn": ("sigma2", 0.625, "IndKNNClassifier"),
    "tree-walk": ("neighbours", 3, "TreeWalkClassifier"),
}
PEERS = "veilring.deployment.peers:PeerTerms"
# The agreed terms, and what they need. A tree walk has none, since a client chooses
# its own requests.
TERMS = {
    "private-knn": (PEERS, ""),
    "rank-search": (PEERS, "[protocol]\nname = 'rank-search'"),
    "noisy-votes": (
        PEERS,
        "budget = 2.0\n[protocol]\nname = 'noisy-votes'\nepsilon = 1.0\nradius = 0.2",
    ),
    "ldp-bayes": (
        "veilring.deployment.surveys.terms:SurveyTerms",
        "[protocol]\nkind = 'discrete-bayes'\nepsilon = 1.0",
    ),
    "data-owner": ("veilring.deployment.owner:OwnerTerms", ""),
    "ind-knn": ("veilring.deployment.prediction:PredictionTerms", "[protocol]\ntau = 0.5"),
}
SCRIPT = """
import inspect, json, sys
from importlib import import_module
from pathlib import Path

from veilring.protocols.registry import find_system

changed, terms, folder = json.loads(sys.argv[1])
for name, (key, value, _) in changed.items():
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

found = {}
for name, (key, _, estimator) in changed.items():
    shown = CliRunner().invoke(app, ["systems", name], env={"COLUMNS": "120"}).stdout
    rows = [[cell.strip() for cell in line.split("│")] for line in shown.splitlines()]
    constructor = inspect.signature(getattr(estimators.classifiers, estimator))
    found[name] = {
        "command": next(row[2] for row in rows if len(row) > 2 and row[1] == key),
        "run": getattr(load_scenario("wine", protocol_settings(name)).protocol, key),
        "estimator": constructor.parameters[key].default,
        "page": next(row[1] for row in system_rows(name) if row[0] == f"`{key}`"),
    }
    if name in terms:
        where, text = terms[name]
        path = Path(folder, f"{name}.toml")
        path.write_text('classes = ["a", "b"]\\nfeatures = [{ name = "x" }]\\n' + text)
        module, _, model = where.partition(":")
        loaded = getattr(import_module(module), model).load(path)
        found[name]["terms"] = getattr(loaded.protocol, key)
print(json.dumps(found))
"""


@pytest.mark.slow
def test_everything_derived_from_a_model_has_its_default(tmp_path: Path) -> None:
    """This covers the command line, a run, the estimator, the system's page and a terms file."""
    found = json.loads(python("-c", SCRIPT, json.dumps([CHANGED, TERMS, str(tmp_path)])).stdout)
    for name, (_, value, _) in CHANGED.items():
        wanted = {"command": str(value), "run": value, "estimator": value, "page": f"`{value}`"}
        assert found[name] == wanted | ({"terms": value} if name in TERMS else {}), name


TARGETS = {"seeds": "splits", "days": "valid_days"}
"""The parameters that options set, where these have other names."""


@pytest.mark.parametrize(
    ("command", "kind", "options"),
    [
        (compare_command, Question, ["parties", "queries", "k", "partition", "hindsight"]),
        (tune_command, Question, ["parties", "queries"]),
        (make_key, make_identity, ["days"]),
        (estimate_command, estimate_stored, ["confidence"]),
        (tally_command, estimate_from, ["confidence"]),
    ],
)
def test_an_option_has_the_default_of_its_target(
    command: Callable[..., None], kind: Callable[..., object], options: list[str]
) -> None:
    """An option repeats the default of the function or model that it sets."""
    given, own = inspect.signature(command).parameters, inspect.signature(kind).parameters
    for option in options:
        assert given[option].default == own[TARGETS.get(option, option)].default, option


def test_a_comparison_runs_at_the_same_epsilons_by_default() -> None:
    """`--epsilon` repeats the values of a question as text."""
    option = inspect.signature(compare_command).parameters["epsilon"].default
    values = Question.model_fields["epsilon"].default
    assert option == ",".join(f"{value:g}" for value in values)

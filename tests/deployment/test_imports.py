"""The modules that a party imports: its own system, without simulation or charts."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from tests.cli.invoking import invoke
from tests.deployment.commands import SECONDS, VOTES

pytestmark = pytest.mark.slow

MODULES_MAX = 130
"""Of our own, those of the command line among them; each is a file that is read at the start."""
LABORATORY = {
    "jinja2",
    "joblib",
    "matplotlib",
    "networkx",
    "polars",
    "rich.progress",
    "simpy",
    "sklearn",
    "veilring.estimators",
    "veilring.scenarios",
}
# The command goes as far as the network: what follows is in modules that are imported by then.
STOPPED = """
import json, sys
from veilring.transport.tls import TlsEndpoint

class Stopped(BaseException):
    pass

async def stop(*given, **named):
    raise Stopped

TlsEndpoint.start = stop
from veilring.cli.app import app
try:
    app(sys.argv[1:], standalone_mode=False)
except Stopped:
    print(json.dumps(sorted(sys.modules)))
"""
SYSTEMS = {
    "ring": ["peers", "wine", "--set", "parties.count=3"],
    "peers": ["peers", "wine", "--set", "parties.count=3", "--protocol", "rank-search"],
    "release": ["peers", "wine", "--set", "parties.count=3", "--protocol", "release"],
    "votes": ["peers", "wine", *VOTES],
    "owner": ["owner", "iris", "--radius", "0.2"],
    "prediction": ["prediction", "iris"],
    "survey": ["survey", "iris", "--reports", "10"],
    "places": ["places", "places.csv"],
}
PARTIES = [
    ("ring", "serve party-0.toml", "peers"),
    ("ring", "ask client.toml queries.csv", "peers"),
    ("peers", "serve party-0.toml", "peers"),
    ("peers", "ask client.toml queries.csv", "peers"),
    ("release", "serve party-0.toml", "peers"),
    ("release", "ask client.toml queries.csv", "peers"),
    ("votes", "serve party-0.toml", "peers"),
    ("votes", "ask client.toml queries.csv", "peers"),
    ("owner", "serve owner.toml", "owner"),
    ("owner", "ask analyst-0.toml analyst-0.csv", "owner"),
    ("prediction", "serve server.toml", "prediction"),
    ("prediction", "ask client-0.toml client-0.csv", "prediction"),
    ("prediction", "records add registrar.toml records.csv", "prediction"),
    ("survey", "serve collector.toml", "collector survey survey_client"),
    ("survey", "submit survey-client-0.toml survey-client-0.csv", "collector survey survey_client"),
    ("places", "serve server.toml", "places"),
    ("places", "ask client.toml --near 37.75,-122.35 --epsilon 4", "places"),
]
GENERIC = {"config", "connecting", "duties"}

Imported = Callable[[str, str], set[str]]


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Imported:
    """Return a function that returns the modules imported by a deployed party's command."""
    folder = tmp_path_factory.mktemp("parties")
    rows = [f"{37.7 + n / 100},{-122.4 + n / 90}" for n in range(8)]
    (folder / "places.csv").write_text("\n".join(["lat,lon", *rows]) + "\n")
    for system, (command, source, *options) in SYSTEMS.items():
        rows_of = folder / source if source.endswith(".csv") else source
        code, _, error = invoke("deploy", command, rows_of, *options, "--out", folder / system)
        assert code == 0, error

    def run(system: str, command: str) -> set[str]:
        words = [sys.executable, "-c", STOPPED, *command.split()]
        done = subprocess.run(
            words, cwd=folder / system, check=True, capture_output=True, text=True, timeout=SECONDS
        )
        return set(json.loads(done.stdout))

    return run


@pytest.mark.parametrize(
    ("system", "command", "own"), PARTIES, ids=[f"{s}-{c.split()[0]}" for s, c, _ in PARTIES]
)
def test_a_party_imports_only_its_own_system(
    system: str, command: str, own: str, imported: Imported
) -> None:
    """It imports at most 130 modules of the package, and of the deployment only its system's."""
    found = imported(system, command)
    assert not found & LABORATORY
    ours = {name for name in found if name.split(".")[0] == "veilring"}
    assert len(ours) <= MODULES_MAX
    place = "veilring.deployment."
    deployed = {name.removeprefix(place) for name in ours if name.startswith(place)}
    assert deployed == GENERIC | set(own.split())


def test_the_lower_layers_are_light() -> None:
    """Each is imported without the simulation, experiments or a data-frame library."""
    rooms = (
        "veilring.nodes",
        "veilring.transport",
        "veilring.privacy.ledger",
        "veilring.data.sources",
    )
    for room in rooms:
        script = f"import sys, json, {room}; print(json.dumps(sorted(sys.modules)))"
        done = subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, timeout=SECONDS
        )
        assert not set(json.loads(done.stdout)) & LABORATORY, room

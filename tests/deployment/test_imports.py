"""The modules that a party imports: its own system, without simulation or charts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.deployment.commands import SECONDS, Deploy

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
# A command goes as far as the network: what follows is in modules that are imported by then. Each
# runs in a fork of one process, which has imported only what every command begins with.
STOPPED = """
import json, os, sys
from veilring.transport.tls import TlsEndpoint

class Stopped(BaseException):
    pass

async def stop(*given, **named):
    raise Stopped

TlsEndpoint.start = stop
from veilring.cli.app import app
for command in sys.argv[1:]:
    if os.fork() == 0:
        try:
            app(command.split(), standalone_mode=False)
        except Stopped:
            print(json.dumps(sorted(sys.modules)), flush=True)
        os._exit(0)
    os.wait()
"""
PARTIES = {
    "ring": ("peers", "serve party-0.toml", "ask client.toml queries.csv"),
    "rank-search": ("peers", "serve party-0.toml", "ask client.toml queries.csv"),
    "release": ("peers", "serve party-0.toml", "ask client.toml queries.csv"),
    "votes": ("peers", "serve party-0.toml", "ask client.toml queries.csv"),
    "owner": ("owner", "serve owner.toml", "ask analyst-0.toml analyst-0.csv"),
    "prediction": (
        "prediction",
        "serve server.toml",
        "ask client-0.toml client-0.csv",
        "records add registrar.toml records.csv",
    ),
    "survey": (
        "surveys surveys.client surveys.collector surveys.terms",
        "serve collector.toml",
        "submit survey-client-0.toml survey-client-0.csv",
    ),
    "places": ("places", "serve server.toml", "ask client.toml --near 37.75,-122.35 --epsilon 4"),
}
"""The modules of each deployed system, and the commands of its parties."""
GENERIC = {
    *("asking", "config", "connecting", "duties", "expiry", "gate", "policy", "reloading", "start"),
    *("status", "trail"),
}


def imported(script: str, *words: str, folder: Path | None = None) -> list[set[str]]:
    """Return the modules of each list that a program prints, one per line."""
    command = [sys.executable, "-c", script, *words]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=SECONDS)
    return [set(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("system", PARTIES)
def test_a_party_imports_only_its_own_system(system: str, deploy: Deploy) -> None:
    """It imports at most 130 modules of the package, and of the deployment only its system's."""
    folder, (own, *commands) = deploy(system).folder, PARTIES[system]
    for command, found in zip(commands, imported(STOPPED, *commands, folder=folder), strict=True):
        assert not found & LABORATORY, command
        ours = {name for name in found if name.split(".")[0] == "veilring"}
        assert len(ours) <= MODULES_MAX, command
        place = "veilring.deployment."
        deployed = {name.removeprefix(place) for name in ours if name.startswith(place)}
        assert deployed == GENERIC | set(own.split()), command


def test_the_lower_layers_are_light() -> None:
    """They are imported without the simulation, experiments or a data-frame library."""
    rooms = "veilring.nodes, veilring.transport, veilring.privacy.ledger, veilring.data.sources"
    (found,) = imported(f"import sys, json, {rooms}; print(json.dumps(sorted(sys.modules)))")
    assert not found & LABORATORY

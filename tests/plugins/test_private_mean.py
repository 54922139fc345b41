"""A system of another installed package is equivalent to a built-in system."""

import csv
import json
import os
import pickle
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.ports import reserve_ports
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from tests.cli.invoking import invoke
from tests.deployment.commands import wait_until
from typing_extensions import override

import veilring as vr
from veilring.deployment.peers import PeerTerms
from veilring.errors import ScenarioError
from veilring.estimators import classifier_of
from veilring.protocols.registry import GROUP

PROJECT = Path(__file__).parent / "private_mean"
RUNTIMES = ("memory", "tls", "processes", "simulated")
Invoked = Callable[..., str]


def _install(site: Path, name: str, version: str, place: str) -> Path:
    """Write the files about a package with one system, as an installer would."""
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(about)
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {place}\n")
    return info


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the package is installed."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    ((name, place),) = project["entry-points"][GROUP].items()
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(PROJECT / "private_mean.py", folder)
    _install(folder, name, project["version"], place)
    return folder


def _env(site: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "120"}


def _run(site: Path, *command: str, folder: Path | None = None) -> str:
    """Run Python with a module and its arguments, with the package installed."""
    words, where = [sys.executable, "-m", *command], folder or site
    done = subprocess.run(
        words, cwd=where, env=_env(site), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.fixture
def invoked(site: Path, monkeypatch: pytest.MonkeyPatch) -> Invoked:
    """Run a command in this process with the package installed; return its output."""
    monkeypatch.syspath_prepend(site)

    def run(*words: str | Path) -> str:
        code, output, error = invoke(*words)
        assert code == 0, error
        return output

    return run


def test_the_plugin_is_found_by_name(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system in less than 120 lines is listed after the built-in ones; a broken one is reported.

    The lines are those of its parameters, forecast, guarantee and roles.
    """
    assert len((PROJECT / "private_mean.py").read_text().splitlines()) < 120
    assert "private-mean" not in vr.system_names()
    monkeypatch.syspath_prepend(site)
    assert vr.system_names()[-1] == "private-mean"
    assert vr.find_system("private-mean")().promise(parties=3).epsilon is None
    broken = _install(site, "broken", "1.0", "nothing_there:System")
    monkeypatch.setattr(sys, "path", [*sys.path, "/"])  # else the first look is remembered
    try:
        with pytest.raises(vr.InputError, match="cannot be imported from nothing_there:System"):
            vr.find_system("broken")
    finally:
        shutil.rmtree(broken)


@pytest.mark.slow
def test_the_plugin_runs_equally_on_every_runtime(site: Path, invoked: Invoked) -> None:
    """Transcripts and labels of `veilring run` are equal, at the forecast cost."""
    command = ("run", "wine", "--protocol", "private-mean", "--seed", "1", "--json", "--runtime")
    reports = [json.loads(_run(site, "veilring", *command, "processes"))]
    reports += [json.loads(invoked(*command, each)) for each in RUNTIMES if each != "processes"]
    for report in reports:
        assert report["transcript"] == reports[0]["transcript"]
        assert report["accuracy"] == reports[0]["accuracy"] > 0.9
        assert report["cost"] == report["forecast"] == reports[0]["cost"]
        assert report["promise"]["threat_model"].startswith("semi-honest")


def test_the_plugin_is_swept_explored_and_reported(invoked: Invoked, tmp_path: Path) -> None:
    """Its parameters form a grid, faults cause no wrong result, and a run folder becomes a page."""
    of_it = ("--protocol", "private-mean")
    out, alone = tmp_path / "sweep.parquet", ("--workers", "1")
    invoked("sweep", "wine", *of_it, "--grid", "protocol.bits=1,24", *alone, "--out", out)
    assert out.exists()
    explored = invoked("explore", "faults", *of_it, "--seeds", "20", *alone)
    assert "of which 0 went wrong" in explored
    folder = tmp_path / "run"
    invoked("run", "wine", *of_it, "--runtime", "simulated", "--out", folder)
    invoked("report", folder)
    pages = [page.read_text() for page in folder.glob("*.html")]
    assert "semi-honest" in pages[0]


@pytest.mark.slow
def test_the_plugin_is_compared_with_the_built_in_systems(invoked: Invoked) -> None:
    """It has its own row, with its guarantee and the forecast cost."""
    options = ("--splits", "2", "--epsilon", "1", "--queries", "9", "--seed", "1", "--parties", "3")
    compared = invoked("compare", "iris", *options, "--workers", "1", "--json")
    lines = json.loads(compared)["lines"]
    (line,) = [line for line in lines if line["system"] == "private-mean"]
    assert (line["guarantee"], line["trust"]) == ("exact sums, no ε", "all 3")


@pytest.mark.slow
def test_the_plugin_is_deployed_served_and_asked(
    site: Path, invoked: Invoked, tmp_path: Path
) -> None:
    """Three members over TLS give a client the labels of a run, and name a lost member."""
    folder, port = tmp_path / "deployed", str(reserve_ports(3))
    data = ("wine", "--protocol", "private-mean", "--set", "parties.count=3")
    deploy = ("deploy", "peers", *data, "--set", "protocol.bits=20", "--port", port)
    printed = invoked(*deploy, "--seed", "1", "--out", folder)
    assert f"veilring serve {folder / 'party-2.toml'}" in printed
    assert 'name = "private-mean"' in (folder / "terms.toml").read_text()
    logs = [folder / f"party-{n}.log" for n in range(3)]
    served = list[subprocess.Popen[bytes]]()
    try:
        for log in logs:
            command = [sys.executable, "-m", "veilring", "serve", f"{log.stem}.toml"]
            with log.open("wb") as said:
                served.append(subprocess.Popen(command, cwd=folder, env=_env(site), stderr=said))
        wait_until(lambda: all("is ready" in log.read_text() for log in logs))
        ask = ("ask", folder / "client.toml", folder / "queries.csv")
        answer = invoked(*ask)
        labels = [row["label"] for row in csv.DictReader(answer.splitlines())]
        train, test = vr.load("wine").split(test_share=0.25, seed=1)
        system = vr.find_system("private-mean")(bits=20)
        assert labels == list(vr.run(system, train.partition(3, seed=1), test, seed=1).labels)
        served[2].kill()
        served[2].wait()
        code, _, error = invoke(*ask)
        assert code == 1
        assert "party-2" in error + logs[0].read_text()
        assert "Traceback" not in error
    finally:
        for party in served:
            party.kill()
            party.wait()


def test_only_systems_of_peers_can_be_deployed(tmp_path: Path) -> None:
    """Systems in which some parties hold no rows are refused with a sentence."""

    class WithServer(vr.PrivateKNN):
        @override
        def membership(self, facts: vr.Facts) -> Any:
            return None

    allowed, out = "a system in which all parties hold rows", tmp_path / "out"
    code, _, error = invoke("deploy", "peers", "wine", "--protocol", "tree-walk", "--out", out)
    assert code == 2
    assert f"protocol.name is 'tree-walk'; allowed: {allowed}" in error
    assert not out.exists()
    terms = PeerTerms.of_table(vr.load("wine"), protocol=WithServer())
    with pytest.raises(ScenarioError, match=allowed):
        terms.checked(3)


def test_the_plugin_is_an_estimator(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parameters are constructor arguments; it can be searched, cloned, pickled and run."""
    monkeypatch.syspath_prepend(site)
    system = vr.find_system("private-mean")
    kind = classifier_of(system)
    assert kind is classifier_of(system)
    assert kind().get_params()["bits"] == 24
    assert "bits: The number of fractional bits in a sum" in str(kind.__doc__)
    train, test = vr.load("wine").split(test_share=0.25, seed=1)
    ranges = (train.features.ranges.lows, train.features.ranges.highs)
    estimator = vr.as_classifier(system(bits=20), parties=4, ranges=ranges)
    assert clone(estimator).get_params() == estimator.get_params()
    labels = estimator.fit(train.X, train.y).predict(test.X)
    run = vr.run(system(bits=20), train.partition(4, seed=1), test, seed=1)
    assert [test.features.classes[label] for label in labels] == list(run.labels)
    assert run.accuracy is not None
    assert run.accuracy > 0.9
    assert estimator.cost_.traffic.messages == run.cost.messages
    assert estimator.privacy_.epsilon is None
    copy = pickle.loads(pickle.dumps(estimator))
    assert copy.predict(test.X).tolist() == labels.tolist()
    search = GridSearchCV(kind(ranges=ranges), {"bits": [1, 24]}, cv=2, error_score="raise")
    assert search.fit(train.X, train.y).best_params_["bits"] in {1, 24}
    with pytest.raises(vr.InputError, match="bits is 99; allowed: a whole number from 1 to 32"):
        kind(bits=99).fit(train.X, train.y)


@pytest.mark.slow
def test_its_role_is_tested_by_the_pytest_plugin(site: Path, tmp_path: Path) -> None:
    """The fixture `run_protocol` plays the setup's play, on all runtimes."""
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nveilring_runtimes = {' '.join(RUNTIMES)}\n")
    (tmp_path / "test_mean.py").write_text(
        """
import numpy as np
import veilring as vr
from veilring.testing import assert_cost
from private_mean import PrivateMean


def test_labels(run_protocol):
    ends = vr.Rows(np.array([[0.0], [1.0]]), np.array([0, 1]))
    facts = vr.Facts(parties=3, features=1, classes=2)
    setup = PrivateMean().setup({"ada": ends, "ben": ends, "cyd": ends}, facts)
    queries = np.array([[0.1], [0.9]])
    play = setup.play(queries)
    run = run_protocol(
        setup.role, setup.parties, own=setup.resident, only=play.only, **play.public
    )
    assert play.labels(run.results["ada"]).tolist() == [0, 1]
    assert setup.label(queries, np.random.default_rng(1)).tolist() == [0, 1]
    cost = play.forecast(run)
    assert_cost(run, rounds=cost.rounds, messages=cost.traffic.messages, bytes=cost.traffic.bytes)
"""
    )
    assert "4 passed" in _run(site, "pytest", "-q", "-p", "no:cacheprovider", folder=tmp_path)

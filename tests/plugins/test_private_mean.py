"""A system of another package, installed beside this one, is what a built-in system is."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import veilring as vr
from veilring.protocols.registry import GROUP

PROJECT = Path(__file__).parent / "private_mean"
RUNTIMES = ("memory", "tls", "processes", "simulated")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder into which the package is installed: what an installer would write."""
    folder = tmp_path_factory.mktemp("site")
    with (PROJECT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    shutil.copy(PROJECT / "private_mean.py", folder)
    info = folder / "private_mean-1.0.dist-info"
    info.mkdir()
    named = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(named)
    brought = project["entry-points"][GROUP].items()
    lines = (f"{name} = {place}\n" for name, place in brought)
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{''.join(lines)}")
    return folder


def _run(site: Path, *command: str, folder: Path | None = None) -> str:
    """Run Python with a module and its arguments, where the package is installed."""
    path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(  # noqa: S603  (ourselves)
        [sys.executable, "-m", *command],
        cwd=folder or site,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_it_is_small() -> None:
    """A system with its parameters, forecast and promise takes less than 120 lines."""
    assert len((PROJECT / "private_mean.py").read_text().splitlines()) < 120


def test_it_is_found_by_name(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is listed after the built-in systems, and one whose package is broken says so."""
    assert "private-mean" not in vr.system_names()
    monkeypatch.syspath_prepend(site)
    assert vr.system_names()[-1] == "private-mean"
    assert vr.find_system("private-mean")().promise(parties=3).epsilon is None
    broken = site / "broken-1.0.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (broken / "entry_points.txt").write_text(f"[{GROUP}]\nbroken = nothing_there:System\n")
    monkeypatch.setattr(sys, "path", [*sys.path, "/"])  # else the first look is remembered
    try:
        with pytest.raises(vr.InputError, match="nothing_there:System cannot"):
            vr.find_system("broken")
    finally:
        shutil.rmtree(broken)


def test_it_runs_alike_on_every_runtime(site: Path) -> None:
    """`veilring run` has equal transcripts and labels everywhere, and costs what was forecast."""
    command = ("veilring", "run", "wine", "--protocol", "private-mean", "--seed", "1", "--json")
    reports = [json.loads(_run(site, *command, "--runtime", each)) for each in RUNTIMES]
    for report in reports:
        assert report["transcript"] == reports[0]["transcript"]
        assert report["accuracy"] == reports[0]["accuracy"] > 0.9
        assert report["cost"] == report["forecast"] == reports[0]["cost"]
        assert report["promise"]["threat_model"].startswith("semi-honest")


def test_it_is_swept_explored_and_reported(site: Path, tmp_path: Path) -> None:
    """Its parameters make a grid, faults make nothing wrong, and a folder becomes a page."""
    of_it = ("--protocol", "private-mean")
    out = str(tmp_path / "sweep.parquet")
    _run(site, "veilring", "sweep", "wine", *of_it, "--grid", "protocol.bits=1,24", "--out", out)
    assert (tmp_path / "sweep.parquet").exists()
    explored = _run(site, "veilring", "explore", "faults", *of_it, "--seeds", "20")
    assert "0 seeds went wrong" in explored
    folder = str(tmp_path / "run")
    _run(site, "veilring", "run", "wine", *of_it, "--runtime", "simulated", "--out", folder)
    _run(site, "veilring", "report", folder)
    pages = [page.read_text() for page in Path(folder).glob("*.html")]
    assert "semi-honest" in pages[0]


def test_it_runs_from_python(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`vr.run` and the labels of one process agree."""
    monkeypatch.syspath_prepend(site)
    system = vr.find_system("private-mean")(bits=20)
    train, test = vr.load("wine").split(test_share=0.25, seed=1)
    run = vr.run(system, train.deal(3, seed=1), test, seed=1)
    forecast = system.forecast(parties=3, queries=len(test), features=test.features)
    assert run.cost.messages == forecast.traffic.messages
    assert run.accuracy is not None
    assert run.accuracy > 0.9


def test_its_role_is_tested_by_the_pytest_plugin(site: Path, tmp_path: Path) -> None:
    """The fixture `run_protocol` plays what the setup's play says, on all runtimes."""
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

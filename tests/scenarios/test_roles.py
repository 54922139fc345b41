"""Scenarios of roles: runs on every runtime, reports, sweeps, and mistakes that are refused."""

import json
from pathlib import Path
from typing import Any, get_args

import polars as pl
import pytest
from tests.cli.invoking import done
from tests.roles import add_up

from veilring.errors import InputError, ScenarioError
from veilring.nodes import RuntimeName
from veilring.nodes.journal import Journal
from veilring.nodes.party import Party
from veilring.scenarios import RoleReport, load_experiment, load_scenario, run_role
from veilring.scenarios.direct import run
from veilring.scenarios.reporting import open_folder, read_folder, write_report
from veilring.scenarios.roles import find_role
from veilring.scenarios.schema import RoleScenario, make_experiment
from veilring.scenarios.sweep import Engine, Plan, parse_grid, run_sweep
from veilring.testing import ProtocolRunner

FAULTY = "tests.testing.exploring.faulty"
ADD_UP: dict[str, Any] = {"role": "tests.roles:add_up", "inputs": [3, 1, 4]}


def scenario(**tables: Any) -> RoleScenario:
    """Return the scenario of a sum, with other tables."""
    made = make_experiment({**ADD_UP, **tables})
    assert isinstance(made, RoleScenario)
    return made


@pytest.mark.parametrize("runtime", get_args(RuntimeName))
def test_a_role_runs_on_every_runtime(runtime: RuntimeName) -> None:
    """Results, cost and transcript are those of a call from Python."""
    report = run_role(scenario(), runtime=runtime, seed=7)
    direct = run(add_up, [3, 1, 4], seed=7)
    assert report.results == direct.results == dict.fromkeys(direct.results, 8)
    assert report.transcript == direct.transcript
    assert (report.cost.rounds, report.cost.depth, report.cost.messages) == (1, 1, 6)
    assert report.cost.bytes == direct.cost.bytes
    assert report.by_kind == {"test.number": {"messages": 6, "bytes": direct.cost.bytes}}
    assert (report.simulated_seconds is not None) == (runtime == "simulated")


def test_inputs_of_a_scenario_replace_those_of_the_claims() -> None:
    """Each party that is named has another input, and public arguments are replaced too."""
    tables = {"inputs": {}, "public": {"factor": 3}, "parties": {"count": 2}}
    report = run_role(scenario(role=f"{FAULTY}:TWICE", **tables), runtime="memory")
    assert report.results == {"ada": 9, "ben": 9}
    found = find_role(scenario(role=f"{FAULTY}:TWICE", inputs={"cy": 5}))
    assert (found.parties, found.inputs["cy"]) == (("ada", "ben", "cy", "dee"), 5)
    assert found.public == {"factor": 2}


def test_a_malicious_party_is_named_by_its_class() -> None:
    """An adversary of the user's own controls a party, with the keys of its table."""
    liar = {"ben": {"kind": f"{FAULTY}:Inflate", "more": 10}}
    made = scenario(role=f"{FAULTY}:RIGHT", inputs={}, adversaries=liar)
    report = run_role(made, runtime="memory")
    assert report.results == {"ada": 25, "ben": 15, "cy": 25, "dee": 25}


def test_a_run_without_lost_parties_is_retried() -> None:
    """A party that crashes is left out of the second attempt."""
    crash = {"kind": "crash", "party": "dee", "start_seconds": 0.0}
    made = scenario(
        role=f"{FAULTY}:RIGHT",
        inputs={},
        network={"runtime": "simulated"},
        run={"seed": 1, "retries": 1},
        faults=[crash],
    )
    report = run_role(made)
    assert report.results == dict.fromkeys(("ada", "ben", "cy"), 7)
    assert (report.without, report.attempts) == (("dee",), 2)
    assert [fault.struck for fault in report.faults] == [True]


def test_a_report_of_a_role_is_read_back(tmp_path: Path) -> None:
    """The folder has the report, the names of the parties and the messages."""
    folder, journal = open_folder(tmp_path / "run"), Journal()
    report = run_role(scenario(), runtime="memory", seed=1, journal=journal)
    write_report(report, journal, folder)
    read = read_folder(folder)
    assert read.report == report
    assert isinstance(read.report, RoleReport)
    assert read.scenario.parties.all == ("party-0", "party-1", "party-2")
    assert len(read.messages) == 6


def test_the_commands_show_results_and_cost(tmp_path: Path) -> None:
    """Parties with equal results share a line, on the terminal and on the page."""
    out = tmp_path / "run"
    shown = done("run", f"{FAULTY}:RIGHT", "--runtime", "simulated", "--seed", "1", "--out", out)
    lines = [" ".join(line.replace("│", " ").split()) for line in shown.splitlines()]
    assert "ada 15 also ben, cy, dee" in lines
    assert any(line.startswith("test.number 12 messages of ") for line in lines)
    done("report", out)
    page = (out / "report.html").read_text()
    assert 'id="results-table"' in page
    assert 'id="stepper"' in page
    assert "Accuracy" not in page
    assert "test.number" in done("trace", out)
    plain = json.loads(done("run", f"{FAULTY}:RIGHT", "--runtime", "memory", "--json"))
    assert plain["results"] == dict.fromkeys(("ada", "ben", "cy", "dee"), 15)


def swept(path: Path, workers: int) -> Path:
    """Run a sweep of a role."""
    grid = parse_grid(["public.factor=1..2", "parties.count=2,4"])
    plan = Plan(f"{FAULTY}:RIGHT", grid, overrides=["network.runtime=simulated"])
    run_sweep(plan, path, engine=Engine(workers=workers))
    return path


@pytest.mark.slow
def test_a_sweep_of_a_role_is_the_same_to_the_byte(tmp_path: Path) -> None:
    """The file does not depend on the number of workers."""
    one, two = (swept(tmp_path / f"{workers}.parquet", workers) for workers in (1, 2))
    assert one.read_bytes() == two.read_bytes()


def test_a_sweep_of_a_role_has_a_row_for_each_run(tmp_path: Path) -> None:
    """It has the scalar results and the cost."""
    rows = pl.read_parquet(swept(tmp_path / "one.parquet", workers=1))
    assert rows["results.ada"].to_list() == [3, 15, 6, 30]
    assert rows["cost.messages"].to_list() == [2, 12, 2, 12]
    assert rows["cost.depth"].to_list() == [1, 1, 1, 1]
    assert not [name for name in rows.columns if name.startswith("shown")]
    assert "seconds" in pl.read_parquet(tmp_path / "one.timing.parquet").columns


def test_a_module_beside_the_current_directory_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found by processes too, which import it again."""
    (tmp_path / "beside_here.py").write_text("from tests.roles import add_up\n")
    monkeypatch.chdir(tmp_path)
    report = run_role(scenario(role="beside_here:add_up"), runtime="memory")
    assert set(report.results.values()) == {8}


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"role": "no.such:thing"}, "role: no.such:thing cannot be imported"),
        ({"role": "tests.roles:nothing"}, "has no attribute 'nothing'"),
        ({"role": "tests.roles"}, "role is 'tests.roles'; allowed: module:NAME"),
        ({"role": "tests.roles:Word"}, "neither a coroutine function nor an object with a role"),
        ({"inputs": {}}, "inputs: tests.roles:add_up is a function without inputs"),
        ({"inputs": [1]}, "parties is 1; allowed: at least 2"),
        ({"public": {"weight": 2}}, "add_up.*unexpected keyword argument 'weight'"),
        ({"role": "tests.roles:fail_late"}, r"fail_late cannot be called as fail_late\(party, own"),
        ({"parties": {"count": 4}}, "parties.count is 4; allowed: 2 to 3"),
        ({"parties": {"names": ["party-0", "eve"]}}, "parties.names is 'eve'"),
        ({"parties": {"count": 2, "names": ["party-0", "party-1"]}}, "not both"),
        ({"role": f"{FAULTY}:RIGHT", "inputs": {"eve": 1}}, "inputs.eve is 1; allowed: a party"),
        ({"adversaries": {"eve": {"kind": f"{FAULTY}:Inflate"}}}, "adversaries.eve"),
        ({"adversaries": {"party-0": {"kind": "tests.roles:Word"}}}, "a subclass of Adversary"),
        ({"protocol": {"name": "release"}}, "set either `role` or `protocol`, not both"),
        ({"data": {"source": "iris"}}, "set either `role` or `data`, not both"),
        ({"run": {"leakage_trials": 2}}, "run.leakage_trials: there is no such key"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, dict) else None,
)
def test_a_mistake_is_named_before_any_party_starts(tables: dict[str, Any], told: str) -> None:
    """The error names the key of the scenario."""
    with pytest.raises(ScenarioError, match=told):
        run_role(scenario(**tables), runtime="memory")


def test_a_role_is_refused_where_a_system_is_needed(tmp_path: Path) -> None:
    """A loader of systems, and an explored world, say so."""
    path = tmp_path / "role.toml"
    path.write_text(load_experiment("tests.roles:add_up").to_toml())
    with pytest.raises(ScenarioError, match="give the scenario of a system"):
        load_scenario(str(path))
    runs = [{"number": 0, "start_seconds": 0.0}]
    with pytest.raises(ScenarioError, match="an explored world"):
        run_role(scenario(world={"seed": 0, "runs": runs}))


async def impatient(party: Party, own: int, *, seconds: float = 1.0, seed: int = 0) -> float:
    """Have arguments with the names of options."""
    return seconds + seed + own + len(party.peers)


def test_public_arguments_are_checked_before_a_run() -> None:
    """A role that does not take an argument, or whose argument is an option, is named."""
    with pytest.raises(InputError, match=r"add_up cannot be called .*'weight'"):
        run(add_up, [1, 2], weight=2)
    both = "is both a public argument of impatient and an option of"
    with pytest.raises(InputError, match=f"seed {both} run; rename"):
        run(impatient, [1, 2])
    with pytest.raises(InputError, match=f"seconds {both} ProtocolRunner"):
        ProtocolRunner("memory")(impatient, 2, own=[1, 2], seconds=1.0)
    with pytest.raises(InputError, match=rf"seconds {both} Cluster\.play"):
        run_role(scenario(role=f"{__name__}:impatient"))

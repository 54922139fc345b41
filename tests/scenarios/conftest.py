"""Run folders of twelve parties and of a world of faults, and a quick comparison."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.testing.exploring import broken

from veilring.errors import RunFailed, WorldWentWrong
from veilring.nodes.journal import Journal
from veilring.scenarios import RoleScenario, load_scenario, run_role, run_scenario
from veilring.scenarios.comparison import compare
from veilring.scenarios.comparison.comparison import SystemComparison
from veilring.scenarios.comparison.question import Question, make_question
from veilring.scenarios.reporting import open_folder, write_failure, write_report
from veilring.scenarios.schema import NetworkSection, RoleRunSection
from veilring.testing.exploring import SystemSubject, draw_world, play_world
from veilring.testing.exploring.subjects import to_scenario

SETTINGS = ("parties.count=12", "network.runtime=simulated", "run.seed=3", "run.leakage_trials=100")
# While PP-TopK's vector goes round: a run takes 2.4 s.
CRASH = 'faults=[{kind="crash", party="party-9", start_seconds=1.1}]'
SPIES = 'parties.coalition=["party-3", "party-7"]'


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a successful run."""
    folder, journal = open_folder(tmp_path_factory.mktemp("runs") / "finished"), Journal()
    write_report(run_scenario(load_scenario("wine", SETTINGS), journal=journal), journal, folder)
    return folder


@pytest.fixture(scope="session")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run with a crash of `party-9`; `party-3` and `party-7` collude."""
    folder, journal = open_folder(tmp_path_factory.mktemp("runs") / "crashed"), Journal()
    scenario = load_scenario("wine", [*SETTINGS, SPIES, CRASH])
    with pytest.raises(RunFailed) as failed:
        run_scenario(scenario, journal=journal)
    write_failure(failed.value, scenario, journal, folder)
    return folder


@pytest.fixture(scope="session")
def of_role(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a role that ran without a lost party."""
    folder, journal = open_folder(tmp_path_factory.mktemp("runs") / "of_role"), Journal()
    crash = {"kind": "crash", "party": "party-3", "start_seconds": 0.0}
    role = RoleScenario(
        role="docs.examples.secure_maximum:secure_maximum",
        inputs=[3, 1, 4, 1],
        public={"bits": 3},
        network=NetworkSection(runtime="simulated"),
        run=RoleRunSection(seed=1, retries=1),
        faults=(crash,),
    )
    write_report(run_role(role, journal=journal), journal, folder)
    return folder


@pytest.fixture(scope="session")
def recovered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run with a coalition and a crash, retried without the lost party."""
    folder, journal = open_folder(tmp_path_factory.mktemp("runs") / "recovered"), Journal()
    scenario = load_scenario("coalition", ["run.leakage_trials=100"])
    write_report(run_scenario(scenario, journal=journal), journal, folder)
    return folder


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a failed run: links stalled, and a party crashed."""
    folder, journal = open_folder(tmp_path_factory.mktemp("runs") / "world"), Journal()
    subject = SystemSubject(load_scenario("faults"), secure_sum=broken.ignores_losses)
    drawn = draw_world(7, subject.parties)
    explored = play_world(subject, drawn, journal=journal)
    scenario = to_scenario(subject, replace(drawn, runs=tuple(explored.runs)))
    write_failure(WorldWentWrong(tuple(explored.wrong)), scenario, journal, folder)
    return folder


ASKED = {"data": "iris", "parties": 4, "epsilon": (1.0, 2.0), "splits": 2, "queries": 5, "seed": 3}


@pytest.fixture(scope="session")
def question() -> Question:
    """Return the question."""
    return make_question(ASKED)


@pytest.fixture(scope="session")
def comparison(question: Question) -> SystemComparison:
    """Return the comparison."""
    return compare(question, workers=1)

"""Worlds of roles: written as scenarios, replayed, and shown on a page."""

import asyncio
import gc
import math
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.invoking import done, invoke
from tests.roles import Number
from tests.testing.exploring.faulty import INPUTS, RIGHT

from veilring.config import parse_toml
from veilring.errors import InputError, WorldWentWrong
from veilring.nodes.party import Party, broadcast
from veilring.scenarios.schema import load_experiment
from veilring.simulation import LinkModel
from veilring.simulation.faults import Fault
from veilring.testing.exploring import (
    RoleSubject,
    World,
    draw_world,
    explore_seed,
    play_world,
    shrink,
)
from veilring.testing.exploring.subjects import from_scenario, replay, to_scenario, to_toml
from veilring.testing.exploring.worlds import Start

FAULTY = "tests.testing.exploring.faulty"
SEEDS = 40
"""The number of seeds within which each mistake has to be found."""


def subject(name: str, *settings: str) -> RoleSubject:
    """Return a faulty role as an exploration on the command line does."""
    loaded = load_experiment(f"{FAULTY}:{name}", settings)
    found, _ = from_scenario(
        loaded.with_tables(world={"seed": 0, "runs": [{"number": 0, "start_seconds": 0.0}]})
    )
    assert isinstance(found, RoleSubject)
    return found


async def hear_in_tasks(party: Party, own: int) -> int:
    """Hear each peer in a task of its own."""
    await broadcast(party, Number(number=own))
    tasks = [asyncio.create_task(party.receive(Number, sender=peer)) for peer in party.peers]
    return own + sum([(await task).number for task in tasks])


def test_errors_that_a_stopped_run_left_in_its_tasks_are_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A loss reaches each task of a role, and the role ends with the first one."""
    crash = Fault("crash", 0.0, math.inf, ("ada",))
    again = RoleSubject(hear_in_tasks, {"ada": 1, "ben": 2, "cy": 3, "dee": 4})
    explored = play_world(
        again, World(0, LinkModel(), (crash, Fault("crash", 0.0, math.inf, ("ben",))))
    )
    gc.collect()
    assert explored.failed
    assert not [each for each in caplog.records if each.name == "asyncio"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("TWICE", "ada found 6, not 3"),
        ("LOST", "the results differ"),
        ("LATE", " found "),
        ("ABSENT", "KeyError"),
        ("BEHIND", "tasks are left over"),
    ],
)
def test_a_shrunk_world_of_a_role_is_replayed_from_its_file(
    name: str, sentence: str, tmp_path: Path
) -> None:
    """The file names the role and two of its parties, and fails with the same sentences."""
    whole = subject(name)
    seed = next(seed for seed in range(SEEDS) if explore_seed(whole, seed).wrong)
    shrunk = shrink(whole, draw_world(seed, whole.parties))
    assert shrunk is not None
    assert sentence in "; ".join(shrunk.wrong)
    path = tmp_path / "world.toml"
    path.write_text(to_toml(shrunk.subject, shrunk.world))
    tables = parse_toml(path.read_text())
    assert tables["role"] == f"{FAULTY}:{name}"
    assert tables["parties"] == {"names": list(shrunk.subject.parties)}
    assert len(shrunk.subject.parties) == 2
    with pytest.raises(WorldWentWrong) as caught:
        replay(load_experiment(str(path)))
    assert caught.value.wrong == shrunk.wrong


def test_the_command_writes_a_world_of_a_role_and_its_page(tmp_path: Path) -> None:
    """`run` fails again with the same sentence; the page steps through the messages."""
    file, folder, out = tmp_path / "world.toml", tmp_path / "first", tmp_path / "again"
    given = ("--seed", "0", "--shrink", file, "--report", folder)
    code, _, error = invoke("explore", f"{FAULTY}:TWICE", *given)
    assert code == 1
    assert f"run it: veilring run {file}" in " ".join(error.split())
    page = (folder / "report.html").read_text()
    assert 'id="stepper"' in page
    assert f"the role {FAULTY}:TWICE" in page
    assert "0, of the world; the parties' randomness was seeded" in page
    code, _, error = invoke("run", file, "--out", out)
    assert code == 1
    assert "an invariant was violated: ada found 6, not 3" in error
    assert "Written: " in done("report", out)
    assert "an invariant was violated: ada found 6" in (out / "report.html").read_text()
    assert "ada found 6, not 3" in done("trace", out)
    mended = done("run", file, "--set", "public.factor=1")
    assert "nothing went wrong in this world: 1 runs" in mended


def test_a_scenario_of_a_role_is_explored() -> None:
    """Its public arguments and inputs replace those of the claims."""
    code, out, error = invoke("explore", f"{FAULTY}:RIGHT", "--seeds", "2", "--workers", "1")
    assert out.startswith("seeds: 2, of which 0 went wrong"), error
    given = ("--seed", "0", "--set", "public.factor=3", "--set", "parties.count=3")
    code, _, error = invoke("explore", f"{FAULTY}:RIGHT", *given)
    assert code == 1
    assert "ada found 21, not 7" in error


def test_a_world_without_a_name_is_refused() -> None:
    """A subject that no scenario names cannot be written."""
    world = replace(draw_world(0, RIGHT.explored.parties), runs=(Start(0, 0.0),))
    with pytest.raises(InputError, match="named as module:NAME"):
        to_scenario(RIGHT.explored, world)


def test_a_function_is_compared_with_itself() -> None:
    """Without an invariant, a fault must not change a result, also in a world that was written."""
    loaded = load_experiment("tests.roles:add_up", ["inputs=[1, 2]"])
    world = {"seed": 0, "runs": [{"number": 0, "start_seconds": 0.0}]}
    assert replay(loaded.with_tables(world=world)).succeeded == 1
    given = ("--set", "inputs=[1, 2, 3]", "--seeds", "2", "--workers", "1")
    _, out, error = invoke("explore", "tests.roles:add_up", *given)
    assert out.startswith("seeds: 2, of which 0 went wrong"), error


def test_a_role_keeps_its_inputs_in_a_scenario() -> None:
    """Without keys of its own, a scenario has all inputs of the claims, as they are."""
    assert subject("RIGHT").inputs == INPUTS
    assert subject("RIGHT", 'parties.names=["cy", "ada"]').parties == ("cy", "ada")

"""Failing worlds are minimised, written as scenarios, and fail again when played."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from docs.examples.secure_maximum import is_greatest
from tests.testing.exploring import broken
from tests.testing.exploring.test_exploring import maximum
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.errors import InputError, ScenarioError, WorldWentWrong
from veilring.nodes.journal import Journal
from veilring.protocols.ring import roles
from veilring.protocols.ring.algorithm.classify import decide_labels
from veilring.scenarios import load_scenario, run_scenario
from veilring.simulation.faults import FAULT_KINDS
from veilring.testing.exploring import (
    RoleSubject,
    SystemSubject,
    draw_world,
    every_world,
    explore,
    explore_every_world,
    play_world,
    shrink,
)
from veilring.testing.exploring.subjects import from_scenario, replay, to_scenario, to_toml
from veilring.testing.exploring.worlds import Start
from veilring.testing.histories import check_agreement

SIMPLE = RoleSubject(maximum, {f"party-{n}": n for n in range(3)}, is_greatest)


def test_a_world_is_reduced_to_its_cause() -> None:
    """A sum that ignores a late message needs three parties and one or two faults."""
    subject = SystemSubject(load_scenario("faults"), secure_sum=broken.ignores_losses)
    shrunk = shrink(subject, draw_world(7, subject.parties))
    assert shrunk is not None
    assert len(shrunk.subject.parties) == 3
    assert 1 <= len(shrunk.world.faults) <= 2
    assert play_world(shrunk.subject, shrunk.world).wrong == list(shrunk.wrong)
    assert "3 parties" in str(shrunk)
    for fault in shrunk.world.faults:
        assert f"{fault.kind} of" in str(shrunk)


def test_nothing_is_minimised_without_a_failure() -> None:
    """Neither a successful world nor a campaign of such worlds can be minimised."""
    assert shrink(SIMPLE, draw_world(0, SIMPLE.parties)) is None
    assert explore(maximum, [1, 2], invariant=is_greatest, seeds=1).smallest() is None


def test_a_written_world_is_restored_exactly(tmp_path: Path) -> None:
    """With every class of fault, its file gives it back to the last bit."""
    subject = SystemSubject(load_scenario("faults"))
    kinds = set()
    for seed in range(8):
        drawn = draw_world(seed, subject.parties)
        world = replace(drawn, runs=(Start(0, 0.25),))
        kinds |= {fault.kind for fault in world.faults}
        path = tmp_path / "world.toml"
        path.write_text(to_toml(subject, world))
        again, found = from_scenario(load_scenario(str(path)))
        crashes = {fault for fault in world.faults if not FAULT_KINDS[fault.kind].ends}
        assert again.parties == subject.parties
        assert set(world.faults) - set(found.faults) <= crashes  # whose end is never
        assert (found.links, found.order, found.runs) == (world.links, world.order, world.runs)
    assert len(kinds) > 12


def test_the_command_minimises_and_run_fails_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With classes in the wrong order, `explore --shrink` writes a scenario that fails in `run`.

    With `--report` a folder has its messages and a page that steps through them.
    """
    file, folder, out = tmp_path / "small.toml", tmp_path / "worlds" / "first", tmp_path / "run"
    monkeypatch.setattr(roles, "decide_labels", lambda *given: 2 - decide_labels(*given))
    given = ["explore", "--seeds", "3", "--shrink", str(file), "--report", str(folder)]
    explored = CliRunner().invoke(app, given)
    assert explored.exit_code == 1
    assert "smallest failing world (after" in explored.output
    assert f"run it: veilring run {file}" in explored.output
    scenario = load_scenario(str(file))
    assert len(scenario.parties.all) == 3
    assert len(scenario.faults) <= 2
    assert f"step through it: {folder / 'report.html'}" in explored.output
    assert 'id="stepper"' in (folder / "report.html").read_text()
    assert load_scenario(str(folder / "scenario.toml")).world is not None
    again = CliRunner().invoke(app, given)
    assert "already contains error.json; choose another --report" in " ".join(again.output.split())
    played = CliRunner().invoke(app, ["run", str(file), "--out", str(out)])
    assert isinstance(played.exception, WorldWentWrong) or played.exit_code == 1
    assert "WorldWentWrong" in (out / "error.json").read_text()
    monkeypatch.setattr(roles, "decide_labels", decide_labels)
    mended = CliRunner().invoke(app, ["run", str(file)])
    assert mended.exit_code == 0, mended.output
    assert "nothing went wrong in this world" in mended.output


def test_a_world_is_played_only_by_the_engine_of_worlds() -> None:
    """A system that labels all queries at once, and a scenario without a world, are refused."""
    subject = SystemSubject(load_scenario("faults"))
    world = next(every_world(subject))
    with pytest.raises(ScenarioError, match="veilring run"):
        run_scenario(to_scenario(subject, world))
    with pytest.raises(ScenarioError, match="no world"):
        replay(load_scenario("faults"))


def test_each_message_meets_each_class_of_fault() -> None:
    """A correct role survives them all, and each class has an effect."""
    campaign = explore_every_world(SIMPLE)
    campaign.check()
    assert campaign.missing == ()
    assert campaign.seeds > 6 * 6  # messages, and classes of links


def agree(_inputs: object, results: Mapping[str, int]) -> None:
    """Require one result."""
    check_agreement(results)


def test_messages_of_one_step_are_lost_without_their_sender() -> None:
    """Two pairs of parties with two totals are found where some connections of one break at once.

    A crash in the middle of a step leaves no second pair, and a reset divides only two parties.
    """
    inputs = {"ada": 1, "ben": 2, "cy": 4, "dee": 8}
    subject = RoleSubject(broken.believes_any_two, inputs, agree)
    wrong = [
        (world, explored.wrong)
        for world in every_world(subject, kinds=["mid-send", "reset"])
        if (explored := play_world(subject, world)).wrong
    ]
    for world, _ in wrong:
        kinds = sorted(fault.kind for fault in world.faults)
        assert kinds == ["reset", "reset", "slow"]
    assert any("ada decided 15, and cy 14" in sentence for _, each in wrong for sentence in each)


def test_each_world_has_one_fault_and_replays() -> None:
    """A journal of such a world shows the fault."""
    world = next(every_world(SIMPLE, kinds=["reset"]))
    (fault,) = world.faults
    journal = Journal()
    explored = play_world(SIMPLE, world, journal=journal)
    assert explored.failed >= 1
    assert explored.wrong == []
    assert {mark.party for mark in journal.marks if "reset" in mark.what} == set(fault.parties)


def test_a_role_that_fails_without_faults_is_refused() -> None:
    """A role that fails without faults is refused, because no fault can be judged."""

    def refuse(_given: object, _found: object) -> None:
        raise AssertionError("nothing is right")

    with pytest.raises(InputError, match="goes wrong"):
        next(every_world(replace(SIMPLE, invariant=refuse)))

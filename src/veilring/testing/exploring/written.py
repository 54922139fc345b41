"""Worlds as scenarios: files written by `veilring explore` that `veilring run` plays."""

import tomli_w

from veilring.config import require_key_that
from veilring.errors import WorldWentWrong
from veilring.nodes.trace import Journal
from veilring.randomness import Streams
from veilring.scenarios.network import fault_table, links_table, make_faults, make_links
from veilring.scenarios.schema import Scenario, make_scenario
from veilring.testing.exploring.subjects import SystemSubject
from veilring.testing.exploring.worlds import Explored, Start, World, play_world


def to_scenario(subject: SystemSubject, world: World) -> Scenario:
    """Return the scenario that plays a system in a world whose runs are written out."""
    tables = subject.scenario.model_dump()
    tables["network"] |= {"runtime": "simulated", **links_table(world.links)}
    tables["faults"] = [fault_table(fault) for fault in world.faults]
    runs = [{"number": number, "start_seconds": start} for number, start in world.runs or ()]
    tables["world"] = {"seed": world.seed, "order": world.order, "runs": runs}
    return make_scenario(tables)


def to_toml(subject: SystemSubject, world: World) -> str:
    """Return the scenario as a TOML file, with the keys whose values differ from the defaults."""
    scenario = to_scenario(subject, world)
    tables = scenario.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    name = {"name": scenario.protocol.name}
    return tomli_w.dumps(tables | {"protocol": name | tables.get("protocol", {})})


def from_scenario(scenario: Scenario) -> tuple[SystemSubject, World]:
    """Return the system and the world of a scenario.

    Raises:
        ScenarioError: If the scenario has no world, or an invalid one.
    """
    require_key_that(
        scenario.world is not None,
        "world",
        "there is no world in this scenario; `veilring explore --shrink FILE` writes one",
    )
    assert scenario.world is not None  # noqa: S101  (for mypy: it was required)
    written, subject = scenario.world, SystemSubject(scenario)
    return subject, World(
        written.seed,
        make_links(scenario.network),
        make_faults(scenario, subject.parties, Streams(written.seed)),
        written.order,
        tuple(Start(run.number, run.start_seconds) for run in written.runs),
    )


def replay(scenario: Scenario, *, journal: Journal | None = None) -> Explored:
    """Play a world that was written as a scenario.

    Args:
        scenario: A scenario with a `world`.
        journal: The record of the messages and their times, if wanted.

    Raises:
        WorldWentWrong: If an invariant was violated.
        ScenarioError: If the scenario has no world, or an invalid one.
    """
    explored = play_world(*from_scenario(scenario), journal=journal)
    if explored.wrong:
        raise WorldWentWrong(tuple(explored.wrong))
    return explored

"""Running the role that a scenario names, from its inputs to a report.

A scenario names a role as `module:NAME`: a coroutine function, whose inputs are then in the
scenario, or an object that has a role, inputs and public arguments, such as
`veilring.testing.RoleClaims`.
"""

import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from numpy.random import Generator

from veilring.config import as_scenario_errors, make_kind, require_key, require_key_that
from veilring.errors import InputError, ScenarioError
from veilring.nodes.adversary import Adversary
from veilring.nodes.cluster import Cluster, Retried, RuntimeName, run_with_retries
from veilring.nodes.journal import Journal
from veilring.nodes.party import by_party
from veilring.nodes.run import check_arguments
from veilring.nodes.runtimes import Runtime
from veilring.randomness import Streams, draw_seed
from veilring.scenarios.network import make_faults, make_topology
from veilring.scenarios.report import SHOWN_MAX, CostSummary, RoleReport, scalars, shortened
from veilring.scenarios.runner import Progress, changed, ignore_progress, run_on, struck_faults
from veilring.scenarios.schema import ROLE_PARTIES_MIN, RoleScenario, names_object

Role = Callable[..., Awaitable[Any]]
Draw = Callable[[tuple[str, ...], Generator], Mapping[str, object]]
"""Returns more public arguments for a run, given its parties and a generator."""


@runtime_checkable
class RoleWithInputs(Protocol):
    """An object that describes a run of a role."""

    @property
    def role(self) -> Role:
        """The coroutine function of each party."""

    @property
    def inputs(self) -> Mapping[str, object]:
        """The input of each party, by its name."""

    @property
    def public(self) -> Mapping[str, Any]:
        """The public arguments."""

    @property
    def least(self) -> int:
        """The smallest number of parties that the role needs."""


@dataclass(frozen=True, slots=True, repr=False)
class FoundRole:
    """The role of a scenario, with everything that a run needs.

    Attributes:
        scenario: The scenario, with the names of the parties that take part.
        named: The object that the scenario names.
        inputs: The inputs of the parties that take part, in their order.
        draw: Draws more public arguments for each run.
    """

    scenario: RoleScenario
    named: object
    role: Role
    inputs: Mapping[str, object]
    public: Mapping[str, Any]
    draw: Draw | None
    adversaries: Mapping[str, Adversary]

    @property
    def parties(self) -> tuple[str, ...]:
        """The names of the parties that take part."""
        return tuple(self.inputs)


def import_object(name: str) -> Any:  # noqa: ANN401  (a module's attribute is anything)
    """Return an object by its `module:NAME`; modules are looked for in the current directory too.

    Raises:
        InputError: If it cannot be imported.
    """
    module, _, attribute = name.partition(":")
    if module.endswith(".py"):
        raise InputError("name", name, f"module:NAME, such as {Path(module).stem}:{attribute}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError.because(f"{name} cannot be imported: {error}", field="name") from error


def find_role(scenario: RoleScenario) -> FoundRole:
    """Return the role of a scenario, after checking its inputs and public arguments.

    Raises:
        ScenarioError: If it cannot be imported, or the scenario does not fit it.
    """
    with as_scenario_errors({"name": "role"}, "role"):
        named = import_object(scenario.role)
    role, inputs, public, least = _described(scenario, named)
    names, count = scenario.parties.names or tuple(inputs), scenario.parties.count
    for name in names:
        require_key(name in inputs, "parties.names", name, f"some of {', '.join(inputs)}")
    allowed = f"{least} to {len(inputs)}, the number of inputs"
    require_key(not count or count <= len(inputs), "parties.count", count, allowed)
    names = names[:count]
    require_key(len(names) >= least, "parties", len(names), f"at least {least} parties with inputs")
    draw: Draw | None = getattr(named, "draw", None)
    if draw is None:
        with as_scenario_errors({"public": "public"}, "public"):
            check_arguments(role, public, by=Cluster.play)
    return FoundRole(
        scenario=scenario.with_tables(parties={"names": names, "count": None}),
        named=named,
        role=role,
        inputs={name: inputs[name] for name in names},
        public=public,
        draw=draw,
        adversaries={name: _adversary(name, scenario, names) for name in scenario.adversaries},
    )


def _described(
    scenario: RoleScenario, named: object
) -> tuple[Role, dict[str, object], dict[str, Any], int]:
    """Return the role, the inputs of all parties, the public arguments, and the least parties."""
    given = by_party(scenario.inputs)
    if isinstance(named, RoleWithInputs):
        known = ", ".join(named.inputs)
        for party, value in given.items():
            require_key(party in named.inputs, f"inputs.{party}", value, f"a party among {known}")
        public = {**named.public, **scenario.public}
        return named.role, {**named.inputs, **given}, public, named.least
    if not callable(named) or isinstance(named, type):
        raise ScenarioError.because(
            f"{scenario.role} is neither a coroutine function nor an object with a role and its"
            " inputs, such as a RoleClaims",
            field="role",
        )
    require_key_that(
        bool(given),
        "inputs",
        f"{scenario.role} is a function without inputs; give a value for each party, or name a"
        " RoleClaims",
    )
    return named, given, scenario.public, ROLE_PARTIES_MIN


def _adversary(party: str, scenario: RoleScenario, parties: tuple[str, ...]) -> Adversary:
    key, table = f"adversaries.{party}", scenario.adversaries[party]
    require_key(party in parties, key, table, f"one of the parties {', '.join(parties)}")
    kind, allowed = str(table.get("kind", "")), "module:NAME of a subclass of Adversary"
    require_key(names_object(kind), f"{key}.kind", kind, allowed)
    with as_scenario_errors({"name": f"{key}.kind"}, key):
        named = import_object(kind)
    is_adversary = isinstance(named, type) and issubclass(named, Adversary)
    require_key(is_adversary, f"{key}.kind", kind, allowed)
    plain = not is_dataclass(named) and set(table) == {"kind"}
    require_key_that(plain or is_dataclass(named), key, f"{kind} is no dataclass; give `kind` only")
    made: Adversary = named() if plain else make_kind(key, "kind", table, {kind: named})
    made.called = kind
    return made


def run_role(
    scenario: RoleScenario,
    *,
    runtime: RuntimeName | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.perf_counter,
    journal: Journal | None = None,
) -> RoleReport:
    """Run the role of a scenario once. No event loop may be running in this thread.

    If parties may be lost (`run.retries`), the run is repeated without the lost ones.

    Args:
        runtime: The runtime, instead of `network.runtime`.
        seed: The seed, instead of `run.seed`.
        journal: The journal of messages and of events at parties, also written if the run fails.

    Raises:
        ScenarioError: If the role cannot be imported, or does not fit the scenario.
        RunFailed: If the run failed at any party.
    """
    found = find_role(changed(scenario, runtime, seed))
    scenario, run, parties = found.scenario, found.scenario.run, found.parties
    require_key_that(
        scenario.world is None, "world", "this scenario is an explored world; use `veilring run`"
    )
    known_seed = draw_seed() if run.seed is None else run.seed
    topology = make_topology(scenario.network, parties)
    faults = make_faults(scenario, parties, Streams(known_seed))
    public, liars = dict(found.public), found.adversaries
    if found.draw is not None:
        public |= found.draw(parties, Streams(known_seed).generator("public"))
    tell = progress or ignore_progress
    tell("Starting the parties", 0, 1)
    began = clock()

    async def play(runtime: Runtime | RuntimeName) -> tuple[Retried[Any], float, float]:
        own = list(found.inputs.values())
        async with Cluster(parties, runtime=runtime, own=own, seed=run.seed) as cluster:
            started = clock()
            tell("Running the role", 0, 1)
            retried = await run_with_retries(
                cluster,
                found.role,
                attempts=run.retries + 1,
                for_those=lambda left: {
                    "adversaries": {name: liars[name] for name in left if name in liars},
                    **public,
                },
                seconds=run.session_seconds,
                trace=False if journal is None else journal,
            )
            return retried, started, clock()

    (retried, started, ended), struck = run_on(scenario.network, topology, faults, play)
    results, cost = retried.run.results, retried.run.cost
    return RoleReport(
        scenario=scenario,
        runtime=scenario.network.runtime,
        parties=len(parties),
        results=scalars(results),
        shown={party: shortened(repr(each), SHOWN_MAX) for party, each in results.items()},
        cost=CostSummary.measured([cost]),
        by_kind={kind: traffic._asdict() for kind, traffic in cost.by_kind.items()},
        rounds_differ=cost.rounds_differ,
        lost=retried.run.lost,
        without=retried.without,
        attempts=1 + len(retried.wasted),
        seconds=ended - started,
        start_seconds=started - began,
        simulated_seconds=retried.run.seconds if scenario.network.runtime == "simulated" else None,
        transcript=retried.run.transcript,
        seed=known_seed,
        secrets="cryptographic" if run.seed is None else "seeded",
        faults=struck_faults(faults, struck),
    )

"""Subjects of an exploration: a role with an invariant, or a system with queries.

Their worlds are written as scenarios, which `veilring run` plays.
"""

import copy
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType
from typing import Any, Final, Self, overload

import numpy as np
from numpy.random import Generator
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.config import require_key_that
from veilring.errors import InputError, ScenarioError, WorldWentWrong
from veilring.nodes.cluster import Cluster
from veilring.nodes.journal import Journal
from veilring.nodes.party import Party
from veilring.nodes.ring import PARTIES_MIN, draw_ring
from veilring.nodes.run import Outcome
from veilring.protocols.registry import BUILT_IN
from veilring.protocols.ring.algorithm.sums import FixedPoint, SumMethod
from veilring.protocols.ring.roles import secure_sum
from veilring.protocols.system import Setup, System
from veilring.randomness import Streams
from veilring.reached import marks_below, marks_in, sometimes
from veilring.scenarios.network import fault_table, links_table, make_faults, make_links
from veilring.scenarios.prepare import Prepared, prepare
from veilring.scenarios.roles import Draw, Role, find_role
from veilring.scenarios.schema import RoleScenario, Scenario
from veilring.testing.exploring import worlds
from veilring.testing.exploring.worlds import (
    Explored,
    Played,
    Start,
    Subject,
    World,
    play_world,
    results_by_party,
)
from veilring.testing.histories import recording

Invariant = Callable[[Mapping[str, Any], Mapping[str, Any]], None]
"""Raises an `AssertionError` unless results are right.

Its arguments are the inputs of the parties that took part and the results of those that have one,
each by the party's name. Some parties may have failed; the results of the others must still be
right.
"""

# With fewer parties, a mistake may show on another query; queries are left out afterwards.
_TRIED_TIMES: Final = 4
# Right labels, of some parties among others. Nearly all batches of a campaign have some of these.
_RIGHT_MAX: Final = 4096


@dataclass(eq=False)
class RoleSubject(Subject):
    """A role that is explored outside a system.

    Attributes:
        invariant: The judge of results. Without one, a party that has lost no peer must have the
            result that it has without any fault, with the same randomness.
        public: The constant public arguments.
        least: The smallest number of parties that the role needs.
        draw: A function that returns more public arguments for each run.
        scenario: The scenario that names the role, without which its worlds cannot be written.
    """

    role: Role
    inputs: Mapping[str, object]
    invariant: Invariant | None = None
    public: Mapping[str, object] = field(default_factory=dict)
    least: int = 2
    draw: Draw | None = None
    scenario: RoleScenario | None = None

    def __post_init__(self) -> None:
        self.parties = tuple(self.inputs)

    @classmethod
    def of(cls, scenario: RoleScenario) -> "RoleSubject":
        """Return the role of a scenario, with the invariant of the claims that it names, if any.

        Raises:
            ScenarioError: If the role does not fit the scenario.
        """
        found = find_role(scenario)
        named = getattr(found.named, "explored", found.named)
        subject = named if isinstance(named, cls) else cls(found.role, found.inputs)
        return replace(subject, inputs=found.inputs, public=found.public, scenario=found.scenario)

    @property
    @override
    def marks(self) -> frozenset[str]:
        return marks_in([worlds]) | marks_below(self.role)

    @override
    def can_do_with(self, parties: Sequence[str]) -> bool:
        return len(parties) >= self.least

    @override
    def own(self) -> Sequence[object]:
        return copy.deepcopy(tuple(self.inputs.values()))

    @override
    async def play(
        self,
        cluster: Cluster,
        among: tuple[str, ...],
        make_rng: Callable[[], Generator],
        **options: Any,
    ) -> Played:
        drawn = {} if self.draw is None else self.draw(among, make_rng())
        public: dict[str, Any] = {**self.public, **drawn}
        with recording():
            outcomes = await cluster.play(self.role, among=among, **options, **public)
            liars = options.get("adversaries") or {}
            honest = [outcome for outcome in outcomes if outcome.party not in liars]
            inputs = {name: self.inputs[name] for name in among}
            if self.invariant is None:
                return Played(outcomes, [], partial(self._compare, inputs, honest))
            try:
                self.invariant(inputs, results_by_party(honest))
            except AssertionError as error:
                return Played(outcomes, [str(error) or "the invariant does not hold"])
        return Played(outcomes, [])

    def _compare(
        self, inputs: Mapping[str, object], outcomes: Sequence[Outcome], calm: World
    ) -> Iterator[str]:
        """Yield a sentence for each result that differs from that in a world without faults."""
        whole = [each for each in outcomes if each.standing and not each.standing.without]
        found = results_by_party(whole)
        if not found:
            return
        expected, reordered = (
            self._results(inputs, replace(calm, order=order)) for order in (None, calm.seed)
        )
        for party, result in found.items():
            if party not in expected or not equal_results(expected[party], reordered.get(party)):
                yield (
                    f"{party} has a result that depends on the order of tasks, without any fault:"
                    " if that is right, give an invariant"
                )
            elif not equal_results(result, expected[party]):
                yield f"{party} has another result than without any fault"

    def _results(self, inputs: Mapping[str, object], world: World) -> Mapping[str, object]:
        """Return the results in a world of one run among some parties."""
        kept: dict[str, object] = {}
        judged = replace(self, inputs=inputs, invariant=lambda _, results: kept.update(results))
        play_world(judged, world)
        return kept

    @override
    def smaller(self, parties: int) -> Iterable[Self]:
        if not self.least <= parties < len(self.inputs):
            return []
        every = list(self.inputs.items())
        return [replace(self, inputs=dict(some)) for some in (every[:parties], every[-parties:])]


def equal_results(one: object, other: object) -> bool:
    """Return whether two results are equal; they may contain arrays."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(np.asarray(one), np.asarray(other))
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(equal_results, one, other))
    if hasattr(one, "__dataclass_fields__") and type(one) is type(other):
        fields = one.__dataclass_fields__
        return all(equal_results(getattr(one, name), getattr(other, name)) for name in fields)
    return bool(one == other)


@dataclass(eq=False)
class SystemSubject(Subject):
    """A system whose parties label the queries of a scenario.

    In a ring, the sum of the votes is also explored on its own, because it reveals any wrong total.

    Attributes:
        sums_share: The share of the runs in a ring that are such sums.
        secure_sum: The sum under test; tests replace the real one to see whether a mistake is
            found.
    """

    scenario: Scenario
    sums_share: float = 0.5
    secure_sum: Role = secure_sum
    prepared: Prepared = field(init=False)
    _enough: dict[tuple[str, ...], bool] = field(init=False, default_factory=dict)
    _right: set[Hashable] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        # The world's seed decides the events; the division of rows is the same in all worlds.
        self.prepared = prepare(self.scenario, Streams(0))
        self.parties = self._setup.parties

    @classmethod
    def of(cls, system: System, scenario: Scenario) -> Self:
        """Return a system alone, without sums, in a scenario that may name another one."""
        return cls(scenario.model_copy(update={"protocol": system}), sums_share=0.0)

    @property
    def _setup(self) -> Setup:
        return self.prepared.setup

    @property
    @override
    def marks(self) -> frozenset[str]:
        reached = marks_in([worlds]) | marks_below(SystemSubject._play_batch)
        if self.scenario.protocol.name not in BUILT_IN:  # whose modes are marked as passed
            reached |= marks_in(_modules_beside(self._setup.role))
        sums = self._setup.system.draws_ring and self.sums_share > 0
        return reached | marks_below(SystemSubject._play_sum) if sums else reached

    @property
    @override
    def knows_results(self) -> bool:
        return self._setup.knows_labels

    @override
    def can_do_with(self, parties: Sequence[str]) -> bool:
        some = tuple(parties)  # the same ones run after run
        if some not in self._enough:
            self._enough[some] = self._setup.can_do_with(some)
        return self._enough[some]

    @override
    def own(self) -> Sequence[object]:
        return self._setup.resident  # created for each world, because a party may store its answers

    @override
    async def play(
        self,
        cluster: Cluster,
        among: tuple[str, ...],
        make_rng: Callable[[], Generator],
        **options: Any,
    ) -> Played:
        if self._setup.system.draws_ring:
            rng = make_rng()
            if rng.random() < self.sums_share:
                return await self._play_sum(cluster, among, rng, **options)
            client = among[int(rng.integers(len(among)))]
            among = (client, *(name for name in among if name != client))
        return await self._play_batch(cluster, among, **options)

    async def _play_sum(
        self, cluster: Cluster, among: tuple[str, ...], rng: Generator, **options: Any
    ) -> Played:
        """Sum distinct powers of two: a wrong total shows how often each party was counted."""
        method = _draw_method(rng, len(among))
        own = [np.array([[float(2**place)]]) for place, _ in enumerate(cluster.parties)]
        outcomes = await cluster.play(
            _sum_on_a_drawn_ring,
            own=own,
            among=among,
            method=method,
            add=self.secure_sum,
            **options,
        )
        failed = any(outcome.error for outcome in outcomes)
        sometimes("a sum that goes round has a total", method.goes_round and not failed)
        sometimes("a sum that goes to everybody has a total", not (method.goes_round or failed))
        expected = sum(2**place for place, name in enumerate(cluster.parties) if name in among)
        wrong = [
            f"{party} has the sum {result}, not {expected} ({method.name})"
            for party, result in results_by_party(outcomes).items()
            if result != expected
        ]
        return Played(outcomes, wrong)

    async def _play_batch(self, cluster: Cluster, among: tuple[str, ...], **options: Any) -> Played:
        """Have the first of the parties get the queries labelled."""
        setup = self._setup
        queries = self.prepared.held_out.X[: setup.batch_max]
        played = setup.play(queries, among=among)
        outcomes = await cluster.play(
            setup.role, only=played.only, among=among, **options, **played.public
        )
        sometimes("a batch is labelled", not any(outcome.error for outcome in outcomes))
        liars = options.get("adversaries") or {}
        labels = {
            party: played.labels(result)
            for party, result in results_by_party(outcomes).items()
            if party in played.learners and party not in liars
        }
        return Played(outcomes, self._find_wrong(queries, labels, among))

    def _find_wrong(
        self, queries: Floats, labels: Mapping[str, Ints], among: tuple[str, ...]
    ) -> Sequence[str]:
        """Judge the labels of a batch, unless the same ones were right before."""
        each = ((name, a.dtype, a.shape, a.tobytes()) for name, a in labels.items())
        found = among, tuple(each)  # of the same queries
        if found in self._right:
            return ()
        wrong = self._setup.find_wrong(queries, labels, among)
        if not wrong and len(self._right) < _RIGHT_MAX:
            self._right.add(found)
        return wrong

    @override
    def smaller(self, parties: int) -> Iterable[Self]:
        if not PARTIES_MIN <= parties < len(self.scenario.parties.all):
            return []
        fewer = self.changed("parties", {"count": parties, "names": ()})
        if fewer is None:
            return []
        queries = _TRIED_TIMES * len(self.prepared.held_out)
        more = fewer.changed("data", {"queries": queries})
        return [fewer] if more is None else [fewer, more]

    @override
    def simpler(self) -> Iterable[Self]:
        queries = len(self.prepared.held_out)
        fewer = sorted({queries // 2, queries - queries // 4, queries - 1} - {0, queries})
        made = (self.changed("data", {"queries": count}) for count in fewer)
        return (subject for subject in made if subject is not None)

    def changed(self, table: str, keys: Mapping[str, object]) -> Self | None:
        """Return the subject with other keys in a table of its scenario, if they are valid."""
        try:
            return replace(self, scenario=self.scenario.with_tables(**{table: keys}))
        except ScenarioError:
            return None


def _modules_beside(role: Role) -> list[ModuleType]:
    """Return the modules of the package that contains a system's role, or its module alone."""
    home = sys.modules[role.__module__]
    package = home.__package__
    if not package:
        return [home]
    return [module for name, module in sys.modules.items() if name.startswith(f"{package}.")]


def _draw_method(rng: Generator, parties: int) -> SumMethod:
    most = (parties - 1) // 2
    match int(rng.integers(4)):
        case 0 if most > 1:
            return SumMethod("cycles", int(rng.integers(2, most + 1)))
        case 1:
            return SumMethod("shares")
        case 2:
            return SumMethod("masks")
    return SumMethod()


async def _sum_on_a_drawn_ring(party: Party, own: Floats, *, method: SumMethod, add: Role) -> float:
    ring = await draw_ring(party)
    fixed = FixedPoint(0, len(ring))
    return float((await add(party, own, ring=ring, fixed=fixed, method=method))[0, 0])


def subject_of(scenario: Scenario | RoleScenario) -> SystemSubject | RoleSubject:
    """Return the system or the role of a scenario as the subject of an exploration."""
    return SystemSubject(scenario) if isinstance(scenario, Scenario) else RoleSubject.of(scenario)


@overload
def to_scenario(subject: SystemSubject, world: World) -> Scenario: ...


@overload
def to_scenario(subject: Subject, world: World) -> Scenario | RoleScenario: ...


def to_scenario(subject: Subject, world: World) -> Scenario | RoleScenario:
    """Return the scenario that plays a subject in a world whose runs are written out.

    Raises:
        InputError: If the subject was made without a scenario.
    """
    scenario = getattr(subject, "scenario", None)
    if not isinstance(scenario, Scenario | RoleScenario):
        raise InputError.because(
            "a world can only be written of a subject that is named as module:NAME; see"
            " `RoleSubject.of`",
            field="subject",
        )
    tables: dict[str, Any] = {
        "network": {"runtime": "simulated", **links_table(world.links)},
        "faults": [fault_table(fault) for fault in world.faults],
        "world": {
            "seed": world.seed,
            "order": world.order,
            "runs": [{"number": number, "start_seconds": at} for number, at in world.runs or ()],
        },
    }
    if isinstance(scenario, RoleScenario):  # a system's scenario has as many parties as the subject
        tables["parties"] = {"names": subject.parties}
    return scenario.with_tables(**tables)


def to_toml(subject: Subject, world: World) -> str:
    """Return the scenario of `to_scenario` as a TOML file."""
    return to_scenario(subject, world).to_toml()


def from_scenario(scenario: Scenario | RoleScenario) -> tuple[SystemSubject | RoleSubject, World]:
    """Return the subject and the world of a scenario."""
    require_key_that(
        scenario.world is not None,
        "world",
        "there is no world in this scenario; `veilring explore --shrink FILE` writes one",
    )
    assert scenario.world is not None  # noqa: S101  (for mypy: it was required)
    written, subject = scenario.world, subject_of(scenario)
    return subject, World(
        written.seed,
        make_links(scenario.network),
        make_faults(scenario, subject.parties, Streams(written.seed)),
        written.order,
        tuple(Start(run.number, run.start_seconds) for run in written.runs),
    )


def replay(scenario: Scenario | RoleScenario, *, journal: Journal | None = None) -> Explored:
    """Play a world that was written as a scenario.

    Raises:
        WorldWentWrong: If an invariant was violated.
    """
    explored = play_world(*from_scenario(scenario), journal=journal)
    if explored.wrong:
        raise WorldWentWrong(tuple(explored.wrong))
    return explored

"""The rounds of all systems: declared, measured from messages, and timed in the simulation."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from typing_extensions import override

from veilring import simulation
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import ForwardingParty, Party
from veilring.nodes.run import Run
from veilring.nodes.runtimes import Processes, Simulated, Tls
from veilring.nodes.runtimes.tasks import Memory, Runtime
from veilring.protocols.registry import find_system, system_names
from veilring.simulation import Constant, LinkModel, Topology
from veilring.testing.auditing.findings import AuditedSystem

LATENCY = 1.0
FORMS: dict[str, dict[str, Any]] = {
    **{name: {"name": name} for name in system_names()},
    "masks": {"name": "private-knn", "sum": "masks"},
    "shares": {"name": "private-knn", "sum": "shares"},
    "cycles": {"name": "private-knn", "sum": "cycles", "cycles": 2},
    "votes": {"name": "rank-search", "reveal": "votes"},
    "label": {"name": "rank-search", "reveal": "label"},
    "totals, star": {"name": "rank-search", "sum": "star"},
    "release, star": {"name": "release", "sum": "star"},
    "means": {"name": "release", "statistic": "means"},
    "dropouts": {"name": "release", "lost": 1},
    "dropouts, star": {"name": "release", "lost": 1, "sum": "star"},
    "grid": {"name": "data-owner", "k": 3, "epsilon": 4.0},
    "neighbours": {"name": "tree-walk", "splits": 2, "neighbours": 2},
    "walk": {"name": "tree-walk", "by": "walk"},
}


class _Misdeclaring(ForwardingParty):
    """A party that declares each round earlier or later than its role does."""

    def __init__(self, party: Party, late: int) -> None:
        super().__init__(party)
        self._late = late

    @override
    def round(self, number: int) -> None:
        super().round(max(1, number + self._late))


def misdeclared(role: Callable[..., Awaitable[Any]], late: int) -> Callable[..., Awaitable[Any]]:
    """Return a role that declares each round earlier or later, but not before the first one."""

    async def play(party: Party, *own: object, **public: object) -> object:
        return await role(_Misdeclaring(party, late), *own, **public)

    return play


async def _played(form: str, runtime: Runtime, late: int = 0) -> Run[Any]:
    parameters = dict(FORMS[form])
    system = find_system(parameters.pop("name"))(**parameters)
    audited = AuditedSystem(system, system.example(parties=5))
    setup = audited.setup()
    play = setup.play(audited.example.queries)
    async with Cluster(setup.parties, runtime=runtime, own=list(setup.resident), seed=1) as cluster:
        role = misdeclared(setup.role, late) if late else setup.role
        return await cluster.run(role, only=play.only, **play.public)


@pytest.mark.parametrize("form", FORMS)
def test_declared_rounds_are_measured_and_timed(form: str) -> None:
    """A run takes the latency times its rounds and those of its set-up, and no more."""
    links = Topology(LinkModel(Constant(LATENCY)))
    run = simulation.simulate(_played(form, Simulated(links)))
    cost = run.cost
    assert cost.depth == cost.rounds
    assert run.seconds == pytest.approx(LATENCY * (cost.depth + cost.setup_depth), rel=1e-9)
    assert sum(t.messages for t in cost.received.values()) == cost.messages
    assert not cost.lost.messages


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "runtime",
    [
        Memory,
        pytest.param(Tls, marks=pytest.mark.slow),
        pytest.param(Processes, marks=pytest.mark.slow),
    ],
)
def test_measured_rounds_do_not_depend_on_the_runtime(form: str, runtime: type[Runtime]) -> None:
    """The depth is that of the simulation, whatever the timing of messages."""
    cost = asyncio.run(_played(form, runtime())).cost
    assert cost == simulation.simulate(_played(form, Simulated())).cost
    assert cost.depth == cost.rounds


@pytest.mark.parametrize("late", [-1, 1])
@pytest.mark.parametrize("form", [form for form in FORMS if form != "ldp-bayes"])
def test_wrongly_declared_rounds_are_found(form: str, late: int) -> None:
    """A role that declares one round too few or too many is told which message depends on which."""
    cost = simulation.simulate(_played(form, Simulated(), late)).cost
    assert cost.depth == cost.rounds - late
    assert f"{cost.rounds} declared, {cost.depth} measured; " in cost.rounds_differ
    expected = "was sent after" if late < 0 else "no message of round 1 is in the longest chain"
    assert expected in cost.rounds_differ

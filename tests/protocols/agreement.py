"""The systems with random parameters and topologies: the simulation beside memory and TLS.

Roles that wait for some time before they continue without a silent party are decided by timing
once messages are late. They are played without delays.

To compare many manually: `python -m tests.protocols.agreement 200`.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.random import Generator
from tests.nodes.agreement import draw_delays, draw_links

from veilring import simulation
from veilring.errors import InputError
from veilring.nodes.cluster import Cluster
from veilring.nodes.run import Run
from veilring.nodes.runtimes import Simulated, Tls
from veilring.nodes.runtimes.tasks import Memory, Runtime
from veilring.protocols.registry import find_system
from veilring.simulation import Topology
from veilring.simulation.faults import Fault
from veilring.testing.auditing.findings import AuditedSystem

PARTIES: Final = (3, 8)
CHOICES: Final[Mapping[str, Mapping[str, tuple[object, ...]]]] = {
    "private-knn": {
        "k": (1, 3, 5),
        "weights": ("uniform", "distance"),
        "sum": ("ring", "cycles", "shares", "masks"),
        "P0": (1.0, 0.5),
    },
    "rank-search": {
        "k": (1, 3, 5),
        "arity": (2, 4, 16),
        "reveal": ("totals", "votes", "label"),
        "sum": ("all-to-all", "star"),
        "weights": ("uniform", "distance"),
    },
    "release": {
        "epsilon": (1.0, 5.0),
        "lost": (0, 1),
        "statistic": ("auto", "means", "lda", "counts"),
        "distribution": ("gaussian", "skellam"),
        "sum": ("all-to-all", "star"),
    },
    "noisy-votes": {
        "epsilon": (1.0, 4.0),
        "sum": ("ring", "cycles", "shares", "masks"),
        "tolerated": (0, 1),
    },
    "prio": {
        "epsilon": (1.0, 4.0),
        "delta": (0.0, 1e-5),
        "statistic": ("auto", "means", "counts", "trees"),
    },
    "ldp-bayes": {
        "kind": ("discrete-bayes", "gaussian-bayes"),
        "epsilon": (1.0, 4.0),
        "oracle": ("auto", "de", "oue", "olh", "hr", "ss"),
    },
    "data-owner": {"k": (0, 3), "epsilon": (1.0, 4.0)},
    "ind-knn": {"clients": ("together", "apart"), "kernel": ("cosine", "rbf")},
    "tree-walk": {"by": ("response", "walk"), "splits": (1, 2), "neighbours": (0, 2)},
}


class Triple(NamedTuple):
    """A system with parameters, a topology and faults."""

    seed: int
    system: str
    parameters: Mapping[str, Any]
    audited: AuditedSystem
    links: Topology
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        said = f"{self.system} {self.parameters}, {len(self.audited.example.parts)} parties"
        return f"seed {self.seed}: {said}, {self.faults}"


def draw_triple(seed: int) -> Triple:
    """Draw a triple whose parameters are allowed together."""
    rng = np.random.default_rng([seed])
    while True:
        name = str(rng.choice(list(CHOICES)))
        choices = CHOICES[name]
        parameters = {key: some[int(rng.integers(len(some)))] for key, some in choices.items()}
        try:
            audited = _audited(name, parameters, int(rng.integers(*PARTIES)))
            parties = audited.setup().parties
        except InputError:
            continue
        waits = bool(parameters.get("lost"))
        faults = () if waits else _draw_faults(parties, rng)
        return Triple(seed, name, parameters, audited, draw_links(parties, rng), faults)


def _audited(name: str, parameters: Mapping[str, Any], parties: int) -> AuditedSystem:
    system = find_system(name)(**parameters)
    return AuditedSystem(system, system.example(parties=parties))


def _draw_faults(parties: Sequence[str], rng: Generator) -> tuple[Fault, ...]:
    return draw_delays(parties, rng) if rng.random() < 0.5 else ()


async def _played(triple: Triple, runtime: Runtime) -> dict[str, object]:
    setup = triple.audited.setup()
    play = setup.play(triple.audited.example.queries)
    own = list(setup.resident)
    async with Cluster(setup.parties, runtime=runtime, own=own, seed=triple.seed) as cluster:
        return _ended(await cluster.run(setup.role, only=play.only, **play.public))


def _ended(run: Run[Any]) -> dict[str, object]:
    """Return the part of a run that must be equal on all runtimes."""
    cost = run.cost
    depth = () if cost.is_concurrent else (cost.depth, cost.setup_depth)
    return {
        "results": _plain(run.results),
        "channels": run.channels,
        "cost": cost,
        "rounds": (cost.is_concurrent, cost.rounds, depth),
        "lost": run.lost,
    }


def _plain(value: Any) -> object:
    """Return a value whose parts can be compared, with exact numbers."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if is_dataclass(value) and not isinstance(value, type):
        return [_plain(getattr(value, each.name)) for each in fields(value)]
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def agree(seed: int) -> None:
    """Check that memory and TLS agree with the simulation on a triple."""
    triple = draw_triple(seed)
    expected = simulation.simulate(_played(triple, Simulated(triple.links, triple.faults)))
    for runtime in (Memory(), Tls()):
        found = asyncio.run(_played(triple, runtime))
        for key, value in found.items():
            assert value == expected[key], f"{triple}: {key} on {type(runtime).__name__}"


if __name__ == "__main__":
    for each in range(int(sys.argv[1])):
        agree(each)
    print(f"{sys.argv[1]} systems: all runtimes agree")

"""The simulation: links, a run over them, a crash, and a deadlock."""

import math

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from veilring import (
    Cluster,
    Deadlock,
    Fault,
    LinkModel,
    Message,
    Party,
    Run,
    RunFailed,
    Simulated,
    Topology,
    simulation,
)
from veilring.nodes.cluster import Retried, run_with_retries
from veilring.nodes.ring import Ring
from veilring.protocols.ring.algorithm.sums import FixedPoint, SumMethod
from veilring.protocols.ring.roles import secure_sum
from veilring.simulation import LogNormal

Numbers = NDArray[np.float64]
NAMES = ("oslo", "lima", "pune", "rome")
OWN = [np.array([[number]]) for number in (1.0, 2.0, 3.0, 4.0)]


class Token(Message, kind="example.token"):
    """A message that all parties wait for and none sends."""


def links() -> Topology:
    """Return links with a long tail, except between Oslo and Rome, which are near each other."""
    graph = nx.complete_graph(NAMES)
    graph.edges["oslo", "rome"]["latency_seconds"] = 0.02
    far = LogNormal(median_seconds=0.15, sigma=0.3)
    return Topology(LinkModel(latency=far, bandwidth_bytes_per_second=1e6), graph)


async def add_up(party: Party, own: Numbers) -> Numbers:
    """Add up the numbers of all parties, round a ring in the order of the roster."""
    ring, method = Ring(party.parties), SumMethod("ring")
    fixed = FixedPoint(scale_bits=24, parties=len(ring))
    return await secure_sum(party, own, ring=ring, fixed=fixed, method=method)


async def run_once(seed: int) -> Run[Numbers]:
    """Run it over those links."""
    async with Cluster(NAMES, runtime=Simulated(links()), own=OWN, seed=seed) as cluster:
        return await cluster.run(add_up)


async def crash() -> Retried[Numbers]:
    """Run it, lose a party, and run it again without that party."""
    faults = [Fault("crash", start=0.2, end=math.inf, parties=("pune",))]
    async with Cluster(NAMES, runtime=Simulated(links(), faults), own=OWN, seed=7) as cluster:
        return await run_with_retries(cluster, add_up)


async def mistaken(party: Party) -> None:
    """Wait for a message before sending one, as all other parties do."""
    before = party.parties[party.parties.position(party.me) - 1]
    await party.receive(Token, sender=before)


async def wait_for_ever() -> None:
    """Run a role that cannot end."""
    async with Cluster(NAMES, runtime="simulated", seed=7) as cluster:
        await cluster.run(mistaken)


def main() -> None:
    """Print the result of each run."""
    for seed in (7, 7, 8):
        run = simulation.simulate(run_once(seed))
        print(f"seed {seed}: {run.result} after {run.seconds:.6f} s, {run.transcript[:16]}")
    retried = simulation.simulate(crash())
    wasted = sum(cost.messages for cost in retried.wasted)
    print(f"without {retried.without}: {retried.run.result}; {wasted} messages wasted")
    try:
        simulation.simulate(wait_for_ever())
    except RunFailed as error:
        if isinstance(error.root, Deadlock):
            print("Deadlock:", *error.root.waits, sep="\n  ")


if __name__ == "__main__":
    main()

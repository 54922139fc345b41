"""The simulated clock: links of one's own, a run over them, a crash, and a deadlock."""

import asyncio

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from veilring import simulation
from veilring.errors import Deadlock, VeilringError
from veilring.nodes.cluster import Cluster, Run
from veilring.nodes.node import Node
from veilring.nodes.party import Parties, Party
from veilring.nodes.ring import Ring
from veilring.nodes.runtimes import Simulated
from veilring.protocols.ring import FixedPoint, SumMethod, secure_sum
from veilring.randomness import Streams
from veilring.simulation import LinkModel, LogNormal, SimulatedNetwork, Topology
from veilring.transport import Message

__all__ = ("Token", "add_up", "crash", "mistaken", "run_once", "wait_for_ever")

Numbers = NDArray[np.float64]
NAMES = ("oslo", "lima", "pune", "rome")


class Token(Message, kind="example.token"):
    """What everybody waits for and nobody sends."""


def links() -> Topology:
    """Oslo and Rome are near each other; all other links have a long tail."""
    graph = nx.complete_graph(NAMES)
    graph.edges["oslo", "rome"]["latency_seconds"] = 0.02
    far = LogNormal(median_seconds=0.15, sigma=0.3)
    return Topology(LinkModel(latency=far, bandwidth_bytes_per_second=1e6), graph)


async def add_up(party: Party, own: Numbers) -> Numbers:
    """Add up the numbers of all four parties round the ring."""
    fixed, method = FixedPoint(scale_bits=24, parties=4), SumMethod("ring")
    return await secure_sum(party, own, ring=Ring(NAMES), fixed=fixed, method=method)


async def run_once(seed: int) -> Run[Numbers]:
    """Run it over those links."""
    own = [np.array([[number]]) for number in (1.0, 2.0, 3.0, 4.0)]
    async with Cluster(NAMES, runtime=Simulated(links()), own=own, seed=seed) as cluster:
        return await cluster.run(add_up)


async def crash(gone: str, seconds: float) -> None:
    """Run it, but one party's process dies on the way."""
    loop, streams = asyncio.get_running_loop(), Streams(7)
    network = SimulatedNetwork(NAMES, streams, topology=links())
    loop.call_later(seconds, network.crash, gone)

    async def play(name: str) -> None:
        async with Node(network.endpoint(name), streams) as node:
            try:
                await node.run(add_up, bytes(16), Parties(NAMES), np.ones((1, 1)))
            except VeilringError as error:
                print(f"{name}, at {loop.time():.3f} s: {error}")

    tasks = {name: loop.create_task(play(name)) for name in NAMES}
    await asyncio.wait([task for name, task in tasks.items() if name != gone])


async def mistaken(party: Party) -> None:
    """Wait for a word before saying one, as everybody else does."""
    before = party.parties[party.parties.position(party.me) - 1]
    await party.receive(Token, sender=before)


async def wait_for_ever() -> None:
    """Run a role that cannot end."""
    async with Cluster(NAMES, runtime="simulated", seed=7) as cluster:
        await cluster.run(mistaken)


def main() -> None:
    """Print what came of each."""
    for seed in (7, 7, 8):
        run = simulation.run(run_once(seed))
        print(f"seed {seed}: {run.result} after {run.seconds:.6f} s, {run.transcript[:16]}")
    simulation.run(crash("pune", 0.2))
    try:
        simulation.run(wait_for_ever())
    except Deadlock as error:
        print("Deadlock:", *error.waits, sep="\n  ")


if __name__ == "__main__":
    main()

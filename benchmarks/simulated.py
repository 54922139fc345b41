"""Hops on the simulated clock, beside a ring of plain SimPy `Store` processes.

One token goes round a ring of 1,000 actors. `queues`: actors are asyncio tasks on the simulated
loop, linked by asyncio queues. `stack`: they are parties of a cluster, and each hop takes the whole
way: message, frame, session, observers, simulated link, frame, message.
"""

import asyncio
import time
from collections.abc import Generator

from simpy import Environment, Event, Store

from benchmarks.measurement import Bound, Measurement, pairs, ratios
from veilring import simulation
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party
from veilring.transport.messages import Message

ACTORS = 1_000


class Token(Message, kind="benchmark.token"):
    """What goes round."""

    hops: int


async def relay(party: Party, *, laps: int) -> None:
    """Pass the token on; the first party starts it, and it ends there."""
    here = party.parties.position(party.me)
    successor = party.parties[(here + 1) % len(party.parties)]
    predecessor = party.parties[here - 1]
    party.round(1)
    if here == 0:
        await party.send(successor, Token(hops=1))
    for lap in range(1, laps + 1):
        token = await party.receive(Token, sender=predecessor)
        if here > 0 or lap < laps:
            await party.send(successor, Token(hops=token.hops + 1))


def _stack(actors: int, laps: int) -> float:
    async def main() -> float:
        async with Cluster(actors, runtime="simulated", seed=0) as cluster:
            start = time.perf_counter()
            await cluster.run(relay, laps=laps)
            return time.perf_counter() - start

    return simulation.run(main())


def _queues(actors: int, laps: int) -> float:
    async def actor(queue: asyncio.Queue[int], successor: asyncio.Queue[int]) -> None:
        for _ in range(laps):
            await successor.put(await queue.get() + 1)

    async def main() -> float:
        queues: list[asyncio.Queue[int]] = [asyncio.Queue() for _ in range(actors)]
        queues[0].put_nowait(0)
        start = time.perf_counter()
        await asyncio.gather(*(actor(queues[n - 1], queues[n]) for n in range(actors)))
        return time.perf_counter() - start

    return simulation.run(main())


def _stores(actors: int, laps: int) -> float:
    environment = Environment()
    stores = [Store(environment) for _ in range(actors)]

    def actor(store: Store, successor: Store) -> Generator[Event, int, None]:
        for _ in range(laps):
            token = yield store.get()
            yield successor.put(token + 1)

    for n in range(actors):
        environment.process(actor(stores[n - 1], stores[n]))
    stores[0].put(0)
    start = time.perf_counter()
    environment.run()
    return time.perf_counter() - start


def measure(*, quick: bool) -> list[Measurement]:
    """Compare both with the reference."""
    laps, repetitions = (10, 3) if quick else (100, 7)
    hops = ACTORS * laps
    reference = lambda: _stores(ACTORS, laps)  # noqa: E731  (named for the two lines below)
    queues = pairs(lambda: _queues(ACTORS, laps), reference, repetitions)
    stack = pairs(lambda: _stack(ACTORS, laps), reference, repetitions)
    return [
        ratios("simulated hops/s, queues", queues, Bound("at least", 0.8), per=hops, faster=True),
        ratios("simulated hops/s, stack", stack, Bound("at least", 0.25), per=hops, faster=True),
    ]

"""Seconds a query: one batch of queries, beside the same queries in one session each.

PP-kNN among five parties in memory. The single queries run a few at a time, as a client would send
them.
"""

import asyncio
import time

import numpy as np
from numpy.typing import NDArray

from benchmarks.measurement import Measurement, pairs, ratios
from veilring.nodes.cluster import Cluster
from veilring.nodes.ring import deal_ring
from veilring.protocols.ring import private_knn
from veilring.scenarios.scale.tables import dealt_wine

PARTIES = 5
AT_ONCE = 8


def measure(*, quick: bool) -> list[Measurement]:
    """Compare 1,000 queries in a batch with 1,000 sessions; 200 if it has to be quick."""
    queries, repetitions = (200, 3) if quick else (1_000, 5)
    rng = np.random.default_rng(0)
    rows, parameters = dealt_wine(PARTIES, rng)
    asked = rng.random((queries, parameters.features))
    with asyncio.Runner() as runner:
        cluster = Cluster(PARTIES, own=rows, seed=0)
        runner.run(cluster.__aenter__())
        ring = deal_ring(cluster.parties, rng)

        async def ask(batch: NDArray[np.float64]) -> None:
            asker = cluster.parties[0]
            only = {asker: {"queries": batch}}
            await cluster.run(private_knn, only=only, asker=asker, parameters=parameters, ring=ring)

        async def batch() -> float:
            start = time.perf_counter()
            await ask(asked)
            return time.perf_counter() - start

        async def singles() -> float:
            places = asyncio.Semaphore(AT_ONCE)

            async def one(query: NDArray[np.float64]) -> None:
                async with places:
                    await ask(query)

            start = time.perf_counter()
            await asyncio.gather(*(one(asked[n : n + 1]) for n in range(queries)))
            return time.perf_counter() - start

        timed = pairs(lambda: runner.run(batch()), lambda: runner.run(singles()), repetitions)
        runner.run(cluster.__aexit__(None, None, None))
    name = f"PP-kNN, a batch of {queries:,} beside single queries, times faster"
    return [ratios(name, timed, faster=True, per=queries)]

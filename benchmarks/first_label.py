"""A fresh process: eight parties as processes, from nothing to a first label, twice.

Prints a line of JSON for each start, the moment the label is there: seconds since the start (of the
process itself for the first line, which no clock in here can see: null), and the CPU seconds of all
processes of the start.
"""

import asyncio
import json
import time

import numpy as np
import psutil

from veilring.nodes.cluster import Cluster
from veilring.protocols.ring import private_knn
from veilring.scenarios.scale.tables import dealt_wine

PARTIES = 8


def _cpu_seconds() -> float:
    """Return the CPU time of this process and all below it, those that have ended included."""
    me = psutil.Process()
    return sum(sum(process.cpu_times()[:4]) for process in (me, *me.children(recursive=True)))


async def _start() -> None:
    rows, parameters = dealt_wine(PARTIES, np.random.default_rng(0))
    query = np.full((1, parameters.features), 0.5)
    async with Cluster(PARTIES, runtime="processes", own=rows) as cluster:
        asker = cluster.parties[0]
        only = {asker: {"queries": query}}
        await cluster.run(private_knn, only=only, asker=asker, parameters=parameters)
        print(json.dumps(_taken()), flush=True)


def _taken() -> dict[str, float | None]:
    seconds = None if _began is None else time.perf_counter() - _began
    return {"seconds": seconds, "cpu_seconds": _cpu_seconds() - _spent}


if __name__ == "__main__":
    _began: float | None = None
    _spent = 0.0
    asyncio.run(_start())
    _began, _spent = time.perf_counter(), _cpu_seconds()
    asyncio.run(_start())
